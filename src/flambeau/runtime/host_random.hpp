// SPDX-License-Identifier: Apache-2.0
// Filling host memory with random numbers.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "flambeau/runtime/_convert.hpp"
#include "flambeau/runtime/mt19937.hpp"
#include "flambeau/runtime/scalar_type.hpp"

namespace flambeau {

// What to draw. The numbers that go with each: see RandomNumbers.
enum RandomKind {
  UNIFORM,      // a low, b high
  NORMAL,       // a mean, b standard deviation
  LOG_NORMAL,   // the same, of the logarithm
  EXPONENTIAL,  // a rate
  CAUCHY,       // a median, b scale
  GEOMETRIC,    // a probability
  BERNOULLI,    // a probability
  RANDOM32,     // base + word mod range
  RANDOM64,     // the same with wide words; range 0: the word itself
};

// One layout for host and device code.
struct RandomNumbers {
  double a, b;
  std::uint64_t range;
  std::uint64_t reciprocal;  // of the range, for device code
  std::int64_t base;
};

class HostDraw {
 public:
  HostDraw(Mt19937 &engine, RandomKind kind, int type, const RandomNumbers &numbers)
      : engine_(engine), kind_(kind), type_(type), n_(numbers) {
    low_ = rounded(n_.a);
    high_ = rounded(n_.b);
    range_ = rounded(high_ - low_);
  }

  void store_next(char *to) {
    if (kind_ == RANDOM32)
      store_int(to, type_, std::int64_t(engine_.word() % n_.range) + n_.base);
    else if (kind_ == RANDOM64)
      store_wide(to, engine_.wide_word());
    else
      store_double(to, type_, next());
  }

 private:
  // A bound as an element of the type, seen as a double.
  double rounded(double value) const {
    switch (type_) {
      case Float16: return float(Half(float(value)));
      case BFloat16: return float(Brain(float(value)));
      case Float32: return float(value);
      default: return value;
    }
  }

  void store_wide(char *to, std::uint64_t word) {
    const std::uint64_t value = (n_.range ? word % n_.range : word) + std::uint64_t(n_.base);
    store_int(to, type_, std::int64_t(value));
  }

  double uniform() {
    double value;
    if (type_ == Float64) {
      value = std::fma(engine_.unit_double(), range_, low_);
    } else {
      value = rounded(std::fma(engine_.unit_float(), float(range_), float(low_)));
    }
    return value;
  }

  double next() {
    switch (kind_) {
      case UNIFORM: return uniform();
      case NORMAL: return engine_.normal() * n_.b + n_.a;
      case LOG_NORMAL: return std::exp(engine_.normal() * n_.b + n_.a);
      case EXPONENTIAL: return -1.0 / n_.a * std::log1p(-engine_.unit_double());
      case CAUCHY:
        return n_.a + n_.b * std::tan(3.141592653589793238463 * (engine_.unit_double() - 0.5));
      case GEOMETRIC: return std::ceil(std::log(engine_.unit_double()) / std::log1p(-n_.a));
      default: return engine_.unit_double() < n_.a;
    }
  }

  Mt19937 &engine_;
  RandomKind kind_;
  int type_;
  RandomNumbers n_;
  double low_, high_, range_;
};

// Sixteen uniform numbers become sixteen normal ones: eight pairs, cosines then sines.
template <class T> void normal_chunk(T *v, double mean, double deviation) {
  for (int j = 0; j < 8; ++j) {
    const T radius = std::sqrt(T(-2) * std::log(T(1) - v[j]));
    const T angle = T(6.283185307179586476925) * v[j + 8];
    v[j] = radius * std::cos(angle) * T(deviation) + T(mean);
    v[j + 8] = radius * std::sin(angle) * T(deviation) + T(mean);
  }
}

inline float next_unit(Mt19937 &engine, float *) { return engine.unit_float(); }
inline double next_unit(Mt19937 &engine, double *) { return engine.unit_double(); }

// `drawn` of the n elements get a uniform number at first.
template <class T>
void fill_normal_chunks(Mt19937 &engine, T *v, std::int64_t n, std::int64_t drawn, double mean,
                        double deviation) {
  for (std::int64_t i = 0; i < drawn; ++i) v[i] = next_unit(engine, v);
  for (std::int64_t i = 0; i + 16 <= n; i += 16) normal_chunk(v + i, mean, deviation);
  if (n % 16) {  // the last sixteen are drawn anew
    T *tail = v + n - 16;
    for (int i = 0; i < 16; ++i) tail[i] = next_unit(engine, v);
    normal_chunk(tail, mean, deviation);
  }
}

// Contiguous elements, at least sixteen.
inline void fill_many_normal(Mt19937 &engine, char *data, int type, std::int64_t n, double mean,
                             double deviation) {
  if (type == Float64) {
    fill_normal_chunks(engine, reinterpret_cast<double *>(data), n, n, mean, deviation);
  } else if (type == Float32) {
    fill_normal_chunks(engine, reinterpret_cast<float *>(data), n, n, mean, deviation);
  } else {
    std::vector<float> wide(n);  // of these only whole chunks are drawn before the tail
    fill_normal_chunks(engine, wide.data(), n, n / 16 * 16, mean, deviation);
    for (std::int64_t i = 0; i < n; ++i) store_double(data + i * item_bytes[type], type, wide[i]);
  }
}

// Elements of any layout in memory order: sizes and strides (in elements) innermost first.
inline void fill_host(Mt19937 &engine, RandomKind kind, const RandomNumbers &numbers, char *data,
                      int type, int ndim, const std::int64_t *sizes, const std::int64_t *strides,
                      std::int64_t n, bool contiguous) {
  if (kind == NORMAL && contiguous && n >= 16) {
    fill_many_normal(engine, data, type, n, numbers.a, numbers.b);
    return;
  }
  HostDraw draw(engine, kind, type, numbers);
  std::vector<std::int64_t> at(ndim, 0);
  for (std::int64_t i = 0; i < n; ++i) {
    draw.store_next(data);
    for (int d = 0; d < ndim; ++d) {
      data += strides[d] * item_bytes[type];
      if (++at[d] < sizes[d]) break;
      data -= strides[d] * sizes[d] * item_bytes[type];
      at[d] = 0;
    }
  }
}

// A draw per element against its own probability.
template <class P> void host_bernoulli(Mt19937 &engine, const P *p, char *out, int type, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i)
    store_int(out + i * item_bytes[type], type, next_unit(engine, static_cast<P *>(nullptr)) < p[i]);
}

// Each place in turn takes one of those from there on.
template <class T> void host_permute(Mt19937 &engine, T *v, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) v[i] = T(i);
  for (std::int64_t i = 0; i + 1 < n; ++i) {
    const std::uint64_t left = std::uint64_t(n - i);
    const std::uint64_t pick = n < 0xffffffffll / 20 ? engine.word() % left : engine.wide_word() % left;
    std::swap(v[i], v[i + std::int64_t(pick)]);
  }
}

// Positions drawn with replacement from one row of weights, whose sum is positive.
template <class P>
void host_choices(Mt19937 &engine, const P *weights, std::int64_t categories, std::int64_t *out,
                  std::int64_t samples) {
  std::vector<P> up_to(categories);
  P sum = 0;
  for (std::int64_t j = 0; j < categories; ++j) up_to[j] = sum += weights[j];
  for (std::int64_t j = 0; j < categories; ++j) up_to[j] /= sum;
  up_to[categories - 1] = 1;
  for (std::int64_t s = 0; s < samples; ++s) {
    const double u = engine.unit_double();
    out[s] = std::lower_bound(up_to.begin(), up_to.end(), u,
                              [](P have, double wanted) { return double(have) < wanted; }) -
             up_to.begin();
  }
}

// Products of uniform numbers for small rates; for others Hörmann's transformed rejection (PTRS).
inline double host_poisson(Mt19937 &engine, double rate) {
  if (rate == 0) return 0;
  if (rate < 10) {
    const double least = std::exp(-rate);
    double product = 1, count = 0;
    for (;;) {
      product *= engine.unit_double();
      if (product <= least) return count;
      ++count;
    }
  }
  const double b = 0.931 + 2.53 * std::sqrt(rate), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), accepted = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = engine.unit_double() - 0.5, v = engine.unit_double();
    const double us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= accepted) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <=
        -rate + k * std::log(rate) - std::lgamma(k + 1))
      return k;
  }
}

}  // namespace flambeau
