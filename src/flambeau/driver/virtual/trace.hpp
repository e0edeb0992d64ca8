// SPDX-License-Identifier: Apache-2.0
// What devices did and when, and what the host called, noted while somebody traces. Times are those
// of the modelled clock. All of it is guarded by the machine's mutex.
#pragma once
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <vector>

#include "stream/node.hpp"

namespace flambeau::vgpu {

struct TracedWork {
  std::string name;   // a copy: the code may be unloaded before somebody reads this
  WorkDescription what;
  int device = 0;
  TracePlace place;
  Nanoseconds submitted = 0, start = 0, end = 0;
};

struct TracedCall {
  const char *name;   // of the entry
  std::uint64_t correlation;
  long thread;        // as the system numbers it
  Nanoseconds start, end;
};

struct Tracer {
  std::atomic<bool> on{false};
  std::uint64_t correlations = 0;
  std::vector<TracedWork> work;
  std::vector<TracedCall> calls;

  void note(const Node &node, int device, Nanoseconds start) {
    TracedWork done;
    node.task->describe(done.what);
    done.name = done.what.name;
    done.device = device;
    done.place = node.trace;
    done.submitted = node.submitted;
    done.start = start;
    done.end = node.end;
    work.push_back(std::move(done));
  }
};

inline Tracer &tracer() {
  static Tracer *instance = new Tracer();   // never destroyed: work may outlive exit()
  return *instance;
}

inline bool tracing() { return tracer().on.load(std::memory_order_relaxed); }

// Of the call that this thread is in.
inline thread_local std::uint64_t current_correlation = 0;

inline long system_thread() {
  static thread_local const long id = ::syscall(SYS_gettid);
  return id;
}

}  // namespace flambeau::vgpu
