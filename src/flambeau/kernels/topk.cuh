// SPDX-License-Identifier: Apache-2.0
// The first k of contiguous rows in sorted order; k is at most TOP_MOST. A block holds a chunk of a row
// in its registers. Of the best elements of its threads the k-th is a bound: only k threads can hold
// anything as good, so few elements remain, and those are ranked by counting. The chunks of long rows
// are merged by the same kernel.
#pragma once
#include "radix.cuh"

enum { TOP_THREADS = 256, TOP_HELD = 16, TOP_CHUNK = TOP_THREADS * TOP_HELD, TOP_MOST = 64 };
enum { TOP_LEFT = TOP_HELD * TOP_MOST };
enum : int32 { NO_INDEX = 2147483647 };  // behind the end of the results

// An element and its place in the chunk as one number: better is greater, of equal ones the first.
// Zero is worse than all.
struct WideScore {
  uint64 high;
  uint32 low;
  __device__ bool operator>(const WideScore &b) const {
    return high > b.high || (high == b.high && low > b.low);
  }
};
template <int bytes> struct score_of { typedef uint64 type; };
template <> struct score_of<8> { typedef WideScore type; };
template <class In, bool largest>
__device__ inline typename score_of<sizeof(In)>::type score(In x, int place) {
  const auto bits = ordered_bits<In, !largest>(x);
  if constexpr (sizeof(In) == 8) return {bits, ~(uint32)place};
  else return (uint64)bits << 32 | ~(uint32)place;
}
__device__ inline uint32 place_of(uint64 score) { return ~(uint32)score; }
__device__ inline uint32 place_of(WideScore score) { return ~score.low; }

// Block (row, chunk) writes k values and indices, NO_INDEX behind the end. `names` are the indices of
// the elements where they are themselves chosen from a longer row.
template <class In, bool largest>
__device__ inline void top_of_chunks(
    In *values, int64 *indices, const In *in, const int64 *names, int64 n, int32 chunks, int32 k) {
  typedef typename score_of<sizeof(In)>::type Score;
  const int t = threadIdx.x;
  const int64 row = blockIdx.x / chunks, first = (blockIdx.x - row * chunks) * (int64)TOP_CHUNK;
  const int64 rest = n - first;
  const int size = rest < TOP_CHUNK ? (int)rest : (int)TOP_CHUNK;
  in += row * n + first;
  if (names) names += row * n + first;
  values += (int64)blockIdx.x * k, indices += (int64)blockIdx.x * k;
  __shared__ Score best[TOP_THREADS], left[TOP_LEFT];
  __shared__ In elements[TOP_LEFT];
  __shared__ Score bound;
  __shared__ int count;
  In held[TOP_HELD];
#pragma unroll
  for (int h = 0; h < TOP_HELD; ++h)
    if (h * TOP_THREADS + t < size) held[h] = in[h * TOP_THREADS + t];
  Score scores[TOP_HELD], mine = {};
#pragma unroll
  for (int h = 0; h < TOP_HELD; ++h) {
    const int place = h * TOP_THREADS + t;
    scores[h] = Score{};
    if (place < size && !(names && names[place] == NO_INDEX))
      scores[h] = score<In, largest>(held[h], place);
    if (scores[h] > mine) mine = scores[h];
  }
  best[t] = mine;
  if (t == 0) count = 0, bound = Score{};
  __syncthreads();
  int rank = 0;
#pragma unroll 8
  for (int other = 0; other < TOP_THREADS; ++other) rank += best[other] > mine;
  if (rank == k - 1 && mine > Score{}) bound = mine;  // scores differ, so at most one thread's does
  __syncthreads();
#pragma unroll
  for (int h = 0; h < TOP_HELD; ++h) {
    if (!(scores[h] > Score{}) || bound > scores[h]) continue;
    const int at = atomicAdd(&count, 1);
    left[at] = scores[h], elements[at] = held[h];
  }
  __syncthreads();
  for (int i = t; i < count; i += TOP_THREADS) {
    const Score own = left[i];
    int above = 0;
    for (int other = 0; other < count; ++other) above += left[other] > own;
    if (above >= k) continue;
    const uint32 place = place_of(own);
    values[above] = elements[i];
    indices[above] = names ? names[place] : first + place;
  }
  for (int i = count + t; i < k; i += TOP_THREADS) {
    values[i] = convert<In>(0);
    indices[i] = NO_INDEX;
  }
}
