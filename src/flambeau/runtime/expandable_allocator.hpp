// SPDX-License-Identifier: Apache-2.0
// Expandable segments: the part of a caching allocator that maps and unmaps pages of them. A segment
// in the books is what is mapped in one piece; growing joins segments, unmapping cuts them.
//
// One thread at a time grows or unmaps, which is what `growing_` says. The lock is not held while the
// driver works: what such a thread needs is out of the free lists meanwhile.
#pragma once
#include <condition_variable>
#include <mutex>

#include "allocator_books.hpp"
#include "driver_scope.hpp"

namespace flambeau {

struct ExpandableAllocator : AllocatorBooks {
  using Lock = std::unique_lock<std::mutex>;

  ExpandableAllocator(int device, const DriverTable *driver, const AllocatorSettings *settings,
                      DeviceAllocator *owner, void (*release)(Storage *))
      : AllocatorBooks(device, settings, owner, release), driver_(driver), pages_(driver, device) {}

 protected:
  // -- in the books --------------------------------------------------------------------------------

  // How a request can be served by growing: the pages to map, and the free blocks beside them that
  // become a part of its block. Those are taken out of the free list and wait as pending.
  struct Growth {
    ExpandableRange *range = nullptr;
    std::vector<Block *> blocks;  // by address
    std::vector<PageRun> runs;
  };

  // The lowest addresses of one kind and stream where memory that is free and memory that is not
  // there yet suffice together. Without a range if there are none.
  Growth plan_growth(const Request &wanted) {
    for (ExpandableRange *range : wanted.pool->expandable(wanted.kind, wanted.stream).ranges) {
      auto next = segments_.lower_bound(range->address);
      Segment *before = nullptr;
      for (CUdeviceptr gap = range->address; gap < range->end();) {
        const bool inside = next != segments_.end() && next->first < range->end();
        const CUdeviceptr gap_end = inside ? next->first : range->end();
        Growth growth;
        if (gap < gap_end && try_growth(wanted.size, range, before, gap, next, &growth)) return growth;
        if (!inside) break;
        before = next->second;
        gap = before->address + before->size;
        ++next;
      }
    }
    return {};
  }

  // Whether the free block before a gap, the gap, and what is free behind it are large enough.
  bool try_growth(std::size_t size, ExpandableRange *range, Segment *before, CUdeviceptr gap,
                  SegmentMap::iterator next, Growth *growth) {
    std::size_t have = 0;
    growth->range = range;
    if (before && before->last->state == BlockState::free) {
      growth->blocks.push_back(before->last);
      have = before->last->size;
    }
    while (have < size) {
      const bool inside = next != segments_.end() && next->first < range->end();
      const std::size_t room = (inside ? next->first : range->end()) - gap;
      const std::size_t pages =
          std::min(room, AllocatorSettings::round_up(size - have, range->page)) / range->page;
      if (pages) growth->runs.push_back({(gap - range->address) / range->page, pages});
      have += pages * range->page;
      if (have >= size) break;
      if (!inside || next->second->first->state != BlockState::free) return false;
      Block *block = next->second->first;
      growth->blocks.push_back(block);
      have += block->size;
      if (have < size && block->next) return false;
      gap = next->second->address + next->second->size;
      ++next;
    }
    return true;
  }

  void claim(const Growth &growth) {
    for (Block *block : growth.blocks) {
      block->segment->free_list->erase(block);
      block->state = BlockState::pending;
    }
  }
  void unclaim(const Growth &growth) {
    for (Block *block : growth.blocks) merge_free(block);
  }

  // The pages have memory now: the one block that they and the claimed blocks make.
  Block *grow(const Request &wanted, Growth growth) {
    for (const PageRun run : growth.runs) growth.blocks.push_back(add_pages(wanted.stack, growth.range, run));
    std::sort(growth.blocks.begin(), growth.blocks.end(),
              [](const Block *a, const Block *b) { return a->data < b->data; });
    Block *block = growth.blocks.front();
    for (std::size_t i = 1; i < growth.blocks.size(); ++i) swallow(block, growth.blocks[i]);
    return block;
  }

  Block *add_pages(const StackNode *stack, ExpandableRange *range, PageRun run) {
    Segment *segment = new Segment();
    segment->address = range->address_of(run.first);
    segment->size = run.count * range->page;
    segment->stream = range->stream;
    segment->serial = range->serial;
    segment->kind = range->kind;
    segment->pool = range->pool;
    segment->range = range;
    segment->free_list = &range->pool->expandable(range->kind, range->stream).free_list;
    segment->stack = stack;
    Block *block = segment->first = segment->last = make_block(segment);
    block->data = reinterpret_cast<char *>(segment->address);
    block->size = segment->size;
    block->state = BlockState::pending;
    segments_[segment->address] = segment;
    ++stats_.device_allocs;
    stats_.reserved_bytes.add(segment->kind, segment->size);
    count_in_pool(segment, static_cast<std::int64_t>(segment->size));
    if (history_.on()) record(TraceAction::segment_map, segment);
    join_neighbours(segment);
    return block;
  }

  void join_neighbours(Segment *segment) {
    const auto here = segments_.find(segment->address);
    const auto after = std::next(here);
    if (after != segments_.end() && after->second->range == segment->range &&
        after->first == segment->address + segment->size)
      join(segment, after->second);
    if (here == segments_.begin()) return;
    Segment *before = std::prev(here)->second;
    if (before->range == segment->range && before->address + before->size == segment->address)
      join(before, segment);
  }
  void join(Segment *left, Segment *right) {
    for (Block *block = right->first; block; block = block->next) block->segment = left;
    left->last->next = right->first;
    right->first->previous = left->last;
    left->last = right->last;
    left->size += right->size;
    segments_.erase(right->address);
    delete right;
  }

  // The pages that lie wholly in a free block.
  static PageRun whole_pages(const Block *block) {
    const ExpandableRange *range = block->segment->range;
    const std::size_t begin = block->address() - range->address;
    const std::size_t first = AllocatorSettings::round_up(begin, range->page) / range->page;
    const std::size_t end = (begin + block->size) / range->page;
    return {first, end > first ? end - first : 0};
  }

  // Take pages out of a free block; what is left of it on either side stays free.
  void cut_pages(Block *block, PageRun run) {
    Segment *segment = block->segment;
    ExpandableRange *range = segment->range;
    const CUdeviceptr begin = range->address_of(run.first), end = range->address_of(run.first + run.count);
    Segment cut = *segment;  // for the books: the part that goes
    cut.address = begin;
    cut.size = end - begin;
    segment->free_list->erase(block);
    Block *right = block->address() + block->size > end ? make_block(segment) : block->next;
    if (right != block->next) {
      right->data = reinterpret_cast<char *>(end);
      right->size = block->address() + block->size - end;
      right->next = block->next;
      (right->next ? right->next->previous : segment->last) = right;
    }
    const bool cuts_right = right && right != block->next;
    Block *left = block;
    if (block->address() < begin) {
      block->size = begin - block->address();
    } else {
      left = block->previous;
      recycle(block);
    }
    detach(segment, left, right, begin, end);
    ++stats_.device_frees;
    stats_.reserved_bytes.sub(range->kind, cut.size);
    count_in_pool(&cut, -static_cast<std::int64_t>(cut.size));
    if (history_.on()) record(TraceAction::segment_unmap, &cut);
    if (left == block) insert_free(left);
    if (cuts_right) insert_free(right);
  }

  // A segment becomes the one up to `left` and the one from `right` on; either may be null.
  void detach(Segment *segment, Block *left, Block *right, CUdeviceptr begin, CUdeviceptr end) {
    const CUdeviceptr limit = segment->address + segment->size;
    if (right) {
      Segment *after = new Segment(*segment);
      after->address = end;
      after->size = limit - end;
      after->first = right;
      right->previous = nullptr;
      for (Block *block = right; block; block = block->next) {
        block->segment = after;
        after->last = block;
      }
      segments_[end] = after;
    }
    if (left) {
      left->next = nullptr;
      segment->last = left;
      segment->size = begin - segment->address;
      return;
    }
    segments_.erase(segment->address);
    delete segment;
  }

  bool is_unmapped(const ExpandableRange *range) const {
    const auto next = segments_.lower_bound(range->address);
    return next == segments_.end() || next->first >= range->end();
  }

  // -- with the driver -----------------------------------------------------------------------------

  // A free block in no free list, made of new pages and of what is free beside them; null with the
  // status in `failure`.
  Block *grow_segment(const Request &wanted, Lock &lock, AllocationFailure *failure) {
    if (Block *block = pop_cached(wanted)) {  // another thread grew one meanwhile
      failure->status = CUDA_SUCCESS;
      return block;
    }
    growing_ = true;  // nobody else plans with the same addresses
    Growth growth = plan_growth(wanted);
    failure->status = CUDA_SUCCESS;
    failure->refusal = Refusal::driver;
    if (!growth.range) growth = new_range(wanted, lock, failure);
    Block *block = nullptr;
    if (growth.range && failure->status == CUDA_SUCCESS) {
      claim(growth);
      failure->status = map(growth, lock);
      if (failure->status == CUDA_SUCCESS) block = grow(wanted, std::move(growth));
      else unclaim(growth);
    }
    if (!block && growth.range) forget_unmapped(growth.range, lock);
    growing_ = false;
    segments_returned_.notify_all();
    return block;
  }

  // A range of addresses for more segments of a kind and stream.
  Growth new_range(const Request &wanted, Lock &lock, AllocationFailure *failure) {
    auto range = std::make_unique<ExpandableRange>();
    range->page = settings_->page_size(wanted.kind);
    range->size = settings_->reserve_size(total_, range->page, wanted.stream);
    range->stream = wanted.stream;
    range->serial = ++segment_serial_;
    range->kind = wanted.kind;
    range->pool = wanted.pool;
    if (range->size < wanted.size) {
      failure->status = CUDA_ERROR_OUT_OF_MEMORY;
      failure->refusal = Refusal::reserve;
      return {};
    }
    lock.unlock();
    {
      OutsideCapture outside(driver_);
      failure->status = pages_.reserve(*range);
    }
    lock.lock();
    if (failure->status != CUDA_SUCCESS) return {};
    add_range(range.get());
    ++wanted.pool->segments;
    range.release();
    return plan_growth(wanted);
  }

  void add_range(ExpandableRange *range) {
    std::vector<ExpandableRange *> &ranges = range->pool->expandable(range->kind, range->stream).ranges;
    ranges.insert(std::upper_bound(ranges.begin(), ranges.end(), range,
                                   [](const ExpandableRange *a, const ExpandableRange *b) {
                                     return a->address < b->address;
                                   }),
                  range);
  }

  CUresult map(const Growth &growth, Lock &lock) {
    std::size_t bytes = 0;
    for (const PageRun run : growth.runs) bytes += run.count * growth.range->page;
    reserving_ += bytes;
    lock.unlock();
    CUresult status = CUDA_SUCCESS;
    {
      OutsideCapture outside(driver_);
      std::size_t done = 0;
      while (done < growth.runs.size() && status == CUDA_SUCCESS) {
        status = pages_.map(*growth.range, growth.runs[done]);
        if (status == CUDA_SUCCESS) ++done;
      }
      if (status != CUDA_SUCCESS)
        while (done > 0) pages_.unmap(*growth.range, growth.runs[--done]);
      pages_.release_gone();  // of this attempt, or left from before
    }
    lock.lock();
    reserving_ -= bytes;
    return status;
  }

  // Give the addresses of a range back if nothing of it is mapped.
  void forget_unmapped(ExpandableRange *range, Lock &lock) {
    if (!is_unmapped(range)) return;
    std::vector<ExpandableRange *> &ranges = range->pool->expandable(range->kind, range->stream).ranges;
    ranges.erase(std::find(ranges.begin(), ranges.end(), range));
    --range->pool->segments;
    lock.unlock();
    const CUresult status = pages_.unreserve(*range);
    lock.lock();
    if (status == CUDA_SUCCESS) {
      delete range;
      return;
    }
    ++range->pool->segments;  // it serves the next request
    add_range(range);
  }

  // Unmap the pages that lie in free blocks of the chosen pools' expandable segments.
  template <class Chosen> CUresult unmap_idle(Lock &lock, Chosen chosen) {
    std::vector<Block *> blocks;
    for (const auto &[address, segment] : segments_) {
      if (!segment->range || !chosen(segment->pool)) continue;
      for (Block *block = segment->first; block; block = block->next)
        if (block->state == BlockState::free && whole_pages(block).count) blocks.push_back(block);
    }
    if (blocks.empty()) return CUDA_SUCCESS;
    std::vector<std::pair<ExpandableRange *, PageRun>> cut, kept;
    for (Block *block : blocks) {
      cut.push_back({block->segment->range, whole_pages(block)});
      cut_pages(block, cut.back().second);
    }
    growing_ = true;
    lock.unlock();
    CUresult result = CUDA_SUCCESS;
    {
      ContextScope scope(driver_, context_);
      OutsideCapture outside(driver_);
      CUstream waited = reinterpret_cast<CUstream>(-1);
      for (auto &[range, run] : cut) {
        // Unlike freeing, unmapping waits for nothing.
        CUresult status = range->stream == waited ? CUDA_SUCCESS : driver_->StreamSynchronize(range->stream);
        if (status == CUDA_ERROR_INVALID_HANDLE) status = driver_->CtxSynchronize();  // it is destroyed
        waited = range->stream;
        if (result == CUDA_SUCCESS) result = status;
        status = pages_.unmap(*range, run);
        if (status != CUDA_SUCCESS) kept.emplace_back(range, run);
        if (result == CUDA_SUCCESS) result = status;
      }
      const CUresult status = pages_.release_gone();
      if (result == CUDA_SUCCESS) result = status;
    }
    lock.lock();
    for (const auto &[range, run] : kept) merge_free(add_pages(nullptr, range, run));
    std::vector<ExpandableRange *> ranges;
    for (const auto &[range, run] : cut)
      if (std::find(ranges.begin(), ranges.end(), range) == ranges.end()) ranges.push_back(range);
    for (ExpandableRange *range : ranges) forget_unmapped(range, lock);
    growing_ = false;
    segments_returned_.notify_all();
    return result;
  }

  const DriverTable *const driver_;
  PageMapper pages_;
  CUcontext context_ = nullptr;
  std::size_t total_ = 0;      // bytes of the device
  std::size_t reserving_ = 0;  // bytes being asked of the driver
  bool growing_ = false;       // a thread maps or unmaps pages
  std::condition_variable segments_returned_;
};

}  // namespace flambeau
