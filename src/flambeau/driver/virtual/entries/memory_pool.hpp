// SPDX-License-Identifier: Apache-2.0
// Entries: memory that is allocated and freed in the order of streams.
#pragma once
#include "flambeau/driver/virtual/graph/rules.hpp"
#include "flambeau/driver/virtual/memory/place.hpp"

namespace flambeau::vgpu::entries {

// CUmemPool_attribute.
enum PoolAttribute : int {
  POOL_REUSE_FOLLOW_EVENTS = 1,
  POOL_REUSE_INTERNAL_DEPENDENCIES = 3,
  POOL_RELEASE_THRESHOLD = 4,
  POOL_RESERVED_CURRENT = 5,
  POOL_RESERVED_HIGH = 6,
  POOL_USED_CURRENT = 7,
  POOL_USED_HIGH = 8,
};

inline CUresult DeviceGetDefaultMemPool(CUmemPool *pool, CUdevice ordinal) {
  Call call;
  Device *device = call.device(ordinal);
  if (!device) return call.status();
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  *pool = reinterpret_cast<CUmemPool>(&device->pool);
  return CUDA_SUCCESS;
}

inline Device *pool_device(Call &call, CUmemPool pool) {
  if (call.failed()) return nullptr;
  for (Device &device : call.machine().devices) {
    if (reinterpret_cast<CUmemPool>(&device.pool) == pool) return &device;
  }
  call.fail(CUDA_ERROR_INVALID_VALUE);
  return nullptr;
}

inline std::uint64_t *pool_figure(MemoryPool &pool, int attribute) {
  switch (attribute) {
    case POOL_RELEASE_THRESHOLD: return &pool.release_threshold;
    case POOL_RESERVED_CURRENT: return &pool.reserved;
    case POOL_RESERVED_HIGH: return &pool.reserved_high;
    case POOL_USED_CURRENT: return &pool.used;
    case POOL_USED_HIGH: return &pool.used_high;
    default: return nullptr;
  }
}

inline bool is_reuse(int attribute) {
  return attribute >= POOL_REUSE_FOLLOW_EVENTS && attribute <= POOL_REUSE_INTERNAL_DEPENDENCIES;
}

inline CUresult MemPoolGetAttribute(CUmemPool handle, int attribute, void *value) {
  Call call;
  Device *device = pool_device(call, handle);
  if (!device) return call.status();
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (is_reuse(attribute)) {
    std::memcpy(value, &device->pool.reuse[attribute - 1], sizeof(int));
    return CUDA_SUCCESS;
  }
  const std::uint64_t *figure = pool_figure(device->pool, attribute);
  if (!figure) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(value, figure, sizeof *figure);
  return CUDA_SUCCESS;
}

// The threshold may be set, and a high-water mark to zero: it then starts at what is there now.
inline CUresult MemPoolSetAttribute(CUmemPool handle, int attribute, void *value) {
  Call call;
  Device *device = pool_device(call, handle);
  if (!device) return call.status();
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  MemoryPool &pool = device->pool;
  if (is_reuse(attribute)) {
    std::memcpy(&pool.reuse[attribute - 1], value, sizeof(int));
    return CUDA_SUCCESS;
  }
  std::uint64_t wanted = 0;
  std::memcpy(&wanted, value, sizeof wanted);
  if (attribute == POOL_RELEASE_THRESHOLD) {
    pool.release_threshold = wanted;
  } else if (attribute == POOL_RESERVED_HIGH && wanted == 0) {
    pool.reserved_high = pool.reserved;
  } else if (attribute == POOL_USED_HIGH && wanted == 0) {
    pool.used_high = pool.used;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

inline CUresult MemPoolTrimTo(CUmemPool handle, std::size_t keep) {
  Call call;
  Device *device = pool_device(call, handle);
  if (!device) return call.status();
  device->pool.trim(device->arena, keep);
  ++call.machine().memory_epoch;
  return CUDA_SUCCESS;
}

// Memory of allocation nodes: it is there as long as the graph or an executable of it.
struct GraphMemory {
  Device *device;
  std::uint64_t begin, life;
  ~GraphMemory() {
    if (device->context.life != life) return;
    device->arena.edit(begin)->of_graph = false;
    device->arena.free(begin);
  }
};

inline GraphNode *add_memory_node(Stream &stream, NodeType type) {
  GraphNode *node = stream.capture->graph->add(stream, stream.frontier);
  node->work.type = type;
  stream.frontier = {node};
  return node;
}

inline CUresult capture_allocation(Call &call, Stream &stream, CUdeviceptr *pointer, std::size_t bytes) {
  Device &device = *stream.context->device;
  const Allocation *made = device.arena.allocate(bytes);
  if (!made) return CUDA_ERROR_OUT_OF_MEMORY;
  *pointer = made->begin;
  device.arena.edit(made->begin)->of_graph = true;
  stream.capture->graph->memory.push_back(
      std::shared_ptr<GraphMemory>(new GraphMemory{&device, made->begin, stream.context->life}));
  add_memory_node(stream, NODE_MEM_ALLOC);
  ++call.machine().memory_epoch;
  return CUDA_SUCCESS;
}

// On the device of the stream, whichever is current.
inline CUresult MemAllocAsync(CUdeviceptr *pointer, std::size_t bytes, CUstream handle) {
  Call call;
  Stream *stream = work_stream(call, handle);
  if (!stream) return call.status();
  if (!pointer || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture) return capture_allocation(call, *stream, pointer, bytes);
  Device &device = *stream->context->device;
  const std::uint64_t at = device.pool.allocate(device.arena, *stream, bytes);
  if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
  ++call.machine().memory_epoch;
  if (checking()) checker().ledger.add_allocation(at, bytes, false, stack_of_call);
  *pointer = at;
  return CUDA_SUCCESS;
}

inline CUresult MemFreeAsync(CUdeviceptr pointer, CUstream handle) {
  Call call;
  Stream *stream = work_stream(call, handle);
  if (!stream) return call.status();
  if (pointer == 0) return CUDA_SUCCESS;
  const Place place = place_of(call.machine(), pointer);
  const Allocation *gone = place.allocation;
  if (!gone || gone->begin != pointer || !(gone->pooled || gone->of_graph)) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture) {
    if (!gone->of_graph) {
      return refuse(call, *stream->capture, CUDA_ERROR_INVALID_VALUE,
                    "cuMemFreeAsync was given memory from outside the graph " + under_way(*stream->capture) + ".");
    }
    add_memory_node(*stream, NODE_MEM_FREE);
    return CUDA_SUCCESS;
  }
  const NodePtr marker = call.machine().submit_marker(*stream);
  if (gone->of_graph) return CUDA_SUCCESS;   // the graph's memory is mapped as long as the graph lives
  place.device->pool.free(place.device->arena, *gone, *stream, marker);
  if (checking()) checker().ledger.drop_allocation(pointer);
  ++call.machine().memory_epoch;
  return CUDA_SUCCESS;
}

// Graphs keep their memory mapped here, so there is nothing to give back.
inline CUresult DeviceGraphMemTrim(CUdevice ordinal) {
  Call call;
  return call.device(ordinal) ? CUDA_SUCCESS : call.status();
}

}  // namespace flambeau::vgpu::entries
