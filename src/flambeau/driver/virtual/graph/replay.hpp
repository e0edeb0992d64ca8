// SPDX-License-Identifier: Apache-2.0
// Launching an executable graph: each step becomes a node of the queues, between a first and a last
// marker in the launching stream.
#pragma once
#include "flambeau/driver/virtual/machine.hpp"

namespace flambeau::vgpu {

// Work that is done once a launch. The graph and all its launches share it.
class ReplayTask final : public Task {
 public:
  explicit ReplayTask(std::shared_ptr<Task> task) : task_(std::move(task)) { epoch = task_->epoch; }
  Engine engine() const override { return task_->engine(); }
  bool compiled() const override { return task_->compiled(); }
  bool brief() const override { return task_->brief(); }
  int poll_patience() const override { return task_->poll_patience(); }
  void describe(WorkDescription &work) const override { task_->describe(work); }
  bool may_start() override { return task_->may_start(); }
  void run(Machine &machine, Context &context, Nanoseconds start, Report &report) override {
    task_->ticket = ticket;
    task_->multiprocessors = multiprocessors;
    task_->run(machine, context, start, report);
  }

 private:
  std::shared_ptr<Task> task_;
};

// A marker just put into a stream becomes what an event marks.
inline void record_event(Event &event, const NodePtr &marker, std::uint64_t ticket) {
  event.record = marker;
  if (!event.shared) return;
  marker->ticket = ticket;
  if (marker->done) {
    event.shared->complete(ticket);
  } else {
    marker->publishes = event.shared;
  }
}

// Branches of a graph are as unordered as streams are.
inline void put_in_lane(Ticket &ticket, GraphExec::Lane &lane) {
  if (!lane.number) lane.number = ++checker().streams;
  ticket.stream = lane.number;
  ticket.count = ++lane.count;
  ticket.before.raise(ticket.stream, ticket.count);
}

inline NodePtr Machine::submit_step(Stream &stream, GraphExec &exec, const GraphExec::Step &step,
                                    const std::vector<NodePtr> &made, const NodePtr &start) {
  NodePtr node = new_node(stream);
  if (node->check) put_in_lane(*node->check, exec.lanes[step.lane]);
  node->context = step.context;
  node->partition = step.partition;
  node->stream_name = "a graph that was captured on " + step.stream_name + " and launched on " + stream.name;
  node->trace.stream = step.trace_number;
  node->trace.graph = exec.id;
  node->trace.node = step.node;
  if (step.task) node->task = std::make_unique<ReplayTask>(step.task);
  if (step.after.empty()) add_edge(start, node);
  for (const unsigned index : step.after) add_edge(made[index], node);
  auto found = step.event ? events.find(step.event) : events.end();
  Event *event = found == events.end() ? nullptr : found->second.get();
  if (event && step.type == NODE_WAIT_EVENT) add_edge(event->record, node);
  const bool records = event && step.type == NODE_EVENT_RECORD;
  const std::uint64_t ticket = records && event->shared ? event->shared->record() : 0;
  enter(node);
  if (records) record_event(*event, node, ticket);
  return node;
}

inline NodePtr Machine::submit_graph(Stream &stream, GraphExec &exec) {
  const NodePtr start = submit_marker(stream, exec.last);
  std::vector<NodePtr> made;
  made.reserve(exec.steps.size());
  NodePtr end = new_node(stream);
  for (const GraphExec::Step &step : exec.steps) {
    made.push_back(submit_step(stream, exec, step, made, start));
    if (step.leaf) add_edge(made.back(), end);
  }
  insert(stream, end, nullptr);
  exec.last = end;
  return end;
}

}  // namespace flambeau::vgpu
