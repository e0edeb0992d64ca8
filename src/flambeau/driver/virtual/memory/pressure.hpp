// SPDX-License-Identifier: Apache-2.0
// Device memory is host memory, committed when it is touched. Running out of it would end the
// process without a word, so large writes first ask whether the host can hold them.
#pragma once
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "arena.hpp"

namespace flambeau::vgpu {

constexpr std::uint64_t LARGE_WRITE = 32ull << 20;
constexpr std::uint64_t HOST_RESERVE = 256ull << 20;   // left for everything else

namespace detail {

// The first number in a file, or `otherwise`: control groups write "max" for no limit.
inline std::uint64_t number_in(const char *path, std::uint64_t otherwise) {
  std::FILE *file = std::fopen(path, "re");
  if (!file) return otherwise;
  unsigned long long value;
  const bool found = std::fscanf(file, "%llu", &value) == 1;
  std::fclose(file);
  return found ? value : otherwise;
}

inline std::uint64_t system_available() {
  std::FILE *file = std::fopen("/proc/meminfo", "re");
  if (!file) return ~0ull;
  char line[128];
  std::uint64_t bytes = ~0ull;
  while (std::fgets(line, sizeof line, file)) {
    if (std::strncmp(line, "MemAvailable:", 13) == 0) bytes = std::strtoull(line + 13, nullptr, 10) * 1024;
  }
  std::fclose(file);
  return bytes;
}

}  // namespace detail

// Bytes that the host can still commit, within the control group's limit.
inline std::uint64_t host_available() {
  const std::uint64_t limit = detail::number_in("/sys/fs/cgroup/memory.max", ~0ull);
  const std::uint64_t used = detail::number_in("/sys/fs/cgroup/memory.current", 0);
  const std::uint64_t group = limit == ~0ull ? ~0ull : limit > used ? limit - used : 0;
  const std::uint64_t system = detail::system_available();
  return group < system ? group : system;
}

// Bytes of a range that are not in memory yet; counting ends above `limit`.
inline std::uint64_t untouched_bytes(std::uint64_t address, std::uint64_t bytes, std::uint64_t limit) {
  constexpr std::uint64_t STEP = 1ull << 30;
  std::vector<unsigned char> resident(STEP / PAGE);
  std::uint64_t missing = 0;
  const std::uint64_t end = round_up(address + bytes, PAGE);
  for (std::uint64_t at = address / PAGE * PAGE; at < end && missing <= limit; at += STEP) {
    const std::uint64_t length = std::min(STEP, end - at);
    if (mincore(reinterpret_cast<void *>(at), length, resident.data()) != 0) return missing + (end - at);
    for (std::uint64_t page = 0; page < length / PAGE; ++page) missing += resident[page] & 1 ? 0 : PAGE;
  }
  return missing;
}

// Empty if the host can hold a write of `bytes` at `address`, else why not.
inline std::string why_host_cannot_hold(std::uint64_t address, std::uint64_t bytes) {
  if (bytes < LARGE_WRITE) return "";
  const std::uint64_t available = host_available();
  if (bytes + HOST_RESERVE <= available) return "";
  const std::uint64_t needed = untouched_bytes(address, bytes, available);
  if (needed + HOST_RESERVE <= available) return "";
  return "The host is short of memory, not the virtual device: a write of " + std::to_string(bytes) +
         " bytes would commit more than the " + std::to_string(available) +
         " that the host has left. Use smaller tensors, a device model with less memory, or a larger host.";
}

}  // namespace flambeau::vgpu
