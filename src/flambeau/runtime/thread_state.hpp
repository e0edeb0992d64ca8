// SPDX-License-Identifier: Apache-2.0
// What "current" means: per thread, a device and, on each device, a stream.
#pragma once
#include <cstdint>

#include "flambeau/driver/table.hpp"

namespace flambeau {

constexpr int MAX_DEVICES = 64;
constexpr std::uint32_t UNCOUNTED = 1u << 31;   // in a version: memory of inference tensors

struct ThreadState {
  int device = 0;              // current device
  int context_device = -1;     // device whose primary context this thread last made current
  CUstream streams[MAX_DEVICES] = {};        // current stream of each device, null = default
  std::int64_t stream_ids[MAX_DEVICES] = {};  // its torch stream id, 0 = default
  std::uint32_t first_version = 0;           // of new memory; UNCOUNTED inside inference_mode
};

}  // namespace flambeau
