// SPDX-License-Identifier: Apache-2.0
// What kernels that users write may count on without including anything: the fixed-width integers,
// a few constants, and the mathematical functions under std:: too.
#pragma once

typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;  // as in libcu++, which a kernel may include
typedef unsigned long long uint64_t;

#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#define POS_INFINITY INFINITY
#define NEG_INFINITY (-INFINITY)

namespace std {
using ::abs; using ::acos; using ::acosh; using ::asin; using ::asinh; using ::atan; using ::atan2;
using ::atanh; using ::cbrt; using ::ceil; using ::copysign; using ::cos; using ::cosh; using ::erf;
using ::erfc; using ::exp; using ::exp2; using ::expm1; using ::fabs; using ::fdim; using ::floor;
using ::fma; using ::fmax; using ::fmin; using ::fmod; using ::frexp; using ::hypot; using
::isfinite; using ::isinf; using ::isnan; using ::ldexp; using ::lgamma; using ::log; using ::log10;
using ::log1p; using ::log2; using ::max; using ::min; using ::modf; using ::nearbyint; using
::nextafter; using ::pow; using ::remainder; using ::rint; using ::round; using ::signbit; using
::sin; using ::sinh; using ::sqrt; using ::tan; using ::tanh; using ::tgamma; using ::trunc;
}  // namespace std
