// SPDX-License-Identifier: Apache-2.0
// Submitting a library's call. Not an entry of the table: libraries are reached through Python.
#pragma once
#include "flambeau/driver/virtual/graph/rules.hpp"
#include "flambeau/driver/virtual/kernel/library.hpp"

namespace flambeau::vgpu {

inline CUresult submit_library(LibraryCall library, CUstream s) {
  const char *name = lasting_name(library.name);
  auto task = std::make_unique<LibraryTask>(std::move(library));   // gives the number back if refused
  Call call(2500, name);
  Stream *stream = work_stream(call, s);
  if (!stream) return call.status();
  return call.launch(*stream, std::move(task));
}

}  // namespace flambeau::vgpu
