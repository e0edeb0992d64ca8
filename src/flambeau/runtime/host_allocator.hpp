// SPDX-License-Identifier: Apache-2.0
// The cache of pinned host memory, which devices reach directly.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "allocator_history.hpp"
#include "host_block.hpp"
#include "pending_events.hpp"

namespace flambeau {

// Sizes are powers of two unless the settings say otherwise, with a bucket for each power; nothing is
// split or merged, and memory stays pinned until empty_cache(). The mutex is never held across a driver call that can wait.
struct PinnedAllocator {
  using Lock = std::unique_lock<std::mutex>;
  static constexpr int BUCKETS = 64;

  PinnedAllocator(const DriverTable *driver, const HostSettings *settings)
      : driver_(driver), settings_(settings) {}

  // A pinned block; null with the driver's status. A context must be current.
  HostBlock *allocate(std::size_t bytes, const StackNode *stack, CUresult *status) {
    Lock lock(mutex_);
    *status = watching_ ? std::exchange(found_by_watcher_, CUDA_SUCCESS) : poll(lock);
    if (*status == CUDA_SUCCESS) *status = unpin_doomed(lock);
    if (*status != CUDA_SUCCESS) return nullptr;
    const std::size_t size = round(bytes);
    const int bucket = bucket_of(size);
    HostBlock *block = take_cached(bucket, size);
    if (!block) block = pin(size, bucket, stack, lock, status);
    if (!block && *status == CUDA_ERROR_OUT_OF_MEMORY && doom_idle()) {
      *status = unpin_doomed(lock);
      if (*status == CUDA_SUCCESS) block = pin(size, bucket, stack, lock, status);
    }
    if (!block) return nullptr;
    active_requests_[bucket].add(1);
    active_bytes_[bucket].add(block->size);
    block->bytes = bytes;
    block->references.store(1, std::memory_order_relaxed);
    block->version.store(0, std::memory_order_relaxed);
    block->state = BlockState::allocated;
    block->stack = history_.stacks() >= StackUse::state ? stack : nullptr;
    record(TraceAction::alloc, block, bytes);
    return block;
  }

  void record_use(HostBlock *block, const StreamUse &use) {
    Lock lock(mutex_);
    if (std::find(block->uses.begin(), block->uses.end(), use) == block->uses.end())
      block->uses.push_back(use);
  }

  // Work on the block became a part of a graph, which may run at any time from now on.
  void record_captured_use(HostBlock *block) {
    Lock lock(mutex_);
    block->in_graph = true;
  }

  // Take a block back. Never waits.
  void release(HostBlock *block, const StackNode *stack = nullptr) {
    Lock lock(mutex_);
    if (stack) block->stack = stack;
    record(TraceAction::free_requested, block, block->bytes);
    if (block->in_graph) {
      block->state = BlockState::pending;
      return;
    }
    if (block->uses.empty() || dead_) {
      block->uses.clear();
      make_free(block);
      return;
    }
    block->state = BlockState::pending;
    std::vector<StreamUse> uses;
    uses.swap(block->uses);
    block->events = static_cast<int>(uses.size());
    for (const StreamUse &use : uses) {
      CUevent event = pending_.idle_event(use);
      lock.unlock();
      const CUresult status = PendingEvents<HostBlock>::record(driver_, use, &event);
      lock.lock();
      // If a use cannot be marked, nobody can tell when it ends: the block stays out of the cache.
      if (status == CUDA_SUCCESS) {
        pending_.push(use, event, block);
      } else {
        pending_.give_back(use, event);
        has_retired_ = true;
      }
    }
  }

  // Whether blocks were retired since this was asked last: their use could not be marked.
  bool take_retired() { return has_retired_.exchange(false, std::memory_order_relaxed); }

  // Unpin every block that nobody uses.
  CUresult empty_cache() {
    Lock lock(mutex_);
    if (dead_) return CUDA_SUCCESS;
    CUresult result = poll(lock);
    doom_idle();
    const CUresult status = unpin_doomed(lock);
    return result == CUDA_SUCCESS ? status : result;
  }

  // Unpin what was too large to be kept.
  CUresult unpin_doomed() {
    Lock lock(mutex_);
    return dead_ ? CUDA_SUCCESS : unpin_doomed(lock);
  }

  void start_history(StackUse stacks, std::size_t most, unsigned skipped_actions) {
    Lock lock(mutex_);
    history_.start(stacks, most, skipped_actions);
  }
  void stop_history() {
    Lock lock(mutex_);
    history_.stop();
  }
  void clear_history() {
    Lock lock(mutex_);
    history_.clear();
  }
  std::vector<TraceEntry> trace() {
    Lock lock(mutex_);
    return history_.entries();
  }

  std::vector<HostBlockInfo> snapshot() {
    Lock lock(mutex_);
    std::vector<HostBlockInfo> all;
    for (const auto &[address, block] : blocks_)
      all.push_back({address, block->size, block->bytes, block->state, block->stack});
    return all;
  }

  bool contains(const void *address) {
    Lock lock(mutex_);
    const char *wanted = static_cast<const char *>(address);
    auto it = blocks_.upper_bound(const_cast<char *>(wanted));
    if (it == blocks_.begin()) return false;
    const HostBlock *block = (--it)->second;
    return wanted < block->data + block->size;
  }

  HostStats stats() {
    Lock lock(mutex_);
    HostStats sum = stats_;
    for (int i = 0; i < BUCKETS; ++i) {
      accumulate(sum.active_requests, active_requests_[i]);
      accumulate(sum.active_bytes, active_bytes_[i]);
    }
    return sum;
  }

  void reset_peak() {
    each_stat([](Stat &stat) { stat.reset_peak(); });
    stats_.alloc_time.max = stats_.alloc_time.min = 0;
    stats_.free_time.max = stats_.free_time.min = 0;
  }

  void reset_accumulated() {
    each_stat([](Stat &stat) { stat.reset_accumulated(); });
    stats_.alloc_time = stats_.free_time = Timing();
  }

  // Let a thread look for uses that have ended, or end it. Called with no lock and without the GIL.
  void watch(bool on) {
    Lock lock(mutex_);
    if (on == watching_ || dead_) return;
    watching_ = on;
    if (on) {
      watcher_ = std::thread([this] { keep_watch(); });
      return;
    }
    std::thread ended;
    ended.swap(watcher_);
    lock.unlock();
    ended.join();
  }

  void pause() { mutex_.lock(); }
  void resume() { mutex_.unlock(); }

  void die() {
    new (&mutex_) std::mutex();  // a thread that exists no more may hold the old one
    new (&watcher_) std::thread();  // it is not there in a forked child
    watching_ = false;
    dead_ = true;
    pending_.forget();
  }

  static bool owns(const Storage *storage) { return storage->release == release_storage; }
  // Told where a storage died that unpin_doomed() has something to do; takes the GIL.
  static inline void (*on_doomed)() = nullptr;

  bool is_dead() const { return dead_; }

 private:
  std::size_t round(std::size_t bytes) const {
    if (bytes > settings_->max_round_threshold || bytes > settings_->max_cached_size) return bytes;
    std::size_t size = 1;
    while (size < bytes && size <= SIZE_MAX / 2) size *= 2;
    return std::max(size, bytes);
  }
  static int bucket_of(std::size_t size) { return size <= 1 ? 0 : 64 - __builtin_clzll(size - 1); }

  static std::int64_t since(std::chrono::steady_clock::time_point start) {
    using namespace std::chrono;
    return duration_cast<microseconds>(steady_clock::now() - start).count();
  }

  static void accumulate(Stat &sum, const Stat &part) {
    sum.current += part.current;
    sum.peak += part.peak;
    sum.allocated += part.allocated;
    sum.freed += part.freed;
  }

  template <class Visit> void each_stat(Visit visit) {
    Lock lock(mutex_);
    visit(stats_.allocations);
    visit(stats_.allocated_bytes);
    for (int i = 0; i < BUCKETS; ++i) {
      visit(active_requests_[i]);
      visit(active_bytes_[i]);
    }
  }

  static void release_storage(Storage *storage) {
    HostBlock *block = static_cast<HostBlock *>(storage);
    PinnedAllocator *allocator = static_cast<PinnedAllocator *>(block->owner);
    allocator->release(block, History::stack_at_free());
    if (on_doomed && allocator->has_doomed_.load(std::memory_order_relaxed)) on_doomed();
  }

  HostBlock *take_cached(int bucket, std::size_t size) {
    std::vector<HostBlock *> &blocks = free_[bucket];
    for (auto it = blocks.rbegin(); it != blocks.rend(); ++it) {
      if ((*it)->size < size) continue;
      HostBlock *block = *it;
      blocks.erase(std::next(it).base());
      return block;
    }
    return nullptr;
  }

  HostBlock *pin(std::size_t size, int bucket, const StackNode *stack, Lock &lock,
                 CUresult *status) {
    HostBlock *block = new HostBlock();
    block->size = size;
    block->bucket = bucket;
    block->pinned = true;
    block->owner = this;
    block->release = release_storage;
    block->stack = stack;
    block->data = carve(size, lock, status);
    block->carved = block->data;
    if (!block->data && *status == CUDA_SUCCESS) {
      block->registered = settings_->use_register;
      block->data = page_lock(size, block->registered, lock, status);
    }
    if (*status != CUDA_SUCCESS) {
      delete block;
      return nullptr;
    }
    blocks_[block->data] = block;
    stats_.allocations.add(1);
    stats_.allocated_bytes.add(size);
    record(TraceAction::segment_alloc, block, size);
    return block;
  }

  char *page_lock(std::size_t size, bool registered, Lock &lock, CUresult *status) {
    constexpr unsigned PORTABLE = 1;  // for all contexts: CU_MEMHOSTALLOC_, CU_MEMHOSTREGISTER_
    void *address = nullptr;
    const unsigned threads = settings_->register_threads;
    lock.unlock();
    const auto start = std::chrono::steady_clock::now();
    {
      OutsideCapture outside(driver_);
      if (!registered) {
        *status = driver_->MemHostAlloc(&address, size, PORTABLE);
      } else if ((address = touched_pages(size, threads))) {
        *status = driver_->MemHostRegister(address, size, PORTABLE);
        if (*status != CUDA_SUCCESS) std::free(address);
      } else {
        *status = CUDA_ERROR_OUT_OF_MEMORY;
      }
    }
    const std::int64_t took = since(start);
    lock.lock();
    if (*status != CUDA_SUCCESS) return nullptr;
    stats_.alloc_time.add(took);
    return static_cast<char *>(address);
  }

  // Pages that the operating system has given already, by several threads if that pays.
  static void *touched_pages(std::size_t size, unsigned threads) {
    const std::size_t bytes = (size + PAGE - 1) / PAGE * PAGE;
    char *memory = static_cast<char *>(std::aligned_alloc(PAGE, bytes));
    if (!memory) return nullptr;
    const auto touch = [=](std::size_t from, std::size_t to) {
      for (std::size_t at = from; at < to; at += PAGE) *static_cast<volatile char *>(memory + at) = 0;
    };
    if (threads <= 1 || size < PAGE * threads) {
      touch(0, bytes);
      return memory;
    }
    const std::size_t share = (bytes / PAGE + threads - 1) / threads * PAGE;
    std::vector<std::thread> workers;
    for (std::size_t from = 0; from < bytes; from += share)
      workers.emplace_back(touch, from, std::min(from + share, bytes));
    for (std::thread &worker : workers) worker.join();
    return memory;
  }

  // A part of the reserve; null if there is none or it is used up.
  char *carve(std::size_t size, Lock &lock, CUresult *status) {
    *status = CUDA_SUCCESS;
    const std::size_t whole = settings_->reserve_segment;
    const std::size_t part = (size + PAGE - 1) / PAGE * PAGE;
    if (part > whole || part < size) return nullptr;
    if (!reserve_ && !reserving_) {
      reserving_ = true;
      reserve_ = page_lock(whole, false, lock, status);
      reserving_ = false;
      reserve_left_ = reserve_ ? whole : 0;
      reserve_next_ = reserve_;
    }
    if (part > reserve_left_) return nullptr;
    char *address = reserve_next_;
    reserve_next_ += part;
    reserve_left_ -= part;
    return address;
  }

  // Out of the books; the driver hears of it at the next unpin_doomed(), since that may wait.
  void doom(HostBlock *block) {
    blocks_.erase(block->data);
    stats_.allocations.sub(1);
    stats_.allocated_bytes.sub(block->size);
    record(TraceAction::segment_free, block, block->size);
    doomed_.push_back(block);
  }

  // All blocks that nobody uses, but for the parts of the reserve; whether there were any.
  bool doom_idle() {
    std::vector<HostBlock *> idle;
    for (std::vector<HostBlock *> &bucket : free_) {
      const auto kept = std::stable_partition(bucket.begin(), bucket.end(),
                                              [](HostBlock *block) { return block->carved; });
      idle.insert(idle.end(), kept, bucket.end());
      bucket.erase(kept, bucket.end());
    }
    for (HostBlock *block : idle) doom(block);
    return !idle.empty();
  }

  CUresult unpin_doomed(Lock &lock) {
    has_doomed_.store(false, std::memory_order_relaxed);
    CUresult result = CUDA_SUCCESS;
    while (!doomed_.empty()) {
      HostBlock *block = doomed_.back();
      doomed_.pop_back();
      lock.unlock();
      const auto start = std::chrono::steady_clock::now();
      const CUresult status = block->registered ? driver_->MemHostUnregister(block->data)
                                                : driver_->MemFreeHost(block->data);
      if (block->registered && status == CUDA_SUCCESS) std::free(block->data);
      const std::int64_t took = since(start);
      lock.lock();
      stats_.free_time.add(took);
      if (result == CUDA_SUCCESS) result = status;
      delete block;
    }
    return result;
  }

  void record(TraceAction action, const HostBlock *block, std::size_t size) {
    if (history_.on())
      history_.record({action, reinterpret_cast<CUdeviceptr>(block->data), size, nullptr, {},
                       block->stack});
  }

  void make_free(HostBlock *block) {
    record(TraceAction::free_completed, block, block->bytes);
    block->stack = nullptr;
    block->state = BlockState::free;
    active_requests_[block->bucket].sub(1);
    active_bytes_[block->bucket].sub(block->size);
    if (block->size <= settings_->max_cached_size || block->carved || dead_) {
      free_[block->bucket].push_back(block);
    } else {
      doom(block);
      has_doomed_.store(true, std::memory_order_relaxed);
    }
  }

  void keep_watch() {
    Lock lock(mutex_);
    while (watching_) {
      const CUresult status = poll(lock);
      if (status != CUDA_SUCCESS) found_by_watcher_ = status;
      lock.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      lock.lock();
    }
  }

  CUresult poll(Lock &lock) {
    if (pending_.empty()) return CUDA_SUCCESS;
    return pending_.poll(driver_, lock, [this](HostBlock *block) {
      if (--block->events == 0) make_free(block);
    });
  }

  static constexpr std::size_t PAGE = 4096;

  const DriverTable *const driver_;
  const HostSettings *const settings_;
  std::mutex mutex_;
  History history_;
  char *reserve_ = nullptr, *reserve_next_ = nullptr;
  std::size_t reserve_left_ = 0;
  bool reserving_ = false;
  std::vector<HostBlock *> free_[BUCKETS + 1];
  std::map<char *, HostBlock *> blocks_;
  std::vector<HostBlock *> doomed_;
  std::atomic<bool> has_doomed_{false};
  std::atomic<bool> has_retired_{false};
  std::thread watcher_;
  bool watching_ = false;
  CUresult found_by_watcher_ = CUDA_SUCCESS;
  HostStats stats_;
  Stat active_requests_[BUCKETS + 1], active_bytes_[BUCKETS + 1];
  PendingEvents<HostBlock> pending_;
  bool dead_ = false;
};

}  // namespace flambeau
