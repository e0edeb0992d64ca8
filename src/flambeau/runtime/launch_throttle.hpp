// SPDX-License-Identifier: Apache-2.0
// When a launch may keep the GIL. The driver blocks in a launch once about a thousand are pending on
// a stream; a host callback that needs the GIL would then never run. So every 128 launches a mark is
// set, and while the mark of 768 launches back has not been reached, launches let go of the GIL.
#pragma once
#include <map>
#include <utility>

#include "driver_scope.hpp"

namespace flambeau {

struct LaunchThrottle {
  static constexpr int INTERVAL = 128, MARKS = 6;

  int launches = 0;       // since the last mark
  bool crowded = false;   // the oldest mark is still pending
  CUevent marks[MARKS] = {};
  int count = 0;          // marks set so far

  // Whether it is time to look.
  bool due() { return ++launches >= (crowded ? INTERVAL / 4 : INTERVAL); }

  // Look at the oldest mark, and set a new one if it has been reached.
  CUresult look(const DriverTable *driver, CUstream stream) {
    launches = 0;
    int capturing = 0;
    CUresult status = driver->StreamIsCapturing(stream, &capturing);
    if (status != CUDA_SUCCESS || capturing) return status;
    OutsideCapture outside(driver);
    CUevent &mark = marks[count % MARKS];
    if (!mark) {
      status = driver->EventCreate(&mark, 2);  // CU_EVENT_DISABLE_TIMING
      if (status != CUDA_SUCCESS) return status;
    } else {
      status = driver->EventQuery(mark);
      crowded = status == CUDA_ERROR_NOT_READY;
      if (status != CUDA_SUCCESS) return crowded ? CUDA_SUCCESS : status;
    }
    ++count;
    return driver->EventRecord(mark, stream);
  }
};

// One per stream, found fast while launches go to the same one.
class LaunchThrottles {
 public:
  LaunchThrottle *of(int device, CUstream stream) {
    if (recent_ && stream == recent_key_.second && device == recent_key_.first) return recent_;
    recent_key_ = {device, stream};
    return recent_ = &all_[recent_key_];
  }
  void forget() {
    all_.clear();
    recent_ = nullptr;
  }

 private:
  std::pair<int, CUstream> recent_key_{-1, nullptr};
  LaunchThrottle *recent_ = nullptr;
  std::map<std::pair<int, CUstream>, LaunchThrottle> all_;
};

// cuLaunchKernelEx with the attribute that lets the kernel's start overlap its predecessor's end.
inline CUresult launch_programmatic(const DriverTable *driver, CUfunction f, unsigned grid_x,
                                    unsigned grid_y, unsigned grid_z, unsigned block_x,
                                    unsigned block_y, unsigned block_z, unsigned dynamic_shared,
                                    CUstream stream, void **parameters) {
  CUlaunchAttribute attribute{};
  attribute.id = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
  attribute.value.programmaticStreamSerializationAllowed = 1;
  const CUlaunchConfig config{grid_x,  grid_y,  grid_z,         block_x, block_y,
                              block_z, dynamic_shared, stream, &attribute, 1};
  return driver->LaunchKernelEx(&config, f, parameters, nullptr);
}

}  // namespace flambeau
