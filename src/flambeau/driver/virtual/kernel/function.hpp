// SPDX-License-Identifier: Apache-2.0
// A kernel of a loaded module: what a CUfunction points to, and what a launch must satisfy.
#pragma once
#include "flambeau/driver/virtual/machine.hpp"

namespace flambeau::vgpu {

// The block executor lives in another extension module, which hands its functions over.
struct KernelEngine {
  void (*run)(const ptx::Launch *, ptx::Outcome *) = nullptr;
  const ptx::KernelInfo *(*info)(const ptx::KernelCode *) = nullptr;
};

inline KernelEngine &kernel_engine() {
  static KernelEngine engine;
  return engine;
}

struct Function {
  Context *context = nullptr;
  const ptx::KernelCode *code = nullptr;
  const ptx::KernelCode *watched = nullptr;   // the same with watched accesses, once a check wanted it
  bool watchable = true;                      // until that turns out not to compile
  int max_dynamic_shared = 0;   // set by cuFuncSetAttribute; 0: what fits without opting in
  int carveout = -1;

  const ptx::KernelInfo &info() const { return *kernel_engine().info(code); }
  int max_threads() const {
    const int limit = static_cast<int>(info().max_threads);
    return limit > 0 && limit < THREADS_PER_BLOCK ? limit : THREADS_PER_BLOCK;
  }
  int dynamic_shared_limit() const {
    const int free = SHARED_PER_BLOCK - static_cast<int>(info().static_shared);
    return std::max(max_dynamic_shared, std::max(free, 0));
  }
};

struct LaunchShape {
  std::uint32_t grid[3], block[3];
  std::uint32_t dynamic_shared;

  std::uint64_t blocks() const { return std::uint64_t{grid[0]} * grid[1] * grid[2]; }
  std::uint64_t threads() const { return std::uint64_t{block[0]} * block[1] * block[2]; }
};

// CUDA's answer to a launch of this shape; `why` says more.
inline CUresult check_shape(const Function &f, const LaunchShape &s, std::string &why) {
  bool empty = false;
  for (int i = 0; i < 3; ++i) empty = empty || s.grid[i] == 0 || s.block[i] == 0;
  if (empty || s.grid[0] > 0x7fffffffu || s.grid[1] > 65535 || s.grid[2] > 65535 ||
      s.block[0] > 1024 || s.block[1] > 1024 || s.block[2] > 64 || s.threads() > THREADS_PER_BLOCK) {
    char text[256];
    std::snprintf(text, sizeof text,
                  "A grid of %u x %u x %u blocks of %u x %u x %u threads was asked for. Grids have 1 to "
                  "2147483647 x 65535 x 65535 blocks, blocks 1 to 1024 x 1024 x 64 threads and at most %d.",
                  s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2], THREADS_PER_BLOCK);
    why = text;
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (s.threads() > static_cast<std::uint64_t>(f.max_threads())) {
    why = "Blocks of " + std::to_string(s.threads()) + " threads were asked for; kernel " +
          f.info().name + " was compiled for at most " + std::to_string(f.max_threads()) + ".";
    return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
  }
  if (s.dynamic_shared > static_cast<std::uint32_t>(f.dynamic_shared_limit())) {
    why = std::to_string(s.dynamic_shared) + " bytes of dynamic shared memory were asked for; kernel " +
          f.info().name + " may have " + std::to_string(f.dynamic_shared_limit()) +
          ". Above 48 KiB it must first be allowed with cuFuncSetAttribute "
          "(MAX_DYNAMIC_SHARED_SIZE_BYTES).";
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// How many blocks of a kernel fit on one multiprocessor: by blocks, threads, registers and shared
// memory, whichever is short first.
inline int resident_blocks(const Model &m, const ptx::KernelInfo &kernel, int block_size,
                           std::uint64_t dynamic_shared) {
  const int warps = (block_size + WARP_SIZE - 1) / WARP_SIZE;
  int blocks = std::min(m.blocks_per_multiprocessor,
                        m.threads_per_multiprocessor / (warps * WARP_SIZE));
  if (kernel.registers > 0) {
    const int per_warp = static_cast<int>(round_up(kernel.registers * WARP_SIZE, 256));
    blocks = std::min(blocks, REGISTERS_PER_MULTIPROCESSOR / (per_warp * warps));
  }
  const std::uint64_t shared = kernel.static_shared + dynamic_shared + SHARED_RESERVED_PER_BLOCK;
  if (shared - SHARED_RESERVED_PER_BLOCK > static_cast<std::uint64_t>(m.shared_per_block_optin)) return 0;
  const std::uint64_t fitting = static_cast<std::uint64_t>(m.shared_per_multiprocessor) / shared;
  return static_cast<int>(std::min<std::uint64_t>(static_cast<std::uint64_t>(blocks), fitting));
}

}  // namespace flambeau::vgpu
