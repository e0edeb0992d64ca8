// SPDX-License-Identifier: Apache-2.0
// A stable radix sort of one row that carries positions: a pass over the keys counts the digits of all
// passes, then each pass moves every element once. Blocks take tiles in order, rank their elements by
// digit in shared memory, and learn what the tiles before hold by looking back at their counts
// (Adinets and Merrill, Onesweep, 2022).
#pragma once
#include "math.cuh"

// As FLAMBEAU_KERNEL, with so few registers that several blocks fit on a multiprocessor.
#define FLAMBEAU_KERNEL_BLOCKS(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

enum { RADIX_BITS = 8, RADIX = 1 << RADIX_BITS };  // a thread for each digit
enum { RADIX_THREADS = RADIX, RADIX_WARPS = RADIX_THREADS / 32 };
// Elements of a thread where blocks share a row: keys and positions of a tile fit into 48 KiB.
template <class In> constexpr int radix_items = sizeof(In) == 8 ? 12 : 20;
typedef uint16 Count;  // of a digit in a tile
enum : uint32 { COUNT_MASK = (1u << 30) - 1, COUNT_TILE = 1u << 30, COUNT_PREFIX = 2u << 30 };

template <int bytes> struct unsigned_of { typedef uint8 type; };
template <> struct unsigned_of<2> { typedef uint16 type; };
template <> struct unsigned_of<4> { typedef uint32 type; };
template <> struct unsigned_of<8> { typedef uint64 type; };

// Bits that order as the elements do: NaN is the greatest, the zeros are equal.
template <class In, bool descending>
__device__ inline typename unsigned_of<sizeof(In)>::type ordered_bits(In x) {
  typedef typename unsigned_of<sizeof(In)>::type U;
  const U sign = U(1) << (8 * sizeof(In) - 1);
  U bits;
  if constexpr (is_float<In>) {
    const typename arithmetic<In>::type value = convert<typename arithmetic<In>::type>(x);
    union { In from; U to; } both;
    both.from = x;
    bits = both.to;
    if (is_nan(value)) bits = ~U(0);
    else if (value == 0) bits = sign;
    else bits = bits & sign ? U(~bits) : U(bits | sign);
  } else if constexpr (same<In, bool>::value) {
    bits = x;
  } else {
    bits = In(-1) < In(0) ? U(U(x) ^ sign) : U(x);
  }
  return descending ? U(~bits) : bits;
}
template <class In, bool descending> __device__ inline int digit_of(In x, int pass) {
  return (int)(ordered_bits<In, descending>(x) >> (RADIX_BITS * pass)) & (RADIX - 1);
}

// counts[pass][digit] over the whole row.
template <class In, bool descending>
__device__ inline void count_digits(uint32 *counts, const In *in, int64 n) {
  enum { PASSES = sizeof(In) };
  __shared__ uint32 own[PASSES * RADIX];
  for (int i = threadIdx.x; i < PASSES * RADIX; i += RADIX_THREADS) own[i] = 0;
  __syncthreads();
  enum { AHEAD = 8 };
  const int64 step = gridDim.x * (int64)RADIX_THREADS;
#pragma unroll 1
  for (int64 i = blockIdx.x * (int64)RADIX_THREADS + threadIdx.x; i < n; i += AHEAD * step) {
    In items[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; ++k)
      if (i + k * step < n) items[k] = in[i + k * step];
#pragma unroll
    for (int k = 0; k < AHEAD; ++k)
      if (i + k * step < n)
#pragma unroll
        for (int pass = 0; pass < PASSES; ++pass)
          atomicAdd(&own[pass * RADIX + digit_of<In, descending>(items[k], pass)], 1u);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < PASSES * RADIX; i += RADIX_THREADS)
    if (own[i]) atomicAdd(&counts[i], own[i]);
}

// The exclusive sum over the block, a value for each thread; `warps` is shared memory for RADIX_WARPS.
__device__ inline uint32 exclusive_digit_sum(uint32 value, uint32 *warps) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  uint32 sum = value;
#pragma unroll
  for (int reach = 1; reach < 32; reach *= 2) {
    const uint32 left = __shfl_up_sync(0xffffffffu, sum, reach);
    if (lane >= reach) sum += left;
  }
  if (lane == 31) warps[warp] = sum;
  __syncthreads();
  uint32 before = 0;
#pragma unroll
  for (int w = 0; w < RADIX_WARPS; ++w)
    if (w < warp) before += warps[w];
  __syncthreads();
  return before + sum - value;
}

// Where each digit begins: block p does pass p.
__device__ inline void digit_starts(uint32 *counts) {
  __shared__ uint32 warps[RADIX_WARPS];
  uint32 *mine = counts + blockIdx.x * RADIX + threadIdx.x;
  *mine = exclusive_digit_sum(*mine, warps);
}

// The lanes of the warp that hold the same digit.
__device__ inline uint32 same_digit(int digit) {
  uint32 peers = 0xffffffffu;
#pragma unroll
  for (int bit = 0; bit < RADIX_BITS; ++bit) {
    const bool set = digit >> bit & 1;
    const uint32 votes = __ballot_sync(0xffffffffu, set);
    peers &= set ? votes : ~votes;
  }
  return peers;
}

// How many elements with this thread's digit lie in the tiles before. What a tile has is published as
// soon as it is known, and with those before it once they are.
__device__ inline void publish_count(volatile uint32 *published, int64 tile, uint32 count) {
  published[tile * RADIX + threadIdx.x] = (tile == 0 ? COUNT_PREFIX : COUNT_TILE) | count;
}
__device__ inline uint32 count_before(volatile uint32 *published, int64 tile, uint32 count) {
  if (tile == 0) return 0;
  // Several are asked for at once, so that their latencies overlap; then they are taken in order.
  enum { AHEAD = 4 };
  uint32 before = 0;
  for (int64 t = tile - 1;; t -= AHEAD) {
    uint32 seen[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) seen[k] = t >= k ? published[(t - k) * RADIX + threadIdx.x] : (uint32)COUNT_PREFIX;
    bool found = false;
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) {
      if (found) continue;
      while (seen[k] == 0) seen[k] = published[(t - k) * RADIX + threadIdx.x];
      before += seen[k] & COUNT_MASK;
      found = seen[k] & COUNT_PREFIX;
    }
    if (found) break;
  }
  published[tile * RADIX + threadIdx.x] = COUNT_PREFIX | (before + count);
  return before;
}

// Ranks a thread's items among those of its warp with the same digit, in order of item and lane;
// the digits of each warp are counted in `counts`, which is zero before.
template <int ITEMS>
__device__ inline void rank_in_warp(
    const uint8 (&digits)[ITEMS], int (&ranks)[ITEMS], Count (*counts)[RADIX]) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const uint32 peers = same_digit(digits[k]);
    const int leader = __ffs(peers) - 1;
    uint32 before = 0;
    if (lane == leader) {
      before = counts[warp][digits[k]];
      counts[warp][digits[k]] = (Count)(before + __popc(peers));
    }
    __syncwarp();
    before = __shfl_sync(0xffffffffu, before, leader);
    ranks[k] = before + __popc(peers & ((1u << lane) - 1));
  }
}

// From counts to how many of digit t the warps before have; how many there are of it in the block.
__device__ inline uint32 count_in_block(Count (*counts)[RADIX]) {
  uint32 count = 0;
#pragma unroll
  for (int w = 0; w < RADIX_WARPS; ++w) {
    const uint32 here = counts[w][threadIdx.x];
    counts[w][threadIdx.x] = (Count)count;
    count += here;
  }
  return count;
}
// To where each warp's digits begin in the block; where digit t begins.
__device__ inline uint32 starts_in_block(Count (*counts)[RADIX], uint32 count, uint32 *warps) {
  const uint32 start = exclusive_digit_sum(count, warps);
#pragma unroll
  for (int w = 0; w < RADIX_WARPS; ++w) counts[w][threadIdx.x] = (Count)(counts[w][threadIdx.x] + start);
  return start;
}

// A block sorts a row of at most RADIX_THREADS * ITEMS elements in its shared memory.
template <class In, bool descending, int ITEMS>
__device__ inline void radix_row(In *keys_out, int64 *indices, const In *in, int32 n) {
  __shared__ Count counts[RADIX_WARPS][RADIX];
  __shared__ alignas(16) In keys_shared[RADIX_THREADS * ITEMS];
  __shared__ alignas(4) uint16 places_shared[RADIX_THREADS * ITEMS];
  const int t = threadIdx.x, own = t / 32 * 32 * ITEMS + (t & 31);
  in += (int64)blockIdx.x * n, keys_out += (int64)blockIdx.x * n, indices += (int64)blockIdx.x * n;
  In keys[ITEMS];
  uint16 places[ITEMS];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    places[k] = (uint16)(own + k * 32);
    if (places[k] < n) keys[k] = in[places[k]];
  }
#pragma unroll 1
  for (int pass = 0; pass < (int)sizeof(In); ++pass) {
#pragma unroll
    for (int w = 0; w < RADIX_WARPS; ++w) counts[w][t] = 0;
    __syncthreads();
    uint8 digits[ITEMS];
    int ranks[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)  // what is no element stays behind all, being behind them now
      digits[k] = own + k * 32 < n ? digit_of<In, descending>(keys[k], pass) : RADIX - 1;
    rank_in_warp(digits, ranks, counts);
    __syncthreads();
    // The places are in registers now, and 8-byte keys leave no memory to spare.
    starts_in_block(counts, count_in_block(counts), (uint32 *)places_shared);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) {
      const int rank = ranks[k] + counts[t / 32][digits[k]];
      keys_shared[rank] = keys[k], places_shared[rank] = places[k];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < ITEMS; ++k) keys[k] = keys_shared[own + k * 32], places[k] = places_shared[own + k * 32];
  }
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    if (own + k * 32 >= n) continue;
    keys_out[own + k * 32] = keys[k];
    indices[own + k * 32] = places[k];
  }
}

// positions NULL: those of a fresh row. Either positions_out or, in the last pass, indices is written.
template <class In, bool descending>
__device__ inline void radix_pass(
    In *keys_out, int32 *positions_out, int64 *indices, const In *in, const int32 *positions,
    int64 n, int32 pass, const uint32 *starts, uint32 *counter, uint32 *published) {
  enum { ITEMS = radix_items<In>, TILE = RADIX_THREADS * ITEMS };
  __shared__ Count counts[RADIX_WARPS][RADIX];
  __shared__ uint32 warps[RADIX_WARPS];
  __shared__ uint32 offsets[RADIX];
  __shared__ uint32 taken;
  __shared__ alignas(16) In keys_shared[TILE];
  __shared__ alignas(16) int32 positions_shared[TILE];
  const int t = threadIdx.x, lane = t & 31, warp = t / 32;
  if (t == 0) taken = atomicAdd(counter, 1u);
#pragma unroll
  for (int w = 0; w < RADIX_WARPS; ++w) counts[w][t] = 0;
  __syncthreads();
  const int64 tile = taken, base = tile * TILE, rest = n - base;
  const bool whole = rest >= TILE;
  const int size = whole ? (int)TILE : (int)rest;
  const int own = warp * 32 * ITEMS + lane;  // then every 32nd: order by item, then by lane
  const In *const from = in + base + own;

  In keys[ITEMS];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (whole || own + k * 32 < size) keys[k] = from[k * 32];
  uint8 digits[ITEMS];
  int ranks[ITEMS];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)  // behind the end the greatest digit, which is not written
    digits[k] = whole || own + k * 32 < size ? digit_of<In, descending>(keys[k], pass) : RADIX - 1;
  rank_in_warp(digits, ranks, counts);
  __syncthreads();
  const uint32 count = count_in_block(counts);
  publish_count(published, tile, count);
  const uint32 start = starts_in_block(counts, count, warps);
  __syncthreads();
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    ranks[k] += counts[warp][digits[k]];
    if (whole || own + k * 32 < size) keys_shared[ranks[k]] = keys[k];
  }
  int32 places[ITEMS];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    places[k] = (int32)base + own + k * 32;
    if (positions && (whole || own + k * 32 < size)) places[k] = positions[places[k]];
  }
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (whole || own + k * 32 < size) positions_shared[ranks[k]] = places[k];
  offsets[t] = starts[pass * RADIX + t] + count_before(published, tile, count) - start;
  __syncthreads();

#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const int i = k * RADIX_THREADS + t;
    if (!whole && i >= size) continue;
    const In key = keys_shared[i];
    const uint32 place = offsets[digit_of<In, descending>(key, pass)] + i;
    keys_out[place] = key;
    if (indices) indices[place] = positions_shared[i];
    else positions_out[place] = positions_shared[i];
  }
}
