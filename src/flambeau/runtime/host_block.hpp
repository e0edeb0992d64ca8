// SPDX-License-Identifier: Apache-2.0
// Blocks of host memory, ordinary and pinned, and what there is to say of them.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include "block.hpp"
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

struct HostSettings {
  bool use_register = false;  // ordinary memory that is registered, not the driver's own
  bool free_catch_all = false;
  bool background = false;    // a thread looks for uses that have ended, not each allocation
  unsigned register_threads = 1;                // that touch its pages first
  std::size_t max_round_threshold = SIZE_MAX;  // above it sizes are exact
  std::size_t max_cached_size = SIZE_MAX;      // above it blocks are not kept
  std::size_t reserve_segment = 0;             // bytes pinned at once, from which blocks are cut
};

struct HostBlock : Storage {
  std::size_t size = 0;
  int bucket = 0;
  int events = 0;
  bool registered = false;  // by us, over memory of the C library
  bool carved = false;      // a part of the reserve, which stays
  bool in_graph = false;    // a graph has its address, so that it can never be another's
  BlockState state = BlockState::free;
  const StackNode *stack = nullptr;
  std::vector<StreamUse> uses;
};

struct HostBlockInfo {
  char *address;
  std::size_t size, requested;
  BlockState state;
  const StackNode *stack;
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

}  // namespace flambeau
