// SPDX-License-Identifier: Apache-2.0
// The first k of contiguous rows in sorted order. A block holds a chunk of a row in its registers and
// gives up the best of what is left k times; the chunks of long rows are merged by the same kernel.
#pragma once
#include "sort.cuh"

enum { TOP_THREADS = 256, TOP_HELD = 16, TOP_CHUNK = TOP_THREADS * TOP_HELD };

template <class Key> struct Candidate { Key key; int32 position; };

template <class Key, bool largest>
__device__ inline Candidate<Key> better(Candidate<Key> a, Candidate<Key> b) {
  return comes_before<Key, largest>(b.key, b.position, a.key, a.position) ? b : a;
}
template <class Key> __device__ inline Candidate<Key> from_lane(Candidate<Key> mine, int mask) {
  mine.key = __shfl_xor_sync(0xffffffffu, mine.key, mask);
  mine.position = __shfl_xor_sync(0xffffffffu, mine.position, mask);
  return mine;
}

// Block (row, chunk) writes k values and indices, NO_POSITION behind the end. `names` are the indices
// of the elements where they are themselves chosen from a longer row.
template <class In, bool largest>
__device__ inline void top_of_chunks(
    In *values, int64 *indices, const In *in, const int64 *names, int64 n, int32 chunks, int32 k) {
  typedef typename arithmetic<In>::type Key;
  typedef Candidate<Key> Best;
  const int t = threadIdx.x;
  const int64 row = blockIdx.x / chunks, first = (blockIdx.x - row * chunks) * (int64)TOP_CHUNK;
  const int64 left = n - first;
  const int size = left < TOP_CHUNK ? (int)left : (int)TOP_CHUNK;
  in += row * n + first;
  if (names) names += row * n + first;
  values += (int64)blockIdx.x * k, indices += (int64)blockIdx.x * k;
  Key held[TOP_HELD];
  uint32 present = 0;
#pragma unroll
  for (int h = 0; h < TOP_HELD; ++h) {
    const int at = h * TOP_THREADS + t;
    held[h] = at < size ? convert<Key>(in[at]) : Key(0);
    if (at < size && !(names && names[at] == NO_POSITION)) present |= 1u << h;
  }
  __shared__ Key warp_keys[TOP_THREADS / 32];
  __shared__ int32 warp_positions[TOP_THREADS / 32];
  bool stale = true;
  Best mine = {Key(0), NO_POSITION};
#pragma unroll 1
  for (int round = 0; round < k; ++round) {
    if (stale) {
      mine = {Key(0), NO_POSITION};
#pragma unroll
      for (int h = 0; h < TOP_HELD; ++h)
        if (present >> h & 1) mine = better<Key, largest>(mine, {held[h], h * TOP_THREADS + t});
      stale = false;
    }
    Best best = mine;
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) best = better<Key, largest>(best, from_lane(best, mask));
    if ((t & 31) == 0) warp_keys[t / 32] = best.key, warp_positions[t / 32] = best.position;
    __syncthreads();
    best = {warp_keys[t & 7], warp_positions[t & 7]};
#pragma unroll
    for (int mask = 4; mask > 0; mask /= 2) best = better<Key, largest>(best, from_lane(best, mask));
    __syncthreads();
    const int at = best.position;
    if (t == 0) {
      values[round] = convert<In>(best.key);
      indices[round] = at == NO_POSITION ? NO_POSITION : names ? names[at] : first + at;
    }
    if (at != NO_POSITION && at % TOP_THREADS == t) {
      present &= ~(1u << (at / TOP_THREADS));
      stale = true;
    }
  }
}
