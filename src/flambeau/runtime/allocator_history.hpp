// SPDX-License-Identifier: Apache-2.0
// What an allocator did: a ring of the newest entries, kept while somebody wants it.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "block.hpp"
#include "pool.hpp"

namespace flambeau {

enum class TraceAction : int {
  alloc, free_requested, free_completed, segment_alloc, segment_free,
  segment_map, segment_unmap, snapshot, oom, annotate,
};

// Whose stacks are kept, each level with those before it.
enum class StackUse : int {
  none,
  state,  // of blocks that are held
  alloc,  // of allocations in the trace; frees show the allocation's
  all,    // of frees too
};

using Metadata = std::shared_ptr<const std::string>;

struct TraceEntry {
  TraceAction action;
  CUdeviceptr address;  // for `oom` what the driver has free
  std::size_t size;
  CUstream stream;
  PoolId pool;
  const StackNode *stack;
  std::int64_t time_us = 0;  // since 1970
  Metadata metadata = nullptr;
};

class History {
 public:
  bool on() const { return on_; }
  StackUse stacks() const { return stacks_; }

  void start(StackUse stacks, std::size_t most, unsigned skipped_actions) {
    if (most == 0) most = 1;
    keep_newest(most);
    stacks_ = stacks;
    most_ = most;
    skipped_ = skipped_actions;
    on_ = true;
  }
  void stop() {
    on_ = false;
    stacks_ = StackUse::none;
    clear();
  }
  void clear() {
    ring_.clear();
    ring_.shrink_to_fit();
    oldest_ = 0;
  }

  void record(TraceEntry entry) {
    if (skipped_ >> static_cast<int>(entry.action) & 1) return;
    using namespace std::chrono;
    entry.time_us = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
    if (!entry.metadata) entry.metadata = this_thread_metadata;
    if (stacks_ < StackUse::alloc) entry.stack = nullptr;
    if (ring_.size() < most_) {
      ring_.push_back(std::move(entry));
    } else {
      ring_[oldest_] = std::move(entry);
      oldest_ = (oldest_ + 1) % ring_.size();
    }
  }

  // Oldest first.
  std::vector<TraceEntry> entries() const {
    std::vector<TraceEntry> all(ring_.begin() + static_cast<std::ptrdiff_t>(oldest_), ring_.end());
    all.insert(all.end(), ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(oldest_));
    return all;
  }

  // What the present thread adds to its entries.
  static inline thread_local Metadata this_thread_metadata;
  // Says where in the program something is given back, if not null. Called without locks.
  static inline const StackNode *(*gather_at_free)() = nullptr;
  static const StackNode *stack_at_free() { return gather_at_free ? gather_at_free() : nullptr; }

 private:
  void keep_newest(std::size_t most) {
    std::vector<TraceEntry> all = entries();
    if (all.size() > most) all.erase(all.begin(), all.end() - static_cast<std::ptrdiff_t>(most));
    ring_ = std::move(all);
    oldest_ = 0;
  }

  bool on_ = false;
  StackUse stacks_ = StackUse::none;
  std::size_t most_ = 1;
  unsigned skipped_ = 0;
  std::vector<TraceEntry> ring_;
  std::size_t oldest_ = 0;
};

}  // namespace flambeau
