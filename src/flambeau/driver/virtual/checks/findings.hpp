// SPDX-License-Identifier: Apache-2.0
// What the checks found, each thing once with a count of how often.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace flambeau::vgpu {

enum Check : unsigned { CHECK_MEMORY = 1, CHECK_INIT = 2, CHECK_RACE = 4 };

// Who made an access.
struct Actor {
  std::string work;                  // "kernel scale", "a copy"
  std::string access;                // "read", "write", "atomic"
  bool is_kernel = false;
  std::uint32_t block[3] = {}, thread[3] = {};
  std::string source, stream;
  int stack = -1;                    // where it was submitted
};

struct Finding {
  Check check = CHECK_MEMORY;
  std::string problem, space = "global";
  std::uint64_t address = 0, bytes = 0;
  Actor actor, other;                // `other` without work where there is only one
  bool has_block = false;
  std::uint64_t block_begin = 0, block_bytes = 0;
  std::int64_t distance = 0;         // bytes past the block's end, or before its begin if negative
  int born_stack = -1, died_stack = -1;
  std::uint64_t count = 1;

  bool same(const Finding &f) const {
    return check == f.check && problem == f.problem && space == f.space && actor.work == f.actor.work &&
           actor.source == f.actor.source && actor.access == f.actor.access &&
           actor.stack == f.actor.stack && other.work == f.other.work && other.source == f.other.source;
  }
};

class Findings {
 public:
  static constexpr std::size_t MOST = 200;

  void add(Finding finding) {
    std::lock_guard<std::mutex> guard(mutex_);
    for (Finding &known : all_) {
      if (!known.same(finding)) continue;
      ++known.count;
      return;
    }
    if (all_.size() < MOST) all_.push_back(std::move(finding));
  }
  std::vector<Finding> take() {
    std::lock_guard<std::mutex> guard(mutex_);
    std::vector<Finding> taken;
    taken.swap(all_);
    return taken;
  }

 private:
  std::mutex mutex_;
  std::vector<Finding> all_;
};

}  // namespace flambeau::vgpu
