// SPDX-License-Identifier: Apache-2.0
// What an address is: memory of a device, page-locked host memory, or anything else.
#pragma once
#include "flambeau/driver/virtual/machine.hpp"

namespace flambeau::vgpu {

struct Place {
  Device *device = nullptr;        // whose memory, or null
  const Allocation *allocation = nullptr;   // null in an arena: nobody allocated it
  const HostRange *host = nullptr;

  bool known() const { return allocation || host; }
  std::uint64_t begin() const { return allocation ? allocation->begin : host->begin; }
  std::uint64_t bytes() const { return allocation ? allocation->bytes : host->bytes; }
};

inline Place place_of(Machine &machine, std::uint64_t address) {
  Place place;
  for (Device &device : machine.devices) {
    if (!device.arena.contains(address)) continue;
    place.device = &device;
    place.allocation = device.arena.find(address);
    return place;
  }
  place.host = machine.host.find(address);
  return place;
}

// Whether `bytes` from `address` lie in one allocation or one page-locked range.
inline bool holds(const Place &place, std::uint64_t address, std::uint64_t bytes) {
  return place.known() && bytes <= place.begin() + place.bytes() - address;
}

// For fault reports: what lies nearest to an address that is nobody's.
inline std::string describe_address(Machine &machine, std::uint64_t address) {
  char text[256];
  const Allocation *nearest = nullptr;
  int owner = -1;
  std::uint64_t distance = ~0ull;
  bool after = false, inside = false;
  for (const Device &device : machine.devices) {
    for (const auto &entry : device.arena.allocations()) {
      const Allocation &a = entry.second;
      const bool in = address - a.begin < a.bytes;
      const bool above = address >= a.end();
      const std::uint64_t gap = in ? 0 : above ? address - a.end() : a.begin - address;
      if (gap > distance || (gap == distance && !in)) continue;
      distance = gap;
      nearest = &a;
      owner = device.ordinal;
      after = above;
      inside = in;
    }
  }
  if (!nearest) return "No device memory is allocated.";
  const auto bytes = static_cast<unsigned long long>(nearest->bytes);
  const auto begin = static_cast<unsigned long long>(nearest->begin);
  if (inside) {
    std::snprintf(text, sizeof text, "The address is in the allocation of %llu bytes at 0x%llx on device %d.",
                  bytes, begin, owner);
  } else if (distance < 1ull << 40) {
    std::snprintf(text, sizeof text,
                  "It is %llu bytes %s the nearest allocation, %llu bytes at 0x%llx on device %d.",
                  static_cast<unsigned long long>(after ? distance : distance),
                  after ? "past the end of" : "before", bytes, begin, owner);
  } else {
    std::snprintf(text, sizeof text, "It is not near any allocation.");
  }
  return text;
}

}  // namespace flambeau::vgpu
