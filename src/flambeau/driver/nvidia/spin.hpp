// SPDX-License-Identifier: Apache-2.0
// Keeping a stream busy for a number of clock cycles: a kernel small enough to be written as PTX,
// which the driver compiles itself.
#pragma once
#include <mutex>

#include "loader.hpp"

namespace flambeau::nvidia {

inline constexpr const char *SPIN_PTX = R"(
.version 7.0
.target sm_75
.address_size 64
.visible .entry spin(.param .u64 cycles)
{
  .reg .pred %again;
  .reg .u64 %start, %now, %spent, %wanted;
  ld.param.u64 %wanted, [cycles];
  mov.u64 %start, %clock64;
AGAIN:
  mov.u64 %now, %clock64;
  sub.u64 %spent, %now, %start;
  setp.lt.s64 %again, %spent, %wanted;
  @%again bra AGAIN;
  ret;
}
)";

inline CUresult spin(std::int64_t cycles, CUstream stream) {
  static std::mutex lock;
  static CUfunction functions[64] = {};
  Library &lib = library();
  CUdevice device = 0;
  if (CUresult status = lib.table.CtxGetDevice(&device)) return status;
  if (device < 0 || device >= 64) return CUDA_ERROR_INVALID_DEVICE;
  {
    std::lock_guard<std::mutex> guard(lock);
    if (!functions[device]) {
      void *module = nullptr;
      if (CUresult status = lib.extra.ModuleLoadDataEx(&module, SPIN_PTX, 0, nullptr, nullptr))
        return status;
      if (CUresult status = lib.extra.ModuleGetFunction(&functions[device], module, "spin"))
        return status;
    }
  }
  void *parameters[] = {&cycles};
  return lib.table.LaunchKernel(functions[device], 1, 1, 1, 1, 1, 1, 0, stream, parameters,
                                nullptr);
}

}  // namespace flambeau::nvidia
