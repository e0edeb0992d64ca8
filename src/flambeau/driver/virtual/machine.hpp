// SPDX-License-Identifier: Apache-2.0
// The machine: its devices, the graph of submitted work, and the threads that run it. All state
// is guarded by one mutex, which is never held while work runs or Python is called.
#pragma once
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "device/device.hpp"
#include "graph/graph.hpp"
#include "ipc/shared_event.hpp"
#include "memory/host.hpp"
#include "scheduler.hpp"
#include "trace.hpp"

namespace flambeau::vgpu {

constexpr auto PROGRESS_DELAY = std::chrono::milliseconds(20);
constexpr std::size_t PENDING_LIMIT = 4096;   // nodes; above it work starts by itself too
constexpr auto STALL_PAUSE = std::chrono::microseconds(50);
constexpr auto REMOTE_POLL = std::chrono::milliseconds(1);
constexpr auto WAIT_PATIENCE = std::chrono::milliseconds(500), RUN_PATIENCE = std::chrono::milliseconds(10'000);

// What a machine is made of; kept over resets.
struct Setup {
  std::vector<Model> models;
  Order order = Order::Fifo;
  std::uint64_t seed = 0;
  bool progress = true;
  int workers = 1;      // host threads that share a kernel's blocks
};

struct Function;   // kernel/function.hpp

// How to let other Python threads run while this one waits; set by the module that Python loads.
struct GlobalInterpreterLock {
  bool (*held)() = nullptr;
  void *(*release)() = nullptr;
  void (*acquire)(void *state) = nullptr;
};

inline GlobalInterpreterLock &interpreter_lock() {
  static GlobalInterpreterLock lock;
  return lock;
}

class Machine {
 public:
  explicit Machine(const Setup &setup) : progress(setup.progress), workers(setup.workers) {
    static std::atomic<std::uint64_t> machines{0};
    generation = ++machines;
    scheduler.set(setup.order, setup.seed);
  }

  // --- state, guarded by `mutex`
  std::mutex mutex;
  std::uint64_t generation;
  std::deque<Device> devices;
  HostRanges host;
  std::shared_ptr<SharedEventFile> shared_events;   // of interprocess events made here
  HostClock clock;
  std::uint64_t staged_bytes = 0;                // of pageable memory that waits for its copy
  Scheduler scheduler;
  std::unordered_map<CUstream, std::unique_ptr<Stream>> streams;
  std::unordered_map<CUevent, std::unique_ptr<Event>> events;
  std::unordered_map<CUfunction, std::unique_ptr<Function>> functions;
  GraphBook graphs;
  std::uint64_t memory_epoch = 1;                // moves on with every allocation and free
  std::uint64_t streams_made = 0;
  bool progress;
  int workers;
  bool launch_blocking = false;   // CUDA_LAUNCH_BLOCKING: launches return when their work is done
  std::chrono::steady_clock::time_point last_call = std::chrono::steady_clock::now();

  // --- submission. Work for a stream that is being captured goes into the graph; the answer is null.
  NodePtr submit(Stream &stream, std::unique_ptr<Task> task, const NodePtr &also_after = nullptr);
  NodePtr submit_marker(Stream &stream, const NodePtr &also_after = nullptr);
  NodePtr submit_remote_wait(Stream &stream, std::shared_ptr<SharedEvent> event);
  NodePtr submit_graph(Stream &stream, GraphExec &exec);   // its last node

  // --- waiting; `lock` holds `mutex`
  CUresult wait(std::unique_lock<std::mutex> &lock, const std::vector<NodePtr> &targets);
  bool poll(std::unique_lock<std::mutex> &lock, const std::vector<NodePtr> &targets);
  bool on_executor() const { return executor_of == this; }
  // Running work only polls memory, so that other work may start beside it; takes the mutex.
  void stall(Node &node, bool is_owner);

  // --- faults
  void fail(Context &context, CUresult status, const std::string &text);

  // --- for tasks: what device code of a context may touch; takes the mutex
  std::shared_ptr<const ptx::MemoryMap> memory_map(Context &context);

  void wake() { work_changed_.notify_all(); }
  // The newest change of blocks that all work which has not run was submitted after.
  std::uint64_t oldest_epoch(std::uint64_t otherwise) const {
    for (const auto &entry : unfinished_) {
      if (entry.second->check) return entry.second->check->epoch;
    }
    return otherwise;
  }
  void drain();
  bool stop();   // false if its thread could not be stopped
  void drop_work();   // after stop(): nodes hold each other, so they do not go by themselves

 private:
  NodePtr new_node(Stream &stream);
  void insert(Stream &stream, const NodePtr &node, const NodePtr &also_after);
  void enter(const NodePtr &node);
  NodePtr submit_step(Stream &stream, GraphExec &exec, const GraphExec::Step &step,
                      const std::vector<NodePtr> &made, const NodePtr &start);
  void make_ready(const NodePtr &node, std::vector<NodePtr> &finished);
  void finish(const NodePtr &node);
  void settle_remote();
  void reach(const Node &node);
  void start_executor();
  void add_executor();
  void run_executor();
  void run_task(const NodePtr &node, Nanoseconds start, Report &report);
  void execute(std::unique_lock<std::mutex> &lock, const NodePtr &node);
  void hand_over(const NodePtr &node);
  bool progress_due() const {
    return progress && (unfinished_.size() > PENDING_LIMIT ||
                        std::chrono::steady_clock::now() - last_call >= PROGRESS_DELAY);
  }
  void sleep(std::unique_lock<std::mutex> &lock);

  ReadyNodes ready_;                             // tasks that wait for nothing
  std::map<std::uint64_t, NodePtr> unfinished_;  // all nodes that are not done
  std::vector<NodePtr> remote_;                  // markers and tasks that wait for another process or rank only
  NodePtr running_;                              // being run, or given to the executor to run
  NodePtr handed_;                               // what the executor is to run next
  std::vector<NodePtr> stalled_;                 // beside `running_`: they run and poll memory
  std::mutex alone_;                             // held by work that runs while a check is on
  Nanoseconds latest_end_ = 0;
  std::uint64_t sequence_ = 0;
  int waiters_ = 0;
  bool stopping_ = false;
  int idle_ = 0;   // executors that must be woken
  std::vector<std::thread> executors_;   // one, and more while kernels that poll hold them
  std::size_t busy_executors_ = 0, ended_executors_ = 0;
  static inline thread_local const Machine *executor_of = nullptr;
  std::condition_variable work_changed_, work_done_;
};

}  // namespace flambeau::vgpu

#include "executor.hpp"
#include "submission.hpp"
#include "graph/replay.hpp"
