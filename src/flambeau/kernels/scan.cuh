// SPDX-License-Identifier: Apache-2.0
// Inclusive scans. An operation `Op` has
//   Op::State            what is carried, a multiple of four bytes
//   Op::start()          the state of nothing
//   Op::load(x, i)       the state of one element at position i of its row
//   Op::join(a, b)       the state of two neighbouring parts, a before b
//   Op::store(s, out, where, at)
// and one of three kernels runs it:
//   rows:    a group of threads walks a row in tiles and carries the running state
//   single:  blocks take the tiles of long rows in turn; each looks back at what came before
//            (after Merrill and Garland, Single-pass parallel prefix scan with decoupled look-back,
//            2016), which other blocks added up a while ago
//   columns: a thread walks a column, neighbours walk neighbouring columns
#pragma once
#include "math.cuh"
#include "store.cuh"

// As FLAMBEAU_KERNEL, with so few registers that several blocks fit on a multiprocessor.
#define FLAMBEAU_KERNEL_BLOCKS(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)

enum { SCAN_THREADS = 256, SCAN_WARPS = SCAN_THREADS / 32 };

// Elements that a thread holds: two loads of 16 bytes, or fewer of the smallest types.
template <class In> constexpr int scan_items =
    sizeof(In) >= 16 ? 2 : sizeof(In) == 1 ? 16 : 32 / (int)sizeof(In);

// Elements that a thread holds where blocks share a row: their states fill 16 registers.
template <class State> constexpr int single_items = 64 / (int)sizeof(State);

template <class State> __device__ inline State shuffle_up(State state, int distance) {
  union Words { State state; uint32 word[sizeof(State) / 4]; __device__ Words() {} } from, to;
  from.state = state;
#pragma unroll
  for (int w = 0; w < (int)sizeof(State) / 4; ++w)
    to.word[w] = __shfl_up_sync(0xffffffffu, from.word[w], distance);
  return to.state;
}

template <class State> __device__ inline State shuffle_from(State state, int lane) {
  union Words { State state; uint32 word[sizeof(State) / 4]; __device__ Words() {} } words;
  words.state = state;
#pragma unroll
  for (int w = 0; w < (int)sizeof(State) / 4; ++w)
    words.word[w] = __shfl_sync(0xffffffffu, words.word[w], lane);
  return words.state;
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

// What tiles publish, each place once: a state in pieces of four bytes, each in a word with a mark, so
// that a piece is there when its mark is. The words are zero at the start.
template <class State> struct Published {
  enum { PARTS = sizeof(State) / 4 };
  volatile uint64 *words;
  union Pieces { State state; uint32 piece[PARTS]; __device__ Pieces() {} };

  __device__ void publish(uint32 at, State state) const {
    Pieces pieces;
    pieces.state = state;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) words[at * (size_t)PARTS + p] = 1ull << 32 | pieces.piece[p];
  }
  __device__ bool read(uint32 at, State &state) const {
    Pieces pieces;
    uint64 seen[PARTS];
#pragma unroll
    for (int p = 0; p < PARTS; ++p) seen[p] = words[at * (size_t)PARTS + p];
    bool all = true;
#pragma unroll
    for (int p = 0; p < PARTS; ++p) all = all && seen[p] >> 32, pieces.piece[p] = (uint32)seen[p];
    state = pieces.state;
    return all;
  }
};

// Tiles stand in groups of 32 for each warp of a block. Warp w joins the totals of as many as there are
// before this tile in the w-th part of its group.
enum { SCAN_GROUP = 32 * SCAN_WARPS };
template <class Op>
__device__ inline typename Op::State part_before(
    const Published<typename Op::State> &totals, uint32 tile, int warp) {
  const uint32 first = tile / SCAN_GROUP * SCAN_GROUP + warp * 32;
  typename Op::State state = Op::start();
  if (first >= tile) return state;
  const uint32 at = first + (threadIdx.x & 31);
  if (at < tile)
    while (!totals.read(at, state)) {}
  __syncwarp();
  return shuffle_from(scan_warp<Op>(state), 31);
}

// What lies before a tile, for every thread, joined in one order, whoever came first: the groups before its
// own, then the parts of its own. `parts` is shared memory for SCAN_WARPS + 1. A barrier is inside.
template <class Op>
__device__ inline typename Op::State before_tile(
    const Published<typename Op::State> &totals, const Published<typename Op::State> &groups,
    uint32 tile, typename Op::State *parts) {
  typedef typename Op::State State;
  const int warp = threadIdx.x / 32;
  State base = Op::start();
  const State part = part_before<Op>(totals, tile, warp);
  if ((threadIdx.x & 31) == 0) parts[warp] = part;
  if (threadIdx.x == SCAN_THREADS - 1) {
    if (tile >= SCAN_GROUP)
      while (!groups.read(tile / SCAN_GROUP, base)) {}
    parts[SCAN_WARPS] = base;
  }
  __syncthreads();
  base = parts[SCAN_WARPS];
#pragma unroll
  for (int w = 0; w < SCAN_WARPS; ++w) base = Op::join(base, parts[w]);
  return base;
}

// Rows that blocks share, in tiles. A warp's items are neighbours, as rounds of V for each lane. A row has
// words for its tiles, and for each group of them.
template <class Op, class In, class Out> struct SharedRows {
  typedef typename Op::State State;
  enum { WIDEST = Op::POSITIONS ? 8 : sizeof(In) < sizeof(Out) ? sizeof(Out) : sizeof(In) };
  enum { ITEMS = single_items<State>, WIDE = WIDEST < 16 ? 16 / WIDEST : 1 };
  enum { V = WIDE < ITEMS ? WIDE : ITEMS, ROUNDS = ITEMS / V };
  enum { TILE = SCAN_THREADS * ITEMS };
  typedef Vector<In, V> Items[ROUNDS];
  Out *out;
  int64 *where;
  const In *in;
  int64 n, first;  // the row's length, and where this thread begins
  uint32 tile;
  bool whole;      // every item is there, and wide accesses are allowed
  Published<State> totals, groups;

  __device__ SharedRows(
      Out *outs, int64 *wheres, const In *ins, int64 n, uint32 tiles, uint64 *words, uint32 number)
      : n(n) {
    const uint32 row = number / tiles;
    tile = number - row * tiles;
    in = ins + row * n, out = outs + row * n, where = Op::POSITIONS ? wheres + row * n : wheres;
    first = tile * (int64)TILE + threadIdx.x / 32 * 32 * ITEMS + (threadIdx.x & 31) * V;
    whole = tile * (int64)TILE + TILE <= n &&
        !(((size_t)in | (size_t)out | (Op::POSITIONS ? (size_t)where : 0)) & 15);
    words += row * (size_t)(tiles + tiles / SCAN_GROUP + 1) * (sizeof(State) / 4);
    totals.words = words, groups.words = words + tiles * (size_t)(sizeof(State) / 4);
  }
  __device__ void load(Items &items) const {
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
      const int64 at = first + r * 32 * V;
      if (whole) {
        items[r] = *(const Vector<In, V> *)(in + at);
      } else {
#pragma unroll
        for (int v = 0; v < V; ++v) if (at + v < n) items[r].at[v] = in[at + v];
      }
    }
  }
  __device__ State state_of(const Items &items, int r, int v) const {
    const int64 at = first + r * 32 * V + v;
    return whole || at < n ? Op::load(items[r].at[v], at) : Op::start();
  }
};

// Ticket k adds tile k up, then scans the tile `ahead` tickets before: what lies before that one is known by
// then, and its elements are still in the cache. Tickets come in order, so that what a block waits for runs.
// `counter` and `words` are zero at the start.
template <class Op, class In, class Out>
__device__ inline void scan_single(
    Out *out, int64 *where, const In *in, int64 n, uint32 tiles, uint32 all_tiles, uint32 ahead,
    uint32 *counter, uint64 *words) {
  typedef SharedRows<Op, In, Out> Rows;
  typedef typename Op::State State;
  enum { V = Rows::V, ROUNDS = Rows::ROUNDS };
  FLAMBEAU_SHARED(State, warps, SCAN_WARPS);
  FLAMBEAU_SHARED(State, parts, SCAN_WARPS + 1);
  FLAMBEAU_SHARED(State, ends_of_warps, SCAN_WARPS * ROUNDS * 33);
  __shared__ uint32 ticket;
  if (threadIdx.x == 0) ticket = atomicAdd(counter, 1u);
  __syncthreads();
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  const bool adds = ticket < all_tiles, scans = ticket >= ahead;
  const Rows early(out, where, in, n, tiles, words, adds ? ticket : 0);
  const Rows now(out, where, in, n, tiles, words, scans ? ticket - ahead : 0);
  typename Rows::Items items, later;
  if (adds) early.load(later);
  if (scans) now.load(items);

  // Each lane takes ROUNDS neighbours of the ends of the lanes' parts; one word in 33 is left out, so that
  // banks differ.
  State *const ends = ends_of_warps + warp * ROUNDS * 33;
  State *const own_ends = ends + lane * ROUNDS + lane * ROUNDS / 32;
  if (adds) {
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
      State sum = early.state_of(later, r, 0);
#pragma unroll
      for (int v = 1; v < V; ++v) sum = Op::join(sum, early.state_of(later, r, v));
      ends[r * 33 + lane] = sum;
    }
    __syncwarp();
    State sum = own_ends[0];
#pragma unroll
    for (int r = 1; r < ROUNDS; ++r) sum = Op::join(sum, own_ends[r]);
    sum = scan_warp<Op>(sum);
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    if (warp == 0) {
      sum = scan_warp<Op>(lane < SCAN_WARPS ? warps[lane] : Op::start());
      if (lane == SCAN_WARPS - 1) early.totals.publish(early.tile, sum);
    }
    __syncthreads();
  }
  if (scans) {
    State states[ROUNDS][V], upto[ROUNDS];
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        states[r][v] = now.state_of(items, r, v);
        if (v > 0) states[r][v] = Op::join(states[r][v - 1], states[r][v]);
      }
      ends[r * 33 + lane] = states[r][V - 1];
    }
    __syncwarp();
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
      upto[r] = own_ends[r];
      if (r > 0) upto[r] = Op::join(upto[r - 1], upto[r]);
    }
    const State all = scan_warp<Op>(upto[ROUNDS - 1]);
    State left = shuffle_up(all, 1);
    if (lane == 0) left = Op::start();
    own_ends[0] = left;
#pragma unroll
    for (int r = 1; r < ROUNDS; ++r) own_ends[r] = Op::join(left, upto[r - 1]);
    if (lane == 31) warps[warp] = all;
    State base = before_tile<Op>(now.totals, now.groups, now.tile, parts);
#pragma unroll
    for (int w = 0; w < SCAN_WARPS - 1; ++w)
      if (w < warp) base = Op::join(base, warps[w]);
#pragma unroll
    for (int r = 0; r < ROUNDS; ++r) {
      const State before = Op::join(base, ends[r * 33 + lane]);
      const int64 at = now.first + r * 32 * V;
      Vector<Out, V> pack;
      Vector<int64, V> places;
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const State state = Op::join(before, states[r][v]);
        if (now.whole) Op::store(state, pack.at, places.at, v);
        else if (at + v < n) Op::store(state, now.out, now.where, at + v);
      }
      if (!now.whole) continue;
      store_passing((Vector<Out, V> *)(now.out + at), pack);
      if (Op::POSITIONS) store_passing((Vector<int64, V> *)(now.where + at), places);
    }
  }
  // The block that added up the last tile of a group tells what lies before the next one.
  if (adds && early.tile % SCAN_GROUP == SCAN_GROUP - 1) {
    __syncthreads();
    State base = before_tile<Op>(early.totals, early.groups, early.tile, parts), last;
    if (threadIdx.x == 0) {
      while (!early.totals.read(early.tile, last)) {}
      early.groups.publish(early.tile / SCAN_GROUP + 1, Op::join(base, last));
    }
  }
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
