// SPDX-License-Identifier: Apache-2.0
// Inclusive scans. An operation `Op` has
//   Op::State            what is carried, a multiple of four bytes
//   Op::start()          the state of nothing
//   Op::load(x, i)       the state of one element at position i of its row
//   Op::join(a, b)       the state of two neighbouring parts, a before b
//   Op::store(s, out, where, at)
// and one of three kernels runs it:
//   rows:    a group of threads walks a row in tiles and carries the running state
//   single:  blocks take the tiles of one long row in turn; each looks back at what came before
//   columns: a thread walks a column, neighbours walk neighbouring columns
#pragma once
#include "math.cuh"

// As FLAMBEAU_KERNEL, with so few registers that several blocks fit on a multiprocessor.
#define FLAMBEAU_KERNEL_BLOCKS(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

enum { SCAN_THREADS = 256, SCAN_WARPS = SCAN_THREADS / 32 };

// Elements that a thread holds: two loads of 16 bytes, or fewer of the smallest types.
template <class In> constexpr int scan_items =
    sizeof(In) >= 16 ? 2 : sizeof(In) == 1 ? 16 : 32 / (int)sizeof(In);

template <class State> __device__ inline State shuffle_up(State state, int distance) {
  union Words { State state; uint32 word[sizeof(State) / 4]; __device__ Words() {} } from, to;
  from.state = state;
#pragma unroll
  for (int w = 0; w < (int)sizeof(State) / 4; ++w)
    to.word[w] = __shfl_up_sync(0xffffffffu, from.word[w], distance);
  return to.state;
}

// The inclusive scan over a warp's lanes.
template <class Op> __device__ inline typename Op::State scan_warp(typename Op::State state) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int reach = 1; reach < 32; reach *= 2) {
    const typename Op::State left = shuffle_up(state, reach);
    if (lane >= reach) state = Op::join(left, state);
  }
  return state;
}

// Neighbours from `first` on, with wide loads where the address allows them.
template <int ITEMS, class In>
__device__ inline void load_items(In (&items)[ITEMS], const In *in, int64 first, int64 last) {
  enum { V = 16 / sizeof(In) > 0 ? 16 / sizeof(In) : 1 };
  const In *from = in + first;
  if (V > 1 && first + ITEMS <= last && ((size_t)from & 15) == 0) {
    const Vector<In, V> *packs = (const Vector<In, V> *)from;
#pragma unroll
    for (int p = 0; p < ITEMS / V; ++p) {
      const Vector<In, V> pack = packs[p];
#pragma unroll
      for (int v = 0; v < V; ++v) items[p * V + v] = pack.at[v];
    }
  } else {
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)
      if (first + k < last) items[k] = from[k];
  }
}

// Every thread's items are scanned within it; the state of the whole tile before the thread comes
// back, and the state of the tile in `whole`.
template <class Op, int ITEMS, int GROUP>
__device__ inline typename Op::State scan_tile(
    typename Op::State (&states)[ITEMS], typename Op::State &whole) {
  typedef typename Op::State State;
#pragma unroll
  for (int k = 1; k < ITEMS; ++k) states[k] = Op::join(states[k - 1], states[k]);
  const int lane = threadIdx.x & 31;
  const State total = scan_warp<Op>(states[ITEMS - 1]);
  State before = shuffle_up(total, 1);
  if (lane == 0) before = Op::start();
  FLAMBEAU_SHARED(State, warps, SCAN_WARPS);
  const int warp = threadIdx.x / 32;
  if (lane == 31) warps[warp] = total;
  if constexpr (GROUP == 32) {
    __syncwarp();
    whole = warps[warp];
    __syncwarp();
    return before;
  } else {
    __syncthreads();
    State left = Op::start();
    whole = Op::start();
#pragma unroll
    for (int w = 0; w < SCAN_WARPS; ++w) {
      if (w == warp) left = whole;
      whole = Op::join(whole, warps[w]);
    }
    __syncthreads();
    return Op::join(left, before);
  }
}

template <class Op, int ITEMS, class Out>
__device__ inline void store_items(
    const typename Op::State (&states)[ITEMS], typename Op::State before, Out *out, int64 *where,
    int64 first, int64 last) {
  enum { V = 16 / sizeof(Out) > 0 ? 16 / sizeof(Out) : 1 };
  if (!Op::POSITIONS && V > 1 && ITEMS % V == 0 && first + ITEMS <= last &&
      ((size_t)(out + first) & 15) == 0) {
#pragma unroll
    for (int p = 0; p < ITEMS / V; ++p) {
      Vector<Out, V> pack;
#pragma unroll
      for (int v = 0; v < V; ++v)
        Op::store(Op::join(before, states[p * V + v]), pack.at, (int64 *)0, v);
      *(Vector<Out, V> *)(out + first + p * V) = pack;
    }
    return;
  }
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (first + k < last) Op::store(Op::join(before, states[k]), out, where, first + k);
}

template <class Op, int GROUP, class In, class Out>
__device__ inline void scan_rows(Out *out, int64 *where, const In *in, int64 n, int64 rows) {
  enum { ITEMS = scan_items<In>, TILE = GROUP * ITEMS };
  typedef typename Op::State State;
  const int64 row = blockIdx.x * (int64)(SCAN_THREADS / GROUP) + threadIdx.x / GROUP;
  if (row >= rows) return;  // a whole group, which is a warp or the block
  in += row * n, out += row * n;
  if (Op::POSITIONS) where += row * n;
  const int t = threadIdx.x % GROUP;
  State carry = Op::start();
  In next[ITEMS];
  load_items(next, in, (int64)t * ITEMS, n);
#pragma unroll 1
  for (int64 tile = 0; tile < n; tile += TILE) {
    const int64 first = tile + t * ITEMS;
    State states[ITEMS];
#pragma unroll
    for (int k = 0; k < ITEMS; ++k)
      states[k] = first + k < n ? Op::load(next[k], first + k) : Op::start();
    if (tile + TILE < n) load_items(next, in, first + TILE, n);  // under way while this is scanned
    State whole;
    const State before = scan_tile<Op, ITEMS, GROUP>(states, whole);
    store_items<Op>(states, Op::join(carry, before), out, where, first, n);
    carry = Op::join(carry, whole);
  }
}

// What a tile has published of itself.
enum : uint32 { TILE_NOTHING = 0, TILE_TOTAL = 1, TILE_PREFIX = 2 };

// What tiles publish. A state of four bytes and its flag are one word, which is written and read at
// once; others are written before their flag.
template <class State, bool packed = sizeof(State) == 4> struct Tiles {
  State *totals, *prefixes;
  volatile uint32 *flags;
  __device__ void publish(int64 tile, State state, uint32 flag) const {
    (flag == TILE_PREFIX ? prefixes : totals)[tile] = state;
    __threadfence();
    flags[tile] = flag;
  }
  __device__ uint32 flag_of(int64 tile, State &) const { return flags[tile]; }
  __device__ void read_state(int64 tile, uint32 flag, State &state) const {
    __threadfence();
    const volatile uint32 *from = (const volatile uint32 *)((flag == TILE_PREFIX ? prefixes : totals) + tile);
    union Words { State state; uint32 word[sizeof(State) / 4]; __device__ Words() {} } words;
#pragma unroll
    for (int w = 0; w < (int)sizeof(State) / 4; ++w) words.word[w] = from[w];
    state = words.state;
  }
};
template <class State> struct Tiles<State, true> {
  State *totals, *prefixes;  // only the memory of the first is used, as words
  volatile uint32 *flags;
  union Word {
    uint64 all;
    struct { State state; uint32 flag; } part;
    __device__ Word() {}
  };
  __device__ void publish(int64 tile, State state, uint32 flag) const {
    Word word;
    word.part.state = state, word.part.flag = flag;
    ((volatile uint64 *)totals)[tile] = word.all;
  }
  __device__ uint32 flag_of(int64 tile, State &state) const {
    Word word;
    word.all = ((const volatile uint64 *)totals)[tile];
    state = word.part.state;
    return word.part.flag;
  }
  __device__ void read_state(int64, uint32, State &) const {}
};

// The state before a tile, found by the first warp: 32 predecessors at a time, back to the nearest
// one that knows its prefix.
template <class Op>
__device__ inline typename Op::State look_back(
    const Tiles<typename Op::State> &tiles, int64 tile) {
  typedef typename Op::State State;
  const int lane = threadIdx.x & 31;
  State before = Op::start();
  for (int64 end = tile; end > 0;) {
    const int64 at = end - 32 + lane;  // lane 31 is the nearest
    State state = Op::start();
    uint32 flag = at < 0 ? (uint32)TILE_PREFIX : tiles.flag_of(at, state);
    while (__any_sync(0xffffffffu, flag == TILE_NOTHING))
      if (flag == TILE_NOTHING) flag = tiles.flag_of(at, state);
    if (at >= 0) tiles.read_state(at, flag, state);
    const uint32 known = __ballot_sync(0xffffffffu, flag == TILE_PREFIX);
    const int nearest = known ? 31 - __clz(known) : 0;
    if (lane < nearest) state = Op::start();
    state = scan_warp<Op>(state);
    union Words { State state; uint32 word[sizeof(State) / 4]; __device__ Words() {} } words;
    words.state = state;
#pragma unroll
    for (int w = 0; w < (int)sizeof(State) / 4; ++w)
      words.word[w] = __shfl_sync(0xffffffffu, words.word[w], 31);
    before = Op::join(words.state, before);
    if (known) break;
    end -= 32;
  }
  return before;
}

// Elements of a thread where one long row is shared: as many as the block's shared memory exchanges.
template <class In, class Out> constexpr int single_items =
    128 / (sizeof(In) > sizeof(Out) ? (int)sizeof(In) : (int)sizeof(Out)) > 32
        ? 32 : 128 / (sizeof(In) > sizeof(Out) ? (int)sizeof(In) : (int)sizeof(Out));

// One word in 33 is left out, so that threads that stand ITEMS apart meet different banks.
__device__ inline int spread(int i) { return i + i / 32; }

// counter, flags and states are zero at the start. Tiles are taken in order, so a tile's predecessors run.
template <class Op, class In, class Out>
__device__ inline void scan_single(
    Out *out, int64 *where, const In *in, int64 n, uint32 *counter, uint32 *flags,
    typename Op::State *totals, typename Op::State *prefixes) {
  enum { ITEMS = Op::POSITIONS ? 8 : single_items<In, Out>, TILE = SCAN_THREADS * ITEMS };
  enum { WIDEST = sizeof(In) > sizeof(Out) ? sizeof(In) : sizeof(Out) };
  typedef typename Op::State State;
  __shared__ alignas(16) unsigned char exchange[WIDEST * (TILE + TILE / 32)];
  In *const loaded = (In *)exchange;
  Out *const scanned = (Out *)exchange;
  __shared__ uint32 taken;
  FLAMBEAU_SHARED(State, shared_before, 1);
  const int t = threadIdx.x;
  if (t == 0) taken = atomicAdd(counter, 1u);
  __syncthreads();
  const int64 tile = taken, base = tile * TILE, rest = n - base;
  const int size = rest < TILE ? (int)rest : (int)TILE;
  In items[ITEMS];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (k * SCAN_THREADS + t < size) items[k] = in[base + k * SCAN_THREADS + t];
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (k * SCAN_THREADS + t < size) loaded[spread(k * SCAN_THREADS + t)] = items[k];
  __syncthreads();
  State states[ITEMS], whole;
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const int at = t * ITEMS + k;
    states[k] = at < size ? Op::load(loaded[spread(at)], base + at) : Op::start();
  }
  const State inside = scan_tile<Op, ITEMS, SCAN_THREADS>(states, whole);
  if (t < 32) {
    const Tiles<State> tiles = {totals, prefixes, flags};
    if (t == 0 && tile > 0) tiles.publish(tile, whole, TILE_TOTAL);
    const State before = look_back<Op>(tiles, tile);
    if (t == 0) {
      tiles.publish(tile, Op::join(before, whole), TILE_PREFIX);
      shared_before[0] = before;
    }
  }
  __syncthreads();
  const State before = Op::join(shared_before[0], inside);
#pragma unroll
  for (int k = 0; k < ITEMS; ++k) {
    const int at = t * ITEMS + k;
    if (at < size) Op::store(Op::join(before, states[k]), scanned + (spread(at) - at), where + base, at);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < ITEMS; ++k)
    if (k * SCAN_THREADS + t < size)
      out[base + k * SCAN_THREADS + t] = scanned[spread(k * SCAN_THREADS + t)];
}

// (outer, n, inner), contiguous; a thread for each pair of outer and inner.
template <class Op, class In, class Out>
__device__ inline void scan_columns(
    Out *out, int64 *where, const In *in, int64 n, int64 inner, int64 columns) {
  enum { AHEAD = 8 };
  const int64 c = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (c >= columns) return;
  const int64 outer = c / inner, start = outer * n * inner + (c - outer * inner);
  typename Op::State state = Op::start();
#pragma unroll 1
  for (int64 i = 0; i < n; i += AHEAD) {
    In items[AHEAD];
#pragma unroll
    for (int k = 0; k < AHEAD; ++k)
      if (i + k < n) items[k] = in[start + (i + k) * inner];
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) {
      if (i + k >= n) break;
      state = Op::join(state, Op::load(items[k], i + k));
      Op::store(state, out, where, start + (i + k) * inner);
    }
  }
}

// The operations. A is the type of arithmetic; half sums are kept in float.
template <class A, class In, class Out> struct CumulativeSum {
  typedef A State;
  enum { POSITIONS = false };
  __device__ static A start() { return A(0); }
  __device__ static A load(In x, int64) { return convert<A>(x); }
  __device__ static A join(A a, A b) { return plus(a, b); }
  __device__ static void store(A s, Out *out, int64 *, int64 at) { out[at] = convert<Out>(s); }
};
template <class A, class In, class Out> struct CumulativeProduct : CumulativeSum<A, In, Out> {
  __device__ static A start() { return A(1); }
  __device__ static A join(A a, A b) { return times(a, b); }
};
// log(exp(a) + exp(b)), joined from the larger one.
template <class A, class In, class Out> struct CumulativeLogSum : CumulativeSum<A, In, Out> {
  __device__ static A start() { return lowest<A>(); }
  __device__ static A join(A a, A b) {
    const A high = maximum_of(a, b), low = minimum_of(a, b);
    return is_nan(high) || is_infinite(high) ? high : high + log1p(exp(low - high));
  }
};
// The extreme so far and its position: of equal ones the last, a NaN stays.
template <class A, class In, class Out, bool largest> struct CumulativeExtreme {
  struct State { A value; int64 index; };
  enum { POSITIONS = true };
  __device__ static State start() { return {A(0), -1}; }
  __device__ static State load(In x, int64 i) { return {convert<A>(x), i}; }
  __device__ static State join(State a, State b) {
    if (a.index < 0) return b;
    if (b.index < 0) return a;
    if (is_nan(b.value)) return b;
    if (is_nan(a.value)) return a;
    return (largest ? b.value >= a.value : b.value <= a.value) ? b : a;
  }
  __device__ static void store(State s, Out *out, int64 *where, int64 at) {
    out[at] = convert<Out>(s.value);
    where[at] = s.index;
  }
};
template <class A, class In, class Out> struct CumulativeMax : CumulativeExtreme<A, In, Out, true> {};
template <class A, class In, class Out> struct CumulativeMin : CumulativeExtreme<A, In, Out, false> {};
