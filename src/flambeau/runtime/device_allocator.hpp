// SPDX-License-Identifier: Apache-2.0
// The caching allocator of one device. Memory from the driver is kept and handed out again, in the
// order of the streams that use it, without asking the driver.
//
// One mutex guards the books. It is never held across a driver call that can wait; where the lock
// is let go in the middle of something, the books are complete before and after.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <new>

#include "allocator_reports.hpp"
#include "pending_events.hpp"
#include "pool.hpp"
#include "release_policy.hpp"

namespace flambeau {

struct DeviceAllocator {
  using Lock = std::unique_lock<std::mutex>;

  DeviceAllocator(int device, const DriverTable *driver, const AllocatorSettings *settings)
      : device_(device), driver_(driver), settings_(settings) {}

  // The device's primary context; known before the first call of allocate().
  void set_context(CUcontext context) { context_ = context; }

  // A cached block, or null: then call allocate(). Makes no driver call.
  Block *allocate_cached(std::size_t bytes, CUstream stream) {
    Lock lock(mutex_);
    if (!pending_.empty() && !captures_) return nullptr;
    return take_cached(request(bytes, stream, &default_pool_));
  }

  // A block, from the driver if need be; null with `failure` filled. May wait, and needs the
  // device's context to be current.
  Block *allocate(std::size_t bytes, CUstream stream, AllocationFailure *failure) {
    Lock lock(mutex_);
    const Request wanted = request(bytes, stream, &default_pool_);
    if (!captures_) failure->status = poll(lock);
    if (failure->status != CUDA_SUCCESS) return nullptr;
    if (Block *block = take_cached(wanted)) return block;
    collect_garbage(lock);
    Block *block = new_segment(wanted, lock, failure);
    if (!block && out_of_memory(failure) && release_oversize(wanted, lock))
      block = new_segment(wanted, lock, failure);
    if (!block && out_of_memory(failure) && !captures_) {
      const CUresult status = flush(lock);
      if (status != CUDA_SUCCESS) failure->status = status;
      if (!out_of_memory(failure)) return nullptr;
      ++stats_.alloc_retries;
      block = new_segment(wanted, lock, failure);
    }
    if (block) return hand_out(block, wanted);
    if (!out_of_memory(failure)) return nullptr;
    // The flush may have returned a part of a segment that is otherwise in use.
    if (Block *found = take_cached(wanted)) return found;
    ++stats_.ooms;
    describe(wanted, failure);
    return nullptr;
  }

  // The block works for another stream too.
  void record_use(Block *block, const StreamUse &use) {
    Lock lock(mutex_);
    if (use == StreamUse{context_, block->segment->stream}) return;
    for (const StreamUse &known : block->uses)
      if (known == use) return;
    block->uses.push_back(use);
  }

  // Take a block back. Never waits: it is called where a tensor dies.
  void release(Block *block) {
    Lock lock(mutex_);
    const PoolKind kind = block->segment->kind;
    stats_.allocation.sub(kind, 1);
    stats_.allocated_bytes.sub(kind, block->size);
    if (block->size >= settings_->max_split_size) stats_.oversize_allocations.sub(1);
    block->raw = false;
    if (block->uses.empty() || dead_) {
      block->uses.clear();
      make_free(block);
      return;
    }
    std::vector<StreamUse> uses;
    uses.swap(block->uses);
    block->state = BlockState::pending;
    block->events = static_cast<int>(uses.size());
    for (const StreamUse &use : uses) {
      CUevent event = pending_.idle_event(use);
      lock.unlock();
      const CUresult status = PendingEvents<Block>::record(driver_, use, &event);
      lock.lock();
      if (status == CUDA_SUCCESS) {
        pending_.push(use, event, block);
      } else {
        pending_.give_back(use, event);
        stranded_.push_back(block);
      }
    }
  }

  // Wait for pending blocks and give every wholly free segment back to the driver.
  CUresult empty_cache() {
    Lock lock(mutex_);
    return dead_ ? CUDA_SUCCESS : flush(lock);
  }

  // The raw block at this address becomes the caller's to drop; null if there is none.
  Block *claim_raw(CUdeviceptr address) {
    Lock lock(mutex_);
    Block *block = find(address);
    if (!block || block->address() != address || !block->raw) return nullptr;
    block->raw = false;
    return block;
  }

  std::vector<SegmentInfo> snapshot() {
    Lock lock(mutex_);
    std::vector<SegmentInfo> all;
    for (const auto &[address, segment] : segments_) {
      SegmentInfo info{address,       segment->size,     segment->stream,
                       segment->kind, segment->pool->id, {}};
      for (const Block *b = segment->first; b; b = b->next)
        info.blocks.push_back({b->address(), b->size, b->requested, b->state});
      all.push_back(std::move(info));
    }
    return all;
  }

  DeviceStats stats() {
    Lock lock(mutex_);
    return stats_;
  }
  Stat allocated_bytes() {
    Lock lock(mutex_);
    return stats_.allocated_bytes.of[ALL_POOLS];
  }
  Stat reserved_bytes() {
    Lock lock(mutex_);
    return stats_.reserved_bytes.of[ALL_POOLS];
  }
  void reset_peak() {
    Lock lock(mutex_);
    stats_.reset_peak();
  }
  void reset_accumulated() {
    Lock lock(mutex_);
    stats_.reset_accumulated();
  }
  void set_limit(std::size_t bytes) {
    Lock lock(mutex_);
    limit_ = bytes;
  }
  std::size_t limit() {
    Lock lock(mutex_);
    return limit_;
  }

  // Around a fork: no other thread is in the middle of a change then.
  void pause() { mutex_.lock(); }
  void resume() { mutex_.unlock(); }

  // The driver's state is void (a forked child, a replaced driver): keep the books, call nobody.
  void die() {
    new (&mutex_) std::mutex();  // a thread that exists no more may hold the old one
    new (&segments_returned_) std::condition_variable();
    dead_ = true;
    pending_.forget();
  }

 private:
  struct Request {
    std::size_t bytes, size;  // asked for, and rounded
    CUstream stream;
    Pool *pool;
    PoolKind kind;
  };

  Request request(std::size_t bytes, CUstream stream, Pool *pool) const {
    const std::size_t size = settings_->round(bytes);
    return {bytes, size, stream, pool, size <= SMALL_LIMIT ? SMALL_POOL : LARGE_POOL};
  }

  static bool out_of_memory(const AllocationFailure *failure) {
    return failure->status == CUDA_ERROR_OUT_OF_MEMORY;
  }

  // -- handing out ---------------------------------------------------------------------------------

  Block *take_cached(const Request &wanted) {
    FreeList *list = wanted.pool->free_list(wanted.kind, wanted.stream);
    ++searches_;
    Block *block = list->best(wanted.size);
    if (!block || !fits(block, wanted)) return nullptr;
    list->erase(block);
    return hand_out(block, wanted);
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
    if (wanted.kind == SMALL_POOL) return rest >= MIN_BLOCK;
    return wanted.size < settings_->max_split_size && rest > SMALL_LIMIT;
  }

  Block *hand_out(Block *block, const Request &wanted) {
    const PoolKind kind = wanted.kind;
    const bool was_split = block->is_split();
    if (should_split(block, wanted)) {
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
    if (block->size >= settings_->max_split_size) stats_.oversize_allocations.add(1);
    block->state = BlockState::allocated;
    block->bytes = block->requested = wanted.bytes;
    block->references.store(1, std::memory_order_relaxed);
    block->version.store(0, std::memory_order_relaxed);
    block->resizable = true;
    return block;
  }

  // Cut a block that is in no free list to `size`; the rest goes into the free list.
  Block *split(Block *block, std::size_t size) {
    Block *rest = make_block(block->segment);
    rest->data = block->data + size;
    rest->size = block->size - size;
    rest->previous = block;
    rest->next = block->next;
    if (rest->next) rest->next->previous = rest;
    block->next = rest;
    block->size = size;
    block->segment->free_list->insert(rest);
    return rest;
  }

  // -- taking back ---------------------------------------------------------------------------------

  void make_free(Block *block) {
    const PoolKind kind = block->segment->kind;
    stats_.active.sub(kind, 1);
    stats_.active_bytes.sub(kind, block->size);
    stats_.requested_bytes.sub(kind, block->requested);
    std::int64_t parts = 0, part_bytes = 0;
    for (Block *neighbour : {block->previous, block->next}) {
      if (!neighbour || neighbour->state != BlockState::free) continue;
      parts -= 1;
      part_bytes -= static_cast<std::int64_t>(neighbour->size);
      absorb(block, neighbour);
    }
    block->state = BlockState::free;
    block->freed_at = searches_;
    block->segment->free_list->insert(block);
    if (block->is_split()) {
      parts += 1;
      part_bytes += static_cast<std::int64_t>(block->size);
    }
    stats_.inactive_split.move(kind, parts);
    stats_.inactive_split_bytes.move(kind, part_bytes);
  }

  void absorb(Block *block, Block *neighbour) {
    block->segment->free_list->erase(neighbour);
    block->size += neighbour->size;
    if (neighbour == block->previous) {
      block->data = neighbour->data;
      block->previous = neighbour->previous;
      (block->previous ? block->previous->next : block->segment->first) = block;
    } else {
      block->next = neighbour->next;
      if (block->next) block->next->previous = block;
    }
    recycle(neighbour);
  }

  void event_passed(Block *block) {
    if (--block->events == 0) make_free(block);
  }

  CUresult poll(Lock &lock) {
    if (pending_.empty()) return CUDA_SUCCESS;
    return pending_.poll(driver_, lock, [this](Block *block) { event_passed(block); });
  }

  // -- segments ------------------------------------------------------------------------------------

  // The one free block of a new segment, in no free list; null with the status in `failure`.
  Block *new_segment(const Request &wanted, Lock &lock, AllocationFailure *failure) {
    const std::size_t size = settings_->segment_size(wanted.size);
    const std::size_t reserved = stats_.reserved_bytes.of[ALL_POOLS].current + reserving_;
    failure->status = CUDA_ERROR_OUT_OF_MEMORY;
    if (size < wanted.size || size > limit_ || reserved > limit_ - size) return nullptr;
    segments_returned_.wait(lock, [this] { return returning_ == 0; });
    CUdeviceptr address = 0;
    reserving_ += size;
    lock.unlock();
    {
      OutsideCapture outside(driver_);
      failure->status = driver_->MemAlloc(&address, size);
    }
    lock.lock();
    reserving_ -= size;
    return failure->status == CUDA_SUCCESS ? add_segment(wanted, address, size) : nullptr;
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
    segments_[address] = segment;
    Block *block = segment->first = make_block(segment);
    block->data = reinterpret_cast<char *>(address);
    block->size = size;
    ++stats_.device_allocs;
    stats_.segment.add(segment->kind, 1);
    stats_.reserved_bytes.add(segment->kind, size);
    if (!segment->pool->is_default) segment->pool->reserved_bytes.add(segment->kind, size);
    if (size >= settings_->max_split_size) stats_.oversize_segments.add(1);
    return block;
  }

  void forget_segment(Segment *segment) {
    const std::size_t size = segment->size;
    segment->free_list->erase(segment->first);
    recycle(segment->first);
    segments_.erase(segment->address);
    ++stats_.device_frees;
    stats_.segment.sub(segment->kind, 1);
    stats_.reserved_bytes.sub(segment->kind, size);
    if (!segment->pool->is_default) segment->pool->reserved_bytes.sub(segment->kind, size);
    if (size >= settings_->max_split_size) stats_.oversize_segments.sub(1);
    delete segment;
  }

  // Give wholly free segments back to the driver.
  CUresult return_segments(const std::vector<Segment *> &segments, Lock &lock) {
    std::vector<CUdeviceptr> addresses;
    for (Segment *segment : segments) {
      addresses.push_back(segment->address);
      forget_segment(segment);
    }
    if (addresses.empty()) return CUDA_SUCCESS;
    CUresult result = CUDA_SUCCESS;
    ++returning_;
    lock.unlock();
    {
      ContextScope scope(driver_, context_);
      OutsideCapture outside(driver_);
      for (const CUdeviceptr address : addresses) {
        const CUresult status = driver_->MemFree(address);
        if (result == CUDA_SUCCESS) result = status;
      }
    }
    lock.lock();
    --returning_;
    segments_returned_.notify_all();
    return result;
  }

  static bool is_whole(const Segment *segment) {
    return segment->first->state == BlockState::free && !segment->first->next;
  }

  CUresult flush(Lock &lock) {
    ++stats_.sync_all_streams;
    CUresult status =
        pending_.wait(driver_, lock, [this](Block *block) { event_passed(block); });
    if (status == CUDA_SUCCESS) status = free_stranded(lock);
    if (status != CUDA_SUCCESS) return status;
    std::vector<Segment *> whole;
    for (const auto &[address, segment] : segments_)
      if (is_whole(segment) && (segment->pool->is_default || !segment->pool->users))
        whole.push_back(segment);
    return return_segments(whole, lock);
  }

  // Blocks for which no event could be recorded are free once the whole device has caught up.
  CUresult free_stranded(Lock &lock) {
    if (stranded_.empty()) return CUDA_SUCCESS;
    std::vector<Block *> blocks;
    blocks.swap(stranded_);
    lock.unlock();
    CUresult status;
    {
      ContextScope scope(driver_, context_);
      status = driver_->CtxSynchronize();
    }
    lock.lock();
    for (Block *block : blocks) {
      if (status == CUDA_SUCCESS) event_passed(block);
      else stranded_.push_back(block);
    }
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

  void describe(const Request &wanted, AllocationFailure *failure) {
    failure->requested = wanted.bytes;
    failure->segment_size = settings_->segment_size(wanted.size);
    failure->allocated = stats_.allocated_bytes.of[ALL_POOLS].current;
    failure->reserved = stats_.reserved_bytes.of[ALL_POOLS].current;
    failure->limit = limit_;
    for (const auto &[address, segment] : segments_)
      for (const Block *block = segment->first; block; block = block->next) {
        if (block->state != BlockState::free) continue;
        if (!segment->pool->is_default) failure->private_free += block->size;
        if (block->size > failure->largest_free) failure->largest_free = block->size;
      }
  }

  // -- blocks --------------------------------------------------------------------------------------

  Block *find(CUdeviceptr address) const {
    auto it = segments_.upper_bound(address);
    if (it == segments_.begin()) return nullptr;
    for (Block *block = (--it)->second->first; block; block = block->next)
      if (address - block->address() < block->size) return block;
    return nullptr;
  }

  static void release_storage(Storage *storage) {
    Block *block = static_cast<Block *>(storage);
    if (on_release) on_release(block);
    block->allocator->release(block);
  }

  Block *make_block(Segment *segment) {
    Block *block = spare_;
    if (block) {
      spare_ = block->next;
      block->next = block->previous = nullptr;
    } else {
      block = new Block();
      block->allocator = this;
      block->device = static_cast<std::int16_t>(device_);
      block->release = release_storage;
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
  CUcontext context_ = nullptr;
  const DriverTable *const driver_;
  const AllocatorSettings *const settings_;

  std::mutex mutex_;
  Pool default_pool_;
  DeviceStats stats_;
  std::map<CUdeviceptr, Segment *> segments_;
  std::int64_t segment_serial_ = 0;
  std::int64_t searches_ = 0;  // of free lists; the clock of block ages
  PendingEvents<Block> pending_;
  std::vector<Block *> stranded_;  // once per event that could not be recorded
  Block *spare_ = nullptr;
  std::size_t limit_ = SIZE_MAX;
  std::size_t reserving_ = 0;  // bytes being asked of the driver
  int returning_ = 0;          // threads giving segments back
  std::condition_variable segments_returned_;
  int captures_ = 0;           // captures under way on this device
  bool dead_ = false;

 public:
  bool is_dead() const { return dead_; }
  // Told of each block before it is taken back, if not null.
  static inline void (*on_release)(Block *) = nullptr;
  static bool owns(const Storage *storage) { return storage->release == release_storage; }
};

}  // namespace flambeau
