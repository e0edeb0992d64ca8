// SPDX-License-Identifier: Apache-2.0
// Which allocations belong to a stream capture.
#pragma once
#include "flambeau/driver/table.hpp"

namespace flambeau {

struct CaptureFilter {
  const DriverTable *driver = nullptr;
  std::uint64_t id = 0;  // of the capture
};

// Whether a stream is part of the capture, forked streams included. Waits for nothing.
inline bool is_of_capture(void *context, CUstream stream) {
  const auto *filter = static_cast<const CaptureFilter *>(context);
  if (!stream) return false;
  int status = 0;
  std::uint64_t id = 0;
  return filter->driver->StreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr,
                                              nullptr) ==
             CUDA_SUCCESS &&
         status == 1 && id == filter->id;
}

}  // namespace flambeau
