// SPDX-License-Identifier: Apache-2.0
// What GemmArgs::compute says, in bits: how a product is computed, and by which algorithm.
#pragma once

namespace flambeau {

enum GemmOptions : int {
  GEMM_KIND = 0xf,       // the arithmetic:
  GEMM_FULL = 0,         //   the dtype's full precision; half types are summed in float32
  GEMM_TF32 = 1,         //   float32 operands rounded to tf32
  GEMM_BF16X9 = 2,       //   float32 emulated by nine bfloat16 products
  GEMM_HALF_SUMS = 3,    //   float16 summed in float16
  GEMM_WIDE_REDUCTION = 0x10,   // partial sums of half types stay float32
  GEMM_ONE_PASS = 0x20,         // k is not split, so there are no partial sums
  GEMM_AS_GIVEN = 0x40,         // asks for exactly this algorithm, not for a tuned one
  GEMM_ALGORITHM_SHIFT = 8,     // from here on: 0 what the library thinks best, else one of Blas's
};

inline int gemm_kind(int compute) { return compute & GEMM_KIND; }
inline int gemm_algorithm(int compute) { return compute >> GEMM_ALGORITHM_SHIFT; }

}  // namespace flambeau
