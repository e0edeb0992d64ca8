// SPDX-License-Identifier: Apache-2.0
// Where values would be inserted into sorted rows, by bisection.
#pragma once
#include "math.cuh"

// Whether an element lies before the place of a value. What cannot be compared, a NaN, always does.
template <class A> __device__ inline bool lies_before(A element, A value, bool right) {
  return right ? !(element > value) : !(element >= value);
}

// `per_row` values belong to each row of `length` elements; with one_row all do to the only one.
template <class A, class In>
__device__ inline void search_sorted(
    int64 *out, const In *sequence, const In *values, const int64 *sorter, int64 length,
    int64 per_row, int32 one_row, int32 right, int64 n) {
  const int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int64 first = one_row ? 0 : i / per_row * length;
  const A value = convert<A>(values[i]);
  int64 low = 0, high = length;
#pragma unroll 1
  while (low < high) {
    const int64 middle = low + (high - low) / 2;
    const int64 at = first + (sorter ? sorter[first + middle] : middle);
    if (lies_before(convert<A>(sequence[at]), value, right)) low = middle + 1;
    else high = middle;
  }
  out[i] = low;
}
