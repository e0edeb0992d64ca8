// SPDX-License-Identifier: Apache-2.0
// Reductions over any set of dimensions. ops/reductions.py defines In, Out and a functor `Op`:
//   Op::State          what is carried, trivially copyable
//   Op::start()        the state of no elements
//   Op::add(s, x, i)   the state with element x at position i of the reduced dimensions
//   Op::join(a, b)     the state of two disjoint parts; a's positions come first where it matters
//   Op::write(s, count, out, out_index, o)
// and one of three kernels:
//   per thread:  a thread reduces one output, or a slice of it that leaves a partial state
//   per warp:    a warp reduces one output
//   per block:   a block reduces one output, or a slice of it that leaves a partial state
//   partials:    a block joins the partial states of one output
#pragma once
#include "math.cuh"

enum { REDUCE_THREADS = 256 };

// Operand 0 of `kept` is unused; operand 1 strides over the input.
struct ReduceShape {
  Layout kept;
  Layout reduced;
  int64 outputs;
  int64 count;   // elements per output
  int64 slices;  // parts into which the elements of one output are cut
};

template <class Index> __device__ inline Index input_offset(Index i, const Layout &layout) {
  Index offset = 0;
#pragma unroll 1
  for (int d = 0; d < layout.ndim; ++d) {
    const Index size = (Index)layout.sizes[d];
    const Index rest = i / size;
    offset += (i - rest * size) * (Index)layout.strides[0][d];
    i = rest;
  }
  return offset;
}

// By one thread: elements first, first + step, ... before last. Eight loads are in flight.
template <class Op, class In>
__device__ inline typename Op::State reduce_range(
    const In *in, const ReduceShape &shape, int64 first, int64 last, int64 step) {
  enum { LOADS = 8 };
  typename Op::State states[4] = {Op::start(), Op::start(), Op::start(), Op::start()};
  int64 i = first;
  if (shape.reduced.ndim == 1) {
    const int64 stride = shape.reduced.strides[0][0];
#pragma unroll 1
    for (; i + (LOADS - 1) * step < last; i += LOADS * step) {
      In loaded[LOADS];
#pragma unroll
      for (int u = 0; u < LOADS; ++u) loaded[u] = in[(i + u * step) * stride];
#pragma unroll
      for (int u = 0; u < LOADS; ++u)
        states[u % 4] = Op::add(states[u % 4], loaded[u], i + u * step);
    }
  }
#pragma unroll 1
  for (; i < last; i += step) states[0] = Op::add(states[0], in[input_offset(i, shape.reduced)], i);
  return Op::join(Op::join(states[0], states[1]), Op::join(states[2], states[3]));
}

// By `width` threads together, `lane` being one of them: elements that lie side by side, with loads
// of 16 bytes between an unaligned beginning and end.
template <class Op, class In>
__device__ inline typename Op::State reduce_run(
    const In *in, int64 first, int64 last, int64 lane, int64 width) {
  // V elements per load and LOADS loads in flight; more than 16 elements would only bloat the code.
  enum { V = 16 / sizeof(In), LOADS = V >= 16 ? 1 : V >= 8 ? 2 : 4 };
  typedef Vector<In, V> Pack;
  typename Op::State states[4] = {Op::start(), Op::start(), Op::start(), Op::start()};
  const int64 misaligned = ((uint64)(in + first) & 15) / sizeof(In);
  const int64 lead = misaligned ? V - misaligned : 0;
  const int64 begin = first + lead < last ? first + lead : last;
  if (first + lane < begin) states[0] = Op::add(states[0], in[first + lane], first + lane);
  const Pack *packs = (const Pack *)(in + begin);
  const int64 all = (last - begin) / V;  // whole packs
  int64 p = lane;
#pragma unroll 1
  for (; p + (LOADS - 1) * width < all; p += LOADS * width) {
    Pack loaded[LOADS];
#pragma unroll
    for (int u = 0; u < LOADS; ++u) loaded[u] = packs[p + u * width];
#pragma unroll
    for (int u = 0; u < LOADS; ++u)
#pragma unroll
      for (int v = 0; v < V; ++v) {
        typename Op::State &state = states[(u * V + v) % 4];
        state = Op::add(state, loaded[u].at[v], begin + (p + u * width) * V + v);
      }
  }
#pragma unroll 1
  for (; p < all; p += width) {
    const Pack loaded = packs[p];
#pragma unroll
    for (int v = 0; v < V; ++v)
      states[v % 4] = Op::add(states[v % 4], loaded.at[v], begin + p * V + v);
  }
#pragma unroll 1
  for (int64 i = begin + all * V + lane; i < last; i += width)
    states[0] = Op::add(states[0], in[i], i);
  return Op::join(Op::join(states[0], states[1]), Op::join(states[2], states[3]));
}

__device__ inline bool is_run(const ReduceShape &shape) {
  return shape.reduced.ndim == 0 || (shape.reduced.ndim == 1 && shape.reduced.strides[0][0] == 1);
}

template <class Op, class In>
__device__ inline typename Op::State reduce_shared(
    const In *in, const ReduceShape &shape, int64 first, int64 last, int lane, int width) {
  if (is_run(shape))
    return reduce_run<Op>(in, first, last, lane, width);
  return reduce_range<Op>(in, shape, first + lane, last, width);
}

template <class State> __device__ inline State shuffle_down(State state, int distance) {
  enum { WORDS = (sizeof(State) + 3) / 4 };
  union Words { State state; uint32 word[WORDS]; __device__ Words() {} } from, to;
  from.word[WORDS - 1] = 0;
  from.state = state;
#pragma unroll
  for (int w = 0; w < WORDS; ++w)
    to.word[w] = __shfl_down_sync(0xffffffffu, from.word[w], distance);
  return to.state;
}

// Lane 0 of each warp gets the joined state of the warp.
template <class Op> __device__ inline typename Op::State reduce_warp(typename Op::State state) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    state = Op::join(state, shuffle_down(state, distance));
  return state;
}

// Thread 0 gets the joined state of the block.
template <class Op> __device__ inline typename Op::State reduce_block(typename Op::State state) {
  FLAMBEAU_SHARED(typename Op::State, warps, REDUCE_THREADS / 32);
  const int t = threadIdx.x;
  state = reduce_warp<Op>(state);
  if ((t & 31) == 0) warps[t / 32] = state;
  __syncthreads();
  if (t == 0)
#pragma unroll 1
    for (int w = 1; w < REDUCE_THREADS / 32; ++w) state = Op::join(state, warps[w]);
  return state;
}

template <class Op, class In, class Out>
__device__ inline void reduce_per_thread(
    Out *out, int64 *out_index, const In *in, const ReduceShape &shape, typename Op::State *partial) {
  const int64 o = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (o >= shape.outputs) return;
  const In *row = in + input_offset(o, shape.kept);
  if (shape.slices == 1) {
    Op::write(reduce_range<Op>(row, shape, 0, shape.count, 1), shape.count, out, out_index, o);
    return;
  }
  const int64 length = (shape.count + shape.slices - 1) / shape.slices;
  const int64 first = blockIdx.y * length;
  const int64 last = first + length < shape.count ? first + length : shape.count;
  partial[o * shape.slices + blockIdx.y] = reduce_range<Op>(row, shape, first, last, 1);
}

template <class Op, class In, class Out>
__device__ inline void reduce_per_warp(
    Out *out, int64 *out_index, const In *in, const ReduceShape &shape, typename Op::State *) {
  const int64 o = blockIdx.x * (int64)(REDUCE_THREADS / 32) + threadIdx.x / 32;
  const int lane = threadIdx.x & 31;
  typename Op::State state = Op::start();
  if (o < shape.outputs)
    state = reduce_shared<Op>(in + input_offset(o, shape.kept), shape, 0, shape.count, lane, 32);
  state = reduce_warp<Op>(state);
  if (o < shape.outputs && lane == 0) Op::write(state, shape.count, out, out_index, o);
}

template <class Op, class In, class Out>
__device__ inline void reduce_per_block(
    Out *out, int64 *out_index, const In *in, const ReduceShape &shape, typename Op::State *partial) {
  const int64 o = blockIdx.x / shape.slices, slice = blockIdx.x % shape.slices;
  const In *row = in + input_offset(o, shape.kept);
  typename Op::State state;
  if (is_run(shape)) {
    // The blocks of a row walk it side by side, all of them in one region of memory at a time.
    const int64 lane = slice * REDUCE_THREADS + threadIdx.x;
    state = reduce_run<Op>(row, 0, shape.count, lane, shape.slices * REDUCE_THREADS);
  } else {
    const int64 length = (shape.count + shape.slices - 1) / shape.slices;
    const int64 first = slice * length < shape.count ? slice * length : shape.count;
    const int64 last = first + length < shape.count ? first + length : shape.count;
    state = reduce_range<Op>(row, shape, first + threadIdx.x, last, REDUCE_THREADS);
  }
  state = reduce_block<Op>(state);
  if (threadIdx.x != 0) return;
  if (shape.slices > 1) partial[blockIdx.x] = state;
  else Op::write(state, shape.count, out, out_index, o);
}

template <class Op, class Out>
__device__ inline void reduce_partials(
    Out *out, int64 *out_index, const typename Op::State *partial, int64 slices, int64 count) {
  const int64 o = blockIdx.x;
  typename Op::State state = Op::start();
#pragma unroll 1
  for (int64 s = threadIdx.x; s < slices; s += REDUCE_THREADS)
    state = Op::join(state, partial[o * slices + s]);
  state = reduce_block<Op>(state);
  if (threadIdx.x == 0) Op::write(state, count, out, out_index, o);
}

// The functors. A is the type sums are kept in.
template <class A, class In, class Out> struct Sum {
  typedef A State;
  __device__ static A start() { return A(0); }
  __device__ static A add(A s, In x, int64) { return plus(s, convert<A>(x)); }
  __device__ static A join(A a, A b) { return plus(a, b); }
  __device__ static void write(A s, int64, Out *out, int64 *, int64 o) { out[o] = convert<Out>(s); }
};
template <class A, class In, class Out> struct Mean : Sum<A, In, Out> {
  __device__ static void write(A s, int64 count, Out *out, int64 *, int64 o) {
    out[o] = convert<Out>(s / (A)count);
  }
};
template <class A, class In, class Out> struct NanSum : Sum<A, In, Out> {
  __device__ static A add(A s, In x, int64) {
    const A value = convert<A>(x);
    return is_nan(value) ? s : s + value;
  }
};
template <class A, class In, class Out> struct Product {
  typedef A State;
  __device__ static A start() { return A(1); }
  __device__ static A add(A s, In x, int64) { return times(s, convert<A>(x)); }
  __device__ static A join(A a, A b) { return times(a, b); }
  __device__ static void write(A s, int64, Out *out, int64 *, int64 o) { out[o] = convert<Out>(s); }
};
template <class A, class In, class Out> struct All {
  typedef bool State;
  __device__ static bool start() { return true; }
  __device__ static bool add(bool s, In x, int64) { return s && convert<bool>(x); }
  __device__ static bool join(bool a, bool b) { return a && b; }
  __device__ static void write(bool s, int64, Out *out, int64 *, int64 o) { out[o] = convert<Out>(s); }
};
template <class A, class In, class Out> struct Any {
  typedef bool State;
  __device__ static bool start() { return false; }
  __device__ static bool add(bool s, In x, int64) { return s || convert<bool>(x); }
  __device__ static bool join(bool a, bool b) { return a || b; }
  __device__ static void write(bool s, int64, Out *out, int64 *, int64 o) { out[o] = convert<Out>(s); }
};
// The mean and the sum of squared distances from it, joined without cancellation.
template <class A, class In, class Out> struct Moments {
  struct State { A mean, squares; int64 count; };
  __device__ static State start() { return {A(0), A(0), 0}; }
  __device__ static State add(State s, In x, int64) {
    const A value = convert<A>(x), delta = value - s.mean;
    s.count += 1;
    s.mean += delta / (A)s.count;
    s.squares += delta * (value - s.mean);
    return s;
  }
  __device__ static State join(State a, State b) {
    if (a.count == 0) return b;
    if (b.count == 0) return a;
    const A delta = b.mean - a.mean, share = (A)b.count / (A)(a.count + b.count);
    return {a.mean + delta * share, a.squares + b.squares + delta * delta * (A)a.count * share,
            a.count + b.count};
  }
  // The sum of squares; the caller divides by the degrees of freedom.
  __device__ static void write(State s, int64, Out *out, int64 *, int64 o) {
    out[o] = convert<Out>(s.squares);
  }
};
// The extreme alone.
template <class A, class In, class Out, bool largest> struct ExtremeValue {
  typedef A State;
  __device__ static A start() { return largest ? lowest<A>() : highest<A>(); }
  __device__ static A add(A s, In x, int64) { return join(s, convert<A>(x)); }
  __device__ static A join(A a, A b) {
    if constexpr (same<A, float>::value) {  // one instruction that keeps NaN
      float y;
      if (largest) asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
      else asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
      return y;
    }
    return largest ? maximum_of(a, b) : minimum_of(a, b);
  }
  __device__ static void write(A s, int64, Out *out, int64 *, int64 o) { out[o] = convert<Out>(s); }
};
template <class A, class In, class Out> struct LargestValue : ExtremeValue<A, In, Out, true> {};
template <class A, class In, class Out> struct SmallestValue : ExtremeValue<A, In, Out, false> {};

// The extreme and its first position; a NaN beats every number, the first NaN wins.
template <class A, class In, class Out, bool largest> struct Extreme {
  struct State { A value; int64 index; };
  // An index of -1 stands for elements that are all as low as can be: the first one is the answer.
  __device__ static State start() { return {largest ? lowest<A>() : highest<A>(), -1}; }
  __device__ static bool beats(A a, A b) {
    const bool no_better = largest ? a <= b : a >= b;  // false with a NaN on either side
    return !no_better && !is_nan(b);
  }
  // Positions only grow while elements are added, so an equal one never replaces an earlier one.
  __device__ static State add(State s, In x, int64 i) {
    const A value = convert<A>(x);
    const bool better = beats(value, s.value);
    s.value = better ? value : s.value;
    s.index = better ? i : s.index;
    return s;
  }
  __device__ static State join(State a, State b) {
    const bool tie = a.value == b.value || (is_nan(a.value) && is_nan(b.value));
    return tie ? ((uint64)b.index < (uint64)a.index ? b : a) : beats(b.value, a.value) ? b : a;
  }
  __device__ static void write(State s, int64, Out *out, int64 *out_index, int64 o) {
    if (out) out[o] = convert<Out>(s.value);
    if (out_index) out_index[o] = s.index < 0 ? 0 : s.index;
  }
};
template <class A, class In, class Out> struct Largest : Extreme<A, In, Out, true> {};
template <class A, class In, class Out> struct Smallest : Extreme<A, In, Out, false> {};
