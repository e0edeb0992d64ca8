// SPDX-License-Identifier: Apache-2.0
// Executing the grids of one loaded kernel on the CPU: what the virtual machine sees of it.
// The compiled part of this package (_engine) holds the one executor of the process; other
// extension modules call it through _engine.pxd, never by including the parts below this header.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace flambeau::ptx {

// Device memory that kernels may touch: a snapshot, sorted and disjoint. Addresses are the host's.
struct MemoryRange {
  std::uint64_t begin, end;
};
struct MemoryMap {
  std::vector<MemoryRange> ranges;
};

struct KernelCode;  // made by _engine, known by its address

struct KernelInfo {
  const char *name;
  std::uint32_t static_shared, local_bytes, max_threads, registers, parameter_count;
  const std::uint32_t *parameter_offsets, *parameter_sizes;
  std::uint32_t parameter_bytes;
  double global_bytes_per_thread, operations_per_thread;  // static estimates, for the clock
  // Of watched code: where each of its sites is, by the site's number.
  std::shared_ptr<const std::vector<std::string>> places;
};

// One access to memory that all threads of a block, or all of the grid, can see.
struct WatchedAccess {
  enum Flags : std::uint32_t { reads = 1, writes = 2, strong = 4, shared = 8, orders = 16 };
  std::uint64_t address;  // the host's
  std::uint32_t bytes, thread, site, flags;

  bool has(std::uint32_t flag) const { return (flags & flag) != 0; }
};

struct WatchedBlock {
  std::uint64_t number;             // in the grid
  std::uint32_t index[3], dim[3];
  std::uint64_t shared_begin, shared_bytes;
};

// Sees what threads of watched code do, one thing at a time: such grids have one worker.
class Watcher {
 public:
  virtual ~Watcher() = default;
  // The watcher's own record of a block that now begins; `previous` is that of the block whose
  // place it takes, or null.
  virtual void *begin_block(void *previous, const WatchedBlock &block) = 0;
  virtual void access(void *block, const WatchedAccess &access) = 0;
  virtual void fence(void *block, std::uint32_t thread) = 0;
  virtual void barrier(void *block) = 0;   // threads of the block have met
  virtual void warp_sync(void *block, std::uint32_t warp, std::uint32_t lanes) = 0;
};

struct Launch {
  const KernelCode *code;
  std::uint32_t grid[3], block[3];
  std::uint32_t dynamic_shared;
  const void *parameters;  // packed by the kernel's parameter offsets
  const MemoryMap *memory;
  int workers;  // host threads that share the blocks, this one included
  int multiprocessors;
  std::uint64_t clock_start;  // what clock registers start from, in cycles
  int cooperative;  // 1: blocks may wait for all others of the grid (cuLaunchCooperativeKernel)
  Watcher *watcher;  // of watched code, else null
  // All that goes on is polling memory: called now and then with `host`, from any worker.
  void (*stalled)(void *host) = nullptr;
  void *host = nullptr;
  const std::atomic<bool> *cancelled = nullptr;  // a grid that only polls ends when this is set
};

struct Outcome {
  int status;  // a CUresult: 0, 700 address, 702 deadlock, 710 assert, 716 misaligned, 719 trap
  std::uint64_t address;
  std::uint32_t access_bytes;
  std::uint32_t block[3], thread[3];
  char access[32];            // "read", "write", "atomic"
  char source[256];           // "file.cu:12", or "PTX line 40" without line information
  char message[512];          // one sentence for people; an assertion's text
  std::uint64_t clock_cycles; // how far clock registers moved on, the longest of all threads
  double global_bytes, operations;
};

// Run a grid to its end or first fault. Needs no GIL; blocks the caller.
void run(const Launch &launch, Outcome &outcome);
const KernelInfo &info(const KernelCode *code);

}  // namespace flambeau::ptx
