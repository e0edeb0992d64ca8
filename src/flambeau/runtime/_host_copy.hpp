// SPDX-License-Identifier: Apache-2.0
// Copies between host tensors of any strides and element types.
#pragma once
#include "flambeau/runtime/_convert.hpp"
#include "flambeau/runtime/_layout.hpp"

namespace flambeau {

// Copy n elements; steps are in bytes.
using CopyLoop = void (*)(char *to, std::int64_t to_step, const char *from, std::int64_t from_step,
                          std::int64_t n);

template <class To, class From>
void convert_loop(char *to, std::int64_t to_step, const char *from, std::int64_t from_step,
                  std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i, to += to_step, from += from_step) {
    const To value = Store<To>::from(Element<From>::load(read<From>(from)));
    std::memcpy(to, &value, sizeof(To));
  }
}

template <int bytes>
void move_loop(char *to, std::int64_t to_step, const char *from, std::int64_t from_step,
               std::int64_t n) {
  if (to_step == bytes && from_step == bytes) {
    std::memmove(to, from, std::size_t(n) * bytes);
    return;
  }
  for (std::int64_t i = 0; i < n; ++i, to += to_step, from += from_step) std::memcpy(to, from, bytes);
}

template <class To> inline CopyLoop loop_into(int from) {
  switch (from) {
#define FLAMBEAU_X(name, T) \
  case name: return convert_loop<To, T>;
    FLAMBEAU_HOST_TYPES(FLAMBEAU_X)
#undef FLAMBEAU_X
  }
  return nullptr;
}

inline CopyLoop copy_loop(int to, int from) {
  if (to == from) {
    switch (item_bytes[to]) {
      case 1: return move_loop<1>;
      case 2: return move_loop<2>;
      case 4: return move_loop<4>;
      case 8: return move_loop<8>;
      default: return move_loop<16>;
    }
  }
  switch (to) {
#define FLAMBEAU_X(name, T) \
  case name: return loop_into<T>(from);
    FLAMBEAU_HOST_TYPES(FLAMBEAU_X)
#undef FLAMBEAU_X
  }
  return nullptr;
}

// `space` has the target as operand 0 and the source as operand 1, strides in elements, simplified.
inline void host_copy(char *to, int to_type, const char *from, int from_type, const Space &space) {
  const CopyLoop loop = copy_loop(to_type, from_type);
  const std::int64_t a = item_bytes[to_type], b = item_bytes[from_type];
  if (space.ndim == 0) {
    loop(to, a, from, b, 1);
    return;
  }
  const std::int64_t inner_to = space.strides[0][0] * a, inner_from = space.strides[1][0] * b;
  std::int64_t index[Space::DIMS] = {};
  for (;;) {
    loop(to, inner_to, from, inner_from, space.sizes[0]);
    int d = 1;
    for (; d < space.ndim; ++d) {
      to += space.strides[0][d] * a;
      from += space.strides[1][d] * b;
      if (++index[d] < space.sizes[d]) break;
      to -= space.strides[0][d] * a * space.sizes[d];
      from -= space.strides[1][d] * b * space.sizes[d];
      index[d] = 0;
    }
    if (d >= space.ndim) return;
  }
}

}  // namespace flambeau
