// SPDX-License-Identifier: Apache-2.0
// The heap behind `malloc` and `free` in kernels: blocks in a module variable, each behind a header.
// Kernels can overwrite headers, so nothing in one is believed before it was checked.
#pragma once
#include <mutex>

#include "engine_context.hpp"

namespace flambeau::ptx::heap {

constexpr std::uint64_t STARTED = 0x68656170, UNIT = 16;
constexpr std::uint32_t FREE = 0x66726565, USED = 0x75736564;

struct Head {
  std::uint64_t started, next;  // where the next search begins
};
struct Block {
  std::uint64_t bytes;  // behind this header
  std::uint32_t state, units;  // units of 16 bytes from the heap's begin to this header
};
static_assert(sizeof(Head) == UNIT && sizeof(Block) == UNIT);

inline std::mutex &lock() {
  static std::mutex mutex;
  return mutex;
}

inline Block *block_at(std::uint64_t heap, std::uint64_t offset, std::uint64_t length) {
  if (offset % UNIT != 0 || offset < UNIT || offset > length - UNIT) return nullptr;
  auto *block = reinterpret_cast<Block *>(heap + offset);
  const bool known = block->state == FREE || block->state == USED;
  const bool fits = block->bytes % UNIT == 0 && block->bytes <= length - UNIT - offset;
  return known && fits && block->units == offset / UNIT ? block : nullptr;
}

// Join the free blocks behind a free one to it.
inline void join(Block *block, std::uint64_t heap, std::uint64_t offset, std::uint64_t length) {
  for (;;) {
    const Block *next = block_at(heap, offset + UNIT + block->bytes, length);
    if (next == nullptr || next->state != FREE) return;
    block->bytes += UNIT + next->bytes;
  }
}

// Take a free block, leaving the rest of it free.
inline std::uint64_t take(Block *block, std::uint64_t heap, std::uint64_t offset,
                          std::uint64_t wanted) {
  if (block->bytes > wanted) {
    const std::uint64_t rest = offset + UNIT + wanted;
    *reinterpret_cast<Block *>(heap + rest) = {block->bytes - wanted - UNIT, FREE,
                                               static_cast<std::uint32_t>(rest / UNIT)};
    block->bytes = wanted;
  }
  block->state = USED;
  reinterpret_cast<Head *>(heap)->next = offset;
  return heap + offset + UNIT;
}

inline std::uint64_t find(std::uint64_t heap, std::uint64_t begin, std::uint64_t end,
                          std::uint64_t length, std::uint64_t wanted) {
  for (std::uint64_t offset = begin; offset < end;) {
    Block *block = block_at(heap, offset, length);
    if (block == nullptr) return 0;
    if (block->state == FREE) {
      join(block, heap, offset, length);
      if (block->bytes >= wanted) return take(block, heap, offset, wanted);
    }
    offset += UNIT + block->bytes;
  }
  return 0;
}

// Memory for a thread, aligned to 16 bytes; 0 if the heap has none.
inline std::uint64_t allocate(std::uint64_t heap, std::uint64_t length, std::uint64_t bytes) {
  if (bytes > length) return 0;
  const std::uint64_t wanted = (bytes + (bytes == 0) + UNIT - 1) / UNIT * UNIT;
  std::lock_guard<std::mutex> guard(lock());
  auto *head = reinterpret_cast<Head *>(heap);
  if (head->started != STARTED) {
    *head = {STARTED, UNIT};
    *reinterpret_cast<Block *>(heap + UNIT) = {length - 2 * UNIT, FREE, 1};
  }
  const std::uint64_t begin = block_at(heap, head->next, length) ? head->next : UNIT;
  const std::uint64_t found = find(heap, begin, length, length, wanted);
  return found ? found : find(heap, UNIT, length, length, wanted);
}

// Give memory back, from whichever module's heap it is; 0 if it came from one.
inline int release(Context *context, std::uint32_t thread, std::uint32_t site,
                   std::uint64_t address) {
  if (address == 0) return 0;
  std::lock_guard<std::mutex> guard(lock());
  const MemoryRange *range = find_range(*context->job->launch->memory, address - UNIT);
  auto *block = reinterpret_cast<Block *>(address - UNIT);
  const bool reachable = address % UNIT == 0 && range && range->end - (address - UNIT) >= UNIT;
  if (reachable && block->state == USED) {
    const std::uint64_t heap = address - UNIT - block->units * UNIT;
    if (block->units != 0 && heap >= range->begin &&
        reinterpret_cast<const Head *>(heap)->started == STARTED) {
      block->state = FREE;
      return 0;
    }
  }
  report(*context, thread, site, 719, address,
         "free was called on an address that malloc did not give, or that was freed before");
  return 1;
}

}  // namespace flambeau::ptx::heap
