// SPDX-License-Identifier: Apache-2.0
// Matrix operations of a warp on the fragments that its lanes brought in their payloads.
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine_context.hpp"

namespace flambeau::ptx::matrix {

constexpr int LANES = 32, ROWS = 16, COLUMNS = 8, DEEPEST = 32, RESULT_WORD = 12;
enum class Element { f16, bf16, tf32, s8, u8 };
enum class Sum { f32, f16, s32 };

inline std::uint32_t *payload(Frame &f) {
  return reinterpret_cast<std::uint32_t *>(reinterpret_cast<unsigned char *>(&f) + f.argument[0]);
}

inline double half_value(std::uint32_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  double value = exponent == 31 ? (fraction ? NAN : INFINITY)
                 : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                : std::ldexp(fraction, -24);
  return bits & 0x8000 ? -value : value;
}

// Rounded to nearest even; NaN is 0x7fff.
inline std::uint32_t half_bits(double value) {
  if (std::isnan(value)) return 0x7fff;
  const std::uint32_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (magnitude >= 65520) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int last = std::max(exponent - 11, -24);  // the exponent of the last place
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(magnitude, -last)));
  if (last == -24) return sign | steps;
  return sign | (((last + 24) << 10) + steps);
}

inline double float_value(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline double element(Element kind, std::uint32_t word, int index) {
  switch (kind) {
    case Element::f16: return half_value(word >> 16 * index & 0xffff);
    case Element::bf16: return float_value(word >> 16 * index << 16);
    case Element::tf32: return float_value(word & 0xffffe000);
    case Element::s8: return static_cast<std::int8_t>(word >> 8 * index);
    default: return word >> 8 * index & 255;
  }
}

inline int per_word(Element kind) {
  return kind == Element::tf32 ? 1 : kind == Element::f16 || kind == Element::bf16 ? 2 : 4;
}

struct Operands {
  double a[ROWS][DEEPEST] = {}, b[DEEPEST][COLUMNS] = {};
};

// Put A and B together. A word of A holds a row's neighbours; words alternate between the upper and
// lower eight rows, then go on to the right. A word of B holds a column's neighbours.
inline void gather(Frame *const *lanes, std::uint32_t group, std::uint32_t kinds, Operands &m) {
  const auto kind_a = static_cast<Element>(kinds & 15), kind_b = static_cast<Element>(kinds >> 4 & 15);
  const int depth = kinds >> 12 & 255, width = per_word(kind_a);
  const int words_a = ROWS * depth / LANES / width, words_b = COLUMNS * depth / LANES / width;
  for (; group; group &= group - 1) {
    const int lane = __builtin_ctz(group), row = lane >> 2, place = lane & 3;
    const std::uint32_t *p = payload(*lanes[lane]);
    for (int w = 0; w < words_a; ++w)
      for (int j = 0; j < width; ++j)
        m.a[row + 8 * (w & 1)][place * width + j + (w >> 1) * 4 * width] = element(kind_a, p[w], j);
    for (int w = 0; w < words_b; ++w)
      for (int j = 0; j < width; ++j)
        m.b[place * width + j + w * 4 * width][row] = element(kind_b, p[words_a + w], j);
  }
}

// Integers wrap, or stop at the ends; the exact sum of at most 32 byte products fits a double.
inline std::uint32_t add_integer(double sum, std::uint32_t to, bool saturates) {
  std::int64_t total = static_cast<std::int64_t>(sum) + static_cast<std::int32_t>(to);
  if (saturates)
    total = std::clamp<std::int64_t>(total, std::numeric_limits<std::int32_t>::min(),
                                     std::numeric_limits<std::int32_t>::max());
  return static_cast<std::uint32_t>(total);
}

inline void store(Frame &f, const Operands &m, std::uint32_t kinds) {
  const auto sum_kind = static_cast<Sum>(kinds >> 8 & 15);
  const int depth = kinds >> 12 & 255, width = per_word(static_cast<Element>(kinds & 15));
  const int operands = (ROWS + COLUMNS) * depth / LANES / width;
  std::uint32_t *p = payload(f);
  const std::uint32_t *c = p + operands;
  std::uint32_t result[4] = {};
  for (int n = 0; n < 4; ++n) {
    const int row = (f.lane >> 2) + 8 * (n >> 1), column = (f.lane & 3) * 2 + (n & 1);
    double sum = 0;
    for (int k = 0; k < depth; ++k) sum += m.a[row][k] * m.b[k][column];
    if (sum_kind == Sum::s32) {
      result[n] = add_integer(sum, c[n], kinds >> 20 & 1);
    } else if (sum_kind == Sum::f32) {
      const float total = static_cast<float>(sum + float_value(c[n]));
      std::memcpy(&result[n], &total, sizeof total);
    } else {
      const double total = sum + half_value(c[n >> 1] >> 16 * (n & 1) & 0xffff);
      result[n >> 1] |= half_bits(total) << 16 * (n & 1);
    }
  }
  std::memcpy(p + RESULT_WORD, result, sizeof result);
}

inline void multiply(Frame *const *lanes, std::uint32_t group) {
  const std::uint32_t kinds = lanes[__builtin_ctz(group)]->argument[1];
  Operands m;
  gather(lanes, group, kinds, m);
  for (; group; group &= group - 1) store(*lanes[__builtin_ctz(group)], m, kinds);
}

// Fragments of `wmma`, in flambeau's own order: each lane holds neighbours of the row-major matrix.
constexpr int WIDEST = 32, TILE_DEPTH = 16, TILE_RESULT_WORD = 24;

struct Tiles {
  double a[WIDEST * TILE_DEPTH], b[TILE_DEPTH * WIDEST];
};

// Unpack a lane's words of a matrix of `count` elements in all.
inline void unpack(double *to, const std::uint32_t *words, Element kind, int lane, int count) {
  const int own = count / LANES;
  for (int n = 0; n < own; ++n) to[lane * own + n] = element(kind, words[n >> 1], n & 1);
}

inline void multiply_tiles(Frame *const *lanes, std::uint32_t group) {
  const std::uint32_t kinds = lanes[__builtin_ctz(group)]->argument[1];
  const auto kind = static_cast<Element>(kinds & 15);
  const bool half_in = kinds >> 4 & 1, half_out = kinds >> 5 & 1;
  const int rows = kinds >> 8 & 255, columns = kinds >> 16 & 255;
  Tiles m = {};
  for (std::uint32_t open = group; open; open &= open - 1) {
    const int lane = __builtin_ctz(open);
    const std::uint32_t *p = payload(*lanes[lane]);
    unpack(m.a, p, kind, lane, rows * TILE_DEPTH);
    unpack(m.b, p + 8, kind, lane, columns * TILE_DEPTH);
  }
  for (; group; group &= group - 1) {
    const int lane = __builtin_ctz(group);
    std::uint32_t *p = payload(*lanes[lane]);
    std::uint32_t result[8] = {};
    for (int n = 0; n < 8; ++n) {
      const int at = lane * 8 + n, row = at / columns, column = at % columns;
      double sum = half_in ? half_value(p[16 + (n >> 1)] >> 16 * (n & 1) & 0xffff)
                           : float_value(p[16 + n]);
      for (int k = 0; k < TILE_DEPTH; ++k)
        sum += m.a[row * TILE_DEPTH + k] * m.b[k * columns + column];
      const float total = static_cast<float>(sum);
      if (half_out) result[n >> 1] |= half_bits(sum) << 16 * (n & 1);
      else std::memcpy(&result[n], &total, sizeof total);
    }
    std::memcpy(p + TILE_RESULT_WORD, result, sizeof result);
  }
}

// Matrices of 8x8 half words in fragments, or transposed ones: lane n gets the n-th row.
inline void collect(Frame *const *lanes, std::uint32_t group) {
  std::uint32_t words[LANES][4] = {};
  for (std::uint32_t open = group; open; open &= open - 1) {
    const int lane = __builtin_ctz(open);
    std::memcpy(words[lane], payload(*lanes[lane]), sizeof words[lane]);
  }
  for (; group; group &= group - 1) {
    Frame &f = *lanes[__builtin_ctz(group)];
    const int matrix = f.lane >> 3, row = f.lane & 7;
    const bool transposed = f.argument[1] >> 4 & 1;
    for (int column = 0; column < 8; ++column) {
      const int line = transposed ? column : row, place = transposed ? row : column;
      const std::uint32_t half = words[line * 4 + (place >> 1)][matrix] >> 16 * (place & 1) & 0xffff;
      std::uint32_t &word = payload(f)[4 + (column >> 1)];
      word = column & 1 ? word | half << 16 : half;
    }
  }
}

// A matrix of 8x8 half words in fragments, transposed.
inline void transpose(Frame *const *lanes, std::uint32_t group) {
  std::uint32_t words[LANES] = {};
  for (std::uint32_t open = group; open; open &= open - 1)
    words[__builtin_ctz(open)] = payload(*lanes[__builtin_ctz(open)])[0];
  const auto half = [&](int row, int column) {
    return words[row * 4 + (column >> 1)] >> 16 * (column & 1) & 0xffff;
  };
  for (; group; group &= group - 1) {
    Frame &f = *lanes[__builtin_ctz(group)];
    const int line = f.lane >> 2, pair = (f.lane & 3) * 2;
    payload(f)[4] = half(pair, line) | half(pair + 1, line) << 16;
  }
}

// Matrices of 8x8 half words, whose rows the lanes brought: each lane gets two neighbours.
inline void distribute(Frame *const *lanes, std::uint32_t group) {
  std::uint32_t rows[LANES][4] = {};
  for (std::uint32_t open = group; open; open &= open - 1) {
    const int lane = __builtin_ctz(open);
    std::memcpy(rows[lane], payload(*lanes[lane]), sizeof rows[lane]);
  }
  const auto half = [&](int row, int column) {
    return rows[row][column >> 1] >> 16 * (column & 1) & 0xffff;
  };
  for (; group; group &= group - 1) {
    Frame &f = *lanes[__builtin_ctz(group)];
    const int count = f.argument[1] & 15, line = f.lane >> 2, pair = (f.lane & 3) * 2;
    const bool transposed = f.argument[1] >> 4 & 1;
    for (int m = 0; m < count; ++m)
      payload(f)[4 + m] =
          transposed ? half(8 * m + pair, line) | half(8 * m + pair + 1, line) << 16
                     : half(8 * m + line, pair) | half(8 * m + line, pair + 1) << 16;
  }
}

}  // namespace flambeau::ptx::matrix
