// SPDX-License-Identifier: Apache-2.0
// The driver table, every entry of it. An entry without a function does not compile.
#pragma once
#include "conditional.hpp"
#include "context.hpp"
#include "copy.hpp"
#include "device.hpp"
#include "event.hpp"
#include "graph.hpp"
#include "interprocess.hpp"
#include "kernel.hpp"
#include "memory.hpp"
#include "memory_pool.hpp"
#include "flambeau/driver/virtual/control.hpp"
#include "flambeau/driver/virtual/cufile.hpp"
#include "flambeau/driver/virtual/green.hpp"
#include "flambeau/driver/virtual/kernel/loaded.hpp"
#include "flambeau/driver/virtual/meeting.hpp"
#include "stream.hpp"
#include "virtual_memory.hpp"

namespace flambeau::vgpu {

inline const DriverTable &driver_table() {
  static const DriverTable table = [] {
    DriverTable filled;
#define FLAMBEAU_X(name, ...) filled.name = entries::name;
    FLAMBEAU_DRIVER_ENTRIES(FLAMBEAU_X)
#undef FLAMBEAU_X
    return filled;
  }();
  return table;
}

}  // namespace flambeau::vgpu
