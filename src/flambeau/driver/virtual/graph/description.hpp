// SPDX-License-Identifier: Apache-2.0
// What a piece of work is, for those who look into a graph.
#pragma once
#include "flambeau/driver/table.hpp"

namespace flambeau::vgpu {

// CUgraphNodeType.
enum NodeType : int {
  NODE_KERNEL = 0,
  NODE_MEMCPY = 1,
  NODE_MEMSET = 2,
  NODE_HOST = 3,
  NODE_EMPTY = 5,
  NODE_WAIT_EVENT = 6,
  NODE_EVENT_RECORD = 7,
};

inline const char *node_type_name(int type) {
  switch (type) {
    case NODE_KERNEL: return "KERNEL";
    case NODE_MEMCPY: return "MEMCPY";
    case NODE_MEMSET: return "MEMSET";
    case NODE_HOST: return "HOST";
    case NODE_WAIT_EVENT: return "EVENT_WAIT";
    case NODE_EVENT_RECORD: return "EVENT_RECORD";
    default: return "EMPTY";
  }
}

struct WorkDescription {
  NodeType type = NODE_KERNEL;
  const char *name = "";          // of a kernel; lives as long as its code
  CUfunction function = nullptr;  // null: a library's kernel, which has no handle
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, dynamic_shared = 0;
  CUhostFn host_function = nullptr;
  void *host_data = nullptr;
};

}  // namespace flambeau::vgpu
