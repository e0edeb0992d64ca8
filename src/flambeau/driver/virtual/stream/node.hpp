// SPDX-License-Identifier: Apache-2.0
// A node is one step of a stream: a piece of work, or a marker (an event record, a wait) that has
// nothing to run. Nodes know what they wait for, so order within a stream, events and the default
// stream's rules are all edges of one graph.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "flambeau/driver/table.hpp"
#include "flambeau/driver/virtual/checks/ticket.hpp"
#include "flambeau/driver/virtual/clock.hpp"
#include "flambeau/driver/virtual/graph/description.hpp"

namespace flambeau::vgpu {

class Machine;
struct Context;
struct SharedEvent;

struct Node;

// What a task tells when it has run.
struct Report {
  CUresult status = CUDA_SUCCESS;
  std::string fault;          // for people, when status is not 0
  Nanoseconds duration = 0;   // modelled
  Node *node = nullptr;       // whose work it is; set before the task runs
  bool again = false;         // it has another step, which runs when it may start
};

// One piece of work. No lock is held while it runs.
class Task {
 public:
  virtual ~Task() = default;
  virtual Engine engine() const { return Engine::None; }
  virtual std::uint64_t staged_bytes() const { return 0; }   // host memory that it holds
  // Calls back neither Python nor user code, so that a thread that waits for it may run it.
  virtual bool compiled() const { return true; }
  // Ends soon whatever the host does, so that a thread that polls may run it.
  virtual bool brief() const { return true; }
  // How long a poll waits at most for one that is not brief, in milliseconds of wall time.
  virtual int poll_patience() const { return 1000; }
  // Whether a step may run now that nothing of this machine holds it up. It is asked again and again
  // with the machine's mutex held.
  virtual bool may_start() { return true; }
  // What it is, for those who look into a graph. By default a kernel that a library launched.
  virtual void describe(WorkDescription &work) const { work.name = "kernel"; }
  virtual void run(Machine &machine, Context &context, Nanoseconds start, Report &report) = 0;

  std::uint64_t epoch = ledger_epoch.load();   // when it was made; of a graph's, when it was captured
  int multiprocessors = 0;   // of the partition that it runs on; 0: the device's
  TicketPtr ticket;   // of the submission that runs now, while a check is on
};

struct Node;
using NodePtr = std::shared_ptr<Node>;

struct Node {
  std::uint64_t sequence = 0;       // submission order over all streams
  Context *context = nullptr;
  PartitionPtr partition;           // null: the whole device
  std::unique_ptr<Task> task;       // null: a marker
  std::vector<NodePtr> waits_for;   // cleared when done
  std::vector<NodePtr> dependents;  // cleared when done
  unsigned blockers = 0;            // how many of waits_for are not done
  bool done = false;
  bool blocking = false;            // of a stream that is ordered with the default stream
  int priority = 0;                 // of its stream: less goes first
  bool wanted = false;              // somebody waits for it or for what depends on it
  bool stalled = false;             // it runs, but only polls memory: other work may start meanwhile
  std::atomic<bool> cancelled{false};   // its polling must end
  Nanoseconds floor = 0;            // it cannot start before: what it waited for, its submission
  Nanoseconds end = 0;              // when it was done
  std::string stream_name;          // for fault reports; made when the stream was

  // A marker that publishes an interprocess event's completion, or waits for one of another process.
  std::shared_ptr<SharedEvent> publishes, awaits;
  std::uint64_t ticket = 0;
  TicketPtr check;   // while a check is on
  TracePlace trace;
  Nanoseconds submitted = 0;   // while somebody traces

  bool is_marker() const { return !task; }
};

// Make `node` wait for `earlier`, which may be null or done.
inline void add_edge(const NodePtr &earlier, const NodePtr &node) {
  if (!earlier) return;
  if (earlier->check && node->check) node->check->before.join(earlier->check->before);
  if (earlier->done) {
    node->floor = std::max(node->floor, earlier->end);
    return;
  }
  node->waits_for.push_back(earlier);
  earlier->dependents.push_back(node);
  ++node->blockers;
}

}  // namespace flambeau::vgpu
