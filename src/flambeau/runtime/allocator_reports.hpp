// SPDX-License-Identifier: Apache-2.0
// What the caching allocator tells of itself.
#pragma once
#include <map>
#include <vector>

#include "block.hpp"
#include "pool.hpp"

namespace flambeau {

// Who said no.
enum class Refusal : int {
  driver,
  limit,      // the limit of what this allocator may reserve
  rejection,  // the configured share, which allows no retry
  source,     // the pool's own allocator
  reserve,    // more than an expandable segment has addresses
  overlap,    // it gave memory that is reserved here already
};

// Free memory of one kind: how much, and the largest block of it.
struct FreeMemory {
  std::size_t bytes = 0, largest = 0;
  CUstream stream = nullptr;  // of the largest
  PoolId pool;
};

// Where the reserved memory is. The parts add up to what is reserved.
struct Balance {
  std::size_t live = 0;            // tensors hold it
  std::size_t pending = 0;         // freed, waiting for events
  std::size_t idle_segments = 0;   // wholly free segments of the default pool
  std::size_t split_remainders = 0;  // free parts of segments of the default pool
  std::size_t private_free = 0;    // free in private pools
  // The free memory again, as one request sees it.
  FreeMemory own, other_stream, other_pool, other_kind;
};

// Why an allocation failed, with the figures of that moment.
struct AllocationFailure {
  CUresult status = CUDA_SUCCESS;
  Refusal refusal = Refusal::driver;
  std::size_t requested = 0, rounded = 0, segment_size = 0;
  CUstream stream = nullptr;
  PoolId pool;
  std::size_t allocated = 0, reserved = 0, free = 0, total = 0;
  std::size_t limit = SIZE_MAX;  // bytes this allocator may reserve
  Balance balance;
};

// Where a block lies, for other processes: in a segment, or on pages of an expandable range.
struct Whereabouts {
  CUdeviceptr base = 0;     // of the segment, or of the first of these pages
  std::size_t offset = 0;   // of the block from there
  std::size_t page = 0;     // bytes; 0: a whole segment
  std::vector<CUmemHandle> pages;
};

struct BlockInfo {
  CUdeviceptr address;
  std::size_t size, requested;
  BlockState state;
  const StackNode *stack;
};

struct SegmentInfo {
  CUdeviceptr address;
  std::size_t size;
  CUstream stream;
  PoolKind kind;
  PoolId pool;
  bool expandable;
  const StackNode *stack;
  std::vector<BlockInfo> blocks;
};

using SegmentMap = std::map<CUdeviceptr, Segment *>;

inline std::vector<SegmentInfo> list_segments(const SegmentMap &segments) {
  std::vector<SegmentInfo> all;
  for (const auto &[address, segment] : segments) {
    SegmentInfo info{address,           segment->size,            segment->stream, segment->kind,
                     segment->pool->id, segment->range != nullptr, segment->stack,  {}};
    for (const Block *b = segment->first; b; b = b->next)
      info.blocks.push_back({b->address(), b->size, b->requested, b->state, b->stack});
    all.push_back(std::move(info));
  }
  return all;
}

inline void add_free(FreeMemory &memory, const Segment *segment, const Block *block) {
  memory.bytes += block->size;
  if (block->size <= memory.largest) return;
  memory.largest = block->size;
  memory.stream = segment->stream;
  memory.pool = segment->pool->id;
}

// As a request for this pool, kind and stream sees it.
inline Balance balance_of(const SegmentMap &segments, const Pool *pool, PoolKind kind,
                          CUstream stream) {
  Balance sum;
  for (const auto &[address, segment] : segments)
    for (const Block *block = segment->first; block; block = block->next) {
      if (block->state != BlockState::free) {
        (block->state == BlockState::allocated ? sum.live : sum.pending) += block->size;
        continue;
      }
      if (!segment->pool->is_default) sum.private_free += block->size;
      else (block->is_split() ? sum.split_remainders : sum.idle_segments) += block->size;
      if (segment->pool != pool) add_free(sum.other_pool, segment, block);
      else if (segment->stream != stream) add_free(sum.other_stream, segment, block);
      else if (segment->kind != kind) add_free(sum.other_kind, segment, block);
      else add_free(sum.own, segment, block);
    }
  return sum;
}

}  // namespace flambeau
