// SPDX-License-Identifier: Apache-2.0
// Special functions that CUDA's mathematical library lacks. Most are computed in double precision:
// they are bound by arithmetic anyway, and float needs only its own digits of the result.
#pragma once
#include "math.cuh"

// The logarithmic derivative of the gamma function: reflected for negative arguments, moved up by
// the recurrence until the asymptotic series converges.
__device__ inline double digamma_double(double x) {
  if (x == 0) return copysign(highest<double>(), -x);
  double result = 0;
  if (x < 0) {
    if (x == floor(x)) return __longlong_as_double(0x7ff8000000000000LL);
    double whole;
    result = -3.14159265358979323846 / tan(3.14159265358979323846 * modf(x, &whole));
    x = 1 - x;
  }
  while (x < 10) {
    result -= 1 / x;
    x += 1;
  }
  const double y = 1 / (x * x);
  const double series = y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 -
      y * (1.0 / 132 - y * (691.0 / 32760 - y / 12))))));
  return result + log(x) - 0.5 / x - series;
}
template <class T> __device__ inline T digamma_of(T x) { return (T)digamma_double((double)x); }

// Hurwitz's zeta function, the sum of (q + k)^-x, by the Euler-Maclaurin formula.
__device__ inline double zeta_double(double x, double q) {
  const double nan = __longlong_as_double(0x7ff8000000000000LL);
  if (x == 1) return highest<double>();
  if (!(x > 1)) return nan;
  if (q <= 0) {
    if (q == floor(q)) return highest<double>();
    if (x != floor(x)) return nan;
  }
  double sum = 0, a = q;
  for (int k = 0; k < 9 || a <= 9; ++k, a += 1) sum += pow(a, -x);
  sum += pow(a, 1 - x) / (x - 1) + 0.5 * pow(a, -x);
  // B(2k) / (2k)!
  const double coefficients[] = {1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600,
                                 1.0 / 47900160, -691.0 / 1307674368000.0, 1.0 / 74724249600.0};
  double factor = x, power = pow(a, -x - 1);
#pragma unroll
  for (int k = 0; k < 7; ++k) {
    sum += coefficients[k] * factor * power;
    factor *= (x + 2 * k + 1) * (x + 2 * k + 2);
    power /= a * a;
  }
  return sum;
}
template <class T> __device__ inline T zeta_of(T x, T q) {
  return (T)zeta_double((double)x, (double)q);
}
// The second derivative of log gamma, also left of zero.
template <class T> __device__ inline T trigamma_of(T value) {
  const double x = (double)value, pi = 3.14159265358979323846;
  if (x >= 0.5 || x != x) return (T)zeta_double(2, x);
  const double s = sin(pi * (x - floor(x)));
  return (T)(pi * pi / (s * s) - zeta_double(2, 1 - x));
}

// The regularised lower incomplete gamma function and its complement.
__device__ inline double incomplete_gamma(double a, double x, bool upper) {
  const double nan = __longlong_as_double(0x7ff8000000000000LL), infinity = highest<double>();
  if (a != a || x != x || a < 0 || x < 0) return nan;
  if (a == 0) return x > 0 ? (upper ? 0 : 1) : nan;
  if (x == 0) return upper ? 1 : 0;
  if (a == infinity) return x == infinity ? nan : (upper ? 1 : 0);
  if (x == infinity) return upper ? 0 : 1;
  const double front = exp(a * log(x) - x - lgamma(a));
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (int k = 1; k < 10000 && term > sum * 1e-17; ++k) {
      term *= x / (a + k);
      sum += term;
    }
    return upper ? 1 - front * sum : front * sum;
  }
  // Lentz's evaluation of the continued fraction.
  const double tiny = 1e-300;
  double b = x + 1 - a, c = 1 / tiny, d = 1 / b, h = d;
  for (int k = 1; k < 10000; ++k) {
    const double n = -k * (k - a);
    b += 2;
    d = n * d + b;
    if (fabs(d) < tiny) d = tiny;
    c = b + n / c;
    if (fabs(c) < tiny) c = tiny;
    d = 1 / d;
    h *= d * c;
    if (fabs(d * c - 1) < 1e-16) break;
  }
  return upper ? front * h : 1 - front * h;
}
template <class T> __device__ inline T igamma_of(T a, T x) {
  return (T)incomplete_gamma((double)a, (double)x, false);
}
template <class T> __device__ inline T igammac_of(T a, T x) {
  return (T)incomplete_gamma((double)a, (double)x, true);
}

__device__ inline float bessel_i0(float x) { return cyl_bessel_i0f(x); }
__device__ inline double bessel_i0(double x) { return cyl_bessel_i0(x); }
__device__ inline float bessel_i1(float x) { return cyl_bessel_i1f(x); }
__device__ inline double bessel_i1(double x) { return cyl_bessel_i1(x); }

template <class T> __device__ inline T sinc_of(T x) {
  if (x == T(0)) return T(1);
  const T scaled = T(3.14159265358979323846) * x;
  return sin(scaled) / scaled;
}
template <class T> __device__ inline T xlogy_of(T a, T b) {
  if (is_nan(b)) return b;
  return a == T(0) ? T(0) : a * log(b);
}
template <class T> __device__ inline T log_of_sum(T a, T b, T unit) {
  if (is_nan(a) || is_nan(b)) return a + b;
  const T high = a > b ? a : b, low = a > b ? b : a;
  if (is_infinite(high)) return high;
  return high + log1p(exp((low - high) * unit)) / unit;
}
template <class T> __device__ inline T greatest_divisor(T a, T b) {
  a = absolute(a), b = absolute(b);
  while (b != T(0)) {
    const T rest = truncated_remainder(a, b);
    a = b;
    b = rest < T(0) ? negated(rest) : rest;
  }
  return a;
}
template <class T> __device__ inline T least_multiple(T a, T b) {
  const T divisor = greatest_divisor(a, b);
  return divisor == T(0) ? T(0) : absolute(times(truncate_divide(a, divisor), b));
}
template <class T> __device__ inline T step_at(T a, T b) {
  if (is_nan(a)) return T(0);
  return a == T(0) ? b : T(a > T(0));
}
template <class T> __device__ inline T mantissa_of(T a) {
  int exponent;
  return frexp(a, &exponent);
}
template <class T> __device__ inline T exponent_of(T a) {
  int exponent;
  frexp(a, &exponent);
  return is_nan(a) || is_infinite(a) ? T(0) : T(exponent);
}
