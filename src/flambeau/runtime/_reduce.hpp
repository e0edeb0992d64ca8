// SPDX-License-Identifier: Apache-2.0
// The shape of one reduction: which dimensions stay, which go, and how the work is cut.
#pragma once
#include <algorithm>

#include "flambeau/runtime/_layout.hpp"

namespace flambeau {

constexpr int REDUCE_THREADS = 256;
constexpr int REDUCE_STATE_BYTES = 24;  // the largest state that a functor carries

// What the kernels of reduce.cuh get, by value.
struct ReduceShape {
  Layout kept, reduced;
  std::int64_t outputs, count;  // how many results, elements per result
  std::int64_t slices;          // parts into which the elements of one result are cut
};

enum ReduceVariant : int { PER_THREAD, PER_WARP, PER_BLOCK, PARTIALS };

struct ReduceSpace : Space {
  // Merge neighbours without reordering: positions count row-major over the dimensions as given.
  void merge() {
    for (int d = ndim - 1; d >= 0; --d)
      if (sizes[d] == 1) drop(d);
    for (int d = 0; d + 1 < ndim;) {
      if (mergeable(d, d + 1)) {
        sizes[d] *= sizes[d + 1];
        drop(d + 1);
      } else {
        ++d;
      }
    }
  }

  void push(std::int64_t size, std::int64_t stride) {
    operands = 1;
    sizes[ndim] = size;
    strides[0][ndim++] = stride;
  }

  std::int64_t innermost_step() const {  // between neighbours along the innermost dimension
    return ndim == 0 ? 1 : std::abs(strides[0][0]);
  }
};

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// Choose who does what. Enough blocks to fill a large device, each with enough to do.
inline ReduceVariant plan_reduction(ReduceShape &shape, bool across) {
  // FULL blocks of 256 threads that do 16 bytes times four at once saturate the memory of the largest device.
  constexpr std::int64_t FULL = 1056, LEAST = 16 * REDUCE_THREADS;
  shape.slices = 1;
  if (across && shape.outputs >= 32) {
    const std::int64_t blocks = ceil_div(shape.outputs, REDUCE_THREADS);
    if (blocks < FULL)
      shape.slices = std::max<std::int64_t>(1, std::min(shape.count / 64, FULL / 2 / blocks));
    return PER_THREAD;
  }
  if (shape.count <= 16) return PER_THREAD;
  if (shape.count <= 1024 && shape.outputs >= 64) return PER_WARP;
  if (shape.count <= 8192 && shape.outputs >= 8 * FULL) return PER_WARP;
  if (shape.count > 2 * LEAST && shape.outputs < FULL / 2)
    shape.slices = std::min(shape.count / LEAST, FULL / shape.outputs);
  return PER_BLOCK;
}

}  // namespace flambeau
