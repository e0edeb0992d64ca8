// SPDX-License-Identifier: Apache-2.0
// The units of the caching allocator: segments come from the driver, blocks are their parts.
#pragma once
#include <vector>

#include "flambeau/driver/table.hpp"
#include "stats.hpp"
#include "storage.hpp"

namespace flambeau {

struct DeviceAllocator;
struct ExpandableRange;
struct FreeList;
struct Pool;
struct Block;
struct StackNode;  // where in the program something happened

enum class BlockState : std::uint8_t {
  free,       // in a free list
  allocated,  // a tensor's
  pending,    // given back, but a stream may still be using it
};

// A stream as other streams' work sees it. The null stream means one per context.
struct StreamUse {
  CUcontext context;
  CUstream stream;
  bool captured = false;  // the use is a part of a graph: nothing that runs now
  bool operator==(const StreamUse &other) const {
    return context == other.context && stream == other.stream;
  }
};

// Memory in one piece: a range from the driver, or neighbouring pages of an expandable range.
struct Segment {
  CUdeviceptr address = 0;
  std::size_t size = 0;
  CUstream stream = nullptr;
  std::int64_t serial = 0;  // order of creation
  PoolKind kind = SMALL_POOL;
  bool oversize = false;  // counted as such
  Pool *pool = nullptr;
  FreeList *free_list = nullptr;
  Block *first = nullptr, *last = nullptr;
  ExpandableRange *range = nullptr;  // of an expandable segment: then this is what is mapped in one piece
  const StackNode *stack = nullptr;  // who made the allocator ask for it
};

// One object is both the part of a segment and the storage that tensors hold.
struct Block : Storage {
  DeviceAllocator *allocator = nullptr;
  Segment *segment = nullptr;
  std::size_t size = 0;       // bytes of memory
  std::size_t requested = 0;  // bytes asked for
  BlockState state = BlockState::free;
  bool oversize = false;      // counted as such
  bool sent = false;          // another process was given it
  bool growable = false;      // in a free list: unmapped addresses follow
  std::int64_t freed_at = 0;  // the allocator's count of searches when it became free
  int events = 0;             // events that must pass before a pending block is free
  Block *previous = nullptr, *next = nullptr;                              // by address
  Block *heap_child = nullptr, *heap_next = nullptr, *heap_back = nullptr;  // in a free list
  const StackNode *stack = nullptr;  // who holds it, if histories keep that
  std::vector<StreamUse> uses;  // streams other than the segment's that work on it

  CUdeviceptr address() const { return reinterpret_cast<CUdeviceptr>(data); }
  bool is_split() const { return previous || next; }
};

// The order of best fit: the smallest first; of equal ones that of the oldest segment, and there the
// one at the lowest address.
inline bool comes_before(const Block *a, const Block *b) {
  if (a->size != b->size) return a->size < b->size;
  if (a->segment != b->segment) return a->segment->serial < b->segment->serial;
  return a->data < b->data;
}

}  // namespace flambeau
