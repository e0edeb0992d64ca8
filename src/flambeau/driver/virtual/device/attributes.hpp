// SPDX-License-Identifier: Apache-2.0
// cuDeviceGetAttribute: attribute numbers of the Driver API to figures of a model.
#pragma once
#include "flambeau/driver/table.hpp"
#include "model.hpp"

namespace flambeau::vgpu {

// Returns false for an attribute that does not exist.
inline bool device_attribute(const Model &m, int ordinal, int attribute, int *value) {
  switch (attribute) {
    case 1: *value = THREADS_PER_BLOCK; return true;
    case 2: case 3: *value = 1024; return true;                  // block x, y
    case 4: *value = 64; return true;                            // block z
    case 5: *value = 0x7fffffff; return true;                    // grid x
    case 6: case 7: *value = 65535; return true;                 // grid y, z
    case 8: *value = SHARED_PER_BLOCK; return true;
    case 9: *value = 65536; return true;                         // constant memory
    case 10: *value = WARP_SIZE; return true;
    case 11: *value = 0x7fffffff; return true;                   // pitch
    case 12: *value = REGISTERS_PER_MULTIPROCESSOR; return true; // registers per block
    case 13: *value = m.clock_khz; return true;
    case 14: *value = 512; return true;                          // texture alignment
    case 15: *value = 1; return true;                            // overlap of copy and kernel
    case 16: *value = m.multiprocessors; return true;
    case 17: *value = 0; return true;                            // kernel time limit
    case 18: *value = 0; return true;                            // integrated
    case 19: *value = 1; return true;                            // can map host memory
    case 20: *value = 0; return true;                            // compute mode: default
    case 31: *value = 1; return true;                            // concurrent kernels
    case 32: *value = 0; return true;                            // ECC
    case 33: *value = 0; return true;                            // PCI bus
    case 34: *value = 6 + ordinal; return true;                  // PCI device
    case 35: *value = 0; return true;                            // TCC driver
    case 36: *value = m.memory_clock_khz; return true;
    case 37: *value = m.memory_bus_bits; return true;
    case 38: *value = m.l2_bytes; return true;
    case 39: *value = m.threads_per_multiprocessor; return true;
    case 40: *value = 3; return true;                            // copy engines
    case 41: *value = 1; return true;                            // unified addressing
    case 50: *value = 0; return true;                            // PCI domain
    case 75: *value = m.major; return true;
    case 76: *value = m.minor; return true;
    case 78: *value = 1; return true;                            // stream priorities
    case 79: case 80: *value = 1; return true;                   // L1 cache of globals, locals
    case 81: *value = m.shared_per_multiprocessor; return true;
    case 82: *value = REGISTERS_PER_MULTIPROCESSOR; return true;
    case 83: *value = 1; return true;                            // managed memory
    case 84: *value = 0; return true;                            // multi-GPU board
    case 85: *value = ordinal; return true;                      // its board group
    case 86: *value = 0; return true;                            // host native atomics: PCIe has none
    case 87: *value = 64; return true;                           // single to double ratio
    case 88: *value = 0; return true;                            // pageable memory access
    case 89: *value = 0; return true;                            // concurrent managed access
    case 90: *value = 0; return true;                            // compute preemption
    case 91: *value = 1; return true;                            // host pointer of registered memory
    case 95: *value = 0; return true;                            // cooperative launch
    case 97: *value = m.shared_per_block_optin; return true;
    case 99: *value = 1; return true;                            // cuMemHostRegister
    case 100: *value = 0; return true;                           // host page tables
    case 101: *value = 0; return true;                           // direct managed access from host
    case 102: *value = 1; return true;                           // virtual memory management
    case 103: *value = 1; return true;                           // POSIX handles of it
    case 106: *value = m.blocks_per_multiprocessor; return true;
    case 108: *value = 0; return true;                           // persisting L2
    case 109: *value = 0; return true;                           // access policy window
    case 111: *value = SHARED_RESERVED_PER_BLOCK; return true;
    case 115: *value = 1; return true;                           // memory pools
    case 116: *value = 0; return true;                           // GPUDirect RDMA
    case 120: *value = 0; return true;                           // cluster launch
    case 125: *value = 1; return true;                           // IPC events
    default: break;
  }
  // The rest are texture limits and capabilities that a virtual GPU does not have.
  if (attribute < 1 || attribute > 150) return false;
  *value = 0;
  return true;
}

}  // namespace flambeau::vgpu
