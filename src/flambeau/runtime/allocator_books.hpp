// SPDX-License-Identifier: Apache-2.0
// The books of a caching allocator: which segments there are, how they are cut into blocks, who holds
// them, and the counters of all that. Nothing here calls a driver or waits; whoever calls holds the
// allocator's lock.
#pragma once
#include <algorithm>
#include <map>
#include <memory>

#include "allocator_history.hpp"
#include "allocator_reports.hpp"
#include "expandable_range.hpp"
#include "pool.hpp"

namespace flambeau {

struct AllocatorBooks {
  // Storages are the owner's, and say so when their last reference goes.
  AllocatorBooks(int device, const AllocatorSettings *settings, DeviceAllocator *owner,
                 void (*release)(Storage *))
      : device_(device), settings_(settings), owner_(owner), release_(release) {}

 protected:
  struct Request {
    std::size_t bytes, size;  // asked for, and rounded
    CUstream stream;
    Pool *pool;
    PoolKind kind;
    const StackNode *stack;
  };

  Request request(std::size_t bytes, CUstream stream, Pool *pool, const StackNode *stack) const {
    const std::size_t size = settings_->round(bytes);
    return {bytes, size, stream, pool, size <= SMALL_LIMIT ? SMALL_POOL : LARGE_POOL, stack};
  }

  // -- handing out ---------------------------------------------------------------------------------

  Block *take_cached(const Request &wanted) {
    Block *block = pop_cached(wanted);
    return block ? hand_out(block, wanted) : nullptr;
  }

  // The best fit, out of its free list but not handed out.
  Block *pop_cached(const Request &wanted) {
    ++searches_;
    Block *block = wanted.pool->free_list(wanted.kind, wanted.stream)->best(wanted.size);
    if (expands(wanted)) block = or_expandable(block, wanted);
    if (!block || !fits(block, wanted)) return nullptr;
    block->segment->free_list->erase(block);
    return block;
  }

  // Whether more memory for this request comes from a segment that grows. Its free blocks serve only
  // such requests.
  bool expands(const Request &wanted) const {
    return settings_->expandable && can_expand_ && !wanted.pool->source;
  }

  // The better fit of a block and of what expandable segments have free, where a block counts with
  // the addresses behind it that it could grow into.
  Block *or_expandable(Block *best, const Request &wanted) {
    const FreeList &list = wanted.pool->expandable(wanted.kind, wanted.stream).free_list;
    Block *fixed = list.best(wanted.size);
    if (fixed && (!best || comes_before(fixed, best))) best = fixed;
    std::size_t room = best ? best->size : SIZE_MAX;
    for (Block *block : list.growable) {
      const std::size_t reach = block->size + addresses_after(block->segment);
      if (block->size < wanted.size || reach >= room) continue;
      best = block;
      room = reach;
    }
    return best;
  }

  // With a maximal split size, large blocks are kept for requests that use most of them.
  bool fits(const Block *block, const Request &wanted) const {
    const std::size_t most = settings_->max_split_size;
    if (wanted.size < most) return block->size < most;
    return block->size - wanted.size < settings_->max_non_split_rounding;
  }

  bool should_split(const Block *block, const Request &wanted) const {
    const std::size_t rest = block->size - wanted.size;
    if (!wanted.pool->splits) return false;
    if (wanted.kind == SMALL_POOL || block->segment->range) return rest >= MIN_BLOCK;
    return wanted.size < settings_->max_split_size && rest > SMALL_LIMIT;
  }

  Block *hand_out(Block *block, const Request &wanted) {
    const PoolKind kind = wanted.kind;
    const bool was_split = block->is_split();
    if (block->segment->range) {  // its free parts are not remainders: they can be unmapped, or grow
      if (should_split(block, wanted)) split(block, wanted.size);
    } else if (should_split(block, wanted)) {
      Block *rest = split(block, wanted.size);
      if (was_split) {
        stats_.inactive_split_bytes.sub(kind, block->size);
      } else {
        stats_.inactive_split.add(kind, 1);
        stats_.inactive_split_bytes.add(kind, rest->size);
      }
    } else if (was_split) {
      stats_.inactive_split.sub(kind, 1);
      stats_.inactive_split_bytes.sub(kind, block->size);
    }
    stats_.allocation.add(kind, 1);
    stats_.allocated_bytes.add(kind, block->size);
    stats_.active.add(kind, 1);
    stats_.active_bytes.add(kind, block->size);
    stats_.requested_bytes.add(kind, wanted.bytes);
    block->oversize = block->size >= settings_->max_split_size;
    if (block->oversize) stats_.oversize_allocations.add(1);
    block->state = BlockState::allocated;
    block->bytes = block->requested = wanted.bytes;
    block->references.store(1, std::memory_order_relaxed);
    block->version.store(0, std::memory_order_relaxed);
    block->resizable = true;
    if (history_.on()) {
      if (history_.stacks() >= StackUse::state) block->stack = wanted.stack;
      record(TraceAction::alloc, block);
    }
    return block;
  }

  // Cut a block that is in no free list to `size`; the rest goes into the free list.
  Block *split(Block *block, std::size_t size) {
    Block *rest = make_block(block->segment);
    rest->data = block->data + size;
    rest->size = block->size - size;
    rest->previous = block;
    rest->next = block->next;
    (rest->next ? rest->next->previous : block->segment->last) = rest;
    block->next = rest;
    block->size = size;
    // Behind new pages there may be free memory that was not needed.
    if (rest->next && rest->next->state == BlockState::free) absorb(rest, rest->next);
    insert_free(rest);
    return rest;
  }

  // -- taking back ---------------------------------------------------------------------------------

  void make_free(Block *block) {
    if (history_.on()) record(TraceAction::free_completed, block);
    block->stack = nullptr;
    const PoolKind kind = block->segment->kind;
    stats_.active.sub(kind, 1);
    stats_.active_bytes.sub(kind, block->size);
    stats_.requested_bytes.sub(kind, block->requested);
    const auto [parts, part_bytes] = merge_free(block);
    if (block->segment->range) return;
    stats_.inactive_split.move(kind, parts);
    stats_.inactive_split_bytes.move(kind, part_bytes);
  }

  // Make a block one with its free neighbours, in the free list; how many more free parts of split
  // segments there are now, and how many more bytes of such.
  std::pair<std::int64_t, std::int64_t> merge_free(Block *block) {
    std::int64_t parts = 0, part_bytes = 0;
    for (Block *neighbour : {block->previous, block->next}) {
      if (!neighbour || neighbour->state != BlockState::free) continue;
      parts -= 1;
      part_bytes -= static_cast<std::int64_t>(neighbour->size);
      absorb(block, neighbour);
    }
    block->state = BlockState::free;
    block->freed_at = searches_;
    insert_free(block);
    if (block->is_split()) {
      parts += 1;
      part_bytes += static_cast<std::int64_t>(block->size);
    }
    return {parts, part_bytes};
  }

  void insert_free(Block *block) {
    const Segment *segment = block->segment;
    block->growable = segment->range && !block->next && addresses_after(segment);
    segment->free_list->insert(block);
  }

  void absorb(Block *block, Block *neighbour) {
    block->segment->free_list->erase(neighbour);
    swallow(block, neighbour);
  }

  // The same for a neighbour that is in no free list.
  void swallow(Block *block, Block *neighbour) {
    block->size += neighbour->size;
    if (neighbour == block->previous) {
      block->data = neighbour->data;
      block->previous = neighbour->previous;
      (block->previous ? block->previous->next : block->segment->first) = block;
    } else {
      block->next = neighbour->next;
      (block->next ? block->next->previous : block->segment->last) = block;
    }
    recycle(neighbour);
  }

  // -- segments ------------------------------------------------------------------------------------

  bool overlaps(CUdeviceptr address, std::size_t size) const {
    const auto after = segments_.upper_bound(address);
    if (after != segments_.end() && after->first < address + size) return true;
    if (after == segments_.begin()) return false;
    const Segment *before = std::prev(after)->second;
    return before->address + before->size > address;
  }

  Block *add_segment(const Request &wanted, CUdeviceptr address, std::size_t size) {
    Segment *segment = new Segment();
    segment->address = address;
    segment->size = size;
    segment->stream = wanted.stream;
    segment->serial = ++segment_serial_;
    segment->kind = wanted.kind;
    segment->pool = wanted.pool;
    segment->free_list = wanted.pool->free_list(wanted.kind, wanted.stream);
    segment->stack = wanted.stack;
    segment->oversize = size >= settings_->max_split_size;
    segments_[address] = segment;
    Block *block = segment->first = segment->last = make_block(segment);
    block->data = reinterpret_cast<char *>(address);
    block->size = size;
    ++stats_.device_allocs;
    stats_.segment.add(segment->kind, 1);
    stats_.reserved_bytes.add(segment->kind, size);
    ++segment->pool->segments;
    count_in_pool(segment, static_cast<std::int64_t>(size));
    if (segment->oversize) stats_.oversize_segments.add(1);
    if (history_.on()) record(TraceAction::segment_alloc, segment);
    return block;
  }

  void count_in_pool(Segment *segment, std::int64_t size) {
    Pool *pool = segment->pool;
    if (pool->is_default) return;
    if (!pool->reserved_bytes) pool->reserved_bytes = &pool_reserved_[pool->id];
    pool->reserved_bytes->move(segment->kind, size);
  }

  void forget_segment(Segment *segment) {
    const std::size_t size = segment->size;
    segment->free_list->erase(segment->first);
    recycle(segment->first);
    segments_.erase(segment->address);
    ++stats_.device_frees;
    stats_.segment.sub(segment->kind, 1);
    stats_.reserved_bytes.sub(segment->kind, size);
    --segment->pool->segments;
    count_in_pool(segment, -static_cast<std::int64_t>(size));
    if (segment->oversize) stats_.oversize_segments.sub(1);
    if (history_.on()) record(TraceAction::segment_free, segment);
    delete segment;
  }

  static bool is_whole(const Segment *segment) {
    return !segment->range && segment->first->state == BlockState::free && !segment->first->next;
  }

  void erase_dead_pools() {
    for (auto it = pools_.begin(); it != pools_.end();) {
      const Pool *pool = it->second.get();
      const bool routed = std::any_of(routes_.begin(), routes_.end(),
                                      [pool](const Route &route) { return route.pool == pool; });
      const bool unused = !pool->users && !pool->segments && !pool->pins && !routed;
      it = unused ? pools_.erase(it) : std::next(it);
    }
  }

  // -- expandable segments -------------------------------------------------------------------------

  // Addresses without memory between a segment and the next one of its range.
  std::size_t addresses_after(const Segment *segment) const {
    const CUdeviceptr end = segment->address + segment->size;
    const auto next = segments_.find(segment->address);
    const auto after = std::next(next);
    const CUdeviceptr limit = segment->range->end();
    return (after != segments_.end() && after->first < limit ? after->first : limit) - end;
  }

  // -- history -------------------------------------------------------------------------------------

  void record(TraceAction action, const Block *block) {
    history_.record({action, block->address(), block->requested, block->segment->stream,
                     block->segment->pool->id, block->stack});
  }
  void record(TraceAction action, const Segment *segment) {
    history_.record({action, segment->address, segment->size, segment->stream, segment->pool->id,
                     segment->stack});
  }

  // -- blocks --------------------------------------------------------------------------------------

  Block *find(CUdeviceptr address) const {
    auto it = segments_.upper_bound(address);
    if (it == segments_.begin()) return nullptr;
    for (Block *block = (--it)->second->first; block; block = block->next)
      if (address - block->address() < block->size) return block;
    return nullptr;
  }

  Block *make_block(Segment *segment) {
    Block *block = spare_;
    if (block) {
      spare_ = block->next;
      block->next = block->previous = nullptr;
    } else {
      block = new Block();
      block->allocator = owner_;
      block->device = static_cast<std::int16_t>(device_);
      block->release = release_;
    }
    block->segment = segment;
    block->state = BlockState::free;
    return block;
  }

  void recycle(Block *block) {
    block->previous = nullptr;
    block->next = spare_;
    spare_ = block;
  }

  const int device_;
  const AllocatorSettings *const settings_;
  Pool default_pool_;
  std::map<PoolId, std::unique_ptr<Pool>> pools_;
  std::map<PoolId, StatArray> pool_reserved_;  // of all pools that ever were
  std::vector<Route> routes_;                  // outermost first
  DeviceStats stats_;
  History history_;
  SegmentMap segments_;
  std::int64_t segment_serial_ = 0;
  bool can_expand_ = false;    // the device maps memory apart from addresses
  std::int64_t searches_ = 0;  // of free lists; the clock of block ages

 private:
  Block *spare_ = nullptr;
  DeviceAllocator *const owner_;
  void (*const release_)(Storage *);
};

}  // namespace flambeau
