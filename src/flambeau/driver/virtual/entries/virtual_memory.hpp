// SPDX-License-Identifier: Apache-2.0
// Entries: virtual memory management.
#pragma once
#include "call.hpp"
#include "flambeau/driver/virtual/ipc/handle.hpp"
#include "flambeau/driver/virtual/memory/place.hpp"

namespace flambeau::vgpu::entries {

constexpr int MEM_PINNED = 1, MEM_ON_DEVICE = 1, MEM_POSIX_FILE = 1;

inline CUresult MemGetAllocationGranularity(std::size_t *bytes, const CUmemAllocationProp *prop, int option) {
  Call call;
  if (call.failed()) return call.status();
  if (!bytes || !prop || option < 0 || option > 1) return CUDA_ERROR_INVALID_VALUE;
  *bytes = GRANULE;
  return CUDA_SUCCESS;
}

// The range belongs to the device that is current, though any device's memory may be mapped there.
inline CUresult MemAddressReserve(CUdeviceptr *pointer, std::size_t bytes, std::size_t alignment,
                                  CUdeviceptr wanted, unsigned long long flags) {
  Call call;
  Context *context = call.context();
  if (!context) return call.status();
  const bool aligned = alignment == 0 || (alignment <= GRANULE && (alignment & (alignment - 1)) == 0);
  if (!pointer || !bytes || bytes % GRANULE || !aligned || flags) return CUDA_ERROR_INVALID_VALUE;
  (void)wanted;   // a wish, which may be ignored
  const std::uint64_t begin = context->device->mappings.reserve(context->device->arena, bytes);
  if (!begin) return CUDA_ERROR_OUT_OF_MEMORY;
  if (checking()) checker().ledger.add_allocation(begin, bytes, false, stack_of_call);
  *pointer = begin;
  return CUDA_SUCCESS;
}

inline CUresult MemAddressFree(CUdeviceptr pointer, std::size_t bytes) {
  Call call;
  if (call.failed()) return call.status();
  const Place place = place_of(call.machine(), pointer);
  if (!place.device || !place.device->mappings.unreserve(place.device->arena, pointer, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (checking()) checker().ledger.drop_allocation(pointer);
  return CUDA_SUCCESS;
}

inline CUresult MemCreate(CUmemHandle *handle, std::size_t bytes, const CUmemAllocationProp *prop,
                          unsigned long long flags) {
  Call call;
  if (!call.context()) return call.status();
  if (!handle || !prop || !bytes || bytes % GRANULE || flags || prop->type != MEM_PINNED ||
      prop->location.type != MEM_ON_DEVICE || (prop->requestedHandleTypes & ~MEM_POSIX_FILE)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Device *device = call.device(prop->location.id);
  if (!device) return call.status();
  Physical *made = device->mappings.create(device->arena, bytes);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = reinterpret_cast<CUmemHandle>(made);
  return CUDA_SUCCESS;
}

inline void tell_checks_of_shared(const Device &device, const Physical *physical) {
  if (!checking()) return;
  device.mappings.each_shared(physical, [](std::uint64_t begin, std::uint64_t bytes) {
    checker().ledger.share(begin, bytes);
  });
}

// The device and the physical memory that a handle means; null if there is none.
inline std::pair<Device *, Physical *> physical_of(Machine &machine, CUmemHandle handle) {
  for (Device &device : machine.devices) {
    if (Physical *found = device.mappings.find(handle)) return {&device, found};
  }
  return {nullptr, nullptr};
}

// What is mapped stays until it is unmapped.
inline CUresult MemRelease(CUmemHandle handle) {
  Call call;
  if (call.failed()) return call.status();
  const auto [device, physical] = physical_of(call.machine(), handle);
  if (!physical) return CUDA_ERROR_INVALID_VALUE;
  device->mappings.release(device->arena, physical);
  return CUDA_SUCCESS;
}

inline CUresult MemMap(CUdeviceptr pointer, std::size_t bytes, std::size_t offset, CUmemHandle handle,
                       unsigned long long flags) {
  Call call;
  if (call.failed()) return call.status();
  const auto [device, physical] = physical_of(call.machine(), handle);
  const bool whole = physical && offset == 0 && bytes == physical->bytes && !flags;
  if (!whole || pointer % GRANULE) return CUDA_ERROR_INVALID_VALUE;
  if (!device->mappings.map(device->arena, pointer, physical)) return CUDA_ERROR_INVALID_VALUE;
  tell_checks_of_shared(*device, physical);
  ++call.machine().memory_epoch;
  return CUDA_SUCCESS;
}

// Waits for nothing: work that still uses the range faults.
inline CUresult MemUnmap(CUdeviceptr pointer, std::size_t bytes) {
  Call call;
  if (call.failed()) return call.status();
  const Place place = place_of(call.machine(), pointer);
  if (!place.device || !place.device->mappings.covers(pointer, bytes)) return CUDA_ERROR_INVALID_VALUE;
  place.device->mappings.unmap(place.device->arena, pointer, bytes);
  if (checking()) checker().ledger.unshare(pointer, bytes);
  ++call.machine().memory_epoch;
  return CUDA_SUCCESS;
}

inline CUresult MemSetAccess(CUdeviceptr pointer, std::size_t bytes, const CUmemAccessDesc *who,
                             std::size_t count) {
  Call call;
  if (call.failed()) return call.status();
  const Place place = place_of(call.machine(), pointer);
  if (!who || !count || !place.device || !place.device->mappings.covers(pointer, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned devices = 0;
  bool write = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (who[i].location.type != MEM_ON_DEVICE || !call.device(who[i].location.id)) return CUDA_ERROR_INVALID_VALUE;
    if (who[i].flags == 0) continue;
    devices |= 1u << who[i].location.id;
    write = write || who[i].flags == 3;
  }
  place.device->mappings.set_access(place.device->arena, pointer, bytes, devices, write);
  ++call.machine().memory_epoch;
  return CUDA_SUCCESS;
}

// The descriptor is of a small file that says where the memory is.
inline CUresult MemExportToShareableHandle(void *shared, CUmemHandle handle, int type, unsigned long long flags) {
  Call call;
  if (call.failed()) return call.status();
  const auto [device, physical] = physical_of(call.machine(), handle);
  if (!shared || !physical || physical->file >= 0 || type != MEM_POSIX_FILE || flags) return CUDA_ERROR_INVALID_VALUE;
  HandleContent content;
  content.kind = PHYSICAL_HANDLE;
  content.process = static_cast<std::int32_t>(getpid());
  content.file = device->arena.file();
  content.inode = inode_of(content.file);
  content.place = physical->offset;
  content.bytes = physical->bytes;
  const int file = memfd_create("flambeau-memory-handle", MFD_CLOEXEC);
  if (file < 0) return CUDA_ERROR_OUT_OF_MEMORY;
  if (write(file, &content, sizeof content) != static_cast<ssize_t>(sizeof content)) {
    close(file);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  physical->exported = true;
  tell_checks_of_shared(*device, physical);
  std::memcpy(shared, &file, sizeof file);
  return CUDA_SUCCESS;
}

// As CUDA's, the descriptor stays the caller's. The memory counts where it was made.
inline CUresult MemImportFromShareableHandle(CUmemHandle *handle, void *shared, int type) {
  Call call;
  Context *context = call.context();
  if (!context) return call.status();
  HandleContent content;
  const int descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(shared));
  if (!handle || type != MEM_POSIX_FILE ||
      pread(descriptor, &content, sizeof content, 0) != static_cast<ssize_t>(sizeof content) ||
      content.kind != PHYSICAL_HANDLE) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (content.process == getpid()) {
    for (Device &device : call.machine().devices) {
      if (device.arena.file() != content.file) continue;
      Physical *own = device.mappings.find_own(content.place);
      if (!own) return CUDA_ERROR_INVALID_VALUE;
      ++own->handles;
      *handle = reinterpret_cast<CUmemHandle>(own);
      return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int file = open_handle_file(content);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  *handle = reinterpret_cast<CUmemHandle>(context->device->mappings.add(content.place, content.bytes, file));
  return CUDA_SUCCESS;
}

}  // namespace flambeau::vgpu::entries
