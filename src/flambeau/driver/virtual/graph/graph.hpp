// SPDX-License-Identifier: Apache-2.0
// Graphs as the machine keeps them: templates that a capture makes, executables made of those, and
// the captures under way. A handle that callers hold is the object's address.
#pragma once
#include <atomic>
#include <memory>
#include <set>
#include <thread>
#include <unordered_map>
#include <vector>

#include "flambeau/driver/virtual/stream/queue.hpp"

namespace flambeau::vgpu {

struct Graph;

using Condition = std::atomic<unsigned>;

// Of a conditional node.
struct GraphBody {
  std::shared_ptr<Condition> condition;
  bool repeats = false;               // while it holds; else once if it holds
  std::unique_ptr<Graph> graph;       // null while it is captured
};

struct GraphNode {
  Graph *graph = nullptr;
  unsigned id = 0;                    // its place in the graph; nodes come after what they depend on
  Context *context = nullptr;
  std::string stream_name;            // of the stream that it was captured on
  unsigned trace_number = 0;          // of that stream
  PartitionPtr partition;             // of that stream
  std::shared_ptr<Task> task;         // null: an event's node
  CUevent event = nullptr;            // of an event's node
  std::shared_ptr<GraphBody> body;    // of a conditional node
  WorkDescription work;
  std::vector<GraphNode *> dependencies, dependents;
};

struct Graph {
  unsigned id = 0;
  std::vector<std::unique_ptr<GraphNode>> nodes;
  std::vector<std::shared_ptr<void>> memory;   // of its allocation nodes; executables share it

  GraphNode *add(const Stream &stream, const std::vector<GraphNode *> &dependencies) {
    nodes.push_back(std::make_unique<GraphNode>());
    GraphNode *node = nodes.back().get();
    node->graph = this;
    node->id = static_cast<unsigned>(nodes.size()) - 1;
    node->context = stream.context;
    node->partition = stream.partition;
    node->stream_name = stream.name;
    node->trace_number = stream.trace_number;
    node->dependencies = dependencies;
    for (GraphNode *earlier : dependencies) earlier->dependents.push_back(node);
    return node;
  }
};

struct GraphExec {
  struct Step {
    Context *context;
    std::string stream_name;
    std::shared_ptr<Task> task;
    NodeType type;
    CUevent event;
    std::vector<unsigned> after;      // indices of earlier steps
    bool leaf;
    unsigned node = 0, trace_number = 0;   // its node's id and its stream, for traces
    PartitionPtr partition;
    std::size_t lane = 0;
  };
  // Steps of which each waits for the one before: to checks, what a stream is.
  struct Lane {
    unsigned last = 0;                      // step
    std::uint32_t number = 0, count = 0;    // among the streams, and steps so far
  };
  unsigned id = 0;
  std::vector<Step> steps;
  std::vector<Lane> lanes;
  std::vector<std::shared_ptr<void>> memory;
  std::set<CUfunction> kernels;       // also of its bodies
  NodePtr last;                       // the end of its newest launch: it never overlaps itself

  void add(Step step) {
    step.lane = lanes.size();
    for (const unsigned earlier : step.after) {
      if (lanes[steps[earlier].lane].last == earlier) step.lane = steps[earlier].lane;
    }
    if (step.lane == lanes.size()) lanes.emplace_back();
    lanes[step.lane].last = static_cast<unsigned>(steps.size());
    steps.push_back(std::move(step));
  }
};

enum CaptureMode : int { CAPTURE_GLOBAL = 0, CAPTURE_THREAD_LOCAL = 1, CAPTURE_RELAXED = 2 };

struct Capture {
  std::uint64_t id = 0;
  CaptureMode mode = CAPTURE_GLOBAL;
  std::thread::id thread;             // that began it
  Stream *origin = nullptr;
  std::unique_ptr<Graph> graph;       // null when it is over
  std::shared_ptr<GraphBody> body;    // that the graph becomes; null: the graph is the caller's
  std::set<Stream *> members;         // the origin and what joined by waiting for its events
  std::string broken_by;              // what made it invalid; empty while it is sound

  bool broken() const { return !broken_by.empty(); }
  bool over() const { return !graph; }
};

// All graphs of a machine.
struct GraphBook {
  std::unordered_map<CUgraph, std::unique_ptr<Graph>> graphs;
  std::unordered_map<CUgraphExec, std::unique_ptr<GraphExec>> execs;
  std::vector<std::shared_ptr<Capture>> captures;   // under way
  std::unordered_map<std::uint64_t, std::weak_ptr<Condition>> conditions;   // by handle
  unsigned ids = 0;                   // of graphs and executables, one count
  std::uint64_t capture_ids = 0;

  Graph *find(CUgraph handle) {
    auto found = graphs.find(handle);
    if (found != graphs.end()) return found->second.get();
    for (const auto &capture : captures) {
      if (reinterpret_cast<CUgraph>(capture->graph.get()) == handle) return capture->graph.get();
    }
    return nullptr;
  }
  GraphExec *find(CUgraphExec handle) {
    auto found = execs.find(handle);
    return found == execs.end() ? nullptr : found->second.get();
  }
  GraphNode *find(CUgraphNode handle) {
    const auto in = [handle](const Graph &graph) -> GraphNode * {
      for (const auto &node : graph.nodes) {
        if (reinterpret_cast<CUgraphNode>(node.get()) == handle) return node.get();
      }
      return nullptr;
    };
    // A node's address is only trusted once it is found; its graph is asked first.
    for (const auto &entry : graphs) {
      if (GraphNode *node = in(*entry.second)) return node;
    }
    for (const auto &capture : captures) {
      if (GraphNode *node = in(*capture->graph)) return node;
    }
    return nullptr;
  }
};

}  // namespace flambeau::vgpu
