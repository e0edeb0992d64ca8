// SPDX-License-Identifier: Apache-2.0
// CUDA_VISIBLE_DEVICES: which devices of the machine a process sees, and in which order.
#pragma once
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

namespace flambeau::vgpu {

namespace detail {

inline std::string stripped(const std::string &text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

inline std::vector<std::string> split_commas(const std::string &text) {
  std::vector<std::string> parts;
  std::size_t start = 0;
  for (;;) {
    const std::size_t comma = text.find(',', start);
    parts.push_back(stripped(text.substr(start, comma - start)));
    if (comma == std::string::npos) return parts;
    start = comma + 1;
  }
}

// The number at the start of an element ("2ampere" is 2), or -1 when there is none.
inline int leading_integer(const std::string &text) {
  std::size_t at = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  if (at >= text.size() || !std::isdigit(static_cast<unsigned char>(text[at]))) return -1;
  const long value = std::strtol(text.c_str(), nullptr, 10);
  return value < 0 || value > 1 << 20 ? -1 : static_cast<int>(value);
}

// The one device whose uuid starts with `prefix`, or -1 when there is none or more than one.
inline int unique_match(const std::string &prefix, const std::vector<std::string> &uuids) {
  int found = -1;
  for (std::size_t i = 0; i < uuids.size(); ++i) {
    if (uuids[i].compare(0, prefix.size(), prefix) != 0) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

}  // namespace detail

// `uuids` are those of all devices, each with its "GPU-" in front. The first element that names no
// device ends the list; one that names a device twice makes all of it void.
inline std::vector<int> visible_devices(const char *variable, const std::vector<std::string> &uuids) {
  std::vector<int> visible;
  if (!variable) {
    for (std::size_t i = 0; i < uuids.size(); ++i) visible.push_back(static_cast<int>(i));
    return visible;
  }
  const std::vector<std::string> parts = detail::split_commas(variable);
  const bool by_uuid = parts[0].compare(0, 4, "GPU-") == 0 || parts[0].compare(0, 4, "MIG-") == 0;
  for (const std::string &part : parts) {
    if (by_uuid && part.compare(0, 4, parts[0].substr(0, 4)) != 0) break;
    if (by_uuid && part.size() == 4) break;  // a prefix alone names nothing, not even the only GPU
    const int device = by_uuid ? detail::unique_match(part, uuids) : detail::leading_integer(part);
    if (device < 0 || device >= static_cast<int>(uuids.size())) break;
    if (std::find(visible.begin(), visible.end(), device) != visible.end()) return {};
    visible.push_back(device);
  }
  return visible;
}

}  // namespace flambeau::vgpu
