// SPDX-License-Identifier: Apache-2.0
// Copies and fills as work. Device memory is the host's memory too, so a copy is a memmove; what
// differs is when it reads and writes, what it may touch and how long it takes.
#pragma once
#include <cstring>
#include <memory>

#include "flambeau/driver/virtual/checks/ranges.hpp"
#include "place.hpp"
#include "pressure.hpp"

namespace flambeau::vgpu {

enum class Direction { HostToDevice, DeviceToHost, WithinDevice, BetweenDevices };

struct Transfer {
  std::uint64_t to = 0, from = 0, bytes = 0;
  Direction direction = Direction::WithinDevice;
  bool pageable = false;
  bool check_to = true, check_from = true;   // whether that side must be memory that we know
};

inline Nanoseconds transfer_duration(const Transfer &t, const Model &m) {
  const double bytes = static_cast<double>(t.bytes);
  const double bus = t.pageable ? m.host_bandwidth * PAGEABLE_SHARE : m.host_bandwidth;
  switch (t.direction) {
    case Direction::HostToDevice:
    case Direction::DeviceToHost: return COPY_OVERHEAD + transfer_time(bytes, bus);
    case Direction::BetweenDevices: return COPY_OVERHEAD + transfer_time(bytes, m.peer_bandwidth);
    case Direction::WithinDevice: break;
  }
  return COPY_OVERHEAD + transfer_time(2 * bytes, m.memory_bandwidth);
}

inline const char *transfer_path(const Transfer &t) {
  switch (t.direction) {
    case Direction::HostToDevice: return t.pageable ? "HtoD (Pageable -> Device)" : "HtoD (Pinned -> Device)";
    case Direction::DeviceToHost: return t.pageable ? "DtoH (Device -> Pageable)" : "DtoH (Device -> Pinned)";
    case Direction::BetweenDevices: return "PtoP (Device -> Device)";
    case Direction::WithinDevice: break;
  }
  return "DtoD (Device -> Device)";
}

inline std::string describe_bad_range(Machine &machine, const char *what, std::uint64_t address,
                                      std::uint64_t bytes) {
  char text[128];
  std::snprintf(text, sizeof text, "%s of %llu bytes at 0x%llx touched memory that is not allocated. ",
                what, static_cast<unsigned long long>(bytes), static_cast<unsigned long long>(address));
  return text + describe_address(machine, address);
}

// Whether the host's memory suffices for a write; else the report says so.
inline bool hold(std::uint64_t address, std::uint64_t bytes, Report &report) {
  report.fault = why_host_cannot_hold(address, bytes);
  if (report.fault.empty()) return true;
  report.status = CUDA_ERROR_OUT_OF_MEMORY;
  return false;
}

class CopyTask final : public Task {
 public:
  CopyTask(const Transfer &transfer, std::unique_ptr<char[]> staged)
      : transfer_(transfer), staged_(std::move(staged)) {}

  Engine engine() const override {
    switch (transfer_.direction) {
      case Direction::HostToDevice: return Engine::HostToDevice;
      case Direction::DeviceToHost: return Engine::DeviceToHost;
      case Direction::BetweenDevices: return Engine::Link;
      case Direction::WithinDevice: break;
    }
    return Engine::None;
  }

  void describe(WorkDescription &work) const override {
    work.type = NODE_MEMCPY;
    work.bytes = transfer_.bytes;
    work.path = transfer_path(transfer_);
  }
  std::uint64_t staged_bytes() const override { return staged_ ? transfer_.bytes : 0; }

  void run(Machine &machine, Context &context, Nanoseconds, Report &report) override {
    const Transfer &t = transfer_;
    if (!allowed(machine, report) || !hold(t.to, t.bytes, report)) return;
    if (ticket && checking()) {
      RangeChecks checks(ticket, "a copy");
      if (staged_) checks.write(t.to, t.bytes); else checks.copy(t.to, !t.check_to, t.from, !t.check_from, t.bytes);
    }
    const void *from = staged_ ? staged_.get() : reinterpret_cast<const void *>(t.from);
    std::memmove(reinterpret_cast<void *>(t.to), from, t.bytes);
    report.duration = transfer_duration(t, context.device->model);
  }

 private:
  // Memory may have gone since the call.
  bool allowed(Machine &machine, Report &report) {
    std::lock_guard<std::mutex> guard(machine.mutex);
    const Transfer &t = transfer_;
    for (const bool destination : {true, false}) {
      if (!(destination ? t.check_to : t.check_from)) continue;
      const std::uint64_t address = destination ? t.to : t.from;
      if (holds(place_of(machine, address), address, t.bytes)) continue;
      report.status = CUDA_ERROR_ILLEGAL_ADDRESS;
      report.fault = describe_bad_range(machine, destination ? "A copy to" : "A copy from", address, t.bytes);
      return false;
    }
    return true;
  }

  Transfer transfer_;
  std::unique_ptr<char[]> staged_;
};

template <class Value> class FillTask final : public Task {
 public:
  FillTask(std::uint64_t to, Value value, std::uint64_t count) : to_(to), count_(count), value_(value) {}
  void describe(WorkDescription &work) const override {
    work.type = NODE_MEMSET;
    work.bytes = count_ * sizeof(Value);
  }

  void run(Machine &machine, Context &context, Nanoseconds, Report &report) override {
    const std::uint64_t bytes = count_ * sizeof(Value);
    {
      std::lock_guard<std::mutex> guard(machine.mutex);
      if (!holds(place_of(machine, to_), to_, bytes)) {
        report.status = CUDA_ERROR_ILLEGAL_ADDRESS;
        report.fault = describe_bad_range(machine, "A fill", to_, bytes);
        return;
      }
    }
    if (!hold(to_, bytes, report)) return;
    if (ticket && checking()) RangeChecks(ticket, "a fill").write(to_, bytes);
    std::fill_n(reinterpret_cast<Value *>(to_), count_, value_);
    report.duration = COPY_OVERHEAD + transfer_time(static_cast<double>(bytes),
                                                    context.device->model.memory_bandwidth);
  }

 private:
  std::uint64_t to_, count_;
  Value value_;
};

}  // namespace flambeau::vgpu
