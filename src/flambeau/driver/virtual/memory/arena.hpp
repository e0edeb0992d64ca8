// SPDX-License-Identifier: Apache-2.0
// A device's memory: a reserved address range over one sparse memory file. The page at offset x of
// the range is the page at offset x of the file, so handing an extent to another process takes no
// more than its offset. One file per device instead of one per allocation, because the limit on
// open descriptors is often 1,024. Addresses nobody allocated are mapped without access rights.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <string>

namespace flambeau::vgpu {

constexpr std::uint64_t GRANULE = 2ull << 20;    // what physical memory is counted in
constexpr std::uint64_t PAGE = 4096;
constexpr std::uint64_t SMALL_LIMIT = 1ull << 20;  // allocations below it share granules
constexpr std::uint64_t SMALL_UNIT = 512;        // their alignment

inline std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Free extents of an address range, first fit, neighbours merged.
class Extents {
 public:
  void add(std::uint64_t begin, std::uint64_t bytes) {
    auto next = free_.lower_bound(begin);
    if (next != free_.begin()) {
      auto previous = std::prev(next);
      if (previous->first + previous->second == begin) {
        begin = previous->first;
        bytes += previous->second;
        free_.erase(previous);
      }
    }
    if (next != free_.end() && begin + bytes == next->first) {
      bytes += next->second;
      free_.erase(next);
    }
    free_[begin] = bytes;
  }
  // The address, or 0 when no extent is large enough.
  std::uint64_t take(std::uint64_t bytes) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < bytes) continue;
      const std::uint64_t begin = it->first, rest = it->second - bytes;
      free_.erase(it);
      if (rest) free_[begin + bytes] = rest;
      return begin;
    }
    return 0;
  }
  // Whether all of one granule is free again.
  bool whole(std::uint64_t bytes) const {
    return free_.size() == 1 && free_.begin()->second == bytes;
  }

 private:
  std::map<std::uint64_t, std::uint64_t> free_;
};

struct Allocation {
  std::uint64_t begin = 0, bytes = 0;   // what was asked for
  std::uint64_t reserved = 0;           // what it takes of its granules
  std::uint64_t granule = 0;            // first granule of a small or imported one, else 0
  bool imported = false;                // another process's memory: counted there
  std::uint64_t inode = 0, offset = 0;  // of an imported one: where it is from
  int opened = 0;                       // and how often it was opened
  unsigned peers = 0;                   // mapped physical memory: the devices that may use it, by bit
  bool pooled = false;                  // from a pool of stream-ordered memory
  bool of_graph = false;                // an allocation node's: it goes with its graph
  bool managed = false;
  bool exported = false;                // other processes may write to it
  bool plain() const { return !imported && !peers && !pooled && !of_graph; }
  std::uint64_t end() const { return begin + bytes; }
};

class Arena {
 public:
  ~Arena() {
    if (base_) munmap(reinterpret_cast<void *>(base_), span_);
    if (file_ >= 0) close(file_);
  }

  // Reserve addresses for twice the capacity, so that holes between allocations never make a
  // request fail that physical memory could serve.
  bool reserve(std::uint64_t capacity, const std::string &name) {
    capacity_ = capacity;
    span_ = 2 * round_up(capacity, GRANULE) + GRANULE;
    file_ = memfd_create(name.c_str(), MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(span_)) != 0) return false;
    void *wide = mmap(nullptr, span_ + GRANULE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (wide == MAP_FAILED) return false;
    const std::uint64_t raw = reinterpret_cast<std::uint64_t>(wide);
    base_ = round_up(raw, GRANULE);
    if (base_ > raw) munmap(wide, base_ - raw);
    if (raw + GRANULE > base_) {
      munmap(reinterpret_cast<void *>(base_ + span_), raw + GRANULE - base_);
    }
    if (!map_own(base_, span_)) return false;
    madvise(reinterpret_cast<void *>(base_), span_, MADV_DONTDUMP);
    addresses_.add(base_, span_);
    return true;
  }

  // The allocation, or null when the device's memory does not suffice.
  const Allocation *allocate(std::uint64_t bytes) {
    return bytes < SMALL_LIMIT ? allocate_small(bytes) : allocate_large(bytes);
  }

  // False if nothing was allocated at exactly this address.
  bool free(std::uint64_t begin) {
    auto found = allocations_.find(begin);
    if (found == allocations_.end() || !found->second.plain()) return false;
    const Allocation gone = found->second;
    allocations_.erase(found);
    if (gone.granule) {
      Extents &shared = shared_[gone.granule];
      shared.add(gone.begin, gone.reserved);
      if (shared.whole(GRANULE)) {
        shared_.erase(gone.granule);
        release_granules(gone.granule, GRANULE);
      }
    } else {
      release_granules(gone.begin, gone.reserved);
    }
    return true;
  }

  // Map an allocation of another process: `bytes` at `offset` of its file. What is mapped already
  // is not mapped again.
  std::uint64_t import(int file, std::uint64_t inode, std::uint64_t offset, std::uint64_t bytes) {
    for (auto &entry : allocations_) {
      Allocation &known = entry.second;
      if (!known.imported || known.inode != inode || known.offset != offset) continue;
      ++known.opened;
      return known.begin;
    }
    const std::uint64_t page = offset / PAGE * PAGE, lead = offset - page;
    const std::uint64_t mapped = round_up(lead + bytes, PAGE), reserved = round_up(mapped, GRANULE);
    const std::uint64_t at = addresses_.take(reserved);
    if (!at) return 0;
    if (mmap(reinterpret_cast<void *>(at), mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
             file, static_cast<off_t>(page)) == MAP_FAILED) {
      map_own(at, reserved);
      addresses_.add(at, reserved);
      return 0;
    }
    allocations_[at + lead] = {at + lead, bytes, reserved, at, true, inode, offset, 1};
    return at + lead;
  }

  bool close_import(std::uint64_t begin) {
    auto found = allocations_.find(begin);
    if (found == allocations_.end() || !found->second.imported) return false;
    if (--found->second.opened > 0) return true;
    const Allocation gone = found->second;
    allocations_.erase(found);
    map_own(gone.granule, gone.reserved);
    addresses_.add(gone.granule, gone.reserved);
    return true;
  }

  // The allocation that holds an address, or null.
  const Allocation *find(std::uint64_t address) const {
    auto after = allocations_.upper_bound(address);
    if (after == allocations_.begin()) return nullptr;
    const Allocation &candidate = std::prev(after)->second;
    return address < candidate.end() ? &candidate : nullptr;
  }

  bool contains(std::uint64_t address) const {
    if (address - base_ < span_) return true;
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return false;
    --after;
    return address - after->first < after->second;
  }

  // --- for memory whose addresses and pages are handed out apart

  // A part of the file, counted as used, and its place there; -1 if there is no room.
  std::int64_t take_extent(std::uint64_t bytes) {
    if (bytes > capacity_ - used_) return -1;
    const std::uint64_t at = addresses_.take(bytes);
    if (!at) return -1;
    used_ += bytes;
    return static_cast<std::int64_t>(at - base_);
  }
  void give_extent(std::uint64_t offset, std::uint64_t bytes) { release_granules(base_ + offset, bytes); }
  // Granules with access rights, counted as used; 0 if there is no room.
  std::uint64_t take_chunk(std::uint64_t bytes) { return take_granules(bytes); }
  void give_chunk(std::uint64_t at, std::uint64_t bytes) { release_granules(at, bytes); }
  // Address ranges outside the arena that belong to the device.
  std::map<std::uint64_t, std::uint64_t> &ranges() { return ranges_; }
  const std::map<std::uint64_t, std::uint64_t> &ranges() const { return ranges_; }
  void enter(const Allocation &made) { allocations_[made.begin] = made; }
  void leave(std::uint64_t begin) { allocations_.erase(begin); }
  Allocation *edit(std::uint64_t begin) {
    const auto found = allocations_.find(begin);
    return found == allocations_.end() ? nullptr : &found->second;
  }

  std::uint64_t base() const { return base_; }
  int file() const { return file_; }
  std::uint64_t used() const { return used_; }
  std::uint64_t capacity() const { return capacity_; }
  void note_export(std::uint64_t begin) { allocations_.at(begin).exported = true; }
  const std::map<std::uint64_t, Allocation> &allocations() const { return allocations_; }

 private:
  bool map_own(std::uint64_t at, std::uint64_t bytes) {
    return mmap(reinterpret_cast<void *>(at), bytes, PROT_NONE,
                MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_,
                static_cast<off_t>(at - base_)) != MAP_FAILED;
  }

  std::uint64_t take_granules(std::uint64_t bytes) {
    if (bytes > capacity_ - used_) return 0;
    const std::uint64_t at = addresses_.take(bytes);
    if (!at) return 0;
    if (mprotect(reinterpret_cast<void *>(at), bytes, PROT_READ | PROT_WRITE) != 0) {
      addresses_.add(at, bytes);
      return 0;
    }
    used_ += bytes;
    return at;
  }

  void release_granules(std::uint64_t at, std::uint64_t bytes) {
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(at - base_),
              static_cast<off_t>(bytes));
    mprotect(reinterpret_cast<void *>(at), bytes, PROT_NONE);
    addresses_.add(at, bytes);
    used_ -= bytes;
  }

  const Allocation *allocate_large(std::uint64_t bytes) {
    if (bytes > capacity_) return nullptr;
    const std::uint64_t reserved = round_up(bytes, GRANULE);
    const std::uint64_t at = take_granules(reserved);
    if (!at) return nullptr;
    return &(allocations_[at] = {at, bytes, reserved});
  }

  const Allocation *allocate_small(std::uint64_t bytes) {
    const std::uint64_t reserved = round_up(bytes, SMALL_UNIT);
    for (auto &shared : shared_) {
      if (const std::uint64_t at = shared.second.take(reserved)) {
        return &(allocations_[at] = {at, bytes, reserved, shared.first});
      }
    }
    const std::uint64_t granule = take_granules(GRANULE);
    if (!granule) return nullptr;
    shared_[granule].add(granule, GRANULE);
    const std::uint64_t at = shared_[granule].take(reserved);
    return &(allocations_[at] = {at, bytes, reserved, granule});
  }

  int file_ = -1;
  std::uint64_t base_ = 0, span_ = 0, capacity_ = 0, used_ = 0;
  Extents addresses_;
  std::map<std::uint64_t, Extents> shared_;            // granules of small allocations
  std::map<std::uint64_t, Allocation> allocations_;    // by their first address
  std::map<std::uint64_t, std::uint64_t> ranges_;      // reserved outside: first address, bytes
};

}  // namespace flambeau::vgpu
