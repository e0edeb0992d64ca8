// SPDX-License-Identifier: Apache-2.0
// Host memory: ordinary blocks, and the cache of pinned ones that devices reach directly.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

#include "pending_events.hpp"
#include "stats.hpp"
#include "storage.hpp"

namespace flambeau {

constexpr std::size_t HOST_ALIGNMENT = 64;  // a cache line, and the widest vector load

// An ordinary host block, header and data in one piece; null if there is no memory.
inline Storage *allocate_host_storage(std::size_t bytes) {
  constexpr std::size_t header = (sizeof(Storage) + HOST_ALIGNMENT - 1) & ~(HOST_ALIGNMENT - 1);
  if (bytes > SIZE_MAX - header - HOST_ALIGNMENT) return nullptr;
  const std::size_t data = (bytes + HOST_ALIGNMENT - 1) & ~(HOST_ALIGNMENT - 1);
  void *memory = std::aligned_alloc(HOST_ALIGNMENT, header + data);
  if (!memory) return nullptr;
  Storage *storage = new (memory) Storage();
  storage->data = bytes ? static_cast<char *>(memory) + header : nullptr;
  storage->bytes = bytes;
  storage->release = [](Storage *dead) {
    dead->~Storage();
    std::free(dead);
  };
  return storage;
}

struct HostBlock : Storage {
  std::size_t size = 0;
  int bucket = 0;
  int events = 0;
  std::vector<StreamUse> uses;
};

// Microseconds that driver calls took.
struct Timing {
  std::int64_t total = 0, max = 0, min = 0, count = 0;

  void add(std::int64_t microseconds) {
    total += microseconds;
    max = std::max(max, microseconds);
    min = count ? std::min(min, microseconds) : microseconds;
    ++count;
  }
};

struct HostStats {
  Stat allocations, allocated_bytes;      // what the driver gave
  Stat active_requests, active_bytes;     // what is handed out, or back but still in use
  Timing alloc_time, free_time;
};

// Sizes are powers of two, one bucket each; nothing is split or merged, and memory stays pinned
// until empty_cache(). The mutex is never held across a driver call that can wait.
struct PinnedAllocator {
  using Lock = std::unique_lock<std::mutex>;
  static constexpr int BUCKETS = 64;

  explicit PinnedAllocator(const DriverTable *driver) : driver_(driver) {}

  // A pinned block; null with the driver's status. A context must be current.
  HostBlock *allocate(std::size_t bytes, CUresult *status) {
    Lock lock(mutex_);
    *status = poll(lock);
    if (*status != CUDA_SUCCESS) return nullptr;
    const std::size_t size = round(bytes);
    const int bucket = bucket_of(size);
    HostBlock *block = take_cached(bucket, size);
    if (!block) block = pin(size, bucket, lock, status);
    if (!block) return nullptr;
    active_requests_[bucket].add(1);
    active_bytes_[bucket].add(block->size);
    block->bytes = bytes;
    block->references.store(1, std::memory_order_relaxed);
    block->version.store(0, std::memory_order_relaxed);
    return block;
  }

  void record_use(HostBlock *block, const StreamUse &use) {
    Lock lock(mutex_);
    if (std::find(block->uses.begin(), block->uses.end(), use) == block->uses.end())
      block->uses.push_back(use);
  }

  // Take a block back. Never waits.
  void release(HostBlock *block) {
    Lock lock(mutex_);
    if (block->uses.empty() || dead_) {
      block->uses.clear();
      make_free(block);
      return;
    }
    std::vector<StreamUse> uses;
    uses.swap(block->uses);
    block->events = static_cast<int>(uses.size());
    for (const StreamUse &use : uses) {
      CUevent event = pending_.idle_event(use);
      lock.unlock();
      const CUresult status = PendingEvents<HostBlock>::record(driver_, use, &event);
      lock.lock();
      // If a use cannot be marked, nobody can tell when it ends: the block stays out of the cache.
      if (status == CUDA_SUCCESS) pending_.push(use, event, block);
      else pending_.give_back(use, event);
    }
  }

  // Unpin every block that nobody uses.
  CUresult empty_cache() {
    Lock lock(mutex_);
    if (dead_) return CUDA_SUCCESS;
    CUresult result = poll(lock);
    std::vector<HostBlock *> idle;
    for (std::vector<HostBlock *> &bucket : free_) {
      idle.insert(idle.end(), bucket.begin(), bucket.end());
      bucket.clear();
    }
    for (HostBlock *block : idle) {
      blocks_.erase(block->data);
      stats_.allocations.sub(1);
      stats_.allocated_bytes.sub(block->size);
      lock.unlock();
      const auto start = std::chrono::steady_clock::now();
      const CUresult status = driver_->MemFreeHost(block->data);
      const std::int64_t took = since(start);
      lock.lock();
      stats_.free_time.add(took);
      if (result == CUDA_SUCCESS) result = status;
      delete block;
    }
    return result;
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

  void pause() { mutex_.lock(); }
  void resume() { mutex_.unlock(); }

  void die() {
    new (&mutex_) std::mutex();  // a thread that exists no more may hold the old one
    dead_ = true;
    pending_.forget();
  }

  static bool owns(const Storage *storage) { return storage->release == release_storage; }

  bool is_dead() const { return dead_; }

 private:
  static std::size_t round(std::size_t bytes) {
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
    static_cast<PinnedAllocator *>(block->owner)->release(block);
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

  HostBlock *pin(std::size_t size, int bucket, Lock &lock, CUresult *status) {
    void *address = nullptr;
    lock.unlock();
    const auto start = std::chrono::steady_clock::now();
    {
      OutsideCapture outside(driver_);
      *status = driver_->MemHostAlloc(&address, size, 1);  // CU_MEMHOSTALLOC_PORTABLE
    }
    const std::int64_t took = since(start);
    lock.lock();
    if (*status != CUDA_SUCCESS) return nullptr;
    HostBlock *block = new HostBlock();
    block->data = static_cast<char *>(address);
    block->size = size;
    block->bucket = bucket;
    block->pinned = true;
    block->owner = this;
    block->release = release_storage;
    blocks_[block->data] = block;
    stats_.allocations.add(1);
    stats_.allocated_bytes.add(size);
    stats_.alloc_time.add(took);
    return block;
  }

  void make_free(HostBlock *block) {
    active_requests_[block->bucket].sub(1);
    active_bytes_[block->bucket].sub(block->size);
    free_[block->bucket].push_back(block);
  }

  CUresult poll(Lock &lock) {
    if (pending_.empty()) return CUDA_SUCCESS;
    return pending_.poll(driver_, lock, [this](HostBlock *block) {
      if (--block->events == 0) make_free(block);
    });
  }

  const DriverTable *const driver_;
  std::mutex mutex_;
  std::vector<HostBlock *> free_[BUCKETS + 1];
  std::map<char *, HostBlock *> blocks_;
  HostStats stats_;
  Stat active_requests_[BUCKETS + 1], active_bytes_[BUCKETS + 1];
  PendingEvents<HostBlock> pending_;
  bool dead_ = false;
};

}  // namespace flambeau
