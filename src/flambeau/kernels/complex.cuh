// SPDX-License-Identifier: Apache-2.0
// Complex numbers in the kernels of the tables: std_complex.cuh's type under the names and with the
// overloads that the rows use.
#pragma once
#include "math.cuh"
#include "std_complex.cuh"

typedef std::complex<float> complex64;
typedef std::complex<double> complex128;

template <> struct complex_of<complex64> { enum { is = true }; typedef float part; };
template <> struct complex_of<complex128> { enum { is = true }; typedef double part; };

template <class R> __device__ inline R absolute(std::complex<R> a) { return std::abs(a); }
template <class R> __device__ inline std::complex<R> power(std::complex<R> a, std::complex<R> b) {
  return std::pow(a, b);
}
template <class R> __device__ inline std::complex<R> sign_of(std::complex<R> a) {
  const R size = std::abs(a);
  return size == R(0) ? std::complex<R>() : a / size;
}
template <class R> __device__ inline std::complex<R> rsqrt(std::complex<R> a) {
  return R(1) / std::sqrt(a);
}
template <class R> __device__ inline std::complex<R> expm1(std::complex<R> a) {
  // Both terms of the real part are small when the argument is.
  const R half = ::sin(a.im / R(2)), grown = ::expm1(a.re);
  return std::complex<R>(grown * ::cos(a.im) - R(2) * half * half, (grown + R(1)) * ::sin(a.im));
}
template <class R> __device__ inline std::complex<R> exp2(std::complex<R> a) {
  return std::exp(a * R(0.69314718055994530942));
}
template <class R> __device__ inline std::complex<R> log1p(std::complex<R> a) {
  const R x = a.re, y = a.im;
  const R size = ::fabs(x) < R(0.5) && ::fabs(y) < R(0.5)
                     ? R(0.5) * ::log1p(x * (R(2) + x) + y * y)
                     : ::log(::hypot(R(1) + x, y));
  return std::complex<R>(size, ::atan2(y, R(1) + x));
}
template <class R> __device__ inline std::complex<R> lerp_of(
    std::complex<R> a, std::complex<R> b, std::complex<R> w) {
  return std::abs(w) < R(0.5) ? a + w * (b - a) : b - (b - a) * (R(1) - w);
}
template <class R> __device__ inline R angle_of(std::complex<R> a) { return std::arg(a); }
template <class R> __device__ inline std::complex<R> conjugate(std::complex<R> a) { return std::conj(a); }
// sinc in special.cuh is a template over all types; this is the better match.
template <class R> __device__ inline std::complex<R> sinc_of(std::complex<R> a) {
  if (a == std::complex<R>()) return std::complex<R>(R(1));
  const std::complex<R> scaled = a * R(3.14159265358979323846);
  return std::sin(scaled) / scaled;
}
