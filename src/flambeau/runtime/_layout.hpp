// SPDX-License-Identifier: Apache-2.0
// Strided iteration spaces: reordering and merging dimensions so that few remain.
#pragma once
#include <cstdint>
#include <utility>

namespace flambeau {

constexpr int LAYOUT_DIMS = 12;
constexpr int LAYOUT_OPERANDS = 5;

// What strided kernels get, by value. Operand 0 is the output; strides count elements; dimension 0
// is the innermost.
struct Layout {
  std::int32_t ndim;
  std::int32_t pad;
  std::int64_t sizes[LAYOUT_DIMS];
  std::int64_t strides[LAYOUT_OPERANDS][LAYOUT_DIMS];
};

// Dimensions of several operands while they are being simplified; dimension 0 is the innermost.
struct Space {
  static constexpr int DIMS = 64;
  int ndim = 0, operands = 0;
  std::int64_t sizes[DIMS];
  std::int64_t strides[LAYOUT_OPERANDS][DIMS];

  // Whether dimension `a` belongs further in than `b`: the output decides, then the inputs.
  bool inner(int a, int b) const {
    for (int i = 0; i < operands; ++i) {
      const std::int64_t x = strides[i][a] < 0 ? -strides[i][a] : strides[i][a];
      const std::int64_t y = strides[i][b] < 0 ? -strides[i][b] : strides[i][b];
      if (x == 0 || y == 0 || x == y) continue;
      return x < y;
    }
    return false;
  }

  void swap(int a, int b) {
    std::swap(sizes[a], sizes[b]);
    for (int i = 0; i < operands; ++i) std::swap(strides[i][a], strides[i][b]);
  }

  void drop(int dim) {
    for (int d = dim; d + 1 < ndim; ++d) {
      sizes[d] = sizes[d + 1];
      for (int i = 0; i < operands; ++i) strides[i][d] = strides[i][d + 1];
    }
    --ndim;
  }

  bool mergeable(int a, int b) const {  // b, one further out, continues a in every operand
    for (int i = 0; i < operands; ++i)
      if (strides[i][b] != strides[i][a] * sizes[a]) return false;
    return true;
  }

  void simplify() {
    for (int d = ndim - 1; d >= 0; --d)
      if (sizes[d] == 1) drop(d);
    for (int d = 1; d < ndim; ++d)  // insertion sort: it is stable and there are few
      for (int e = d; e > 0 && inner(e, e - 1); --e) swap(e, e - 1);
    for (int d = 0; d + 1 < ndim;) {
      if (mergeable(d, d + 1)) {
        sizes[d] *= sizes[d + 1];
        drop(d + 1);
      } else {
        ++d;
      }
    }
  }

  // The largest distance in elements that an operand's address can move.
  std::int64_t reach() const {
    std::int64_t most = 0;
    for (int i = 0; i < operands; ++i) {
      std::int64_t sum = 0;
      for (int d = 0; d < ndim; ++d) sum += (sizes[d] - 1) * (strides[i][d] < 0 ? -strides[i][d] : strides[i][d]);
      if (sum > most) most = sum;
    }
    return most;
  }

  std::int64_t count() const {
    std::int64_t n = 1;
    for (int d = 0; d < ndim; ++d) n *= sizes[d];
    return n;
  }

  // Whether the output (operand 0) and the only input each have a contiguous dimension, but not the
  // same one, both of some size; then the input's is dimension 1 of the layout.
  bool transposing(Layout *layout) const {
    constexpr std::int64_t WORTHWHILE = 32;
    if (ndim < 2 || strides[0][0] != 1 || strides[1][0] == 1 || sizes[0] < WORTHWHILE) return false;
    for (int d = 1; d < ndim; ++d) {
      if (strides[1][d] != 1 || sizes[d] < WORTHWHILE) continue;
      Space moved = *this;
      if (d > 1) moved.swap(1, d);
      return moved.fill(layout);
    }
    return false;
  }

  bool fill(Layout *layout) const {
    if (ndim > LAYOUT_DIMS) return false;
    layout->ndim = ndim;
    layout->pad = 0;
    for (int d = 0; d < ndim; ++d) {
      layout->sizes[d] = sizes[d];
      for (int i = 0; i < operands; ++i) layout->strides[i][d] = strides[i][d];
    }
    return true;
  }
};

}  // namespace flambeau
