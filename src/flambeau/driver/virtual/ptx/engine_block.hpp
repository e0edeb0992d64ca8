// SPDX-License-Identifier: Apache-2.0
// One block of a kernel that yields: its threads, their memory, and who may go on when.
#pragma once
#include <cstdlib>
#include <memory>

#include "engine_warp.hpp"

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
  context.job = &job;
}

inline void place(Context &context, std::uint64_t block) {
  const std::uint32_t *grid = context.grid_dim;
  context.block_index[0] = static_cast<std::uint32_t>(block % grid[0]);
  context.block_index[1] = static_cast<std::uint32_t>(block / grid[0] % grid[1]);
  context.block_index[2] = static_cast<std::uint32_t>(block / grid[0] / grid[1]);
  context.multiprocessor = static_cast<std::uint32_t>(block % context.multiprocessors);
}

class Block {
 public:
  enum class Progress { done, spinning, fault };

  void prepare_for(Job &job) {
    prepare(context_, job, shared_, sites_);
    code_ = job.launch->code;
    threads_ = job.threads;
    stride_ = align(code_->frame_bytes, 64);
    frames_.reserve(stride_ * threads_);
    local_stride_ = align(code_->local_bytes, 16);
    local_.reserve(local_stride_ * threads_ + 16);
  }

  void begin(std::uint64_t index);
  Progress advance();
  std::uint64_t clock_end() const { return context_.clock_end; }

 private:
  Frame &frame(std::uint32_t t) {
    return *reinterpret_cast<Frame *>(frames_.reserve(0) + stride_ * t);
  }
  bool step_lanes(Warp &warp, int count, bool &again);
  bool release_warp(Warp &warp, int count);
  bool release_active(Warp &warp, int count);
  bool run_warp(std::uint32_t first, bool &spinning);
  bool release_barriers();
  void release_barrier(std::uint32_t number, std::uint32_t waiting);
  void report_deadlock();

  Context context_{};
  const KernelCode *code_ = nullptr;
  std::uint32_t threads_ = 0, alive_ = 0;
  std::uint64_t stride_ = 0, local_stride_ = 0;
  std::uint32_t arrived_[16] = {};
  Buffer frames_, local_, shared_, sites_;
};

inline void Block::begin(std::uint64_t index) {
  place(context_, index);
  alive_ = threads_;
  std::memset(arrived_, 0, sizeof arrived_);
  const std::uint64_t local = reinterpret_cast<std::uint64_t>(local_.reserve(0));
  std::uint32_t x = 0, y = 0, z = 0;
  for (std::uint32_t t = 0; t < threads_; ++t) {
    Frame &f = frame(t);
    f.tid[0] = x; f.tid[1] = y; f.tid[2] = z;
    f.flat = t;
    f.lane = t % WARP;
    f.state = 0;
    f.status = ready;
    f.local = local + local_stride_ * t;
    f.clock = context_.clock_start;
    if (++x == context_.block_dim[0]) { x = 0; if (++y == context_.block_dim[1]) { y = 0; ++z; } }
  }
}

// Let every ready lane run until it yields. False after a fault.
inline bool Block::step_lanes(Warp &warp, int count, bool &again) {
  for (int lane = 0; lane < count; ++lane) {
    Frame &f = *warp.lanes[lane];
    if (f.status != ready) continue;
    context_.clock = f.clock;
    f.status = code_->step(&context_, &f);
    f.clock = context_.clock;
    if (f.status == at_barrier && static_cast<BarrierOp>(f.op) == BarrierOp::arrive) {
      ++arrived_[f.argument[0] & 15];
      f.status = ready;
      again = true;
    } else if (f.status == finished) {
      --alive_;
      if (f.clock > context_.clock_end) context_.clock_end = f.clock;
    } else if (f.status == faulted) {
      return false;
    }
  }
  return true;
}

// Carry out the operations whose lanes have all come. True if any lane may go on.
inline bool Block::release_warp(Warp &warp, int count) {
  std::uint32_t living = 0, waiting = 0;
  for (int lane = 0; lane < count; ++lane) {
    const Frame &f = *warp.lanes[lane];
    if (f.status != finished) living |= 1u << lane;
    if (f.status == at_warp && static_cast<WarpOp>(f.op) != WarpOp::active) waiting |= 1u << lane;
  }
  bool released = false;
  for (std::uint32_t open = waiting; open;) {
    const int lane = __builtin_ctz(open);
    const Frame &leader = *warp.lanes[lane];
    const std::uint32_t group = (leader.mask & living) | 1u << lane;
    open &= open - 1;
    if ((group & waiting) != group) continue;
    bool agree = true;
    warp.each(group, [&](Frame &f) { agree &= f.mask == leader.mask && f.op == leader.op; });
    if (!agree) continue;
    warp.perform(group, static_cast<WarpOp>(leader.op));
    warp.each(group, [](Frame &f) { f.status = ready; });
    waiting &= ~group;
    open &= ~group;
    released = true;
  }
  return released;
}

// Lanes that ask who is active with them get the lanes that stand at the same place.
inline bool Block::release_active(Warp &warp, int count) {
  for (int lane = 0; lane < count; ++lane) {
    const Frame &leader = *warp.lanes[lane];
    if (leader.status != at_warp || static_cast<WarpOp>(leader.op) != WarpOp::active) continue;
    std::uint32_t group = 0;
    for (int other = lane; other < count; ++other) {
      const Frame &f = *warp.lanes[other];
      if (f.status == at_warp && f.op == leader.op && f.state == leader.state) group |= 1u << other;
    }
    warp.perform(group, WarpOp::active);
    warp.each(group, [](Frame &f) { f.status = ready; });
    return true;
  }
  return false;
}

inline bool Block::run_warp(std::uint32_t first, bool &spinning_seen) {
  Warp warp;
  const int count = static_cast<int>(threads_ - first < WARP ? threads_ - first : WARP);
  for (int lane = 0; lane < count; ++lane) warp.lanes[lane] = &frame(first + lane);
  for (bool again = true; again;) {
    again = false;
    if (!step_lanes(warp, count, again)) return false;
    again |= release_warp(warp, count);
    if (!again) again = release_active(warp, count);
  }
  for (int lane = 0; lane < count; ++lane)
    if (warp.lanes[lane]->status == spinning) {
      warp.lanes[lane]->status = ready;
      spinning_seen = true;
    }
  return true;
}

inline void Block::release_barrier(std::uint32_t number, std::uint32_t waiting) {
  std::uint32_t count = 0;
  const auto each = [&](auto visit) {
    for (std::uint32_t t = 0; t < threads_; ++t) {
      Frame &f = frame(t);
      if (f.status == at_barrier && (f.argument[0] & 15) == number) visit(f);
    }
  };
  each([&](Frame &f) { count += static_cast<std::uint32_t>(f.value & 1); });
  each([&](Frame &f) {
    switch (static_cast<BarrierOp>(f.op)) {
      case BarrierOp::red_popc: f.result = count; break;
      case BarrierOp::red_and: f.predicate = count == waiting; break;
      case BarrierOp::red_or: f.predicate = count != 0; break;
      default: break;
    }
    f.status = ready;
  });
  arrived_[number] = 0;
}

inline bool Block::release_barriers() {
  std::uint32_t waiting[16] = {}, expected[16] = {};
  for (std::uint32_t t = 0; t < threads_; ++t) {
    const Frame &f = frame(t);
    if (f.status != at_barrier) continue;
    ++waiting[f.argument[0] & 15];
    expected[f.argument[0] & 15] = f.mask;
  }
  bool released = false;
  for (std::uint32_t number = 0; number < 16; ++number) {
    if (!waiting[number]) continue;
    const std::uint32_t need = expected[number] ? expected[number] : alive_;
    if (waiting[number] + arrived_[number] < need) continue;
    release_barrier(number, waiting[number]);
    released = true;
  }
  return released;
}

inline void Block::report_deadlock() {
  std::uint32_t at_barriers = 0, at_warps = 0, first = threads_;
  for (std::uint32_t t = 0; t < threads_; ++t) {
    const int status = frame(t).status;
    at_barriers += status == at_barrier;
    at_warps += status == at_warp;
    if (first == threads_ && status != finished) first = t;
  }
  char text[256];
  std::snprintf(text, sizeof text,
                "the block cannot go on: %u threads wait at barriers and %u in warp operations for "
                "threads that will not come; on a GPU this hangs", at_barriers, at_warps);
  report(context_, first, ~0u, 702, 0, text);
}

inline Block::Progress Block::advance() {
  for (;;) {
    bool spinning_seen = false;
    for (std::uint32_t first = 0; first < threads_; first += WARP)
      if (!run_warp(first, spinning_seen)) return Progress::fault;
    if (alive_ == 0) return Progress::done;
    if (release_barriers()) continue;
    if (spinning_seen) return Progress::spinning;
    report_deadlock();
    return Progress::fault;
  }
}

}  // namespace flambeau::ptx
