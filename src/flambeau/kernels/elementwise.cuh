// SPDX-License-Identifier: Apache-2.0
// The frame of every elementwise kernel. ops/codegen.py writes a functor `Op`, the types and the
// kernel's signature, and instantiates one of these bodies:
//   contiguous: each thread does V neighbouring elements with one wide access per operand
//   strided:    each thread does one element, at offsets computed with a 32- or 64-bit index
//   inner:      each thread does V neighbours along an innermost dimension that every operand has
//               contiguous or broadcast
//   transposed: a block carries a tile through shared memory, so that both sides are contiguous
#pragma once
#include "math.cuh"

// A tensor operand: loaded as In, seen by the functor as Arithmetic after a conversion to Compute.
template <class In, class Compute> struct Operand {
  typedef typename arithmetic<Compute>::type Arithmetic;
  __device__ static Arithmetic from(In x) { return convert<Arithmetic>(convert<Compute>(x)); }
};

template <class Out, class Result, class Value> __device__ inline Out store_as(Value value) {
  return convert<Out>(convert<Result>(value));
}

__device__ inline int64 linear_thread() { return blockIdx.x * (int64)blockDim.x + threadIdx.x; }

// Offsets of V neighbours along dimension 0.
template <int N, int V>
__device__ inline void inner_offsets(uint32 i, const Layout &layout, int64 (&offsets)[N]) {
  const uint32 inner = (uint32)(layout.sizes[0] / V);
  uint32 rest = i / inner;
  const int64 first = (int64)(i - rest * inner) * V;
#pragma unroll
  for (int k = 0; k < N; ++k) offsets[k] = first * layout.strides[k][0];
#pragma unroll 1
  for (int d = 1; d < layout.ndim; ++d) {
    const uint32 size = (uint32)layout.sizes[d];
    const uint32 next = rest / size;
    const int64 at = rest - next * size;
    rest = next;
#pragma unroll
    for (int k = 0; k < N; ++k) offsets[k] += at * layout.strides[k][d];
  }
}
// What an operand has there: neighbours, or one element for all.
template <class In, int V> struct Inner {
  Vector<In, V> pack;
  In element;
  int single;
  __device__ Inner(const In *from, int64 stride) : single(stride != 1) {
    if (stride == 1) pack = *(const Vector<In, V> *)from;
    else element = *from;
    // If the compiler knew what this is, it would copy the element at once, and all other loads would
    // wait for its.
    asm volatile("" : "+r"(single));
  }
  __device__ In at(int v) const { return single ? element : pack.at[v]; }
};

// The output is contiguous along dimension 0, the input along dimension 1.
enum { TRANSPOSING_TILE = 64, TRANSPOSING_ROWS = TRANSPOSING_TILE * TRANSPOSING_TILE / 256 };
template <class In, class Out, class Function>
__device__ inline void transposed(Out *out, const In *in, const Layout &layout, Function function) {
  enum { TILE = TRANSPOSING_TILE, STEP = 256 / TILE, ROWS = TRANSPOSING_ROWS };
  FLAMBEAU_SHARED(In, tile, TILE * (TILE + 1));
  const int64 tiles0 = (layout.sizes[0] + TILE - 1) / TILE, tiles1 = (layout.sizes[1] + TILE - 1) / TILE;
  int64 rest = blockIdx.x / tiles0;
  const int64 first0 = (blockIdx.x - rest * tiles0) * TILE;
  const int64 next = rest / tiles1, first1 = (rest - next * tiles1) * TILE;
  rest = next;
#pragma unroll 1
  for (int d = 2; d < layout.ndim; ++d) {
    const int64 outer = rest / layout.sizes[d], at = rest - outer * layout.sizes[d];
    out += at * layout.strides[0][d], in += at * layout.strides[1][d];
    rest = outer;
  }
  const int column = threadIdx.x % TILE, row = threadIdx.x / TILE;
  const int64 rows0 = layout.sizes[0] - first0, rows1 = layout.sizes[1] - first1;
  in += first0 * layout.strides[1][0] + first1;
  out += first1 * layout.strides[0][1] + first0;
  In loaded[ROWS];
#pragma unroll
  for (int k = 0; k < ROWS; ++k) {
    const int r = row + k * STEP;
    if (r < rows0 && column < rows1) loaded[k] = in[r * layout.strides[1][0] + column];
  }
#pragma unroll
  for (int k = 0; k < ROWS; ++k) tile[(row + k * STEP) * (TILE + 1) + column] = loaded[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < ROWS; ++k) {
    const int r = row + k * STEP;
    if (r < rows1 && column < rows0)
      out[r * layout.strides[0][1] + column] = function(tile[column * (TILE + 1) + r]);
  }
}
