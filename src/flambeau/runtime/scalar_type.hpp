// SPDX-License-Identifier: Apache-2.0
// Element types by a dense number: the index of every table that depends on a dtype.
#pragma once
#include <cstdint>

namespace flambeau {

// X(enumerator, torch's name, bytes, category): categories rank 0 bool < 1 integer < 2 float < 3 complex
#define FLAMBEAU_SCALAR_TYPES(X)                       \
  X(Bool, bool, 1, 0)                                  \
  X(UInt8, uint8, 1, 1)                                \
  X(Int8, int8, 1, 1)                                  \
  X(Int16, int16, 2, 1)                                \
  X(Int32, int32, 4, 1)                                \
  X(Int64, int64, 8, 1)                                \
  X(UInt16, uint16, 2, 1)                              \
  X(UInt32, uint32, 4, 1)                              \
  X(UInt64, uint64, 8, 1)                              \
  X(Float16, float16, 2, 2)                            \
  X(BFloat16, bfloat16, 2, 2)                          \
  X(Float32, float32, 4, 2)                            \
  X(Float64, float64, 8, 2)                            \
  X(Complex32, complex32, 4, 3)                        \
  X(Complex64, complex64, 8, 3)                        \
  X(Complex128, complex128, 16, 3)                     \
  X(Float8E4M3FN, float8_e4m3fn, 1, 2)                 \
  X(Float8E5M2, float8_e5m2, 1, 2)                     \
  X(Float8E4M3FNUZ, float8_e4m3fnuz, 1, 2)             \
  X(Float8E5M2FNUZ, float8_e5m2fnuz, 1, 2)

enum ScalarType : int {
#define FLAMBEAU_X(enumerator, name, bytes, category) enumerator,
  FLAMBEAU_SCALAR_TYPES(FLAMBEAU_X)
#undef FLAMBEAU_X
      SCALAR_TYPE_COUNT,
};

inline constexpr int item_bytes[] = {
#define FLAMBEAU_X(enumerator, name, bytes, category) bytes,
    FLAMBEAU_SCALAR_TYPES(FLAMBEAU_X)
#undef FLAMBEAU_X
};

inline constexpr int type_category[] = {
#define FLAMBEAU_X(enumerator, name, bytes, category) category,
    FLAMBEAU_SCALAR_TYPES(FLAMBEAU_X)
#undef FLAMBEAU_X
};

}  // namespace flambeau
