// SPDX-License-Identifier: Apache-2.0
// Who held which device memory when, and which of its bytes have been written.
//
// Blocks change hands when the host says so, but work runs later, so that a kernel may rightly use
// memory that was freed, and handed out anew, after its launch. Every change therefore has a number,
// and work looks memory up as it was when it was submitted. Each tenure of a block has valid bytes
// of its own.
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "ticket.hpp"

namespace flambeau::vgpu {

constexpr std::uint64_t NEVER = ~0ull;

// One tenure of a stretch of memory.
struct Holding {
  std::uint64_t begin = 0, size = 0;
  std::uint64_t requested = 0;   // of the size; the rest is rounding
  std::uint64_t born = 0, died = NEVER;
  int born_stack = -1, died_stack = -1;
  // From before the check was on: contents count as written, until something unwritten is copied there.
  bool all_valid = false;

  std::uint64_t end() const { return begin + requested; }
  bool covers(std::uint64_t address) const { return address - begin < size; }

  void set_valid(std::uint64_t address, std::uint64_t bytes, bool to = true) {
    if (to && all_valid) return;
    if (all_valid) unmarked_ = ~0ull;
    all_valid = false;
    std::uint64_t first = address - begin;
    const std::uint64_t last = std::min(first + bytes, size);
    while (first < last) {
      const std::uint64_t bit = first % 64, count = std::min<std::uint64_t>(64 - bit, last - first);
      const std::uint64_t mask = (count == 64 ? ~0ull : (1ull << count) - 1) << bit;
      std::uint64_t &word = marked(first / 64);
      if (to) word |= mask; else word &= ~mask;
      first += count;
    }
  }
  bool is_valid(std::uint64_t address) const {
    const std::uint64_t at = address - begin;
    return all_valid || (at < size && (word(at / 64) >> (at % 64) & 1));
  }
  // The first byte of the range that nobody wrote, rounding aside; its end if there is none.
  std::uint64_t first_invalid(std::uint64_t address, std::uint64_t bytes) const {
    if (all_valid) return address + bytes;
    std::uint64_t at = address - begin;
    const std::uint64_t last = std::min(at + bytes, requested);
    while (at < last) {
      const std::uint64_t missing = ~word(at / 64) >> (at % 64);
      if (missing) {
        at += static_cast<std::uint64_t>(__builtin_ctzll(missing));
        return at < last ? begin + at : address + bytes;
      }
      at = (at / 64 + 1) * 64;
    }
    return address + bytes;
  }

 private:
  static constexpr std::uint64_t CHUNK = 1024;   // words: 64 KiB of memory
  using Chunk = std::unique_ptr<std::uint64_t[]>;

  std::uint64_t word(std::uint64_t i) const {
    const std::uint64_t chunk = i / CHUNK;
    return chunk < valid_.size() && valid_[chunk] ? valid_[chunk][i % CHUNK] : unmarked_;
  }
  std::uint64_t &marked(std::uint64_t i) {
    if (i / CHUNK >= valid_.size()) valid_.resize(i / CHUNK + 1);
    Chunk &chunk = valid_[i / CHUNK];
    if (!chunk) {
      chunk = Chunk(new std::uint64_t[CHUNK]);
      std::fill_n(chunk.get(), CHUNK, unmarked_);
    }
    return chunk[i % CHUNK];
  }

  std::vector<Chunk> valid_;        // a bit for each byte, where something was marked
  std::uint64_t unmarked_ = 0;      // what holds elsewhere
};

using HoldingPtr = std::shared_ptr<Holding>;

// What the ledger says of an address.
struct Tenure {
  bool known = false;       // whether the ledger covers this memory at all
  HoldingPtr holding;       // null: nobody's
  HoldingPtr nearest;       // then: the nearest that was held
};

class Ledger {
 public:
  std::uint64_t epoch() const { return ledger_epoch.load(); }

  // Memory of the driver's own allocation; as long as nobody cuts it into blocks it is one block.
  void add_allocation(std::uint64_t begin, std::uint64_t bytes, bool all_valid, int stack) {
    std::lock_guard<std::mutex> guard(mutex_);
    Allocation &made = allocations_[begin];
    made = Allocation{};
    made.end = begin + bytes;
    made.holdings.push_back(tenure(begin, bytes, bytes, all_valid, stack));
  }
  void drop_allocation(std::uint64_t begin) {
    std::lock_guard<std::mutex> guard(mutex_);
    allocations_.erase(begin);
  }

  // A caching allocator hands out a block, or takes one back. `oldest` is the epoch of the oldest
  // work that has not run.
  void hold(std::uint64_t begin, std::uint64_t requested, std::uint64_t size, bool all_valid, int stack,
            std::uint64_t oldest) {
    std::lock_guard<std::mutex> guard(mutex_);
    Allocation *from = allocation_of(begin);
    if (!from) return;
    cut(*from);
    const bool written = all_valid || shared_in(*from, begin, begin + size);
    from->holdings.push_back(tenure(begin, requested, size, written, stack));
    if (from->holdings.size() >= from->tidy_at) tidy(*from, oldest);
  }
  void release(std::uint64_t begin, std::uint64_t requested, std::uint64_t size, int stack) {
    std::lock_guard<std::mutex> guard(mutex_);
    Allocation *from = allocation_of(begin);
    if (!from) return;
    cut(*from);
    for (auto it = from->holdings.rbegin(); it != from->holdings.rend(); ++it) {
      if (!(*it)->covers(begin)) continue;
      if ((*it)->begin != begin || (*it)->died != NEVER) break;
      (*it)->died = ++ledger_epoch;
      (*it)->died_stack = stack;
      return;
    }
    HoldingPtr gone = tenure(begin, requested, size, true, -1);   // from before the check was on
    gone->died = ++ledger_epoch;
    gone->died_stack = stack;
    from->holdings.push_back(gone);
  }

  // Memory that others write to unseen, another process or by other addresses: it counts as written.
  void share(std::uint64_t begin, std::uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    Allocation *in = allocation_of(begin);
    if (!in) return;
    const std::uint64_t end = begin + bytes;
    if (!shared_in(*in, begin, end, true)) in->shared.emplace_back(begin, end);
    for (const HoldingPtr &held : in->holdings) {
      const std::uint64_t from = std::max(begin, held->begin), to = std::min(end, held->begin + held->size);
      if (from < to) held->set_valid(from, to - from);
    }
  }
  void unshare(std::uint64_t begin, std::uint64_t bytes) {
    std::lock_guard<std::mutex> guard(mutex_);
    Allocation *in = allocation_of(begin);
    if (!in) return;
    auto &all = in->shared;
    all.erase(std::remove_if(all.begin(), all.end(), [&](const auto &part) {
                return begin <= part.first && part.second <= begin + bytes;
              }), all.end());
  }

  // The first address of all memory, and how far it is to the last.
  std::pair<std::uint64_t, std::uint64_t> span() {
    std::lock_guard<std::mutex> guard(mutex_);
    if (allocations_.empty()) return {0, 0};
    const std::uint64_t first = allocations_.begin()->first;
    return {first, allocations_.rbegin()->second.end - first};
  }

  Tenure find(std::uint64_t address, std::uint64_t epoch) {
    std::lock_guard<std::mutex> guard(mutex_);
    Tenure found;
    Allocation *in = allocation_of(address);
    if (!in) return found;
    found.known = true;
    for (auto it = in->holdings.rbegin(); it != in->holdings.rend(); ++it) {
      if ((*it)->born > epoch || !(*it)->covers(address)) continue;
      if ((*it)->died <= epoch && epoch < in->forgotten) return {};
      found.holding = *it;
      return found;
    }
    if (epoch < in->forgotten) return {};   // a graph that was captured long ago
    std::uint64_t closest = NEVER;
    for (const HoldingPtr &held : in->holdings) {
      if (held->born > epoch || held->died <= epoch) continue;
      const std::uint64_t gap = address >= held->end() ? address - held->end() : held->begin - address;
      if (gap >= closest) continue;
      closest = gap;
      found.nearest = held;
    }
    return found;
  }

  void clear() {
    std::lock_guard<std::mutex> guard(mutex_);
    allocations_.clear();
  }

 private:
  struct Allocation {
    std::uint64_t end = 0;
    bool is_cut = false;   // into blocks by an allocator
    std::vector<HoldingPtr> holdings;   // oldest first
    std::vector<std::pair<std::uint64_t, std::uint64_t>> shared;   // begin, end
    std::size_t tidy_at = 1024;
    std::uint64_t forgotten = 0;        // what ended up to then may be missing
  };

  HoldingPtr tenure(std::uint64_t begin, std::uint64_t requested, std::uint64_t size, bool all_valid,
                    int stack) {
    auto made = std::make_shared<Holding>();
    made->begin = begin;
    made->requested = requested;
    made->size = size;
    made->born = ++ledger_epoch;
    made->born_stack = stack;
    made->all_valid = all_valid;
    return made;
  }

  // Whether some of the range, or all of it in one piece, is shared.
  static bool shared_in(const Allocation &allocation, std::uint64_t begin, std::uint64_t end, bool all = false) {
    return std::any_of(allocation.shared.begin(), allocation.shared.end(), [&](const auto &part) {
      return all ? part.first <= begin && end <= part.second : part.first < end && begin < part.second;
    });
  }

  static void cut(Allocation &allocation) {
    if (!allocation.is_cut) allocation.holdings.clear();
    allocation.is_cut = true;
  }

  Allocation *allocation_of(std::uint64_t address) {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return nullptr;
    Allocation &candidate = std::prev(after)->second;
    return address < candidate.end ? &candidate : nullptr;
  }

  // Forget what ended before any work that may still ask, but for the newest.
  static void tidy(Allocation &allocation, std::uint64_t oldest) {
    auto &all = allocation.holdings;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i]->died > oldest || i + 256 >= all.size()) {
        all[kept++] = std::move(all[i]);
      } else {
        allocation.forgotten = std::max(allocation.forgotten, all[i]->died);
      }
    }
    all.resize(kept);
    allocation.tidy_at = 2 * kept + 1024;
  }

  std::mutex mutex_;
  std::map<std::uint64_t, Allocation> allocations_;
};

}  // namespace flambeau::vgpu
