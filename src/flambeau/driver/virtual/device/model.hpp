// SPDX-License-Identifier: Apache-2.0
// The figures of a device model, as public data sheets give them. models.py fills one per device.
#pragma once
#include <cstdint>
#include <string>

namespace flambeau::vgpu {

struct Model {
  std::string name;                  // what cuDeviceGetName answers
  int major = 0, minor = 0;          // compute capability
  int multiprocessors = 0;
  std::uint64_t memory_bytes = 0;
  std::uint64_t context_bytes = 0;   // what an active context takes of it
  double memory_bandwidth = 0;       // bytes per second
  double arithmetic_rate = 0;        // fp32 operations per second
  double matrix_rate = 0;            // fp16 operations per second in matrix products
  double host_bandwidth = 0;         // bytes per second and direction, over PCIe
  double peer_bandwidth = 0;         // bytes per second and direction, to another device
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  int l2_bytes = 0;
  int threads_per_multiprocessor = 0, blocks_per_multiprocessor = 0;
  int shared_per_multiprocessor = 0, shared_per_block_optin = 0;
  bool nvlink = false;

  double clock_hz() const { return clock_khz * 1e3; }
};

// The same for every model.
constexpr int WARP_SIZE = 32;
constexpr int THREADS_PER_BLOCK = 1024;
constexpr int REGISTERS_PER_MULTIPROCESSOR = 65536;
constexpr int SHARED_PER_BLOCK = 48 * 1024;       // without opting in
constexpr int SHARED_RESERVED_PER_BLOCK = 1024;   // taken by the system in each block
constexpr int LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5;
constexpr int DRIVER_VERSION = 13050;

}  // namespace flambeau::vgpu
