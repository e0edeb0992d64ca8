// SPDX-License-Identifier: Apache-2.0
// What the rows of the elementwise table call beyond C++'s own operators: one overload set for all
// types, with torch's rules for signs, overflow, zero divisors and NaN.
#pragma once
#include "types.cuh"

template <class T> struct make_unsigned { typedef T type; };
template <> struct make_unsigned<int8> { typedef uint8 type; };
template <> struct make_unsigned<int16> { typedef uint16 type; };
template <> struct make_unsigned<int32> { typedef uint32 type; };
template <> struct make_unsigned<int64> { typedef uint64 type; };

// Sums, differences and products of integers wrap.
template <class T> __device__ inline T plus(T a, T b) {
  if constexpr (same<T, bool>::value) return a || b;
  else { typedef typename make_unsigned<T>::type U; return (T)((U)a + (U)b); }
}
template <class T> __device__ inline T minus(T a, T b) {
  typedef typename make_unsigned<T>::type U;
  return (T)((U)a - (U)b);
}
template <class T> __device__ inline T times(T a, T b) {
  if constexpr (same<T, bool>::value) return a && b;
  else { typedef typename make_unsigned<T>::type U; return (T)((U)a * (U)b); }
}

// -x, for floats with the sign of zero turned.
template <class T> __device__ inline T negated(T a) {
  if constexpr (is_float<T> || is_complex<T>) return -a;
  else return minus(T(0), a);
}

template <class T> __device__ inline bool is_minus_one(T b) { return T(-1) < T(0) && b == T(-1); }

template <class T> __device__ inline T truncate_divide(T a, T b) {
  if constexpr (is_float<T>) return trunc(a / b);
  else if constexpr (same<T, bool>::value) return a && b;
  else {
    if (is_minus_one(b)) return minus(T(0), a);  // the lowest integer wraps instead of trapping
    return b == T(0) ? T(-1) : T(a / b);
  }
}
template <class T> __device__ inline T floor_divide(T a, T b) {
  if constexpr (is_float<T>) {
    if (b == T(0)) return a / b;
    T remainder = fmod(a, b);
    T quotient = (a - remainder) / b;
    if (remainder != T(0) && (b < T(0)) != (remainder < T(0))) quotient -= T(1);
    if (quotient == T(0)) return copysign(T(0), a / b);
    T rounded = floor(quotient);
    return quotient - rounded > T(0.5) ? rounded + T(1) : rounded;
  } else {
    const T quotient = truncate_divide(a, b);
    if (b == T(0)) return quotient;
    return (a % b != 0 && ((a < T(0)) != (b < T(0)))) ? T(quotient - 1) : quotient;
  }
}
template <class T> __device__ inline T truncated_remainder(T a, T b) {
  if constexpr (is_float<T>) return fmod(a, b);
  else return b == T(0) ? a : is_minus_one(b) ? T(0) : T(a % b);
}
// The result has the divisor's sign.
template <class T> __device__ inline T floored_remainder(T a, T b) {
  const T r = truncated_remainder(a, b);
  if constexpr (is_float<T>) return r != T(0) && ((b < T(0)) != (r < T(0))) ? r + b : r;
  else return b != T(0) && r != T(0) && ((b < T(0)) != (r < T(0))) ? T(r + b) : r;
}

template <class T> __device__ inline T power(T a, T b) {
  if constexpr (is_float<T>) return pow(a, b);
  else if constexpr (same<T, bool>::value) return a || !b;
  else {
    if (b < T(0)) return a == T(1) ? T(1) : a == T(-1) ? (b % T(2) ? T(-1) : T(1)) : T(0);
    T result = 1;
    while (b != T(0)) {
      if (b & T(1)) result = times(result, a);
      a = times(a, a);
      b = b >> 1;
    }
    return result;
  }
}

template <class T> __device__ inline T absolute(T a) {
  if constexpr (is_float<T>) return fabs(a);
  else return a < T(0) ? minus(T(0), a) : a;
}
template <class T> __device__ inline T sign_of(T a) {
  return T((T(0) < a) - (a < T(0)));
}

// maximum and minimum keep NaN; fmax and fmin drop it.
template <class T> __device__ inline T maximum_of(T a, T b) {
  if (is_nan(a)) return a;
  return is_nan(b) || b > a ? b : a;
}
template <class T> __device__ inline T minimum_of(T a, T b) {
  if (is_nan(a)) return a;
  return is_nan(b) || b < a ? b : a;
}
template <class T> __device__ inline T larger_of(T a, T b) {
  if (is_nan(a)) return b;
  return b > a ? b : a;
}
template <class T> __device__ inline T smaller_of(T a, T b) {
  if (is_nan(a)) return b;
  return b < a ? b : a;
}
template <class T> __device__ inline T clamp_of(T a, T low, T high) {
  return minimum_of(maximum_of(a, low), high);
}

// Shifts by a negative count or by the width or more give what an unbounded shift would.
template <class T> __device__ inline T shift_left(T a, T b) {
  typedef typename make_unsigned<T>::type U;
  return b < T(0) || b >= T(8 * sizeof(T)) ? T(0) : T(U(a) << b);
}
template <class T> __device__ inline T shift_right(T a, T b) {
  const T most = T(8 * sizeof(T) - 1);
  return b < T(0) || b > most ? (a < T(0) ? T(-1) : T(0)) : T(a >> b);
}

template <class T> __device__ inline T sigmoid_of(T a) { return T(1) / (T(1) + exp(-a)); }
template <class T> __device__ inline T lerp_of(T a, T b, T w) {
  return fabs(w) < T(0.5) ? a + w * (b - a) : b - (b - a) * (T(1) - w);
}
template <class T> __device__ inline bool is_infinite(T a) {
  if constexpr (is_float<T>) return fabs(a) == highest<T>();
  else if constexpr (is_complex<T>) return is_infinite(a.re) || is_infinite(a.im);
  else return false;
}

template <class T> __device__ inline T round_down(T a) {
  if constexpr (is_float<T>) return floor(a); else return a;
}
template <class T> __device__ inline T round_up(T a) {
  if constexpr (is_float<T>) return ceil(a); else return a;
}
template <class T> __device__ inline T round_even(T a) {
  if constexpr (is_float<T>) return rint(a); else return a;
}
template <class T> __device__ inline T round_to_zero(T a) {
  if constexpr (is_float<T>) return trunc(a); else return a;
}
template <class T> __device__ inline bool has_sign(T a) {
  if constexpr (is_float<T>) return signbit(a); else return a < T(0);
}

// Complex types have overloads in complex.cuh.
template <class T> __device__ inline T angle_of(T a) {
  return is_nan(a) ? a : a < T(0) ? T(3.14159265358979323846) : T(0);
}
template <class T> __device__ inline T conjugate(T a) { return a; }
