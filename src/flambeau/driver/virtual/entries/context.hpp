// SPDX-License-Identifier: Apache-2.0
// Entries: primary contexts, the current context, peer access.
#pragma once
#include "flambeau/driver/virtual/graph/rules.hpp"
#include "flambeau/driver/virtual/kernel/function.hpp"

namespace flambeau::vgpu::entries {

inline CUresult DevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal) {
  Call call;
  Device *device = call.device(ordinal);
  if (!device) return call.status();
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  ++device->context.retained;
  *context = reinterpret_cast<CUcontext>(&device->context);
  return CUDA_SUCCESS;
}

// With the last release the context goes: its work is waited for, its memory and handles are gone.
inline void destroy_context(Call &call, Context &context) {
  if (!context.error) call.machine().wait(call.lock(), context.frontier());
  Machine &machine = call.machine();
  context.retained = 0;
  ++context.life;
  context.error = CUDA_SUCCESS;
  context.fault.clear();
  context.peers.clear();
  context.detached.clear();
  context.legacy.last = nullptr;
  for (Stream *stream : context.streams) leave_capture(machine, *stream);
  for (auto it = machine.graphs.execs.begin(); it != machine.graphs.execs.end();) {
    const auto &steps = it->second->steps;
    const bool of_it = std::any_of(steps.begin(), steps.end(), [&](const auto &s) { return s.context == &context; });
    it = of_it ? machine.graphs.execs.erase(it) : std::next(it);
  }
  context.streams.clear();
  for (auto it = machine.streams.begin(); it != machine.streams.end();) {
    it = it->second->context == &context ? machine.streams.erase(it) : std::next(it);
  }
  for (auto it = machine.events.begin(); it != machine.events.end();) {
    it = it->second->context == &context ? machine.events.erase(it) : std::next(it);
  }
  for (auto it = machine.functions.begin(); it != machine.functions.end();) {
    it = it->second->context == &context ? machine.functions.erase(it) : std::next(it);
  }
  context.device->pool.clear(context.device->arena);
  context.device->mappings.clear(context.device->arena);
  std::vector<std::uint64_t> left;
  for (const auto &entry : context.device->arena.allocations()) left.push_back(entry.first);
  for (const std::uint64_t begin : left) {
    if (!context.device->arena.free(begin)) {
      while (context.device->arena.close_import(begin)) {
      }
    }
  }
  ++machine.memory_epoch;
}

inline CUresult DevicePrimaryCtxRelease(CUdevice ordinal) {
  Call call;
  Device *device = call.device(ordinal);
  if (!device) return call.status();
  Context &context = device->context;
  if (!context.active()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context.retained > 1) {
    --context.retained;
  } else {
    destroy_context(call, context);
  }
  return CUDA_SUCCESS;
}

inline CUresult DevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *active) {
  Call call;
  Device *device = call.device(ordinal);
  if (!device) return call.status();
  *flags = 0;
  *active = device->context.active();
  return CUDA_SUCCESS;
}

inline CUresult CtxGetCurrent(CUcontext *context) {
  Call call(0);
  if (call.failed()) return call.status();
  *context = reinterpret_cast<CUcontext>(call.current());
  return CUDA_SUCCESS;
}

inline CUresult CtxSetCurrent(CUcontext handle) {
  Call call(0);
  if (call.failed()) return call.status();
  Context *found = nullptr;
  for (Device &device : call.machine().devices) {
    if (reinterpret_cast<CUcontext>(&device.context) == handle && device.context.active()) {
      found = &device.context;
    }
  }
  if (handle && !found) return CUDA_ERROR_INVALID_CONTEXT;
  current_context = {call.machine().generation, found};
  return CUDA_SUCCESS;
}

inline CUresult CtxGetDevice(CUdevice *device) {
  Call call(0);
  if (call.failed()) return call.status();
  const Context *context = call.current();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  *device = context->device->ordinal;
  return CUDA_SUCCESS;
}

inline CUresult CtxSynchronize() {
  Call call;
  Context *context = call.context();
  if (!context || refuse_device_wait(call, *context, "cuCtxSynchronize")) return call.status();
  return call.wait(*context, context->frontier());
}

inline CUresult CtxGetStreamPriorityRange(int *least, int *greatest) {
  Call call;
  if (call.failed()) return call.status();
  if (least) *least = LEAST_PRIORITY;
  if (greatest) *greatest = GREATEST_PRIORITY;
  return CUDA_SUCCESS;
}

inline CUresult CtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  Call call;
  Context *context = call.context();
  Context *other = call.context(peer);
  if (call.failed()) return call.status();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (context == other) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context->peers.insert(other).second) return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  ++call.machine().memory_epoch;
  return CUDA_SUCCESS;
}

inline CUresult CtxDisablePeerAccess(CUcontext peer) {
  Call call;
  Context *context = call.context();
  Context *other = call.context(peer);
  if (call.failed()) return call.status();
  if (context->peers.count(other) == 0) return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
  const CUresult waited = call.wait(*context, context->frontier());
  context->peers.erase(other);
  ++call.machine().memory_epoch;
  return waited;
}

}  // namespace flambeau::vgpu::entries
