// SPDX-License-Identifier: Apache-2.0
// Who runs work, and how callers wait for it.
//
// Work runs when somebody waits for it, one piece at a time. The thread that waits runs compiled
// work itself, which saves two thread switches; host functions and Python tasks always run on the
// executor thread. If nobody has called the driver for PROGRESS_DELAY, ready work starts by itself
// there, so that a host that spins on pinned memory, or another process, always gets its turn; it
// also does while very much is pending.
//
// A kernel that only polls memory waits for something: for another kernel, a copy, the host. Other
// work then starts beside it, on more threads where it must.
#pragma once
#include <csignal>

#include "checks/checker.hpp"
#include "machine.hpp"

namespace flambeau::vgpu {

inline void Machine::start_executor() {
  if (executors_.empty()) add_executor();
}

inline void Machine::add_executor() {
  // Signals are for the threads that Python knows.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  executors_.emplace_back([this] { run_executor(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

inline void Machine::run_executor() {
  executor_of = this;
  std::unique_lock<std::mutex> lock(mutex);
  while (!stopping_) {
    if (!remote_.empty()) settle_remote();
    NodePtr node = std::move(handed_);
    handed_ = nullptr;
    if (!node && !running_ && (stalled_.empty() ? waiters_ == 0 && progress_due() : true)) {
      node = scheduler.choose(ready_, false);
    }
    if (node) {
      ++busy_executors_;
      execute(lock, node);
      --busy_executors_;
    } else {
      sleep(lock);
    }
  }
  ++ended_executors_;
  work_done_.notify_all();
}

inline void Machine::sleep(std::unique_lock<std::mutex> &lock) {
  if (!remote_.empty()) {
    work_changed_.wait_for(lock, 5 * REMOTE_POLL);   // whoever waits looks more often
  } else if (progress && !ready_.empty() && !running_ && waiters_ == 0) {
    work_changed_.wait_until(lock, last_call + PROGRESS_DELAY);
  } else {
    ++idle_;   // work that comes must wake it
    work_changed_.wait(lock);
    --idle_;
  }
}

// A submission's ticket, with the epoch at which its task was made: a graph's when it was captured.
inline TicketPtr ticket_of(const Node &node) {
  if (!node.check) return nullptr;
  node.check->knows_memory = node.task->epoch >= checker().since;
  node.check->epoch = node.task->epoch;
  return node.check;
}

inline void Machine::execute(std::unique_lock<std::mutex> &lock, const NodePtr &node) {
  Context &context = *node->context;
  EngineTimes &engines = context.device->engines;
  const Engine engine = node->task->engine();
  const Partition *partition = node->partition.get();
  const Nanoseconds start = engines.earliest(engine, node->floor, partition);
  Report report;
  report.node = node.get();
  ready_.erase(node->sequence);
  running_ = node;
  node->task->ticket = ticket_of(*node);
  node->task->multiprocessors = partition ? partition->count : 0;
  lock.unlock();
  run_task(node, start, report);
  lock.lock();
  if (report.again && !context.error) {
    running_ = nullptr;
    remote_.push_back(node);
    settle_remote();
    work_done_.notify_all();
    return;
  }
  node->end = start + report.duration;
  // what a polling kernel waited for came before its end
  if (node->stalled) node->end = std::max(node->end, latest_end_);
  latest_end_ = std::max(latest_end_, node->end);
  engines.occupy(engine, node->end, partition);
  if (tracing()) tracer().note(*node, context.device->ordinal, start);
  if (report.status != CUDA_SUCCESS) {
    fail(context, report.status, report.fault + " It was submitted to " + node->stream_name + ".");
  }
  if (node->stalled) {
    stalled_.erase(std::find(stalled_.begin(), stalled_.end(), node));
  } else {
    running_ = nullptr;
  }
  finish(node);
  if (!remote_.empty()) settle_remote();
  work_done_.notify_all();
  const bool starts_itself = (progress && waiters_ == 0) || !stalled_.empty();
  if (starts_itself && idle_ && !ready_.empty()) work_changed_.notify_all();
}

// The checks see one thing at a time.
inline void Machine::run_task(const NodePtr &node, Nanoseconds start, Report &report) {
  std::unique_lock<std::mutex> alone(alone_, std::defer_lock);
  if (node->check) alone.lock();
  node->task->run(*this, *node->context, start, report);
}

// `is_owner`: the calling thread runs the node's task, others help it.
inline void Machine::stall(Node &node, bool is_owner) {
  {
    std::lock_guard<std::mutex> guard(mutex);
    if (!node.stalled && running_.get() == &node) {
      node.stalled = true;
      stalled_.push_back(std::move(running_));
      running_ = nullptr;
      if (busy_executors_ == executors_.size()) add_executor();
      work_changed_.notify_all();
      work_done_.notify_all();
    }
  }
  const bool yields = is_owner && node.check;
  if (yields) alone_.unlock();
  std::this_thread::sleep_for(STALL_PAUSE);
  if (yields) alone_.lock();
}

// Give a chosen piece of work to the executor thread. Nothing else starts before it has run.
inline void Machine::hand_over(const NodePtr &node) {
  ready_.erase(node->sequence);
  running_ = node;
  handed_ = node;
  start_executor();
  work_changed_.notify_all();
}

// The host knows that a node is done.
inline void Machine::reach(const Node &node) {
  clock.advance_to(node.end);
  if (node.check && checking()) checker().host.join(node.check->before);
}

// Wait until all targets (null ones count as done) are; the host's clock moves to their end.
inline CUresult Machine::wait(std::unique_lock<std::mutex> &lock,
                              const std::vector<NodePtr> &targets) {
  const auto open = [&] {
    for (const NodePtr &target : targets) {
      if (target && !target->done) return true;
    }
    return false;
  };
  if (open()) {
    if (on_executor()) return CUDA_ERROR_NOT_PERMITTED;   // a host callback may not wait
    for (const NodePtr &target : targets) {
      if (target) want(target);
    }
    ++waiters_;
    while (!stopping_ && open()) {
      NodePtr node = running_ ? nullptr : scheduler.choose(ready_, true);
      // What is waited for may wait for another rank, whose work nobody waits for.
      if (!node && !running_ && !remote_.empty()) node = scheduler.choose(ready_, false);
      if (node && node->task->compiled()) {
        execute(lock, node);
        continue;
      }
      if (node) hand_over(node);
      if (remote_.empty()) {
        work_done_.wait(lock);
      } else {
        work_done_.wait_for(lock, REMOTE_POLL);
        settle_remote();
      }
    }
    --waiters_;
    last_call = std::chrono::steady_clock::now();
    if (idle_ && !unfinished_.empty()) work_changed_.notify_all();
    if (stopping_) return CUDA_ERROR_DEINITIALIZED;
  }
  for (const NodePtr &target : targets) {
    if (target) reach(*target);
  }
  return CUDA_SUCCESS;
}

// Whether all targets are done. If not, one piece of work runs, and the answer is still no. It is
// waited for, so that what a program sees does not depend on threads; but not for ever, because it
// may itself wait for the polling thread.
inline bool Machine::poll(std::unique_lock<std::mutex> &lock, const std::vector<NodePtr> &targets) {
  if (!remote_.empty()) settle_remote();
  NodePtr unfinished;
  for (const NodePtr &target : targets) {
    if (target && !target->done) unfinished = target;
  }
  if (!unfinished) {
    for (const NodePtr &target : targets) {
      if (target) reach(*target);
    }
    return true;
  }
  if (on_executor()) return false;
  NodePtr node = running_ ? running_ : scheduler.choose_for_poll(ready_, unfinished);
  if (!node && !remote_.empty()) node = scheduler.choose(ready_, false);
  if (!node) return false;
  const std::chrono::milliseconds patience(node->task->poll_patience());
  if (!running_ && node->task->brief()) {
    execute(lock, node);
  } else {
    if (!running_) hand_over(node);
    work_done_.wait_for(lock, patience, [&] { return stopping_ || node->done || node->stalled; });
  }
  last_call = std::chrono::steady_clock::now();
  return false;
}

// Have all work run, as far as it comes without the host: the process ends. What only polls memory,
// or waits for another process, holds it up for a moment, and what does not end for some seconds.
inline void Machine::drain() {
  using Clock = std::chrono::steady_clock;
  std::unique_lock<std::mutex> lock(mutex);
  if (on_executor()) return;
  Clock::time_point since = Clock::now();   // when something ended last
  std::size_t left = unfinished_.size();
  ++waiters_;
  while (!stopping_ && !unfinished_.empty()) {
    if (!remote_.empty()) settle_remote();
    const NodePtr node = running_ ? nullptr : scheduler.choose(ready_, false);
    if (node) hand_over(node);
    work_done_.wait_for(lock, REMOTE_POLL);
    if (unfinished_.size() != left) since = Clock::now();
    left = unfinished_.size();
    if (Clock::now() - since > (running_ ? RUN_PATIENCE : WAIT_PATIENCE)) break;
  }
  --waiters_;
}

// False if work still runs, on whichever thread, that could not be stopped: a kernel that never ends
// must not keep the process from ending.
inline bool Machine::stop() {
  std::unique_lock<std::mutex> lock(mutex);
  stopping_ = true;
  work_changed_.notify_all();
  work_done_.notify_all();
  if (on_executor()) return false;
  if (running_) running_->cancelled = true;
  for (const NodePtr &node : stalled_) node->cancelled = true;
  const auto ended = [&] { return ended_executors_ == executors_.size(); };
  const auto still = [&] { return ended() && stalled_.empty() && (!running_ || running_ == handed_); };
  work_done_.wait_for(lock, std::chrono::seconds(1), still);
  const bool all_still = still(), joined = ended();
  lock.unlock();
  for (std::thread &executor : executors_) {
    if (joined) executor.join(); else executor.detach();
  }
  return all_still;
}

}  // namespace flambeau::vgpu
