// SPDX-License-Identifier: Apache-2.0
// Virtual memory management: reserved addresses, physical memory, and which of it is mapped where.
// Physical memory is an extent of its device's file, so that mapping it twice, or in another process,
// shows the same bytes.
#pragma once
#include <algorithm>
#include <memory>

#include "arena.hpp"

namespace flambeau::vgpu {

struct Physical {
  std::uint64_t offset = 0, bytes = 0;   // in the file
  int file = -1;                         // of another process; -1: the device's own
  int handles = 1, mappings = 0;
  bool exported = false;

  // Whether it is written to by more than one range of addresses.
  bool shared() const { return file >= 0 || exported || mappings > 1; }
};

class VirtualMemory {
 public:
  // The first address of a new range, or 0.
  std::uint64_t reserve(Arena &arena, std::uint64_t bytes) {
    void *wide = mmap(nullptr, bytes + GRANULE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (wide == MAP_FAILED) return 0;
    const std::uint64_t raw = reinterpret_cast<std::uint64_t>(wide), begin = round_up(raw, GRANULE);
    if (begin > raw) munmap(wide, begin - raw);
    if (raw + GRANULE > begin) munmap(reinterpret_cast<void *>(begin + bytes), raw + GRANULE - begin);
    madvise(reinterpret_cast<void *>(begin), bytes, MADV_DONTDUMP);
    arena.ranges()[begin] = bytes;
    return begin;
  }
  // False unless it is a whole range in which nothing is mapped.
  bool unreserve(Arena &arena, std::uint64_t begin, std::uint64_t bytes) {
    const auto found = arena.ranges().find(begin);
    if (found == arena.ranges().end() || found->second != bytes) return false;
    const auto inside = mapped_.lower_bound(begin);
    if (inside != mapped_.end() && inside->first < begin + bytes) return false;
    munmap(reinterpret_cast<void *>(begin), bytes);
    arena.ranges().erase(found);
    return true;
  }

  Physical *create(Arena &arena, std::uint64_t bytes) {
    const std::int64_t offset = arena.take_extent(bytes);
    return offset < 0 ? nullptr : add(static_cast<std::uint64_t>(offset), bytes, -1);
  }
  // Memory of another process. The descriptor becomes ours.
  Physical *add(std::uint64_t offset, std::uint64_t bytes, int file) {
    auto made = std::make_unique<Physical>();
    made->offset = offset;
    made->bytes = bytes;
    made->file = file;
    Physical *physical = made.get();
    physical_[physical] = std::move(made);
    return physical;
  }
  Physical *find(std::uint64_t handle) const {
    Physical *physical = reinterpret_cast<Physical *>(handle);
    const auto found = physical_.find(physical);
    return found == physical_.end() || found->second->handles == 0 ? nullptr : physical;
  }
  Physical *find_own(std::uint64_t offset) const {
    for (const auto &entry : physical_) {
      if (entry.second->file < 0 && entry.second->offset == offset) return entry.first;
    }
    return nullptr;
  }
  void release(Arena &arena, Physical *physical) {
    --physical->handles;
    end_unused(arena, physical);
  }

  // Without access rights for anybody yet. False unless the addresses are reserved and free.
  bool map(Arena &arena, std::uint64_t at, Physical *physical) {
    auto range = arena.ranges().upper_bound(at);
    if (range == arena.ranges().begin()) return false;
    --range;
    if (at + physical->bytes > range->first + range->second) return false;
    auto next = mapped_.lower_bound(at);
    if (next != mapped_.end() && next->first < at + physical->bytes) return false;
    if (next != mapped_.begin() && std::prev(next)->first + std::prev(next)->second.physical->bytes > at) return false;
    const int file = physical->file < 0 ? arena.file() : physical->file;
    if (mmap(reinterpret_cast<void *>(at), physical->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             file, static_cast<off_t>(physical->offset)) == MAP_FAILED) {
      return false;
    }
    ++physical->mappings;
    mapped_[at] = {physical, 0};
    return true;
  }

  // Calls `visit(begin, bytes)` for each place where shared memory is mapped; null: any.
  template <class Visit> void each_shared(const Physical *wanted, Visit visit) const {
    for (const auto &[begin, mapping] : mapped_) {
      const Physical *physical = mapping.physical;
      if (physical->shared() && (!wanted || physical == wanted)) visit(begin, physical->bytes);
    }
  }

  // False unless the range begins and ends with mappings and has no hole.
  bool covers(std::uint64_t begin, std::uint64_t bytes) const {
    std::uint64_t at = begin;
    for (auto it = mapped_.find(begin); at < begin + bytes; ++it) {
      if (it == mapped_.end() || it->first != at) return false;
      at += it->second.physical->bytes;
    }
    return at == begin + bytes;
  }

  void set_access(Arena &arena, std::uint64_t begin, std::uint64_t bytes, unsigned devices, bool write) {
    for (auto it = mapped_.find(begin); it != mapped_.end() && it->first < begin + bytes; ++it) {
      it->second.devices = devices;
    }
    mprotect(reinterpret_cast<void *>(begin), bytes, !devices ? PROT_NONE : write ? PROT_READ | PROT_WRITE : PROT_READ);
    list(arena, begin);
  }

  void unmap(Arena &arena, std::uint64_t begin, std::uint64_t bytes) {
    auto it = mapped_.find(begin);
    while (it != mapped_.end() && it->first < begin + bytes) {
      Physical *physical = it->second.physical;
      it = mapped_.erase(it);
      --physical->mappings;
      end_unused(arena, physical);
    }
    mmap(reinterpret_cast<void *>(begin), bytes, PROT_NONE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    list(arena, begin);
  }

  // The context is gone, and all of this with it.
  void clear(Arena &arena) {
    while (!mapped_.empty()) {
      const auto first = mapped_.begin();
      unmap(arena, first->first, first->second.physical->bytes);
    }
    while (!physical_.empty()) {
      Physical *physical = physical_.begin()->first;
      physical->handles = 0;
      end_unused(arena, physical);
    }
    for (const auto &range : arena.ranges()) munmap(reinterpret_cast<void *>(range.first), range.second);
    arena.ranges().clear();
  }

 private:
  struct Mapping {
    Physical *physical;
    unsigned devices;   // that may use it, by bit
  };

  void end_unused(Arena &arena, Physical *physical) {
    if (physical->handles > 0 || physical->mappings > 0) return;
    if (physical->file >= 0) close(physical->file);
    else arena.give_extent(physical->offset, physical->bytes);
    physical_.erase(physical);
  }

  // Enter what is mapped into the arena's list: neighbours with the same users are one allocation.
  void list(Arena &arena, std::uint64_t address) {
    auto range = arena.ranges().upper_bound(address);
    if (range == arena.ranges().begin()) return;
    --range;
    const std::uint64_t end = range->first + range->second;
    std::vector<std::uint64_t> old;
    for (auto it = arena.allocations().lower_bound(range->first);
         it != arena.allocations().end() && it->first < end; ++it) {
      old.push_back(it->first);
    }
    for (const std::uint64_t begin : old) arena.leave(begin);
    Allocation run;
    for (auto it = mapped_.lower_bound(range->first); it != mapped_.end() && it->first < end; ++it) {
      const Mapping &mapping = it->second;
      if (run.peers && run.peers == mapping.devices && run.end() == it->first) {
        run.bytes += mapping.physical->bytes;
        continue;
      }
      if (run.peers) arena.enter(run);
      run = Allocation();
      run.begin = it->first;
      run.bytes = mapping.physical->bytes;
      run.peers = mapping.devices;
    }
    if (run.peers) arena.enter(run);
  }

  std::map<Physical *, std::unique_ptr<Physical>> physical_;
  std::map<std::uint64_t, Mapping> mapped_;   // by address
};

}  // namespace flambeau::vgpu
