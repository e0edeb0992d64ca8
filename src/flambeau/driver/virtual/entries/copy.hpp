// SPDX-License-Identifier: Apache-2.0
// Entries: copies and fills.
#pragma once
#include <new>

#include "flambeau/driver/virtual/graph/rules.hpp"
#include "flambeau/driver/virtual/memory/transfer.hpp"

namespace flambeau::vgpu::entries {

constexpr std::size_t STAGING_LIMIT = 256u << 20;   // for all copies that wait

// The answer to a copy or fill of memory that is not there.
inline CUresult bad_range(Call &call, const char *what, std::uint64_t address, std::uint64_t bytes) {
  return call.fail(CUDA_ERROR_INVALID_VALUE, describe_bad_range(call.machine(), what, address, bytes));
}

// Either side may be page-locked host memory: addresses are unified.
inline CUresult copy_known(Call &call, CUdeviceptr to, CUdeviceptr from, std::size_t bytes,
                           Stream &stream) {
  Machine &machine = call.machine();
  const Place target = place_of(machine, to), source = place_of(machine, from);
  if (!holds(target, to, bytes)) return bad_range(call, "A copy to", to, bytes);
  if (!holds(source, from, bytes)) return bad_range(call, "A copy from", from, bytes);
  Direction direction = Direction::WithinDevice;
  if (!source.device) {
    direction = Direction::HostToDevice;
  } else if (!target.device) {
    direction = Direction::DeviceToHost;
  } else if (source.device != target.device) {
    direction = Direction::BetweenDevices;
  }
  machine.submit(stream, std::make_unique<CopyTask>(Transfer{to, from, bytes, direction}, nullptr));
  return CUDA_SUCCESS;
}

// Copy pageable memory aside. The machine is unlocked meanwhile, so the stream is looked up again.
inline CUresult stage(Call &call, const void *from, std::size_t bytes, CUstream s, Stream **stream,
                      std::unique_ptr<char[]> &staged) {
  staged.reset(new (std::nothrow) char[bytes]);
  if (!staged) return CUDA_ERROR_OUT_OF_MEMORY;
  call.lock().unlock();
  std::memcpy(staged.get(), from, bytes);
  call.lock().lock();
  *stream = work_stream(call, s);
  return call.status();
}

// Pageable memory is read now, into a staging buffer; page-locked memory when the copy runs. What
// there is no room to stage is copied before the call returns, as CUDA may do.
inline CUresult MemcpyHtoDAsync(CUdeviceptr to, const void *from, std::size_t bytes, CUstream s) {
  Call call(SUBMISSION_COST);
  Stream *stream = work_stream(call, s);
  if (!stream) return call.status();
  if (bytes == 0) return CUDA_SUCCESS;
  if (!from) return CUDA_ERROR_INVALID_VALUE;
  Machine &machine = call.machine();
  const std::uint64_t source = reinterpret_cast<std::uint64_t>(from);
  const Place target = place_of(machine, to);
  if (!target.device || !holds(target, to, bytes)) return bad_range(call, "A copy to", to, bytes);
  if (place_of(machine, source).device) return copy_known(call, to, source, bytes, *stream);
  const bool pinned = machine.host.holds(source, bytes);
  if (!pinned && refuse_pageable(call, *stream, "cuMemcpyHtoDAsync")) return call.status();
  const bool staging = !pinned && machine.staged_bytes + bytes <= STAGING_LIMIT;
  std::unique_ptr<char[]> staged;
  if (staging) {
    const CUresult status = stage(call, from, bytes, s, &stream, staged);
    if (status != CUDA_SUCCESS) return status;
  }
  Context &context = *stream->context;
  const Transfer transfer{to, source, bytes, Direction::HostToDevice, !pinned, true, pinned};
  const NodePtr node = machine.submit(*stream, std::make_unique<CopyTask>(transfer, std::move(staged)));
  return pinned || staging ? CUDA_SUCCESS : call.wait(context, {node});
}

// A copy to pageable memory is done when the call returns.
inline CUresult MemcpyDtoHAsync(void *to, CUdeviceptr from, std::size_t bytes, CUstream s) {
  Call call(SUBMISSION_COST);
  Stream *stream = work_stream(call, s);
  if (!stream) return call.status();
  if (bytes == 0) return CUDA_SUCCESS;
  if (!to) return CUDA_ERROR_INVALID_VALUE;
  Machine &machine = call.machine();
  const std::uint64_t target = reinterpret_cast<std::uint64_t>(to);
  const Place source = place_of(machine, from);
  if (!source.device || !holds(source, from, bytes)) return bad_range(call, "A copy from", from, bytes);
  if (place_of(machine, target).device) return copy_known(call, target, from, bytes, *stream);
  const bool pinned = machine.host.holds(target, bytes);
  if (!pinned && refuse_pageable(call, *stream, "cuMemcpyDtoHAsync")) return call.status();
  const Transfer transfer{target, from, bytes, Direction::DeviceToHost, !pinned, pinned, true};
  Context &context = *stream->context;
  const NodePtr node = machine.submit(*stream, std::make_unique<CopyTask>(transfer, nullptr));
  return pinned ? CUDA_SUCCESS : call.wait(context, {node});
}

inline CUresult MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream s) {
  Call call(SUBMISSION_COST);
  Stream *stream = work_stream(call, s);
  if (!stream) return call.status();
  return bytes == 0 ? CUDA_SUCCESS : copy_known(call, to, from, bytes, *stream);
}

inline CUresult MemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from,
                                CUcontext from_context, std::size_t bytes, CUstream s) {
  Call call(SUBMISSION_COST);
  Stream *stream = work_stream(call, s);
  Context *target = call.context(to_context);
  Context *source = call.context(from_context);
  if (call.failed()) return call.status();
  if (bytes == 0) return CUDA_SUCCESS;
  if (place_of(call.machine(), to).device != target->device ||
      place_of(call.machine(), from).device != source->device) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return copy_known(call, to, from, bytes, *stream);
}

template <class Value>
CUresult fill(CUdeviceptr to, Value value, std::size_t count, CUstream s,
              const char *entry = __builtin_FUNCTION()) {
  Call call(SUBMISSION_COST, entry);
  Stream *stream = work_stream(call, s);
  if (!stream) return call.status();
  if (count == 0) return CUDA_SUCCESS;
  if (to % sizeof(Value) != 0 || count > ~std::size_t{0} / sizeof(Value)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::size_t bytes = count * sizeof(Value);
  if (!holds(place_of(call.machine(), to), to, bytes)) return bad_range(call, "A fill", to, bytes);
  call.machine().submit(*stream, std::make_unique<FillTask<Value>>(to, value, count));
  return CUDA_SUCCESS;
}

inline CUresult MemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t count, CUstream s) {
  return fill(to, value, count, s);
}
inline CUresult MemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t count, CUstream s) {
  return fill(to, value, count, s);
}
inline CUresult MemsetD32Async(CUdeviceptr to, unsigned value, std::size_t count, CUstream s) {
  return fill(to, value, count, s);
}

}  // namespace flambeau::vgpu::entries
