// SPDX-License-Identifier: Apache-2.0
// Executing the grids of one loaded kernel on the CPU: what the virtual machine sees of it.
// The compiled part of this package (_engine) holds the one executor of the process; other
// extension modules call it through _engine.pxd, never by including the parts below this header.
#pragma once
#include <cstdint>
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
