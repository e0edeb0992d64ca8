// SPDX-License-Identifier: Apache-2.0
// Fault injection and tracing as wrappers of table entries. Nothing here runs until an entry is
// wrapped: an untouched table holds the driver's own function pointers.
#pragma once
#include <atomic>
#include <mutex>
#include <vector>

#include "table.hpp"

namespace flambeau {

// Fail calls `first` .. `first + times - 1` (1-based, counted from when the plan was set).
struct FaultPlan {
  std::atomic<std::int64_t> calls{0};
  std::int64_t first = 0, times = 0;
  CUresult status = CUDA_SUCCESS;
};

struct TraceRecord { int entry; CUresult status; };

struct Interceptor {
  DriverTable below;   // the driver's own functions
  DriverTable active;  // what callers see
  FaultPlan plans[ENTRY_COUNT];
  std::atomic<bool> tracing{false};
  std::mutex trace_lock;
  std::vector<TraceRecord> trace;

  void record(int entry, CUresult status) {
    if (!tracing.load(std::memory_order_relaxed)) return;
    std::lock_guard<std::mutex> guard(trace_lock);
    trace.push_back({entry, status});
  }

  // The status this call must fail with, or CUDA_SUCCESS to go on.
  CUresult planned_failure(int entry) {
    FaultPlan &plan = plans[entry];
    if (plan.times == 0) return CUDA_SUCCESS;
    const std::int64_t nth = plan.calls.fetch_add(1, std::memory_order_relaxed) + 1;
    return nth >= plan.first && nth - plan.first < plan.times ? plan.status : CUDA_SUCCESS;
  }
};

inline Interceptor &interceptor();

namespace detail {

template <class Signature> struct stand_in;
template <class... A> struct stand_in<CUresult(A...)> {
  static CUresult call(A...) { return CUDA_ERROR_NOT_SUPPORTED; }
};

template <int entry, class Pointer, Pointer DriverTable::*member> struct wrapped;
template <int entry, class... A, CUresult (*DriverTable::*member)(A...)>
struct wrapped<entry, CUresult (*)(A...), member> {
  static CUresult call(A... args) {
    Interceptor &i = interceptor();
    CUresult status = i.planned_failure(entry);
    if (status == CUDA_SUCCESS) status = (i.below.*member)(args...);
    i.record(entry, status);
    return status;
  }
};

}  // namespace detail

inline void install(Interceptor &i, const DriverTable &driver) {
  i.below = driver;
#define FLAMBEAU_X(name, ...) \
  if (!i.below.name) i.below.name = detail::stand_in<__VA_ARGS__>::call;
  FLAMBEAU_DRIVER_ENTRIES(FLAMBEAU_X)
#undef FLAMBEAU_X
  i.active = i.below;
}

// Put the wrapper in front of an entry while a plan or a trace needs it, else the driver's own.
inline void rewire(Interceptor &i) {
  const bool tracing = i.tracing.load();
#define FLAMBEAU_X(name, ...)                                                                    \
  i.active.name = tracing || i.plans[ENTRY_##name].times                                         \
                      ? detail::wrapped<ENTRY_##name, detail::pointer_to<__VA_ARGS__>::type,     \
                                        &DriverTable::name>::call                                \
                      : i.below.name;
  FLAMBEAU_DRIVER_ENTRIES(FLAMBEAU_X)
#undef FLAMBEAU_X
}

inline void set_plan(Interceptor &i, int entry, std::int64_t first, std::int64_t times,
                     CUresult status) {
  FaultPlan &plan = i.plans[entry];
  plan.calls = 0;
  plan.first = first;
  plan.times = times;
  plan.status = status;
  rewire(i);
}

inline void set_tracing(Interceptor &i, bool on) {
  i.tracing = on;
  rewire(i);
}

inline std::vector<TraceRecord> take_trace(Interceptor &i) {
  std::lock_guard<std::mutex> guard(i.trace_lock);
  std::vector<TraceRecord> records;
  records.swap(i.trace);
  return records;
}

}  // namespace flambeau
