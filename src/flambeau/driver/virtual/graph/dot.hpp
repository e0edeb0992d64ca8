// SPDX-License-Identifier: Apache-2.0
// A graph as Graphviz text.
#pragma once
#include <fstream>

#include "graph.hpp"

namespace flambeau::vgpu {

inline std::string dot_label(const GraphNode &node) {
  const WorkDescription &w = node.work;
  std::string text = std::string("{") + node_type_name(w.type) + " | {ID | " + std::to_string(node.id) +
                     " (topoId: " + std::to_string(node.id) + ")";
  if (w.type == NODE_KERNEL) {
    char shape[128];
    std::snprintf(shape, sizeof shape, "\\<\\<\\<{%u,%u,%u},{%u,%u,%u},%u\\>\\>\\>", w.grid[0], w.grid[1],
                  w.grid[2], w.block[0], w.block[1], w.block[2], w.dynamic_shared);
    text += std::string(" | ") + w.name + shape;
  }
  if (node.event) {
    char event[48];
    std::snprintf(event, sizeof event, " | event 0x%llx", static_cast<unsigned long long>(
                                                              reinterpret_cast<std::uintptr_t>(node.event)));
    text += event;
  }
  return text + "}}";
}

// False if the file cannot be written.
inline bool write_dot(const Graph &graph, const char *path) {
  std::ofstream out(path);
  const std::string prefix = "graph_" + std::to_string(graph.id) + "_node_";
  out << "digraph dot {\nsubgraph cluster_" << graph.id << " {\nlabel=\"graph_" << graph.id
      << "\" graph[style=\"dashed\"];\n";
  for (const auto &node : graph.nodes) {
    out << '"' << prefix << node->id << "\"[style=\"bold\" shape=\"record\" label=\"" << dot_label(*node)
        << "\"];\n";
  }
  for (const auto &node : graph.nodes) {
    for (const GraphNode *later : node->dependents) {
      out << '"' << prefix << node->id << "\" -> \"" << prefix << later->id << "\";\n";
    }
  }
  out << "}\n}\n";
  out.close();
  return out.good();
}

}  // namespace flambeau::vgpu
