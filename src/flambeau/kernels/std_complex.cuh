// SPDX-License-Identifier: Apache-2.0
// std::complex and its functions for kernels that users write. CUDA's own header takes seconds to
// compile; this takes milliseconds. Operators also take any number that converts to R.
#pragma once

namespace std {

template <class R> struct alignas(2 * sizeof(R)) complex {
  typedef R value_type;
  R re, im;

  __device__ constexpr complex(R real = R(), R imag = R()) : re(real), im(imag) {}
  template <class Other>
  __device__ constexpr complex(const complex<Other> &x) : re(R(x.re)), im(R(x.im)) {}
  __device__ constexpr R real() const { return re; }
  __device__ constexpr R imag() const { return im; }
  __device__ void real(R x) { re = x; }
  __device__ void imag(R x) { im = x; }

  __device__ complex &operator+=(complex b) { return *this = *this + b; }
  __device__ complex &operator-=(complex b) { return *this = *this - b; }
  __device__ complex &operator*=(complex b) { return *this = *this * b; }
  __device__ complex &operator/=(complex b) { return *this = *this / b; }

  __device__ friend complex operator+(complex a) { return a; }
  __device__ friend complex operator-(complex a) { return complex(-a.re, -a.im); }
  __device__ friend complex operator+(complex a, complex b) { return complex(a.re + b.re, a.im + b.im); }
  __device__ friend complex operator+(complex a, R b) { return complex(a.re + b, a.im); }
  __device__ friend complex operator+(R a, complex b) { return complex(a + b.re, b.im); }
  __device__ friend complex operator-(complex a, complex b) { return complex(a.re - b.re, a.im - b.im); }
  __device__ friend complex operator-(complex a, R b) { return complex(a.re - b, a.im); }
  __device__ friend complex operator-(R a, complex b) { return complex(a - b.re, -b.im); }
  __device__ friend complex operator*(complex a, complex b) {
    return complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
  }
  __device__ friend complex operator*(complex a, R b) { return complex(a.re * b, a.im * b); }
  __device__ friend complex operator*(R a, complex b) { return complex(a * b.re, a * b.im); }
  __device__ friend complex operator/(complex a, complex b) {
    // Scaled by the larger part, so that the squares of the divisor cannot overflow.
    if (::fabs(b.re) >= ::fabs(b.im)) {
      const R ratio = b.re == R(0) ? R(0) : b.im / b.re, scale = b.re + b.im * ratio;
      return complex((a.re + a.im * ratio) / scale, (a.im - a.re * ratio) / scale);
    }
    const R ratio = b.re / b.im, scale = b.re * ratio + b.im;
    return complex((a.re * ratio + a.im) / scale, (a.im * ratio - a.re) / scale);
  }
  __device__ friend complex operator/(complex a, R b) { return complex(a.re / b, a.im / b); }
  __device__ friend complex operator/(R a, complex b) { return complex(a) / b; }
  __device__ friend bool operator==(complex a, complex b) { return a.re == b.re && a.im == b.im; }
  __device__ friend bool operator!=(complex a, complex b) { return !(a == b); }
};

template <class R> __device__ inline R real(complex<R> x) { return x.re; }
template <class R> __device__ inline R imag(complex<R> x) { return x.im; }
template <class R> __device__ inline R abs(complex<R> x) { return ::hypot(x.re, x.im); }
template <class R> __device__ inline R arg(complex<R> x) { return ::atan2(x.im, x.re); }
template <class R> __device__ inline R norm(complex<R> x) { return x.re * x.re + x.im * x.im; }
template <class R> __device__ inline complex<R> conj(complex<R> x) { return complex<R>(x.re, -x.im); }
template <class R> __device__ inline complex<R> polar(R radius, R angle = R()) {
  return complex<R>(radius * ::cos(angle), radius * ::sin(angle));
}
template <class R> __device__ inline complex<R> times_i(complex<R> x) { return complex<R>(-x.im, x.re); }
template <class R> __device__ inline complex<R> over_i(complex<R> x) { return complex<R>(x.im, -x.re); }

template <class R> __device__ inline complex<R> exp(complex<R> x) {
  const R radius = ::exp(x.re);
  return x.im == R(0) ? complex<R>(radius, x.im) : polar(radius, x.im);
}
template <class R> __device__ inline complex<R> log(complex<R> x) {
  return complex<R>(::log(abs(x)), arg(x));
}
template <class R> __device__ inline complex<R> log10(complex<R> x) {
  return log(x) * R(0.43429448190325182765);
}
template <class R> __device__ inline complex<R> log2(complex<R> x) {
  return log(x) * R(1.44269504088896340736);
}
template <class R> __device__ inline complex<R> sqrt(complex<R> x) {
  if (x.re == R(0) && x.im == R(0)) return complex<R>(R(0), x.im);
  const R larger = ::sqrt((abs(x) + ::fabs(x.re)) * R(0.5)), smaller = x.im / (R(2) * larger);
  if (x.re >= R(0)) return complex<R>(larger, smaller);
  return complex<R>(::fabs(smaller), ::copysign(larger, x.im));
}
template <class R> __device__ inline complex<R> pow(complex<R> x, complex<R> y) {
  if (x == complex<R>()) return y == complex<R>() ? complex<R>(R(1)) : complex<R>();
  return exp(y * log(x));
}
template <class R> __device__ inline complex<R> pow(complex<R> x, R y) { return pow(x, complex<R>(y)); }
template <class R> __device__ inline complex<R> pow(complex<R> x, int y) { return pow(x, complex<R>(R(y))); }
template <class R> __device__ inline complex<R> pow(R x, complex<R> y) { return pow(complex<R>(x), y); }

template <class R> __device__ inline complex<R> sinh(complex<R> x) {
  return complex<R>(::sinh(x.re) * ::cos(x.im), ::cosh(x.re) * ::sin(x.im));
}
template <class R> __device__ inline complex<R> cosh(complex<R> x) {
  return complex<R>(::cosh(x.re) * ::cos(x.im), ::sinh(x.re) * ::sin(x.im));
}
template <class R> __device__ inline complex<R> tanh(complex<R> x) {
  // Beyond this the quotient of two overflowing numbers is 1 to the last bit.
  if (::fabs(x.re) > R(44)) return complex<R>(::copysign(R(1), x.re), ::copysign(R(0), ::sin(R(2) * x.im)));
  // In terms of the sine and tangent of the parts nothing cancels near a pole.
  const R t = ::tan(x.im), s = ::sinh(x.re), beta = R(1) + t * t, bottom = R(1) + beta * s * s;
  return complex<R>(beta * ::cosh(x.re) * s / bottom, t / bottom);
}
template <class R> __device__ inline complex<R> sin(complex<R> x) { return over_i(sinh(times_i(x))); }
template <class R> __device__ inline complex<R> cos(complex<R> x) { return cosh(times_i(x)); }
template <class R> __device__ inline complex<R> tan(complex<R> x) { return over_i(tanh(times_i(x))); }

template <class R> __device__ inline complex<R> asin(complex<R> x) {
  const complex<R> minus = sqrt(R(1) - x), plus = sqrt(R(1) + x);
  return complex<R>(::atan2(x.re, (minus * plus).re), ::asinh((conj(minus) * plus).im));
}
template <class R> __device__ inline complex<R> acos(complex<R> x) {
  const complex<R> minus = sqrt(R(1) - x), plus = sqrt(R(1) + x);
  return complex<R>(R(2) * ::atan2(minus.re, plus.re), ::asinh((conj(plus) * minus).im));
}
template <class R> __device__ inline complex<R> acosh(complex<R> x) {
  const complex<R> minus = sqrt(x - R(1)), plus = sqrt(x + R(1));
  return complex<R>(::asinh((conj(minus) * plus).re), R(2) * ::atan2(minus.im, plus.re));
}
template <class R> __device__ inline complex<R> asinh(complex<R> x) { return over_i(asin(times_i(x))); }
template <class R> __device__ inline complex<R> atanh(complex<R> x) {
  if (::isinf(x.re) || ::isinf(x.im))
    return complex<R>(::copysign(R(0), x.re), ::copysign(R(1.57079632679489661923), x.im));
  const R square = x.im * x.im, top = (R(1) + x.re) * (R(1) + x.re) + square;
  const R bottom = (R(1) - x.re) * (R(1) - x.re) + square;
  return complex<R>(R(0.25) * (::log(top) - ::log(bottom)),
                    R(0.5) * ::atan2(R(2) * x.im, (R(1) - x.re) * (R(1) + x.re) - square));
}
template <class R> __device__ inline complex<R> atan(complex<R> x) { return over_i(atanh(times_i(x))); }

}  // namespace std
