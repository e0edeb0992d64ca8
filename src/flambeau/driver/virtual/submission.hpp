// SPDX-License-Identifier: Apache-2.0
// How work enters the graph and leaves it: stream order, the default stream's rules, completion.
#pragma once
#include "checks/checker.hpp"
#include "machine.hpp"

namespace flambeau::vgpu {

// What the checks note of work that is submitted now.
inline TicketPtr new_ticket(Stream &stream) {
  Checker &all = checker();
  auto ticket = std::make_shared<Ticket>();
  if (!stream.number) stream.number = ++all.streams;
  ticket->stream = stream.number;
  ticket->count = ++stream.steps;
  ticket->epoch = all.ledger.epoch();
  ticket->before = all.host;
  ticket->before.raise(ticket->stream, ticket->count);
  ticket->stream_name = stream.name;
  ticket->stack = stack_of_call;
  return ticket;
}

inline NodePtr Machine::new_node(Stream &stream) {
  auto node = std::make_shared<Node>();
  node->sequence = ++sequence_;
  node->context = stream.context;
  node->partition = stream.partition;
  node->stream_name = stream.name;
  node->blocking = stream.blocking();
  node->priority = stream.priority;
  node->floor = clock.now() + LAUNCH_LATENCY;
  if (checking()) node->check = new_ticket(stream);
  node->trace.stream = stream.trace_number;
  node->trace.correlation = current_correlation;
  node->submitted = clock.now();
  return node;
}

// The next node of the graph that a stream is captured into.
inline void capture_task(Stream &stream, std::unique_ptr<Task> task) {
  GraphNode *node = stream.capture->graph->add(stream, stream.frontier);
  task->describe(node->work);
  node->task = std::move(task);
  stream.frontier = {node};
}

inline NodePtr Machine::submit(Stream &stream, std::unique_ptr<Task> task,
                               const NodePtr &also_after) {
  if (stream.capture) {
    capture_task(stream, std::move(task));
    return nullptr;
  }
  NodePtr node = new_node(stream);
  staged_bytes += task->staged_bytes();
  node->task = std::move(task);
  insert(stream, node, also_after);
  return node;
}

inline NodePtr Machine::submit_marker(Stream &stream, const NodePtr &also_after) {
  NodePtr node = new_node(stream);
  insert(stream, node, also_after);
  return node;
}

inline NodePtr Machine::submit_remote_wait(Stream &stream, std::shared_ptr<SharedEvent> event) {
  NodePtr node = new_node(stream);
  node->ticket = event->recorded();
  node->awaits = std::move(event);
  insert(stream, node, nullptr);
  return node;
}

// A stream's work is in order. The default stream waits for all blocking streams of its context,
// and they for it; non-blocking streams do neither.
inline void Machine::insert(Stream &stream, const NodePtr &node, const NodePtr &also_after) {
  Context &context = *stream.context;
  add_edge(stream.last, node);
  add_edge(also_after, node);
  if (stream.legacy) {
    for (Stream *other : context.streams) {
      if (other->blocking()) add_edge(other->last, node);
    }
    for (const NodePtr &left : context.detached) {
      if (left->blocking) add_edge(left, node);
    }
  } else if (stream.blocking()) {
    add_edge(context.legacy.last, node);
  }
  stream.last = node;
  enter(node);
}

// The node has all its edges.
inline void Machine::enter(const NodePtr &node) {
  unfinished_[node->sequence] = node;
  if (node->blockers == 0) {
    std::vector<NodePtr> finished;
    make_ready(node, finished);
    for (const NodePtr &marker : finished) finish(marker);
  }
  if (unfinished_.empty() || (!progress && stalled_.empty())) return;
  start_executor();
  if (idle_ && !running_) work_changed_.notify_all();
}

// A task becomes ready to run; a marker that waits for nothing is finished at once.
inline void Machine::make_ready(const NodePtr &node, std::vector<NodePtr> &finished) {
  if (!node->is_marker()) {
    if (node->task->may_start()) {
      ready_[node->sequence] = node;
    } else {
      remote_.push_back(node);
    }
    return;
  }
  if (node->awaits && !node->awaits->reached(node->ticket)) {
    remote_.push_back(node);
    return;
  }
  node->end = node->floor;
  finished.push_back(node);
}

// The node and every marker that it was the last to hold up are done.
inline void Machine::finish(const NodePtr &first) {
  std::vector<NodePtr> finished{first};
  while (!finished.empty()) {
    NodePtr node = std::move(finished.back());
    finished.pop_back();
    if (node->done) continue;
    node->done = true;
    if (node->publishes) node->publishes->complete(node->ticket);
    unfinished_.erase(node->sequence);
    ready_.erase(node->sequence);
    node->waits_for.clear();
    if (node->task) {
      staged_bytes -= node->task->staged_bytes();
      node->task.reset();
    }
    std::vector<NodePtr> dependents = std::move(node->dependents);
    node->dependents.clear();
    for (const NodePtr &later : dependents) {
      later->floor = std::max(later->floor, node->end);
      if (--later->blockers == 0 && !later->done) make_ready(later, finished);
    }
  }
}

inline void Machine::settle_remote() {
  std::vector<NodePtr> waiting = std::move(remote_);
  remote_.clear();
  for (const NodePtr &node : waiting) {
    if (node->done) continue;
    if (!node->is_marker()) {
      if (node->task->may_start()) {
        ready_[node->sequence] = node;
        work_done_.notify_all();   // whoever waits may run it
      } else {
        remote_.push_back(node);
      }
    } else if (node->awaits->reached(node->ticket)) {
      node->end = node->floor;
      finish(node);
      work_done_.notify_all();
    } else {
      remote_.push_back(node);
    }
  }
}

// The context is lost: what it still had to do is dropped, its waiters wake up.
inline void Machine::fail(Context &context, CUresult status, const std::string &text) {
  if (!context.error) {
    context.error = status;
    context.fault = text;
  }
  std::vector<NodePtr> lost;
  for (const auto &entry : unfinished_) {
    const NodePtr &node = entry.second;
    if (node->context != &context) continue;
    if (node->stalled) {
      node->cancelled = true;
    } else if (node != running_) {
      lost.push_back(node);
    }
  }
  for (const NodePtr &node : lost) {
    node->end = node->floor;
    finish(node);
  }
  work_done_.notify_all();
}

inline void Machine::drop_work() {
  for (const auto &entry : unfinished_) {
    entry.second->waits_for.clear();
    entry.second->dependents.clear();
  }
}

inline std::shared_ptr<const ptx::MemoryMap> Machine::memory_map(Context &context) {
  std::lock_guard<std::mutex> guard(mutex);
  if (context.map && context.map_epoch == memory_epoch) return context.map;
  auto map = std::make_shared<ptx::MemoryMap>();
  const unsigned bit = 1u << context.device->ordinal;
  for (const Device &device : devices) {
    const bool reachable = &device == context.device || context.peers.count(const_cast<Context *>(&device.context));
    for (const auto &entry : device.arena.allocations()) {
      // Mapped physical memory says itself who may use it.
      if (entry.second.peers ? !(entry.second.peers & bit) : !reachable) continue;
      map->ranges.push_back({entry.second.begin, entry.second.end()});
    }
    if (!reachable) continue;
    device.pool.each_freed([&](std::uint64_t begin, std::uint64_t end) { map->ranges.push_back({begin, end}); });
  }
  for (const auto &entry : host.all()) {
    map->ranges.push_back({entry.second.begin, entry.second.end()});
  }
  std::sort(map->ranges.begin(), map->ranges.end(),
            [](const auto &a, const auto &b) { return a.begin < b.begin; });
  context.map = map;
  context.map_epoch = memory_epoch;
  return map;
}

}  // namespace flambeau::vgpu
