// SPDX-License-Identifier: Apache-2.0
// Segments: how a caching allocator gets them from the driver or from a pool's own source, and which
// of them it gives back, and when.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "expandable_allocator.hpp"
#include "release_policy.hpp"

namespace flambeau {

struct SegmentAllocator : ExpandableAllocator {
  using ExpandableAllocator::ExpandableAllocator;
  using Lock = ExpandableAllocator::Lock;

 protected:
  // The one free block of a new segment, in no free list; null with the status in `failure`.
  Block *new_segment(const Request &wanted, Lock &lock, AllocationFailure *failure) {
    const std::size_t size = settings_->segment_size(wanted.size);
    const std::size_t reserved = stats_.reserved_bytes.of[ALL_POOLS].current + reserving_;
    failure->status = CUDA_ERROR_OUT_OF_MEMORY;
    failure->refusal = Refusal::limit;
    if (size < wanted.size || size > limit_ || reserved > limit_ - size) return nullptr;
    failure->refusal = Refusal::rejection;
    if (settings_->reject_early && reserved + size > configured_limit()) return nullptr;
    segments_returned_.wait(lock, [this] { return returning_ == 0 && !growing_; });
    if (expands(wanted)) return grow_segment(wanted, lock, failure);
    CUdeviceptr address = 0;
    reserving_ += size;
    lock.unlock();
    {
      OutsideCapture outside(driver_);
      failure->status = ask(wanted, size, &address, &failure->refusal);
    }
    lock.lock();
    reserving_ -= size;
    if (failure->status != CUDA_SUCCESS) return nullptr;
    if (!wanted.pool->source || !overlaps(address, size)) return add_segment(wanted, address, size);
    failure->status = CUDA_ERROR_OUT_OF_MEMORY;
    failure->refusal = Refusal::overlap;
    lock.unlock();
    give_back({address, size, wanted.stream, wanted.pool->source});
    lock.lock();
    return nullptr;
  }

  CUresult ask(const Request &wanted, std::size_t size, CUdeviceptr *address, Refusal *refusal) {
    const SegmentSource *source = wanted.pool->source;
    *refusal = source ? Refusal::source : Refusal::driver;
    if (!source) return driver_->MemAlloc(address, size);
    void *memory = source->allocate(static_cast<ssize_t>(size), device_, wanted.stream);
    *address = reinterpret_cast<CUdeviceptr>(memory);
    return memory ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  }

  std::size_t configured_limit() const {
    return static_cast<std::size_t>(settings_->configured_fraction * static_cast<double>(total_) +
                                    0.5);
  }

  struct Range {
    CUdeviceptr address;
    std::size_t size;
    CUstream stream;
    const SegmentSource *source;
  };

  // Give wholly free segments back to where they came from.
  CUresult return_segments(const std::vector<Segment *> &segments, Lock &lock) {
    std::vector<Range> ranges;
    for (Segment *segment : segments) {
      ranges.push_back({segment->address, segment->size, segment->stream, segment->pool->source});
      forget_segment(segment);
    }
    if (ranges.empty()) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    ++returning_;
    lock.unlock();
    {
      ContextScope scope(driver_, context_);
      OutsideCapture outside(driver_);
      for (const Range &range : ranges) {
        const CUresult status = give_back(range);
        if (result == CUDA_SUCCESS) result = status;
      }
    }
    lock.lock();
    --returning_;
    segments_returned_.notify_all();
    return result;
  }

  CUresult give_back(const Range &range) {
    if (!range.source) return driver_->MemFree(range.address);
    range.source->release(reinterpret_cast<void *>(range.address), range.size, device_,
                          range.stream);
    return CUDA_SUCCESS;
  }

  CUresult flush_dead_pools(Lock &lock) {
    return return_whole(lock, [](const Pool *pool) { return !pool->is_default && !pool->users; });
  }

  template <class Chosen> CUresult return_whole(Lock &lock, Chosen chosen) {
    std::vector<Segment *> whole;
    for (const auto &[address, segment] : segments_)
      if (is_whole(segment) && chosen(segment->pool)) whole.push_back(segment);
    CUresult status = return_segments(whole, lock);
    if (!captures_) {  // captured streams cannot be waited for
      segments_returned_.wait(lock, [this] { return !growing_; });
      const CUresult unmapped = unmap_idle(lock, chosen);
      if (status == CUDA_SUCCESS) status = unmapped;
    }
    erase_dead_pools();
    return status;
  }

  bool release_oversize(const Request &wanted, Lock &lock) {
    const std::size_t most = settings_->max_split_size;
    if (most == SIZE_MAX) return false;
    FreeList *list = wanted.pool->free_list(wanted.kind, wanted.stream);
    const auto chosen = choose_oversize(*list, most, std::max(wanted.size, most));
    return !chosen.empty() && return_segments(chosen, lock) == CUDA_SUCCESS;
  }

  // Before more memory is taken, with a limit and a threshold set: give back what has been idle for
  // long, so that what is reserved stays below that share of the limit.
  void collect_garbage(Lock &lock) {
    if (settings_->garbage_threshold <= 0 || limit_ == SIZE_MAX) return;
    const auto allowed = static_cast<std::int64_t>(settings_->garbage_threshold * limit_);
    const std::int64_t excess = stats_.reserved_bytes.of[ALL_POOLS].current - allowed;
    if (excess <= 0) return;
    std::vector<Segment *> idle;
    for (const auto &[address, segment] : segments_)
      if (segment->kind == LARGE_POOL && segment->pool->is_default && is_whole(segment))
        idle.push_back(segment);
    return_segments(choose_idle(std::move(idle), searches_, excess), lock);
  }

  std::size_t limit_ = SIZE_MAX;
  int captures_ = 0;  // captures under way on this device

 private:
  int returning_ = 0;  // threads giving segments back
};

}  // namespace flambeau
