// SPDX-License-Identifier: Apache-2.0
// Keeping a stream busy for a number of clock cycles.
#pragma once
#include "ptx_kernel.hpp"

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
  static PtxKernel kernel(SPIN_PTX, "spin");
  void *parameters[] = {&cycles};
  return launch_single(kernel, stream, parameters);
}

}  // namespace flambeau::nvidia
