// SPDX-License-Identifier: Apache-2.0
// What tests and tools steer from outside: policy, progress, clock, lost devices, what went wrong.
// None of it is a driver call, so none of it moves the clock.
#pragma once
#include "entries/call.hpp"
#include "kernel/function.hpp"

namespace flambeau::vgpu {

inline Setup &machine_setup() { return process().setup; }

inline bool running() { return process().gate.load() == CUDA_SUCCESS; }

// Calls `change(machine)` under its mutex if there is a machine.
template <class Change> void with_machine(Change change) {
  if (!running()) return;
  Machine &machine = *process().machine.load();
  std::lock_guard<std::mutex> guard(machine.mutex);
  change(machine);
}

inline void apply_order() {
  with_machine([](Machine &m) { m.scheduler.set(machine_setup().order, machine_setup().seed); });
}

inline void apply_progress() {
  with_machine([](Machine &m) {
    m.progress = machine_setup().progress;
    m.wake();
  });
}

// What is known of a failure with this status: of the calling thread's last call, else of what lost
// the context of its current device, else of another one's.
inline std::string explain_status(int status) {
  std::string text;
  if (last_refusal.status == status && !last_refusal.text.empty()) {
    text.swap(last_refusal.text);
    return text;
  }
  with_machine([&](Machine &m) {
    for (const Device &device : m.devices) {
      const Context &context = device.context;
      const bool current = current_context.generation == m.generation && current_context.context == &context;
      if (context.error == status && (text.empty() || current)) text = context.fault;
    }
  });
  return text;
}

inline std::uint64_t clock_now() {
  std::uint64_t now = 0;
  with_machine([&](Machine &m) { now = m.clock.now(); });
  return now;
}

inline std::uint64_t used_bytes_of(int physical) {
  std::uint64_t bytes = 0;
  with_machine([&](Machine &m) {
    for (const Device &device : m.devices) {
      if (device.physical == physical) bytes = device.used_bytes();
    }
  });
  return bytes;
}

// Let all work of all devices run. Errors stay where they are.
inline void finish_work() {
  if (!running()) return;
  Machine &machine = *process().machine.load();
  std::unique_lock<std::mutex> lock(machine.mutex);
  std::vector<NodePtr> nodes;
  for (Device &device : machine.devices) {
    for (NodePtr &node : device.context.frontier()) nodes.push_back(std::move(node));
  }
  machine.wait(lock, nodes);
}

// Let it run as far as it does when the process ends.
inline void drain_work() {
  if (running()) process().machine.load()->drain();
}

// Turn checks on and off; no work is pending. What is in memory by now counts as written.
inline void set_checks(unsigned checks) {
  Checker &all = checker();
  all.on = checks;
  all.ledger.clear();
  all.accesses.clear();
  with_machine([&](Machine &m) {
    all.host.clear();
    if (!checks) return;
    for (const Device &device : m.devices) {
      for (const auto &entry : device.arena.allocations()) {
        const bool listed = !entry.second.imported && !entry.second.peers;
        if (listed) all.ledger.add_allocation(entry.first, entry.second.bytes, true, -1);
        if (listed && entry.second.exported) all.ledger.share(entry.first, entry.second.bytes);
      }
      for (const auto &range : device.arena.ranges()) {
        all.ledger.add_allocation(range.first, range.second, true, -1);
      }
      device.mappings.each_shared(nullptr, [&](std::uint64_t begin, std::uint64_t bytes) {
        all.ledger.share(begin, bytes);
      });
    }
    all.since = ++ledger_epoch;
  });
}

inline void set_watched(std::uint64_t function, const ptx::KernelCode *code) {
  with_machine([&](Machine &m) {
    const auto found = m.functions.find(reinterpret_cast<CUfunction>(function));
    if (found == m.functions.end()) return;
    found->second->watched = code;
    found->second->watchable = code != nullptr;
  });
}

// Begin to note what is done and called, or stop.
inline void set_tracing(bool on) {
  tracer().on = on;
  with_machine([](Machine &) {});   // calls under way have ended
}

// What was noted since the last time; it is forgotten here.
inline void take_trace(std::vector<TracedWork> &work, std::vector<TracedCall> &calls) {
  const auto take = [&](Machine &) {
    work.swap(tracer().work);
    calls.swap(tracer().calls);
  };
  with_machine(take);
}

// A stream's number in traces; 0 if there is no such stream.
inline unsigned traced_stream(std::uint64_t handle) {
  unsigned number = handle <= 1 ? 7 : 0;
  with_machine([&](Machine &m) {
    const auto found = m.streams.find(reinterpret_cast<CUstream>(handle));
    if (found != m.streams.end()) number = found->second->trace_number;
  });
  return number;
}

// The device answers `status` from now on. 101 if there is no such device.
inline CUresult lose(int ordinal, CUresult status) {
  CUresult result = running() ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_NOT_INITIALIZED;
  with_machine([&](Machine &m) {
    if (ordinal < 0 || ordinal >= static_cast<int>(m.devices.size())) return;
    m.fail(m.devices[static_cast<std::size_t>(ordinal)].context, status,
           "Device " + std::to_string(ordinal) + " was lost on request.");
    result = CUDA_SUCCESS;
  });
  return result;
}

}  // namespace flambeau::vgpu
