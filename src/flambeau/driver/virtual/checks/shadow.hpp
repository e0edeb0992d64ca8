// SPDX-License-Identifier: Apache-2.0
// The latest accesses to each byte of memory: what a race is found by.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "findings.hpp"
#include "ticket.hpp"

namespace flambeau::vgpu {

// One piece of work, as later accesses remember it.
struct Run {
  TicketPtr ticket;
  std::string work;
  bool is_kernel = false;
  std::uint32_t grid[3] = {1, 1, 1}, dim[3] = {1, 1, 1};
  std::shared_ptr<const std::vector<std::string>> places;   // of a kernel's sites
};

// One access. Within a run `epoch` counts the barriers of its block, `lane_clock` the warp's
// synchronisations of its lane, `time` the fences and atomics of the grid.
struct Stamp {
  std::uint32_t run = 0, block = 0, site = 0, epoch = 0, lane_clock = 0, time = 0;
  std::uint16_t thread = 0;
  bool strong = false;

  explicit operator bool() const { return run != 0; }
  bool same_thread(const Stamp &o) const { return run == o.run && block == o.block && thread == o.thread; }
};

struct Cell {
  Stamp write, read, older_read;   // the reads since the write; of two different threads
};

// Cells of a stretch of memory: one for all of it until somebody touches a part, then one for four
// bytes until somebody touches fewer.
class Page {
 public:
  static constexpr unsigned WHOLE = 12, FINE = 2;
  static constexpr std::uint64_t BYTES = 1 << WHOLE;

  // Calls `visit(cell)` for each cell of the bytes, which lie in this page.
  template <class Visit> void each(std::uint64_t offset, std::uint64_t bytes, Visit visit) {
    if (shift_ == WHOLE && bytes != BYTES) split(FINE);
    if (shift_ == FINE && ((offset | bytes) & 3)) split(0);
    const std::uint64_t last = (offset + bytes - 1) >> shift_;
    for (std::uint64_t i = offset >> shift_; i <= last; ++i) visit(cells_[i]);
  }
  std::size_t bytes() const { return cells_.size() * sizeof(Cell); }

 private:
  void split(unsigned shift) {
    std::vector<Cell> fine(BYTES >> shift);
    for (std::uint64_t i = 0; i < fine.size(); ++i) fine[i] = cells_[i >> (shift_ - shift)];
    cells_ = std::move(fine);
    shift_ = shift;
  }

  unsigned shift_ = WHOLE;
  std::vector<Cell> cells_{1};
};

// When the shadow grows too large all is forgotten: a race with something older is then missed.
class Pages {
 public:
  static constexpr std::size_t LIMIT = 2ull << 30;

  // The page that somebody looked at last.
  struct Last {
    std::uint64_t number = 0, generation = 0;
    Page *page = nullptr;
  };

  template <class Visit>
  void each(std::uint64_t address, std::uint64_t bytes, Last &last, Visit visit) {
    while (bytes) {
      const std::uint64_t offset = address % Page::BYTES, here = std::min(bytes, Page::BYTES - offset);
      Page &found = page(address / Page::BYTES, last);
      const std::size_t before = found.bytes();
      found.each(offset, here, visit);
      held_ += found.bytes() - before;
      address += here;
      bytes -= here;
    }
  }
  void clear() {
    pages_.clear();
    held_ = 0;
    ++generation_;
  }

 private:
  Page &page(std::uint64_t number, Last &last) {
    if (last.number == number && last.generation == generation_) return *last.page;
    if (held_ > LIMIT) clear();
    std::unique_ptr<Page> &found = pages_[number];
    if (!found) {
      found = std::make_unique<Page>();
      held_ += 2 * sizeof(Page) + found->bytes();
    }
    last = {number, generation_, found.get()};
    return *found;
  }

  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::size_t held_ = 0;
  std::uint64_t generation_ = 1;
};

// Record an access in a cell. `ordered(earlier)` says whether an access comes before this one for
// certain; `conflict(earlier, was_write)` is called for the first that does not. True if all was well.
template <class Ordered, class Conflict>
bool stamp(Cell &cell, const Stamp &now, bool reads, bool writes, Ordered ordered, Conflict conflict) {
  bool good = true;
  const auto against = [&](const Stamp &earlier, bool was_write) {
    if (!good || !earlier || ordered(earlier, was_write)) return;
    good = false;
    conflict(earlier, was_write);
  };
  against(cell.write, true);
  if (writes) {
    against(cell.read, false);
    against(cell.older_read, false);
    cell.write = now;
    cell.read = cell.older_read = Stamp{};
  } else if (reads) {
    if (cell.read && !cell.read.same_thread(now)) cell.older_read = cell.read;
    cell.read = now;
  }
  return good;
}

// What all work of a process did to memory. When there was very much all is forgotten.
class Accesses {
 public:
  static constexpr std::size_t MOST_RUNS = 1 << 18;

  Pages pages;

  std::uint32_t begin(Run run) {
    if (runs_.size() >= MOST_RUNS) clear();
    runs_.push_back(std::move(run));
    return forgotten_ + static_cast<std::uint32_t>(runs_.size());
  }
  // Of forgotten work, one that comes before all other.
  const Run &run(const Stamp &stamp) const {
    static const Run nobody{std::make_shared<Ticket>(), {}, false, {}, {}, nullptr};
    const std::uint32_t place = stamp.run - forgotten_ - 1;
    return stamp.run > forgotten_ && place < runs_.size() ? runs_[place] : nobody;
  }

  Actor actor(const Stamp &stamp, bool was_write) const { return actor(run(stamp), stamp, was_write); }
  static Actor actor(const Run &r, const Stamp &stamp, bool was_write) {
    Actor who;
    who.work = r.work;
    who.access = !was_write ? "read" : stamp.strong ? "atomic" : "write";
    who.stream = r.ticket->stream_name;
    who.stack = r.ticket->stack;
    who.is_kernel = r.is_kernel;
    if (!r.is_kernel) return who;
    const std::uint32_t *grid = r.grid, *dim = r.dim;
    who.block[0] = stamp.block % grid[0];
    who.block[1] = stamp.block / grid[0] % grid[1];
    who.block[2] = stamp.block / grid[0] / grid[1];
    who.thread[0] = stamp.thread % dim[0];
    who.thread[1] = stamp.thread / dim[0] % dim[1];
    who.thread[2] = stamp.thread / (dim[0] * dim[1]);
    if (r.places && stamp.site < r.places->size()) who.source = (*r.places)[stamp.site];
    return who;
  }
  void clear() {
    forgotten_ += static_cast<std::uint32_t>(runs_.size());
    runs_.clear();
    pages.clear();
  }

 private:
  std::deque<Run> runs_;
  std::uint32_t forgotten_ = 0;   // numbers are not used again
};

}  // namespace flambeau::vgpu
