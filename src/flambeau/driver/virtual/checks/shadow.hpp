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

// Cells of a stretch of memory: one for four bytes until somebody touches fewer.
class Page {
 public:
  static constexpr std::uint64_t BYTES = 1024;

  Page() : cells_(BYTES >> shift_) {}

  // Calls `visit(cell)` for each cell of the bytes, which lie in this page.
  template <class Visit> void each(std::uint64_t offset, std::uint64_t bytes, Visit visit) {
    if (shift_ && ((offset | bytes) & 3)) split();
    const std::uint64_t last = (offset + bytes - 1) >> shift_;
    for (std::uint64_t i = offset >> shift_; i <= last; ++i) visit(cells_[i]);
  }

 private:
  void split() {
    std::vector<Cell> fine(BYTES);
    for (std::uint64_t i = 0; i < BYTES; ++i) fine[i] = cells_[i >> shift_];
    cells_ = std::move(fine);
    shift_ = 0;
  }

  unsigned shift_ = 2;
  std::vector<Cell> cells_;
};

class Pages {
 public:
  template <class Visit> void each(std::uint64_t address, std::uint64_t bytes, Visit visit) {
    while (bytes) {
      const std::uint64_t offset = address % Page::BYTES, here = std::min(bytes, Page::BYTES - offset);
      page(address / Page::BYTES).each(offset, here, visit);
      address += here;
      bytes -= here;
    }
  }
  void clear() {
    pages_.clear();
    last_ = nullptr;
  }

 private:
  Page &page(std::uint64_t number) {
    if (last_ && last_number_ == number) return *last_;
    std::unique_ptr<Page> &found = pages_[number];
    if (!found) found = std::make_unique<Page>();
    last_number_ = number;
    last_ = found.get();
    return *last_;
  }

  std::unordered_map<std::uint64_t, std::unique_ptr<Page>> pages_;
  std::uint64_t last_number_ = 0;
  Page *last_ = nullptr;
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

// What all work of a process did to memory.
struct Accesses {
  std::deque<Run> runs;   // the first has number 1
  Pages pages;

  std::uint32_t begin(Run run) {
    runs.push_back(std::move(run));
    return static_cast<std::uint32_t>(runs.size());
  }
  const Run &run(const Stamp &stamp) const { return runs[stamp.run - 1]; }

  Actor actor(const Stamp &stamp, bool was_write) const {
    const Run &r = run(stamp);
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
    runs.clear();
    pages.clear();
  }
};

}  // namespace flambeau::vgpu
