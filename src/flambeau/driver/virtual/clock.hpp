// SPDX-License-Identifier: Apache-2.0
// Modelled time. Nothing here reads a wall clock: the host's clock moves by a fixed cost per call,
// and work takes what the device model says it takes. All times are nanoseconds since the machine
// was made.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

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

// Multiprocessors that kernels are kept to.
struct Partition {
  int first, count;
};
using PartitionPtr = std::shared_ptr<const Partition>;

class EngineTimes {
 public:
  // The earliest start at or after `floor` on an engine. Kernels wait for the multiprocessors that
  // they are kept to, others for all of them.
  Nanoseconds earliest(Engine engine, Nanoseconds floor, const Partition *partition) const {
    if (engine == Engine::None) return floor;
    floor = std::max(floor, free_at_[static_cast<int>(engine)]);
    if (engine != Engine::Compute) return floor;
    const auto [first, end] = range(partition);
    for (std::size_t i = first; i < end; ++i) floor = std::max(floor, partly_free_at_[i]);
    return floor;
  }
  void occupy(Engine engine, Nanoseconds until, const Partition *partition) {
    if (engine == Engine::None) return;
    if (engine != Engine::Compute || !partition) {
      free_at_[static_cast<int>(engine)] = until;
      return;
    }
    const auto needed = static_cast<std::size_t>(partition->first + partition->count);
    if (partly_free_at_.size() < needed) partly_free_at_.resize(needed);
    const auto [first, end] = range(partition);
    for (std::size_t i = first; i < end; ++i) partly_free_at_[i] = until;
  }

 private:
  std::pair<std::size_t, std::size_t> range(const Partition *partition) const {
    if (!partition) return {0, partly_free_at_.size()};
    const auto first = static_cast<std::size_t>(partition->first);
    return {first, std::min(first + static_cast<std::size_t>(partition->count), partly_free_at_.size())};
  }

  std::vector<Nanoseconds> partly_free_at_;   // by multiprocessor, for kernels of partitions
  Nanoseconds free_at_[static_cast<int>(Engine::Count)] = {};
};

inline Nanoseconds transfer_time(double bytes, double bytes_per_second) {
  return static_cast<Nanoseconds>(std::llround(bytes / bytes_per_second * 1e9));
}

inline Nanoseconds kernel_time(const Model &m, double bytes, double operations) {
  const double seconds = std::max(bytes / m.memory_bandwidth, operations / m.arithmetic_rate);
  return KERNEL_OVERHEAD + static_cast<Nanoseconds>(std::llround(seconds * 1e9));
}

// The same kernel on `multiprocessors` of a device's; 0 means all of them.
inline Nanoseconds kernel_time_on(const Model &m, int multiprocessors, Nanoseconds whole) {
  if (!multiprocessors || whole <= KERNEL_OVERHEAD) return whole;
  const double share = static_cast<double>(m.multiprocessors) / multiprocessors;
  return KERNEL_OVERHEAD + static_cast<Nanoseconds>(std::llround(static_cast<double>(whole - KERNEL_OVERHEAD) * share));
}

inline Nanoseconds cycles_time(const Model &m, double cycles) {
  return static_cast<Nanoseconds>(std::llround(cycles / m.clock_hz() * 1e9));
}

}  // namespace flambeau::vgpu
