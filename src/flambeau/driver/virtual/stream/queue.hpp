// SPDX-License-Identifier: Apache-2.0
// Streams and events as the machine keeps them. A handle that callers hold is the object's address.
#pragma once
#include <memory>
#include <string>

#include "node.hpp"

namespace flambeau::vgpu {

struct Context;
struct Capture;
struct GraphNode;

constexpr unsigned STREAM_NON_BLOCKING = 1;

struct Stream {
  Context *context = nullptr;
  PartitionPtr partition;   // of a green context; null: the whole device
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;   // the default stream, which waits for all blocking ones and they for it
  NodePtr last;          // the newest node; null while nothing was ever submitted
  std::string name;
  unsigned trace_number = 7;   // in traces; 7 is a default stream
  std::uint32_t number = 0, steps = 0;   // as the checks count; 0: not seen yet

  std::shared_ptr<Capture> capture;    // that it belongs to; null: its work runs
  std::vector<GraphNode *> frontier;   // what the next captured work depends on

  bool blocking() const { return !legacy && !(flags & STREAM_NON_BLOCKING); }
  bool idle() const { return !last || last->done; }
};

enum EventFlags : unsigned {
  EVENT_BLOCKING = 1,
  EVENT_UNTIMED = 2,
  EVENT_INTERPROCESS = 4,
};

struct Event {
  Context *context = nullptr;
  unsigned flags = 0;
  NodePtr record;        // the marker of the newest record; null: never recorded
  std::shared_ptr<SharedEvent> shared;   // interprocess events only
  std::shared_ptr<Capture> capture;      // in which it was recorded last; null: in none
  std::vector<GraphNode *> frontier;     // what it marks there

  bool timed() const { return !(flags & EVENT_UNTIMED); }
};

}  // namespace flambeau::vgpu
