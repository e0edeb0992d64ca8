// SPDX-License-Identifier: Apache-2.0
// Entries: device memory, page-locked host memory, what a pointer is.
#pragma once
#include "flambeau/driver/virtual/graph/rules.hpp"
#include "flambeau/driver/virtual/memory/place.hpp"

namespace flambeau::vgpu::entries {

inline CUresult MemAlloc(CUdeviceptr *pointer, std::size_t bytes) {
  Call call;
  Context *context = call.context();
  if (!context || refuse_unsafe(call, "cuMemAlloc")) return call.status();
  if (!pointer || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Arena &arena = context->device->arena;
  const Allocation *made = arena.allocate(bytes);
  if (!made) {
    return call.fail(CUDA_ERROR_OUT_OF_MEMORY,
                     std::to_string(bytes) + " bytes were asked for; of the " +
                         std::to_string(arena.capacity()) + " bytes of device " +
                         std::to_string(context->device->ordinal) + " " +
                         std::to_string(arena.capacity() - arena.used()) + " are free.");
  }
  ++call.machine().memory_epoch;
  *pointer = made->begin;
  if (checking()) checker().ledger.add_allocation(made->begin, bytes, false, stack_of_call);
  return CUDA_SUCCESS;
}

// The host reaches every byte of device memory anyway. Flags: 1 for all devices, 2 for the host.
inline CUresult MemAllocManaged(CUdeviceptr *pointer, std::size_t bytes, unsigned flags) {
  if (flags != 1 && flags != 2) return CUDA_ERROR_INVALID_VALUE;
  const CUresult status = MemAlloc(pointer, bytes);
  if (status != CUDA_SUCCESS) return status;
  Call call(0);
  const Place place = place_of(call.machine(), *pointer);
  if (place.allocation) place.device->arena.edit(*pointer)->managed = true;
  return CUDA_SUCCESS;
}

// A caching allocator says how it cuts its memory: 0 a block is given back, 1 handed out, 2 held
// already, with contents that count as written. `bytes` of its `size` were asked for.
inline CUresult MemNoteBlock(CUdeviceptr block, std::size_t bytes, std::size_t size, int state) {
  if (!checking()) return CUDA_SUCCESS;
  Call call(0);
  if (call.failed()) return call.status();
  Ledger &ledger = checker().ledger;
  if (state == 0) {
    ledger.release(block, bytes, size, stack_of_call);
  } else {
    const std::uint64_t oldest = call.machine().oldest_epoch(ledger.epoch());
    ledger.hold(block, bytes, size, state == 2, state == 2 ? -1 : stack_of_call, oldest);
  }
  return CUDA_SUCCESS;
}

// Waits for all work of the memory's device, as CUDA's does.
inline CUresult MemFree(CUdeviceptr pointer) {
  Call call;
  if (call.failed()) return call.status();
  if (!call.current()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pointer == 0) return CUDA_SUCCESS;
  if (refuse_unsafe(call, "cuMemFree")) return call.status();
  const Place place = place_of(call.machine(), pointer);
  const bool can_free = place.allocation && (place.allocation->plain() || place.allocation->pooled);
  if (!can_free || place.allocation->begin != pointer) return CUDA_ERROR_INVALID_VALUE;
  Context &context = place.device->context;
  if (context.error) return context.error;
  const CUresult waited = call.wait(context, context.frontier());
  if (waited != CUDA_SUCCESS) return waited;
  // The wait let others go on: they may have freed it.
  const Allocation *still = place.device->arena.edit(pointer);
  if (!still) return CUDA_ERROR_INVALID_VALUE;
  if (still->pooled) place.device->pool.free(place.device->arena, *still, context.legacy, context.legacy.last);
  else if (!place.device->arena.free(pointer)) return CUDA_ERROR_INVALID_VALUE;
  if (checking()) checker().ledger.drop_allocation(pointer);
  ++call.machine().memory_epoch;
  return CUDA_SUCCESS;
}

inline CUresult MemGetInfo(std::size_t *free, std::size_t *total) {
  Call call;
  const Context *context = call.context();
  if (!context) return call.status();
  const Device &device = *context->device;
  if (free) *free = device.arena.capacity() - device.arena.used();
  if (total) *total = device.model.memory_bytes;
  return CUDA_SUCCESS;
}

// All flags are accepted: every page-locked range is portable and mapped here.
inline CUresult MemHostAlloc(void **pointer, std::size_t bytes, unsigned flags) {
  Call call;
  if (!call.context() || refuse_unsafe(call, "cuMemHostAlloc")) return call.status();
  if (!pointer || bytes == 0 || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  const std::uint64_t begin = call.machine().host.allocate(bytes);
  if (!begin) return CUDA_ERROR_OUT_OF_MEMORY;
  ++call.machine().memory_epoch;
  *pointer = reinterpret_cast<void *>(begin);
  return CUDA_SUCCESS;
}

// Work of every device may still read or write the range.
inline CUresult wait_for_all(Call &call) {
  std::vector<NodePtr> nodes;
  for (Device &device : call.machine().devices) {
    if (!device.context.active()) continue;
    for (NodePtr &node : device.context.frontier()) nodes.push_back(std::move(node));
  }
  return call.machine().wait(call.lock(), nodes);
}

inline CUresult MemFreeHost(void *pointer) {
  Call call;
  if (!call.context() || refuse_unsafe(call, "cuMemFreeHost")) return call.status();
  const std::uint64_t begin = reinterpret_cast<std::uint64_t>(pointer);
  const HostRange *range = call.machine().host.find(begin);
  if (!range || range->begin != begin || !range->allocated) return CUDA_ERROR_INVALID_VALUE;
  const CUresult waited = wait_for_all(call);
  if (waited != CUDA_SUCCESS) return waited;
  ++call.machine().memory_epoch;
  return call.machine().host.free(begin) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

inline CUresult MemHostRegister(void *pointer, std::size_t bytes, unsigned flags) {
  Call call;
  if (!call.context() || refuse_unsafe(call, "cuMemHostRegister")) return call.status();
  if (!pointer || bytes == 0 || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  if (!call.machine().host.add(reinterpret_cast<std::uint64_t>(pointer), bytes)) {
    return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  }
  ++call.machine().memory_epoch;
  return CUDA_SUCCESS;
}

inline CUresult MemHostUnregister(void *pointer) {
  Call call;
  if (!call.context() || refuse_unsafe(call, "cuMemHostUnregister")) return call.status();
  const std::uint64_t begin = reinterpret_cast<std::uint64_t>(pointer);
  const HostRange *range = call.machine().host.find(begin);
  if (!range || range->begin != begin || range->allocated) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  const CUresult waited = wait_for_all(call);
  if (waited != CUDA_SUCCESS) return waited;
  ++call.machine().memory_epoch;
  return call.machine().host.remove(begin) ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

template <class T> CUresult answer(void *data, T value) {
  std::memcpy(data, &value, sizeof value);
  return CUDA_SUCCESS;
}

inline CUresult PointerGetAttribute(void *data, int attribute, CUdeviceptr pointer) {
  Call call;
  if (call.failed()) return call.status();
  if (!data) return CUDA_ERROR_INVALID_VALUE;
  const Place place = place_of(call.machine(), pointer);
  if (attribute == 13) return answer<unsigned char>(data, place.known());   // mapped
  if (!place.known()) return CUDA_ERROR_INVALID_VALUE;
  Context *context = place.device ? &place.device->context : call.current();
  switch (attribute) {
    case 1: return answer(data, reinterpret_cast<CUcontext>(context));
    case 2: return answer<unsigned>(data, place.device ? 2 : 1);   // memory type: device, host
    case 3: return answer(data, pointer);
    case 4:
      if (place.device) return CUDA_ERROR_INVALID_VALUE;
      return answer(data, pointer);
    case 6: return answer<unsigned char>(data, 0);    // synchronous memory operations
    case 7: return answer(data, place.begin());       // buffer id
    case 8: return answer<unsigned>(data, place.allocation && place.allocation->managed);
    case 9: return answer<int>(data, context ? context->device->ordinal : 0);
    case 10: return answer<unsigned char>(data, place.device && place.allocation->plain());
    case 11: return answer(data, place.begin());
    case 12: return answer<std::size_t>(data, place.bytes());
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace flambeau::vgpu::entries
