// SPDX-License-Identifier: Apache-2.0
// Driver calls from places that do not know which context is current or whether a capture runs.
#pragma once
#include "flambeau/driver/table.hpp"

namespace flambeau {

// Another context is current while this lives.
class ContextScope {
 public:
  ContextScope(const DriverTable *driver, CUcontext context) : driver_(driver) {
    switched_ = driver->CtxGetCurrent(&previous_) == CUDA_SUCCESS && previous_ != context &&
                driver->CtxSetCurrent(context) == CUDA_SUCCESS;
  }
  ~ContextScope() {
    if (switched_) driver_->CtxSetCurrent(previous_);
  }
  ContextScope(const ContextScope &) = delete;
  ContextScope &operator=(const ContextScope &) = delete;

 private:
  const DriverTable *driver_;
  CUcontext previous_ = nullptr;
  bool switched_;
};

// Calls in here neither join nor break a stream capture of this or another thread.
class OutsideCapture {
 public:
  explicit OutsideCapture(const DriverTable *driver) : driver_(driver) {
    exchanged_ = driver->ThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
  }
  ~OutsideCapture() {
    // A thread that is left relaxed would not be told what breaks its captures: try twice.
    if (exchanged_ && driver_->ThreadExchangeStreamCaptureMode(&mode_) != CUDA_SUCCESS)
      driver_->ThreadExchangeStreamCaptureMode(&mode_);
  }
  OutsideCapture(const OutsideCapture &) = delete;
  OutsideCapture &operator=(const OutsideCapture &) = delete;

 private:
  const DriverTable *driver_;
  int mode_ = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
  bool exchanged_;
};

}  // namespace flambeau
