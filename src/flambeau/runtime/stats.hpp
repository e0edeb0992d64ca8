// SPDX-License-Identifier: Apache-2.0
// Counters of an allocator.
#pragma once
#include <cstdint>

namespace flambeau {

struct Stat {
  std::int64_t current = 0, peak = 0;
  std::int64_t allocated = 0, freed = 0;  // sums of all increases and of all decreases

  void add(std::int64_t amount) {
    current += amount;
    allocated += amount;
    if (current > peak) peak = current;
  }
  void sub(std::int64_t amount) {
    current -= amount;
    freed += amount;
  }
  // A change of either sign, counted once.
  void move(std::int64_t amount) { amount < 0 ? sub(-amount) : add(amount); }
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }
};

enum PoolKind : int { ALL_POOLS = 0, LARGE_POOL = 1, SMALL_POOL = 2, POOL_KINDS = 3 };

// One quantity, in all pools together and by kind of pool.
struct StatArray {
  Stat of[POOL_KINDS];

  void add(PoolKind kind, std::int64_t amount) { of[ALL_POOLS].add(amount), of[kind].add(amount); }
  void sub(PoolKind kind, std::int64_t amount) { of[ALL_POOLS].sub(amount), of[kind].sub(amount); }
  void move(PoolKind kind, std::int64_t amount) {
    if (amount) of[ALL_POOLS].move(amount), of[kind].move(amount);
  }
};

struct DeviceStats {
  StatArray allocation;      // blocks that tensors hold
  StatArray segment;         // ranges from the driver
  StatArray active;          // held, or freed but perhaps still in use by some stream
  StatArray inactive_split;  // free parts of split segments
  StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  Stat oversize_allocations, oversize_segments;
  std::int64_t alloc_retries = 0, ooms = 0, sync_all_streams = 0;
  std::int64_t device_allocs = 0, device_frees = 0, oom_rejections = 0;

  template <class Visit> void each(Visit visit) {
    StatArray *const arrays[] = {&allocation, &segment, &active, &inactive_split, &allocated_bytes,
                                 &reserved_bytes, &active_bytes, &inactive_split_bytes,
                                 &requested_bytes};
    for (StatArray *array : arrays)
      for (Stat &stat : array->of) visit(stat);
    visit(oversize_allocations);
    visit(oversize_segments);
  }
  void reset_peak() {
    each([](Stat &stat) { stat.reset_peak(); });
  }
  void reset_accumulated() {
    each([](Stat &stat) { stat.reset_accumulated(); });
    alloc_retries = ooms = sync_all_streams = device_allocs = device_frees = oom_rejections = 0;
  }
};

}  // namespace flambeau
