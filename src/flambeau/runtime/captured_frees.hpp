// SPDX-License-Identifier: Apache-2.0
// Blocks that were freed while a capture ran. An event recorded then would become a part of the graph,
// so most of them wait for the end of the capture. But the graph itself can prove earlier that nobody
// uses a block any more: what is captured next on the block's own stream may come after all that was
// captured on the other streams before the block was freed.
#pragma once
#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "pool.hpp"

namespace flambeau {

// The nodes that work captured next on a stream would depend on.
struct CaptureFrontier {
  std::uint64_t capture = 0;
  std::vector<CUgraphNode> nodes;

  // False if the stream is in no capture. Waits for nothing.
  bool ask(const DriverTable *driver, CUstream stream) {
    int status = 0;
    const CUgraphNode *found = nullptr;
    const CUgraphEdgeData *edges = nullptr;  // without room for them edges of other kinds are refused
    std::size_t count = 0;
    if (!stream || driver->StreamGetCaptureInfo(stream, &status, &capture, nullptr, &found, &edges,
                                                &count) != CUDA_SUCCESS || status != 1)
      return false;
    nodes.assign(found, found + count);
    return true;
  }
};

// All nodes before the present end of a stream, found step by step as the capture goes on.
class CaptureAncestors {
 public:
  void advance(const DriverTable *driver, CaptureFrontier now) {
    if (now.capture != frontier_.capture) *this = {};
    if (now.nodes == frontier_.nodes) return;
    // The stream may have been told to forget its past: then what was known is no proof any more.
    if (!walk(driver, now.nodes, frontier_.nodes)) {
      known_.clear();
      walk(driver, now.nodes, {});
    }
    frontier_ = std::move(now);
  }

  bool include(const std::vector<CUgraphNode> &nodes) const {
    return !conditional_ && std::all_of(nodes.begin(), nodes.end(), [this](CUgraphNode node) {
      return known_.count(node) > 0;
    });
  }

 private:
  static constexpr int CONDITIONAL = 13;  // CU_GRAPH_NODE_TYPE_CONDITIONAL

  // Learn what comes before `ends`, up to what is known; whether all of `before` was met.
  bool walk(const DriverTable *driver, std::vector<CUgraphNode> ends, std::vector<CUgraphNode> before) {
    while (!ends.empty()) {
      const CUgraphNode node = ends.back();
      ends.pop_back();
      if (!known_.insert(node).second) {
        before.erase(std::remove(before.begin(), before.end(), node), before.end());
        continue;
      }
      int type = 0;
      if (driver->GraphNodeGetType(node, &type) != CUDA_SUCCESS || type == CONDITIONAL)
        conditional_ = true;
      std::size_t count = 0;
      if (driver->GraphNodeGetDependencies(node, nullptr, nullptr, &count) != CUDA_SUCCESS) continue;
      std::vector<CUgraphNode> found(count);
      std::vector<CUgraphEdgeData> edges(count);
      if (!count || driver->GraphNodeGetDependencies(node, found.data(), edges.data(), &count) != CUDA_SUCCESS)
        continue;
      ends.insert(ends.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return before.empty();
  }

  CaptureFrontier frontier_;
  std::unordered_set<CUgraphNode> known_;
  bool conditional_ = false;  // a part of the graph may run again, or not at all
};

// All methods are called with the allocator's lock held.
class CapturedFrees {
 public:
  bool empty() const { return freed_.empty(); }

  // A block was freed; with `provable`, the graph may prove that it is free.
  void add(const DriverTable *driver, Block *block, bool provable) {
    Freed freed{block, 0, {}};
    CaptureFrontier own, other;
    if (provable && own.ask(driver, block->segment->stream)) {
      freed.capture = own.capture;
      for (const StreamUse &use : block->uses) {
        if (!use.captured || !other.ask(driver, use.stream) || other.capture != own.capture) {
          freed.capture = 0;
          break;
        }
        freed.ends.insert(freed.ends.end(), other.nodes.begin(), other.nodes.end());
      }
    }
    freed_.push_back(std::move(freed));
  }

  // Hand over the blocks that work captured next on this stream may use.
  template <class Free>
  void reclaim(const DriverTable *driver, CUstream stream, const Pool *pool, Free free) {
    const auto ours = [&](const Freed &freed) {
      const Segment *segment = freed.block->segment;
      return freed.capture && segment->stream == stream && segment->pool == pool;
    };
    CaptureFrontier now;
    if (std::none_of(freed_.begin(), freed_.end(), ours) || !now.ask(driver, stream)) return;
    const std::uint64_t capture = now.capture;
    CaptureAncestors &ancestors = ancestors_[stream];
    ancestors.advance(driver, std::move(now));
    const auto waiting = std::stable_partition(freed_.begin(), freed_.end(), [&](const Freed &freed) {
      return !(ours(freed) && freed.capture == capture && ancestors.include(freed.ends));
    });
    std::vector<Block *> proven;
    for (auto it = waiting; it != freed_.end(); ++it) proven.push_back(it->block);
    freed_.erase(waiting, freed_.end());
    for (Block *block : proven) free(block);
  }

  // The last capture has ended: its graph may go away.
  void forget_graphs() { ancestors_.clear(); }

  std::vector<Block *> take_all() {
    std::vector<Block *> blocks;
    for (const Freed &freed : freed_) blocks.push_back(freed.block);
    freed_.clear();
    return blocks;
  }

 private:
  struct Freed {
    Block *block;
    std::uint64_t capture;          // of all its uses; 0: the graph proves nothing
    std::vector<CUgraphNode> ends;  // of the other streams when it was freed
  };
  std::vector<Freed> freed_;
  std::map<CUstream, CaptureAncestors> ancestors_;
};

}  // namespace flambeau
