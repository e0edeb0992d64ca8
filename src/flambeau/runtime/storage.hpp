// SPDX-License-Identifier: Apache-2.0
// Memory that tensors share: a reference count, an address, and who takes it back.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace flambeau {

struct Storage {
  std::atomic<std::int64_t> references{1};
  char *data = nullptr;
  std::size_t bytes = 0;           // what was asked for
  std::int16_t device = -1;        // -1: host memory
  bool pinned = false;             // host memory that the device can reach
  bool resizable = true;
  std::atomic<std::uint32_t> version{0};  // counts in-place writes, shared by all views
  void *owner = nullptr;           // whatever `release` needs: a Python object, a mapping
  void (*release)(Storage *) = nullptr;   // called once, when the last reference goes

  void retain() { references.fetch_add(1, std::memory_order_relaxed); }
  void drop() {
    if (references.fetch_sub(1, std::memory_order_acq_rel) == 1) release(this);
  }
};

}  // namespace flambeau
