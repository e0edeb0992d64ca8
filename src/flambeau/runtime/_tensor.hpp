// SPDX-License-Identifier: Apache-2.0
// Names of element types, and small helpers of the tensor classes.
#pragma once
#include "flambeau/runtime/scalar_type.hpp"

namespace flambeau {

inline constexpr const char *scalar_type_names[] = {
#define FLAMBEAU_X(enumerator, name, bytes, category) #name,
    FLAMBEAU_SCALAR_TYPES(FLAMBEAU_X)
#undef FLAMBEAU_X
};

// The names that error messages and legacy tensor types use.
inline constexpr const char *legacy_type_names[] = {
    "Bool",   "Byte",   "Char",          "Short",         "Int",          "Long",       "UInt16",
    "UInt32", "UInt64", "Half",          "BFloat16",      "Float",        "Double",     "ComplexHalf",
    "ComplexFloat", "ComplexDouble", "Float8_e4m3fn", "Float8_e5m2",  "Float8_e4m3fnuz",
    "Float8_e5m2fnuz",
};
static_assert(sizeof(legacy_type_names) / sizeof(char *) == SCALAR_TYPE_COUNT);

}  // namespace flambeau
