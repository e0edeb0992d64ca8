// SPDX-License-Identifier: Apache-2.0
// What orders the threads of one grid: barriers, warp synchronisation, and fences with atomics.
#pragma once
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <vector>

#include "flambeau/driver/virtual/ptx/engine.hpp"
#include "shadow.hpp"

namespace flambeau::vgpu {

// Fences of a thread or block, each with the first atomic or volatile write behind it, and when it
// last looked at such a word. What came before the fence is visible to whoever looked after that
// write. Which word it was is not asked: this may see order where there is none, never the reverse.
class Signals {
 public:
  void fence(std::uint32_t now) {
    if (!sent_.empty() && !sent_.back().second) sent_.back().first = now; else sent_.push_back({now, 0});
  }
  void send(std::uint32_t now) {
    if (!sent_.empty() && !sent_.back().second) sent_.back().second = now;
  }
  void look(std::uint32_t now) { looked_ = now; }
  std::uint32_t looked() const { return looked_; }

  // When what was done at `time` was first signalled; 0 if it never was.
  std::uint32_t signalled(std::uint32_t time) const {
    const auto at = std::lower_bound(sent_.begin(), sent_.end(), std::make_pair(time, 0u));
    return at == sent_.end() ? 0 : at->second;
  }

 private:
  std::vector<std::pair<std::uint32_t, std::uint32_t>> sent_;   // fence and write
  std::uint32_t looked_ = 0;
};

// Vector clocks of a warp's lanes.
class WarpClocks {
 public:
  WarpClocks() {
    for (int lane = 0; lane < 32; ++lane) known_[lane][lane] = 1;
  }
  std::uint32_t own(std::uint32_t lane) const { return known_[lane][lane]; }
  bool knows(std::uint32_t lane, std::uint32_t other, std::uint32_t clock) const {
    return known_[lane][other] >= clock;
  }
  void synchronize(std::uint32_t lanes) {
    std::array<std::uint32_t, 32> joined{};
    for (int lane = 0; lane < 32; ++lane) {
      if (!(lanes >> lane & 1)) continue;
      for (int other = 0; other < 32; ++other) joined[other] = std::max(joined[other], known_[lane][other]);
    }
    for (int lane = 0; lane < 32; ++lane) {
      if (!(lanes >> lane & 1)) continue;
      known_[lane] = joined;
      ++known_[lane][lane];
    }
  }

 private:
  std::array<std::array<std::uint32_t, 32>, 32> known_{};
};

// The order among the threads of one block.
struct BlockOrder {
  std::uint32_t epoch = 1;   // moves on at each barrier, for all threads
  std::vector<std::unique_ptr<WarpClocks>> warps;
  std::map<std::uint32_t, Signals> threads;

  void begin(std::uint32_t count) {
    epoch = 1;
    warps.clear();
    warps.resize((count + 31) / 32);
    threads.clear();
  }
  WarpClocks &warp(std::uint32_t number) {
    if (!warps[number]) warps[number] = std::make_unique<WarpClocks>();
    return *warps[number];
  }
  bool ordered(const Stamp &earlier, const Stamp &now) {
    if (earlier.thread == now.thread || earlier.epoch < now.epoch) return true;
    if (earlier.thread / 32 == now.thread / 32 &&
        warp(now.thread / 32).knows(now.thread % 32, earlier.thread % 32, earlier.lane_clock)) return true;
    const auto sender = threads.find(earlier.thread), looker = threads.find(now.thread);
    if (sender == threads.end() || looker == threads.end()) return false;
    const std::uint32_t at = sender->second.signalled(earlier.time);
    return at && at < looker->second.looked();
  }
};

// The order among the blocks of one grid.
struct GridOrder {
  std::uint32_t time = 1;
  std::map<std::uint64_t, Signals> blocks;

  bool ordered(const Stamp &earlier, const Stamp &now) const {
    const auto sender = blocks.find(earlier.block), looker = blocks.find(now.block);
    if (sender == blocks.end() || looker == blocks.end()) return false;
    const std::uint32_t at = sender->second.signalled(earlier.time);
    return at && at < looker->second.looked();
  }
};

}  // namespace flambeau::vgpu
