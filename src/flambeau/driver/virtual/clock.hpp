// SPDX-License-Identifier: Apache-2.0
// Modelled time. Nothing here reads a wall clock: the host's clock moves by a fixed cost per call,
// and work takes what the device model says it takes. All times are nanoseconds since the machine
// was made.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "device/model.hpp"

namespace flambeau::vgpu {

using Nanoseconds = std::uint64_t;

constexpr Nanoseconds CALL_COST = 1000;         // any driver call
constexpr Nanoseconds SUBMISSION_COST = 2500;   // a call that hands work to a stream
constexpr Nanoseconds LAUNCH_LATENCY = 3000;    // from submission to the earliest start
constexpr Nanoseconds KERNEL_OVERHEAD = 1500;   // the shortest kernel
constexpr Nanoseconds COPY_OVERHEAD = 1200;     // the shortest copy or fill
constexpr double PAGEABLE_SHARE = 0.35;         // of the bus's rate, through staging buffers

class HostClock {
 public:
  Nanoseconds now() const { return now_; }
  void advance(Nanoseconds cost) { now_ += cost; }
  void advance_to(Nanoseconds time) { now_ = std::max(now_, time); }

 private:
  Nanoseconds now_ = 0;
};

// What on a device does one thing at a time. Streams of different engines overlap.
enum class Engine : int { None, Compute, HostToDevice, DeviceToHost, Link, Count };

class EngineTimes {
 public:
  // The earliest start at or after `floor` on an engine.
  Nanoseconds earliest(Engine engine, Nanoseconds floor) const {
    return engine == Engine::None ? floor : std::max(floor, free_at_[static_cast<int>(engine)]);
  }
  void occupy(Engine engine, Nanoseconds until) {
    if (engine != Engine::None) free_at_[static_cast<int>(engine)] = until;
  }

 private:
  Nanoseconds free_at_[static_cast<int>(Engine::Count)] = {};
};

inline Nanoseconds transfer_time(double bytes, double bytes_per_second) {
  return static_cast<Nanoseconds>(std::llround(bytes / bytes_per_second * 1e9));
}

inline Nanoseconds kernel_time(const Model &m, double bytes, double operations) {
  const double seconds = std::max(bytes / m.memory_bandwidth, operations / m.arithmetic_rate);
  return KERNEL_OVERHEAD + static_cast<Nanoseconds>(std::llround(seconds * 1e9));
}

inline Nanoseconds cycles_time(const Model &m, double cycles) {
  return static_cast<Nanoseconds>(std::llround(cycles / m.clock_hz() * 1e9));
}

}  // namespace flambeau::vgpu
