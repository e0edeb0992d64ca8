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
  NODE_CONDITIONAL = 13,
  NODE_MEM_ALLOC = 10,
  NODE_MEM_FREE = 11,
};

inline const char *node_type_name(int type) {
  switch (type) {
    case NODE_KERNEL: return "KERNEL";
    case NODE_MEMCPY: return "MEMCPY";
    case NODE_MEMSET: return "MEMSET";
    case NODE_HOST: return "HOST";
    case NODE_WAIT_EVENT: return "EVENT_WAIT";
    case NODE_EVENT_RECORD: return "EVENT_RECORD";
    case NODE_CONDITIONAL: return "CONDITIONAL";
    case NODE_MEM_ALLOC: return "MEM_ALLOC";
    case NODE_MEM_FREE: return "MEM_FREE";
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
  // For traces only.
  unsigned static_shared = 0, registers = 0;   // of a kernel
  std::uint64_t bytes = 0;                     // of a copy or a fill
  const char *path = "";                       // of a copy: what is read and what is written
};

// Where work shows in a trace; set while somebody traces.
struct TracePlace {
  unsigned stream = 0;
  std::uint64_t correlation = 0;   // of the call that submitted it
  unsigned graph = 0, node = 0;    // of an executable graph; graph 0: of none
};

}  // namespace flambeau::vgpu
