// SPDX-License-Identifier: Apache-2.0
// What compiled kernels and the executor share: the layouts that lowered code addresses by offset.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include "engine.hpp"

namespace flambeau::ptx {

// Goes up when fields keep their places but change their meaning, so that kept code is not used.
constexpr int LAYOUT_VERSION = 8;

enum class Access : std::uint32_t { read, write, atomic, trap, assertion, call };

// One place in the PTX that can fault.
struct Site {
  Access access;
  std::uint32_t bytes;
  std::uint32_t ptx_line, file, line;  // file is an index; line 0 where there is no line info
};

// The range that a site touched last. Both are in step with the site's access size: an address is
// good if address - begin is a multiple of the size and, in units of it, less than span.
struct SiteCache {
  std::uint64_t begin, span;
};

// What a thread asks for when it gives up control; step functions return one of these.
enum Yield : int { faulted = -1, finished = 0, at_barrier = 1, at_warp = 2, spinning = 3 };

enum class WarpOp : std::uint32_t {
  sync, shfl_up, shfl_down, shfl_bfly, shfl_idx, vote_all, vote_any, vote_uni, ballot,
  match_any, match_all, active, redux_add, redux_min, redux_max, redux_umin, redux_umax, redux_and,
  redux_or, redux_xor, mma, ldmatrix, wmma, stmatrix, movmatrix,
};
enum class BarrierOp : std::uint32_t { sync, arrive, red_popc, red_and, red_or };

// A thread of a kernel that yields: one cache line, behind which its registers are saved.
struct Frame {
  std::uint32_t tid[3], flat;
  std::uint32_t state;        // where to go on
  std::uint32_t lane;
  std::uint32_t op;           // WarpOp or BarrierOp
  std::uint32_t mask;         // lanes of a warp operation; a barrier's thread count, 0 for all
  std::uint64_t value;        // what the thread brings, and then the result
  std::uint32_t argument[2];  // lane and clamp of a shuffle; a barrier's number
  std::uint32_t predicate;
  std::uint32_t unused;
  std::uint64_t local;        // this thread's local memory
  unsigned char saved[];
};

struct Job;

// What one worker (and in kernels that yield, one block) runs with.
struct Context {
  const void *origin = nullptr;  // address 0: where offsets of loops that are understood begin
  const void *parameters;
  const std::uint64_t *globals;
  unsigned char *shared;
  std::uint64_t shared_size;
  SiteCache *sites;
  std::uint64_t local;        // of the thread that runs now, in kernels that do not yield
  std::uint64_t local_limit;  // bytes of local memory per thread
  std::uint64_t clock, clock_start, clock_end;
  std::uint64_t workspace;  // of a grid-wide barrier; 0 unless the launch is cooperative
  std::uint32_t block_dim[3], grid_dim[3], block_index[3];
  std::uint32_t dynamic_shared, total_shared, multiprocessor, multiprocessors;
  Job *job;
  void *watched;  // the watcher's record of the block that runs; null before its first access
  std::uint64_t watched_block, known_begin, known_end;  // its number; global memory touched last
};

using RunFunction = int (*)(Context *, std::uint64_t first, std::uint64_t end);
using StepFunction = int (*)(Context *, Frame *);

struct KernelCode {
  KernelInfo info;
  std::string name;
  std::vector<std::uint32_t> offsets, sizes;
  std::vector<Site> sites;
  std::vector<std::string> files;
  std::vector<std::uint64_t> globals;
  RunFunction run = nullptr;    // kernels without yields
  StepFunction step = nullptr;  // kernels with them
  std::uint32_t frame_bytes = 0;
  std::uint32_t local_bytes = 0;  // per thread, the call stack included
  bool in_order = false;          // threads poll memory: blocks must start strictly in order
  bool uses_clock = false;
};

// The grid that runs now.
struct Job {
  const Launch *launch;
  Outcome *outcome;
  std::uint64_t blocks, chunk;
  std::uint32_t threads;
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::atomic<bool> claimed{false};
  std::atomic<std::uint64_t> clock_cycles{0};
  alignas(16) std::uint32_t workspace[4] = {};

  // The first caller's fault is the grid's.
  bool claim() {
    stop.store(true, std::memory_order_relaxed);
    return !claimed.exchange(true);
  }
};

inline const MemoryRange *find_range(const MemoryMap &map, std::uint64_t address) {
  const auto &ranges = map.ranges;
  std::size_t low = 0, high = ranges.size();
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (ranges[middle].begin <= address) low = middle + 1; else high = middle;
  }
  if (low == 0 || address >= ranges[low - 1].end) return nullptr;
  return &ranges[low - 1];
}

inline void describe_source(const KernelCode &code, const Site &site, char *text, std::size_t size) {
  if (site.line != 0 && site.file < code.files.size())
    std::snprintf(text, size, "%s:%u", code.files[site.file].c_str(), site.line);
  else
    std::snprintf(text, size, "PTX line %u", site.ptx_line);
}

inline const char *access_name(Access access) {
  switch (access) {
    case Access::read: return "read";
    case Access::write: return "write";
    case Access::atomic: return "atomic";
    case Access::trap: return "trap";
    case Access::assertion: return "assert";
    case Access::call: return "call";
  }
  return "";
}

// Fill the outcome if this is the grid's first fault; the text is written only then.
inline bool report(Context &context, std::uint32_t thread, std::uint32_t site_index, int status,
                   std::uint64_t address, const char *text) {
  Job &job = *context.job;
  if (!job.claim()) return false;
  const KernelCode &code = *job.launch->code;
  Outcome &out = *job.outcome;
  out.status = status;
  out.address = address;
  std::memcpy(out.block, context.block_index, sizeof out.block);
  const std::uint32_t *dim = context.block_dim;
  out.thread[0] = thread % dim[0];
  out.thread[1] = thread / dim[0] % dim[1];
  out.thread[2] = thread / (dim[0] * dim[1]);
  if (site_index < code.sites.size()) {
    const Site &site = code.sites[site_index];
    out.access_bytes = site.bytes;
    std::snprintf(out.access, sizeof out.access, "%s", access_name(site.access));
    describe_source(code, site, out.source, sizeof out.source);
  }
  std::snprintf(out.message, sizeof out.message, "%s", text);
  return true;
}

}  // namespace flambeau::ptx
