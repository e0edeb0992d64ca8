// SPDX-License-Identifier: Apache-2.0
// What a piece of work carries while a check is on: when it was submitted, and what then had
// happened before it.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace flambeau::vgpu {

// Moves on with each change of what the ledger knows of blocks.
inline std::atomic<std::uint64_t> ledger_epoch{0};

// How far each stream had come, as far as somebody knows.
class VectorClock {
 public:
  void join(const VectorClock &other) {
    for (const auto &[stream, count] : other.counts_) raise(stream, count);
  }
  void raise(std::uint32_t stream, std::uint32_t count) {
    auto at = std::lower_bound(counts_.begin(), counts_.end(), stream,
                               [](const auto &entry, std::uint32_t s) { return entry.first < s; });
    if (at != counts_.end() && at->first == stream) {
      at->second = std::max(at->second, count);
    } else {
      counts_.insert(at, {stream, count});
    }
  }
  std::uint32_t of(std::uint32_t stream) const {
    for (const auto &[known, count] : counts_) if (known == stream) return count;
    return 0;
  }
  void clear() { counts_.clear(); }

 private:
  std::vector<std::pair<std::uint32_t, std::uint32_t>> counts_;   // by stream
};

struct Ticket {
  std::uint64_t epoch = 0;               // of the ledger of blocks, at submission
  bool knows_memory = true;              // false: from before the ledger was begun
  std::uint32_t stream = 0, count = 0;   // which stream, and the how manieth step of it
  VectorClock before;                    // what happened before it, itself included
  std::string stream_name;
  int stack = -1;                        // where in the program it was submitted

  bool comes_after(const Ticket &other) const { return before.of(other.stream) >= other.count; }
};

using TicketPtr = std::shared_ptr<Ticket>;

// The ticket of a part of some work, when the part was made earlier than that was submitted.
inline TicketPtr ticket_at(const TicketPtr &whole, std::uint64_t epoch, std::uint64_t known_since) {
  if (!whole) return nullptr;
  auto part = std::make_shared<Ticket>(*whole);
  part->epoch = epoch;
  part->knows_memory = epoch >= known_since;
  return part;
}

}  // namespace flambeau::vgpu
