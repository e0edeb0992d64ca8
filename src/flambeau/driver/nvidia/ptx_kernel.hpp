// SPDX-License-Identifier: Apache-2.0
// Kernels small enough to be written as PTX, which the driver compiles itself at their first use.
#pragma once
#include <mutex>

#include "loader.hpp"

namespace flambeau::nvidia {

class PtxKernel {
 public:
  PtxKernel(const char *text, const char *name) : text_(text), name_(name) {}

  // The kernel for the current device. It may be loaded while streams are captured.
  CUresult get(CUfunction *function) {
    Library &lib = library();
    CUdevice device = 0;
    if (CUresult status = lib.table.CtxGetDevice(&device)) return status;
    if (device < 0 || device >= 64) return CUDA_ERROR_INVALID_DEVICE;
    std::lock_guard<std::mutex> guard(lock_);
    const CUresult status = functions_[device] ? CUDA_SUCCESS : load(lib, functions_[device]);
    *function = functions_[device];
    return status;
  }

 private:
  CUresult load(Library &lib, CUfunction &function) {
    int mode = 2;   // CU_STREAM_CAPTURE_MODE_RELAXED
    if (CUresult status = lib.table.ThreadExchangeStreamCaptureMode(&mode)) return status;
    void *module = nullptr;
    CUresult status = lib.extra.ModuleLoadDataEx(&module, text_, 0, nullptr, nullptr);
    if (status == CUDA_SUCCESS) status = lib.extra.ModuleGetFunction(&function, module, name_);
    const CUresult restored = lib.table.ThreadExchangeStreamCaptureMode(&mode);
    return status == CUDA_SUCCESS ? restored : status;
  }

  const char *text_, *name_;
  std::mutex lock_;
  CUfunction functions_[64] = {};
};

// Launch with one thread.
inline CUresult launch_single(PtxKernel &kernel, CUstream stream, void **parameters) {
  CUfunction function = nullptr;
  if (CUresult status = kernel.get(&function)) return status;
  return library().table.LaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr);
}

}  // namespace flambeau::nvidia
