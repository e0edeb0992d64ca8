// SPDX-License-Identifier: Apache-2.0
// Which free segments to give back to the driver first.
#pragma once
#include <algorithm>
#include <vector>

#include "free_list.hpp"

namespace flambeau {

// Among blocks of at least `most` bytes, which are never split: one of `enough` bytes, else several
// that sum up to it, largest first; none if all together do not.
inline std::vector<Segment *> choose_oversize(const FreeList &list, std::size_t most,
                                              std::size_t enough) {
  if (Block *single = list.best(enough)) return {single->segment};
  std::vector<Block *> blocks;
  list.each([&](Block *block) {
    if (block->size >= most) blocks.push_back(block);
  });
  std::sort(blocks.begin(), blocks.end(), [](Block *a, Block *b) { return comes_before(b, a); });
  std::vector<Segment *> chosen;
  std::size_t sum = 0;
  for (std::size_t i = 0; i < blocks.size() && sum < enough; ++i) {
    chosen.push_back(blocks[i]->segment);
    sum += blocks[i]->size;
  }
  if (sum < enough) chosen.clear();
  return chosen;
}

// Of wholly free segments those that were free for at least the mean age, again and again, until
// `excess` bytes are reached. Ages count searches: `now` is the present count.
inline std::vector<Segment *> choose_idle(std::vector<Segment *> idle, std::int64_t now,
                                          std::int64_t excess) {
  std::vector<Segment *> chosen;
  while (excess > 0 && !idle.empty()) {
    std::int64_t total = 0;
    for (const Segment *segment : idle) total += now - segment->first->freed_at;
    const double mean = static_cast<double>(total) / static_cast<double>(idle.size());
    const auto young = std::partition(idle.begin(), idle.end(), [&](const Segment *segment) {
      return static_cast<double>(now - segment->first->freed_at) >= mean;
    });
    for (auto it = idle.begin(); it != young; ++it) {
      chosen.push_back(*it);
      excess -= static_cast<std::int64_t>((*it)->size);
    }
    idle.erase(idle.begin(), young);
  }
  return chosen;
}

}  // namespace flambeau
