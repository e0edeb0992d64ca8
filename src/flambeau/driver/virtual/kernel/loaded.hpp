// SPDX-License-Identifier: Apache-2.0
// What loading and unloading code asks of the machine.
#pragma once
#include <cstring>

#include "flambeau/driver/virtual/entries/call.hpp"
#include "function.hpp"

namespace flambeau::vgpu {

// Device memory for a module's variable, holding its first value.
inline CUresult allocate_variable(int ordinal, std::uint64_t bytes, const void *initial,
                                  std::uint64_t initial_bytes, CUdeviceptr *pointer) {
  Call call(0);
  Device *device = call.device(ordinal);
  if (!device) return call.status();
  if (!device->context.active()) return CUDA_ERROR_INVALID_CONTEXT;
  if (device->context.error) return device->context.error;
  const Allocation *made = device->arena.allocate(std::max<std::uint64_t>(bytes, 1));
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  ++call.machine().memory_epoch;
  *pointer = made->begin;
  std::memset(reinterpret_cast<void *>(made->begin), 0, bytes);
  std::memcpy(reinterpret_cast<void *>(made->begin), initial, std::min(bytes, initial_bytes));
  return CUDA_SUCCESS;
}

inline CUresult add_function(int ordinal, const ptx::KernelCode *code, CUfunction *handle) {
  Call call(0);
  Device *device = call.device(ordinal);
  if (!device) return call.status();
  if (!device->context.active()) return CUDA_ERROR_INVALID_CONTEXT;
  auto function = std::make_unique<Function>();
  function->context = &device->context;
  function->code = code;
  *handle = reinterpret_cast<CUfunction>(function.get());
  call.machine().functions[*handle] = std::move(function);
  return CUDA_SUCCESS;
}

// What tells a module whether the context that it was loaded into is still there.
inline std::uint64_t context_life(int ordinal) {
  Call call(0);
  const Device *device = call.device(ordinal);
  return device ? device->context.life : 0;
}

// Wait for the device's work, then forget a module's functions and free its variables. After this
// its code may go. If the context of then is gone (`life`), all that went with it.
inline CUresult forget_module(int ordinal, std::uint64_t life,
                              const std::vector<std::uint64_t> &functions,
                              const std::vector<std::uint64_t> &variables) {
  Call call(0);
  Device *device = call.device(ordinal);
  if (!device) return call.status();
  const CUresult waited = call.wait(device->context, device->context.frontier());
  if (device->context.life != life) return waited;
  for (const std::uint64_t handle : functions) {
    call.machine().functions.erase(reinterpret_cast<CUfunction>(handle));
  }
  for (const std::uint64_t pointer : variables) device->arena.free(pointer);
  ++call.machine().memory_epoch;
  return waited;
}

}  // namespace flambeau::vgpu
