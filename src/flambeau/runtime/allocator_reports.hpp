// SPDX-License-Identifier: Apache-2.0
// What the caching allocator tells of itself.
#pragma once
#include "block.hpp"
#include "pool.hpp"

namespace flambeau {

// Why an allocation failed, with the figures of that moment.
struct AllocationFailure {
  CUresult status = CUDA_SUCCESS;
  std::size_t requested = 0, segment_size = 0;
  std::size_t allocated = 0, reserved = 0, private_free = 0, largest_free = 0;
  std::size_t limit = SIZE_MAX;  // bytes this allocator may reserve
};

struct BlockInfo {
  CUdeviceptr address;
  std::size_t size, requested;
  BlockState state;
};

struct SegmentInfo {
  CUdeviceptr address;
  std::size_t size;
  CUstream stream;
  PoolKind kind;
  PoolId pool;
  std::vector<BlockInfo> blocks;
};

}  // namespace flambeau
