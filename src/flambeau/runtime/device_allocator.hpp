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

#include "captured_frees.hpp"
#include "pending_events.hpp"
#include "segment_allocator.hpp"

namespace flambeau {

struct DeviceAllocator : private SegmentAllocator {
  using Lock = SegmentAllocator::Lock;

  DeviceAllocator(int device, const DriverTable *driver, const AllocatorSettings *settings)
      : SegmentAllocator(device, driver, settings, this, release_storage) {}

  // The device's primary context; known before the first call of allocate().
  void set_context(CUcontext context) { context_ = context; }

  // What the device has in all; known before the first call of allocate().
  void set_total(std::size_t bytes) { total_ = bytes; }

  // The device maps memory apart from addresses, and these devices may use it too. Before the first
  // call of allocate().
  void allow_expanding(const std::vector<int> &peers) {
    can_expand_ = true;
    for (const int peer : peers) pages_.add_peer(peer);
  }

  // A cached block, or null: then call allocate(). Makes no driver call.
  Block *allocate_cached(std::size_t bytes, CUstream stream) {
    Lock lock(mutex_);
    if (slow_ || (!pending_.empty() && !captures_)) return nullptr;
    return take_cached(request(bytes, stream, &default_pool_, nullptr));
  }

  // A block, from the driver if need be; null with `failure` filled. May wait, and needs the
  // device's context to be current. `stack` says who asks, if the history keeps that.
  Block *allocate(std::size_t bytes, CUstream stream, const StackNode *stack,
                  AllocationFailure *failure) {
    Lock lock(mutex_);
    if (!captures_) {
      mark_deferred(lock);
      failure->status = poll(lock);
    }
    if (failure->status != CUDA_SUCCESS) return nullptr;
    const Request wanted = request(bytes, stream, pool_for(stream), stack);
    if (captures_ && !captured_frees_.empty()) reclaim_captured(wanted);
    ++wanted.pool->pins;  // it stays while the lock is let go
    Block *block = find_memory(wanted, lock, failure);
    --wanted.pool->pins;
    if (block || !out_of_memory(failure)) return block;
    ++(failure->refusal == Refusal::rejection ? stats_.oom_rejections : stats_.ooms);
    describe(wanted, lock, failure);
    return nullptr;
  }

  // The block works for another stream too.
  void record_use(Block *block, StreamUse use) {
    Lock lock(mutex_);
    if (use == StreamUse{context_, block->segment->stream}) return;
    for (const StreamUse &known : block->uses)
      if (known == use) return;
    use.captured = captures_ > 0;
    block->uses.push_back(use);
  }

  // Take a block back. Never waits: it is called where a tensor dies.
  void release(Block *block, const StackNode *stack = nullptr) {
    Lock lock(mutex_);
    const PoolKind kind = block->segment->kind;
    stats_.allocation.sub(kind, 1);
    stats_.allocated_bytes.sub(kind, block->size);
    if (block->oversize) stats_.oversize_allocations.sub(1), block->oversize = false;
    if (history_.on()) {
      if (stack) block->stack = stack;
      record(TraceAction::free_requested, block);
    }
    if (block->uses.empty() || dead_) {
      block->uses.clear();
      make_free(block);
      return;
    }
    block->state = BlockState::pending;
    if (captures_) {
      captured_frees_.add(driver_, block, settings_->reuse_in_capture);
      update_slow();
    } else {
      mark_uses(block, lock);
    }
  }

  // Wait for pending blocks and give every wholly free segment back to the driver.
  CUresult empty_cache() {
    Lock lock(mutex_);
    if (dead_) return CUDA_SUCCESS;
    if (captures_) return flush_dead_pools(lock);
    mark_deferred(lock);
    return flush(lock);
  }

  void locate(const Block *block, Whereabouts *found) {
    Lock lock(mutex_);
    const Segment *segment = block->segment;
    const ExpandableRange *range = segment->range;
    *found = {segment->address, block->address() - segment->address, 0, {}};
    if (!range) return;
    const std::size_t from = block->address() - range->address;
    const std::size_t first = from / range->page;
    *found = {range->address_of(first), from - first * range->page, range->page, {}};
    for (std::size_t page = first; page * range->page < from + block->size; ++page)
      found->pages.push_back(range->handle_of(page));
  }

  // -- private pools -------------------------------------------------------------------------------

  // Make a pool with one user, or add a user to it.
  void retain_pool(PoolId id, const SegmentSource *source = nullptr, bool serves_on_oom = false,
                   bool splits = true) {
    Lock lock(mutex_);
    std::unique_ptr<Pool> &pool = pools_[id];
    if (pool) {
      ++pool->users;
      return;
    }
    pool = std::make_unique<Pool>();
    pool->id = id;
    pool->is_default = false;
    pool->source = source;
    pool->serves_on_oom = serves_on_oom;
    pool->splits = splits;
  }

  // One user less. What is left of a pool without users goes back to the driver at the next flush.
  bool drop_pool(PoolId id) {
    Lock lock(mutex_);
    const auto found = pools_.find(id);
    if (found == pools_.end() || !found->second->users) return false;
    --found->second->users;
    erase_dead_pools();
    return true;
  }

  std::int64_t pool_users(PoolId id) {
    Lock lock(mutex_);
    const auto found = pools_.find(id);
    return found == pools_.end() ? 0 : found->second->users;
  }

  // From now on what the filter says yes to is allocated from this pool; false if there is none.
  // Routes nest: the newest one that says yes counts. While a capture runs, `capturing` routes make
  // the allocator leave events alone.
  bool begin_route(PoolId id, RouteFilter filter, void *context, bool capturing) {
    Lock lock(mutex_);
    const auto found = pools_.find(id);
    if (found == pools_.end()) return false;
    routes_.push_back({found->second.get(), filter, context});
    captures_ += capturing;
    update_slow();
    return true;
  }

  bool end_route(PoolId id, void *context, bool capturing) {
    Lock lock(mutex_);
    for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
      if (!(route->pool->id == id) || route->context != context) continue;
      routes_.erase(std::next(route).base());
      captures_ -= capturing;
      if (!captures_) captured_frees_.forget_graphs();
      update_slow();
      return true;
    }
    return false;
  }

  bool has_route(PoolId id, void *context) {
    Lock lock(mutex_);
    for (const Route &route : routes_)
      if (route.pool->id == id && route.context == context) return true;
    return false;
  }

  // Give the free segments of pools without users back; waits for nothing but the driver.
  CUresult flush_dead() {
    Lock lock(mutex_);
    return dead_ ? CUDA_SUCCESS : flush_dead_pools(lock);
  }

  std::vector<std::pair<PoolId, StatArray>> pool_stats() {
    Lock lock(mutex_);
    return {pool_reserved_.begin(), pool_reserved_.end()};
  }

  // -- history -------------------------------------------------------------------------------------

  void start_history(StackUse stacks, std::size_t most, unsigned skipped_actions, bool clear) {
    Lock lock(mutex_);
    if (clear) history_.clear();
    history_.start(stacks, most, skipped_actions);
    update_slow();
  }
  void stop_history() {
    Lock lock(mutex_);
    history_.stop();
    update_slow();
  }
  void clear_history() {
    Lock lock(mutex_);
    history_.clear();
  }
  std::vector<TraceEntry> trace() {
    Lock lock(mutex_);
    return history_.entries();
  }
  // The entry of a snapshot is made after it, so that the next one shows it.
  void note_snapshot() {
    Lock lock(mutex_);
    if (!history_.on()) return;
    const auto active = stats_.active_bytes.of[ALL_POOLS].current;
    history_.record({TraceAction::snapshot, 0, static_cast<std::size_t>(active), nullptr, {},
                     nullptr});
  }
  void annotate(const Block *block, Metadata text, const StackNode *stack) {
    Lock lock(mutex_);
    if (!history_.on()) return;
    history_.record({TraceAction::annotate, block->address(), block->requested,
                     block->segment->stream, block->segment->pool->id, stack, 0, std::move(text)});
  }
  // The stack of the block that starts here: null if there is none or no stack was kept.
  const StackNode *stack_at(CUdeviceptr address) {
    Lock lock(mutex_);
    const Block *block = find(address);
    return block && block->address() == address && block->state == BlockState::allocated
               ? block->stack : nullptr;
  }

  // -- reports -------------------------------------------------------------------------------------

  std::vector<SegmentInfo> snapshot() {
    Lock lock(mutex_);
    return list_segments(segments_);
  }
  Balance balance() {
    Lock lock(mutex_);
    return balance_of(segments_, &default_pool_, LARGE_POOL, nullptr);
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
    for (auto &[id, reserved] : pool_reserved_)
      for (Stat &stat : reserved.of) stat.reset_peak();
  }
  void reset_accumulated() {
    Lock lock(mutex_);
    stats_.reset_accumulated();
    for (auto &[id, reserved] : pool_reserved_)
      for (Stat &stat : reserved.of) stat.reset_accumulated();
  }
  void set_limit(std::size_t bytes) {
    Lock lock(mutex_);
    limit_ = bytes;
  }
  std::size_t limit() {
    Lock lock(mutex_);
    return limit_;
  }

  // Early refusals can never come: the limit comes first.
  bool rejection_is_idle() {
    Lock lock(mutex_);
    return settings_->reject_early && limit_ <= configured_limit();
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
  Pool *pool_for(CUstream stream) {
    for (auto route = routes_.rbegin(); route != routes_.rend(); ++route)
      if (route->filter(route->context, stream)) return route->pool;
    return &default_pool_;
  }

  // Whether allocate_cached() has to leave everything to allocate().
  void update_slow() { slow_ = !routes_.empty() || !captured_frees_.empty() || history_.on(); }

  static bool out_of_memory(const AllocationFailure *failure) {
    return failure->status == CUDA_ERROR_OUT_OF_MEMORY;
  }

  // -- handing out ---------------------------------------------------------------------------------

  // From the cache or from the driver, with all that may be tried; null with the status.
  Block *find_memory(const Request &wanted, Lock &lock, AllocationFailure *failure) {
    if (Block *block = take_cached(wanted)) return block;
    if (collect_sent) {
      lock.unlock();
      const bool any = collect_sent();
      lock.lock();
      if (Block *block = any ? take_cached(wanted) : nullptr) return block;
    }
    collect_garbage(lock);
    Block *block = new_segment(wanted, lock, failure);
    if (block) return hand_out(block, wanted);
    if (!out_of_memory(failure) || failure->refusal == Refusal::rejection) return nullptr;
    if (Block *found = take_from_reserve(wanted)) return found;
    if (release_oversize(wanted, lock)) block = new_segment(wanted, lock, failure);
    if (!block && out_of_memory(failure) && !captures_) {
      const CUresult status = flush(lock);
      if (status != CUDA_SUCCESS) failure->status = status;
      if (!out_of_memory(failure)) return nullptr;
      ++stats_.alloc_retries;
      block = new_segment(wanted, lock, failure);
    }
    if (block) return hand_out(block, wanted);
    // The flush may have returned a part of a segment that is otherwise in use.
    return out_of_memory(failure) ? take_cached(wanted) : nullptr;
  }

  // Some private pools lend what they have free.
  Block *take_from_reserve(Request wanted) {
    if (!wanted.pool->is_default) return nullptr;
    for (const auto &[id, pool] : pools_) {
      if (!pool->serves_on_oom) continue;
      wanted.pool = pool.get();
      if (Block *block = take_cached(wanted)) return block;
    }
    return nullptr;
  }

  // -- taking back ---------------------------------------------------------------------------------

  // One event for each use that runs now; with none the block is free.
  void mark_uses(Block *block, Lock &lock) {
    std::vector<StreamUse> uses;
    for (const StreamUse &use : block->uses)
      if (!use.captured) uses.push_back(use);
    block->uses.clear();
    if (uses.empty()) return make_free(block);
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

  // Blocks freed while a capture ran.
  void mark_deferred(Lock &lock) {
    if (captured_frees_.empty()) return;
    const std::vector<Block *> blocks = captured_frees_.take_all();
    update_slow();
    for (Block *block : blocks) mark_uses(block, lock);
  }

  // Blocks freed in this capture that its graph says are free.
  void reclaim_captured(const Request &wanted) {
    captured_frees_.reclaim(driver_, wanted.stream, wanted.pool, [this](Block *block) {
      block->uses.clear();
      make_free(block);
    });
  }

  void event_passed(Block *block) {
    if (--block->events == 0) make_free(block);
  }

  CUresult poll(Lock &lock) {
    if (pending_.empty()) return CUDA_SUCCESS;
    return pending_.poll(driver_, lock, [this](Block *block) { event_passed(block); });
  }

  // -- flushing ------------------------------------------------------------------------------------

  CUresult flush(Lock &lock) {
    ++stats_.sync_all_streams;
    CUresult status =
        pending_.wait(driver_, lock, [this](Block *block) { event_passed(block); });
    if (status == CUDA_SUCCESS) status = free_stranded(lock);
    if (status != CUDA_SUCCESS) return status;
    return return_whole(lock, [](const Pool *pool) { return pool->is_default || !pool->users; });
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

  void describe(const Request &wanted, Lock &lock, AllocationFailure *failure) {
    failure->requested = wanted.bytes;
    failure->rounded = wanted.size;
    failure->segment_size = settings_->segment_size(wanted.size);
    failure->stream = wanted.stream;
    failure->pool = wanted.pool->id;
    failure->allocated = stats_.allocated_bytes.of[ALL_POOLS].current;
    failure->reserved = stats_.reserved_bytes.of[ALL_POOLS].current;
    failure->limit = limit_;
    if (failure->refusal == Refusal::rejection) failure->limit = configured_limit();
    failure->balance = balance_of(segments_, wanted.pool, wanted.kind, wanted.stream);
    lock.unlock();
    driver_->MemGetInfo(&failure->free, &failure->total);
    lock.lock();
    if (history_.on())
      history_.record({TraceAction::oom, failure->free, wanted.size, wanted.stream,
                       wanted.pool->id, wanted.stack});
  }

  static void release_storage(Storage *storage) {
    Block *block = static_cast<Block *>(storage);
    if (block->sent && keep_sent && keep_sent(block)) return;
    if (on_release) on_release(block);
    block->allocator->release(block, History::stack_at_free());
  }

  std::mutex mutex_;
  bool slow_ = false;  // see update_slow()
  PendingEvents<Block> pending_;
  std::vector<Block *> stranded_;  // once per event that could not be recorded
  CapturedFrees captured_frees_;   // not marked yet
  bool dead_ = false;

 public:
  bool is_dead() const { return dead_; }
  // Told of each block before it is taken back, if not null.
  static inline void (*on_release)(Block *) = nullptr;
  // Whether a block that other processes were given has to stay; take back such blocks that no
  // process holds, and say whether there were any. Called without a lock.
  static inline bool (*keep_sent)(Block *) = nullptr;
  static inline bool (*collect_sent)() = nullptr;
  static bool owns(const Storage *storage) { return storage->release == release_storage; }
};

}  // namespace flambeau
