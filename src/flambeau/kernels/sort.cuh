// SPDX-License-Identifier: Apache-2.0
// A stable merge sort of contiguous rows that carries positions: blocks sort chunks in shared memory
// (bitonic), then each pass merges pairs of runs, every element finding its place by binary search.
// Key is the element type; NaN counts as the greatest.
#pragma once
#include "math.cuh"

enum { SORT_CHUNK = 1024 };
enum : int32 { NO_POSITION = 2147483647 };  // of the padding; behind everything

template <class Key> __device__ inline bool key_less(Key a, Key b) {
  if constexpr (is_float<Key>) {
    if (is_nan(b)) return !is_nan(a);
  }
  return a < b;
}

// Whether (a, at a_position) comes before (b, at b_position): a total order, hence stable.
template <class Key, bool descending>
__device__ inline bool comes_before(Key a, int32 a_position, Key b, int32 b_position) {
  if (a_position == NO_POSITION || b_position == NO_POSITION) return a_position < b_position;
  if (descending ? key_less(b, a) : key_less(a, b)) return true;
  if (descending ? key_less(a, b) : key_less(b, a)) return false;
  return a_position < b_position;
}

// Block (row, chunk); `width` is a power of two, at most SORT_CHUNK, not below the chunk's length.
template <class In, bool descending>
__device__ inline void sort_chunks(
    In *keys_out, int32 *positions_out, const In *in, int64 n, int32 chunks, int32 width) {
  typedef typename arithmetic<In>::type Key;
  __shared__ Key keys[SORT_CHUNK];
  __shared__ int32 positions[SORT_CHUNK];
  const int64 row = blockIdx.x / chunks, first = (blockIdx.x % chunks) * (int64)SORT_CHUNK;
  const In *source = in + row * n;
  for (int i = threadIdx.x; i < width; i += blockDim.x) {
    const bool inside = i < SORT_CHUNK && first + i < n;
    keys[i] = inside ? convert<Key>(source[first + i]) : Key(0);
    positions[i] = inside ? (int32)(first + i) : NO_POSITION;
  }
  __syncthreads();
#pragma unroll 1
  for (int size = 2; size <= width; size *= 2) {
#pragma unroll 1
    for (int distance = size / 2; distance > 0; distance /= 2) {
      for (int pair = threadIdx.x; pair < width / 2; pair += blockDim.x) {
        const int low = 2 * pair - (pair & (distance - 1));
        const int high = low + distance;
        const bool forwards = (low & size) == 0;
        const Key a = keys[low], b = keys[high];
        const int32 a_position = positions[low], b_position = positions[high];
        if (comes_before<Key, descending>(b, b_position, a, a_position) == forwards) {
          keys[low] = b, keys[high] = a;
          positions[low] = b_position, positions[high] = a_position;
        }
      }
      __syncthreads();
    }
  }
  for (int i = threadIdx.x; i < width && first + i < n; i += blockDim.x) {
    keys_out[row * n + first + i] = convert<In>(keys[i]);
    positions_out[row * n + first + i] = positions[i];
  }
}

template <class In, bool descending>
__device__ inline void merge_runs(
    In *keys_out, int32 *positions_out, const In *keys, const int32 *positions, int64 n,
    int64 width, int64 total) {
  typedef typename arithmetic<In>::type Key;
  const int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (i >= total) return;
  const int64 row = i / n, at = i - row * n;
  keys += row * n, positions += row * n;
  const int64 run = at / width, other = run ^ 1;
  const int64 first = other * width;  // the run to merge with; it is empty past the row's end
  const Key key = convert<Key>(keys[at]);
  const int32 position = positions[at];
  int64 low = first, high = first + width < n ? first + width : n;
#pragma unroll 1
  while (low < high) {
    const int64 middle = low + (high - low) / 2;
    if (comes_before<Key, descending>(convert<Key>(keys[middle]), positions[middle], key, position))
      low = middle + 1;
    else
      high = middle;
  }
  const int64 rank = low - first;
  const int64 place = row * n + (run & ~1LL) * width + (at - run * width) + rank;
  keys_out[place] = keys[at];
  positions_out[place] = position;
}
