// SPDX-License-Identifier: Apache-2.0
// One block of a kernel that yields: its threads, their memory, and who may go on when.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <memory>

#include "engine_warp.hpp"
#include "engine_watch.hpp"

namespace flambeau::ptx {

// Uninitialised memory on cache lines that keeps its size between uses.
class Buffer {
 public:
  unsigned char *reserve(std::size_t bytes) {
    if (bytes > size_) {
      memory_.reset(static_cast<unsigned char *>(
          std::aligned_alloc(128, (bytes + 127) / 128 * 128)));
      size_ = bytes;
    }
    return memory_.get();
  }
  unsigned char *data() const { return memory_.get(); }
  std::size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(unsigned char *p) const { std::free(p); }
  };
  std::unique_ptr<unsigned char, Free> memory_;
  std::size_t size_ = 0;
};

inline std::uint64_t align(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

// A context for one launch, without a place in the grid yet.
inline void prepare(Context &context, Job &job, Buffer &shared, Buffer &sites) {
  const Launch &launch = *job.launch;
  const KernelCode &code = *launch.code;
  context.parameters = launch.parameters;
  context.globals = code.globals.data();
  context.shared_size = std::uint64_t(code.info.static_shared) + launch.dynamic_shared;
  context.shared = shared.reserve(context.shared_size + 16);
  const std::size_t bytes = code.sites.size() * sizeof(SiteCache);
  context.sites = reinterpret_cast<SiteCache *>(sites.reserve(bytes + 16));
  std::memset(static_cast<void *>(context.sites), 0, bytes);
  context.local_limit = code.local_bytes;
  context.clock = context.clock_start = context.clock_end = launch.clock_start;
  std::memcpy(context.block_dim, launch.block, sizeof context.block_dim);
  std::memcpy(context.grid_dim, launch.grid, sizeof context.grid_dim);
  context.dynamic_shared = launch.dynamic_shared;
  context.total_shared = static_cast<std::uint32_t>(context.shared_size);
  context.multiprocessors = launch.multiprocessors > 0 ? launch.multiprocessors : 1;
  context.workspace = launch.cooperative ? reinterpret_cast<std::uint64_t>(job.workspace) : 0;
  context.job = &job;
  context.watched = nullptr;
  context.known_begin = context.known_end = 0;
}

inline void place(Context &context, std::uint64_t block) {
  const std::uint32_t *grid = context.grid_dim;
  context.block_index[0] = static_cast<std::uint32_t>(block % grid[0]);
  context.block_index[1] = static_cast<std::uint32_t>(block / grid[0] % grid[1]);
  context.block_index[2] = static_cast<std::uint32_t>(block / grid[0] / grid[1]);
  context.multiprocessor = static_cast<std::uint32_t>(block % context.multiprocessors);
}

// Where the lanes of a warp stand. A lane in none of the sets has finished.
struct Lanes {
  std::uint32_t ready, at_warp, at_barrier, spinning;

  std::uint32_t living() const { return ready | at_warp | at_barrier | spinning; }
};

class Block {
 public:
  enum class Progress { done, spinning, fault };

  void prepare_for(Job &job) {
    prepare(context_, job, shared_, sites_);
    code_ = job.launch->code;
    threads_ = job.threads;
    warps_.resize((threads_ + WARP - 1) / WARP);
    stride_ = align(code_->frame_bytes, 64);
    frames_.reserve(stride_ * threads_);
    local_stride_ = align(code_->local_bytes, 16);
    local_.reserve(local_stride_ * threads_ + 16);
    clocks_.resize(code_->uses_clock ? threads_ : 0);
  }

  void begin(std::uint64_t index);
  Progress advance();
  std::uint64_t clock_end() const { return context_.clock_end; }
  std::size_t bytes() const { return frames_.size() + local_.size() + shared_.size(); }

 private:
  Frame &frame(std::uint32_t t) {
    return *reinterpret_cast<Frame *>(frames_.data() + stride_ * t);
  }
  Watcher *watcher() const { return context_.job->launch->watcher; }
  int step(Frame &f);
  bool step_lanes(Lanes &lanes, Warp &warp);
  bool release_warp(Lanes &lanes, Warp &warp);
  bool release_active(Lanes &lanes, Warp &warp);
  bool run_warp(std::uint32_t number, bool &spinning_seen);
  void arrive(Lanes &lanes, Frame &f, std::uint32_t bit);
  bool release_barriers();
  void release_barrier(std::uint32_t number);
  void report_deadlock();

  struct Barrier {
    std::uint32_t waiting = 0, arrived = 0, expected = 0, votes = 0;
  };

  Context context_{};
  const KernelCode *code_ = nullptr;
  std::uint32_t threads_ = 0, alive_ = 0;
  std::uint64_t stride_ = 0, local_stride_ = 0;
  std::vector<Lanes> warps_;
  std::vector<std::uint64_t> clocks_;
  Barrier barriers_[16];
  Buffer frames_, local_, shared_, sites_;
};

inline void Block::begin(std::uint64_t index) {
  place(context_, index);
  alive_ = threads_;
  std::fill(std::begin(barriers_), std::end(barriers_), Barrier{});
  std::fill(clocks_.begin(), clocks_.end(), context_.clock_start);
  const std::uint64_t local = reinterpret_cast<std::uint64_t>(local_.data());
  std::uint32_t x = 0, y = 0, z = 0;
  for (std::uint32_t t = 0; t < threads_; ++t) {
    Frame &f = frame(t);
    f.tid[0] = x; f.tid[1] = y; f.tid[2] = z;
    f.flat = t;
    f.lane = t % WARP;
    f.state = 0;
    f.local = local + local_stride_ * t;
    if (++x == context_.block_dim[0]) { x = 0; if (++y == context_.block_dim[1]) { y = 0; ++z; } }
  }
  for (std::uint32_t w = 0; w < warps_.size(); ++w) {
    const std::uint32_t count = std::min<std::uint32_t>(threads_ - w * WARP, WARP);
    warps_[w] = {count == WARP ? ~0u : (1u << count) - 1, 0, 0, 0};
  }
}

// Run a thread to its next yield, with its own clock.
inline int Block::step(Frame &f) {
  if (!code_->uses_clock) return code_->step(&context_, &f);
  context_.clock = clocks_[f.flat];
  const int yield = code_->step(&context_, &f);
  clocks_[f.flat] = context_.clock;
  if (yield == finished) context_.clock_end = std::max(context_.clock_end, context_.clock);
  return yield;
}

// A thread came to a barrier: it waits, or with `arrive` goes on.
inline void Block::arrive(Lanes &lanes, Frame &f, std::uint32_t bit) {
  Barrier &barrier = barriers_[f.argument[0] & 15];
  if (static_cast<BarrierOp>(f.op) == BarrierOp::arrive) {
    ++barrier.arrived;
    return;
  }
  ++barrier.waiting;
  barrier.expected = f.mask;
  if (static_cast<BarrierOp>(f.op) != BarrierOp::sync) barrier.votes += f.value & 1;
  lanes.ready &= ~bit;
  lanes.at_barrier |= bit;
}

// Let every ready lane run until it yields. False after a fault.
inline bool Block::step_lanes(Lanes &lanes, Warp &warp) {
  for (std::uint32_t open = lanes.ready; open; open &= open - 1) {
    const int lane = __builtin_ctz(open);
    const std::uint32_t bit = 1u << lane;
    switch (step(*warp.lanes[lane])) {
      case at_warp: lanes.ready &= ~bit; lanes.at_warp |= bit; break;
      case at_barrier: arrive(lanes, *warp.lanes[lane], bit); break;
      case spinning: lanes.ready &= ~bit; lanes.spinning |= bit; break;
      case finished: lanes.ready &= ~bit; --alive_; break;
      default: return false;
    }
  }
  return true;
}

// Carry out the operations whose lanes have all come. True if any lane may go on.
inline bool Block::release_warp(Lanes &lanes, Warp &warp) {
  const std::uint32_t living = lanes.living();
  for (std::uint32_t open = lanes.at_warp; open;) {
    const int lane = __builtin_ctz(open);
    const Frame &leader = *warp.lanes[lane];
    const WarpOp op = static_cast<WarpOp>(leader.op);
    const std::uint32_t mask = leader.mask, group = (mask & living) | 1u << lane;
    open &= open - 1;
    if (op == WarpOp::active || (group & lanes.at_warp) != group) continue;
    bool agree = true;
    warp.each(group, [&](Frame &f) { agree &= f.mask == mask && f.op == leader.op; });
    if (!agree) continue;
    warp.perform(group, op);
    if (op == WarpOp::sync && watcher())
      watcher()->warp_sync(watched_block(context_), leader.flat / WARP, group);
    lanes.at_warp &= ~group;
    lanes.ready |= group;
    open &= ~group;
  }
  return lanes.ready != 0;
}

// Lanes that ask who is active with them get the lanes that stand at the same place.
inline bool Block::release_active(Lanes &lanes, Warp &warp) {
  for (std::uint32_t open = lanes.at_warp; open; open &= open - 1) {
    const Frame &leader = *warp.lanes[__builtin_ctz(open)];
    if (static_cast<WarpOp>(leader.op) != WarpOp::active) continue;
    std::uint32_t group = 0;
    warp.each(open, [&](Frame &f) {
      if (f.op == leader.op && f.state == leader.state) group |= 1u << f.lane;
    });
    warp.perform(group, WarpOp::active);
    lanes.at_warp &= ~group;
    lanes.ready |= group;
    return true;
  }
  return false;
}

inline bool Block::run_warp(std::uint32_t number, bool &spinning_seen) {
  Lanes &lanes = warps_[number];
  if (lanes.ready == 0) return true;
  Warp warp;
  for (std::uint32_t open = lanes.living(); open; open &= open - 1) {
    const int lane = __builtin_ctz(open);
    warp.lanes[lane] = &frame(number * WARP + lane);
  }
  do {
    if (!step_lanes(lanes, warp)) return false;
  } while (lanes.ready || (lanes.at_warp && (release_warp(lanes, warp) ||
                                             release_active(lanes, warp))));
  spinning_seen |= lanes.spinning != 0;
  lanes.ready = lanes.spinning;
  lanes.spinning = 0;
  return true;
}

inline void Block::release_barrier(std::uint32_t number) {
  const Barrier barrier = barriers_[number];
  barriers_[number] = Barrier{};
  if (watcher()) watcher()->barrier(watched_block(context_));
  for (std::uint32_t w = 0; w < warps_.size(); ++w) {
    Lanes &lanes = warps_[w];
    for (std::uint32_t open = lanes.at_barrier; open; open &= open - 1) {
      const int lane = __builtin_ctz(open);
      Frame &f = frame(w * WARP + lane);
      if ((f.argument[0] & 15) != number) continue;
      f.value = barrier.votes;
      f.predicate = static_cast<BarrierOp>(f.op) == BarrierOp::red_and
                        ? barrier.votes == barrier.waiting : barrier.votes != 0;
      lanes.at_barrier &= ~(1u << lane);
      lanes.ready |= 1u << lane;
    }
  }
}

inline bool Block::release_barriers() {
  bool released = false;
  for (std::uint32_t number = 0; number < 16; ++number) {
    const Barrier &barrier = barriers_[number];
    if (!barrier.waiting) continue;
    const std::uint32_t need = barrier.expected ? barrier.expected : alive_;
    if (barrier.waiting + barrier.arrived < need) continue;
    release_barrier(number);
    released = true;
  }
  return released;
}

inline void Block::report_deadlock() {
  int at_barriers = 0, at_warps = 0;
  std::uint32_t first = threads_;
  for (std::uint32_t w = 0; w < warps_.size(); ++w) {
    at_barriers += __builtin_popcount(warps_[w].at_barrier);
    at_warps += __builtin_popcount(warps_[w].at_warp);
    if (first == threads_ && warps_[w].living())
      first = w * WARP + __builtin_ctz(warps_[w].living());
  }
  char text[256];
  std::snprintf(text, sizeof text,
                "the block cannot go on: %d threads wait at barriers and %d in warp operations for "
                "threads that will not come; on a GPU this hangs", at_barriers, at_warps);
  report(context_, first, ~0u, 702, 0, text);
}

inline Block::Progress Block::advance() {
  for (;;) {
    bool spinning_seen = false;
    for (std::uint32_t w = 0; w < warps_.size(); ++w)
      if (!run_warp(w, spinning_seen)) return Progress::fault;
    if (alive_ == 0) return Progress::done;
    if (release_barriers()) continue;
    if (spinning_seen) return Progress::spinning;
    report_deadlock();
    return Progress::fault;
  }
}

}  // namespace flambeau::ptx
