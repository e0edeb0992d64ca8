// SPDX-License-Identifier: Apache-2.0
// Page-locked host memory: what was allocated as such and what was registered.
#pragma once
#include <sys/mman.h>

#include <cstdint>
#include <map>

namespace flambeau::vgpu {

struct HostRange {
  std::uint64_t begin = 0, bytes = 0;
  bool allocated = false;   // by us, else the caller's own and registered
  std::uint64_t end() const { return begin + bytes; }
};

class HostRanges {
 public:
  // 0 when the system has none left.
  std::uint64_t allocate(std::uint64_t bytes) {
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return 0;
    const std::uint64_t begin = reinterpret_cast<std::uint64_t>(at);
    ranges_[begin] = {begin, bytes, true};
    return begin;
  }
  bool free(std::uint64_t begin) {
    auto found = ranges_.find(begin);
    if (found == ranges_.end() || !found->second.allocated) return false;
    munmap(reinterpret_cast<void *>(begin), found->second.bytes);
    ranges_.erase(found);
    return true;
  }
  // False if part of the range is known already.
  bool add(std::uint64_t begin, std::uint64_t bytes) {
    auto after = ranges_.lower_bound(begin);
    if (after != ranges_.end() && after->first < begin + bytes) return false;
    if (find(begin)) return false;
    ranges_[begin] = {begin, bytes, false};
    return true;
  }
  bool remove(std::uint64_t begin) {
    auto found = ranges_.find(begin);
    if (found == ranges_.end() || found->second.allocated) return false;
    ranges_.erase(found);
    return true;
  }
  const HostRange *find(std::uint64_t address) const {
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return nullptr;
    const HostRange &candidate = std::prev(after)->second;
    return address < candidate.end() ? &candidate : nullptr;
  }
  bool holds(std::uint64_t address, std::uint64_t bytes) const {
    const HostRange *range = find(address);
    return range && bytes <= range->end() - address;
  }
  const std::map<std::uint64_t, HostRange> &all() const { return ranges_; }

 private:
  std::map<std::uint64_t, HostRange> ranges_;
};

}  // namespace flambeau::vgpu
