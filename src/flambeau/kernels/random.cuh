// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 and what is drawn from it, in torch's layout: the elements of a tensor are dealt out
// to T = `threads` logical threads, T at a time; a thread's element k comes from lane k % U of its
// (k / U)-th block of four words. Which hardware thread computes a block is free, so one does the
// blocks of several neighbouring logical threads: what it stores then lies side by side.
#pragma once
#include "math.cuh"

enum { RANDOM_THREADS = 256 };

// The seed and the offset, or where they are (captured in a graph) and what to add.
struct Philox {
  uint64 seed, offset, graph_offset, captured;
};
// What a distribution needs; which field means what is up to it.
struct Numbers {
  double a, b;
  uint64 range, reciprocal;
  int64 base;
};

struct Words { uint32 x, y, z, w; };

__device__ inline Words philox_words(uint64 seed, uint64 subsequence, uint64 block) {
  uint32 key0 = (uint32)seed, key1 = (uint32)(seed >> 32);
  Words c = {(uint32)block, (uint32)(block >> 32), (uint32)subsequence, (uint32)(subsequence >> 32)};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64 p = (uint64)0xD2511F53u * c.x, q = (uint64)0xCD9E8D57u * c.z;
    c = {(uint32)(q >> 32) ^ c.y ^ key0, (uint32)q, (uint32)(p >> 32) ^ c.w ^ key1, (uint32)p};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

// Where in the stream of a seed a kernel starts: the number of the first block.
struct Position {
  uint64 seed, block;
  __device__ explicit Position(const Philox &philox) {
    const bool captured = philox.captured;
    seed = captured ? *(const uint64 *)philox.seed : philox.seed;
    block = (captured ? *(const uint64 *)philox.offset + philox.graph_offset : philox.offset) / 4;
  }
  // An offset has 64 bits and a block four words, so this sum cannot carry into the subsequence.
  __device__ Words words(uint64 subsequence, uint64 further) const {
    return philox_words(seed, subsequence, block + further);
  }
};

// -- from words to numbers -------------------------------------------------------------------------

template <class T, int N> struct Values { T at[N]; };

// In (0, 1].
__device__ inline float unit_float(uint32 x) {
  return __fmaf_rn(__uint2float_rn(x), 0x1p-32f, 0x1p-33f);
}
__device__ inline double unit_double(uint32 a, uint32 b) {
  return __fma_rn(__ull2double_rn((uint64)a ^ ((uint64)b << 21)), 0x1p-53, 0x1p-54);
}

// The arithmetic type decides: four floats or two doubles from a block.
template <class A> struct Units;
template <> struct Units<float> {
  enum { COUNT = 4 };
  __device__ static Values<float, 4> from(Words w) {
    return {unit_float(w.x), unit_float(w.y), unit_float(w.z), unit_float(w.w)};
  }
};
template <> struct Units<double> {
  enum { COUNT = 2 };
  __device__ static Values<double, 2> from(Words w) {
    return {unit_double(w.x, w.y), unit_double(w.z, w.w)};
  }
};

// Standard normal numbers by Box and Muller: sine first.
__device__ inline void normal_pair(uint32 x, uint32 y, float &sine, float &cosine) {
  const float turn = 0x1p-32f * 6.2831855f;
  const float u = unit_float(x);
  const float v = __fmaf_rn(__uint2float_rn(y), turn, turn / 2);
  const float s = sqrtf(-2.0f * logf(u));
  __sincosf(v, &sine, &cosine);
  sine *= s;
  cosine *= s;
}
__device__ inline Values<double, 2> normal_pair(Words w) {
  const uint64 x = (uint64)w.x ^ ((uint64)w.y << 21), y = (uint64)w.z ^ ((uint64)w.w << 21);
  const double u = __fma_rn(__ull2double_rn(x), 0x1p-53, 0x1p-54);
  const double v = __fma_rn(__ull2double_rn(y), 0x1p-52, 0x1p-53);
  const double s = sqrt(-2.0 * log(u));
  double sine, cosine;
  sincospi(v, &sine, &cosine);
  return {s * sine, s * cosine};
}
template <class A> __device__ inline Values<A, Units<A>::COUNT> normal_values(Words w) {
  if constexpr (same<A, float>::value) {
    Values<float, 4> v;
    normal_pair(w.x, w.y, v.at[0], v.at[1]);
    normal_pair(w.z, w.w, v.at[2], v.at[3]);
    return v;
  } else {
    return normal_pair(w);
  }
}

// -- distributions -----------------------------------------------------------------------------------
// D<Out, A>: COUNT elements from a block of words; Out is stored, A (float or double) computed in.

template <class Derived, class Out, class A> struct OfUnits {
  enum { COUNT = Units<A>::COUNT };
  __device__ Values<Out, COUNT> operator()(Words w) const {
    const Values<A, COUNT> u = Units<A>::from(w);
    Values<Out, COUNT> v;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) v.at[k] = ((const Derived *)this)->value(u.at[k]);
    return v;
  }
};

__device__ inline float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ inline double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
__device__ inline float fast_log(float x) { return __logf(x); }
__device__ inline double fast_log(double x) { return log(x); }

// [low, high): what rounds up to the upper bound becomes the lower one.
template <class Out, class A> struct Uniform : OfUnits<Uniform<Out, A>, Out, A> {
  A low, high, range;
  __device__ explicit Uniform(const Numbers &n) {
    low = convert<A>(convert<Out>(n.a));
    high = convert<A>(convert<Out>(n.b));
    range = convert<A>(convert<Out>(high - low));
  }
  __device__ Out value(A u) const {
    const Out v = convert<Out>(fused(u, range, low));
    return convert<A>(v) == high ? convert<Out>(low) : v;
  }
};

template <class Out, class A> struct Normal {
  enum { COUNT = Units<A>::COUNT };
  A mean, deviation;
  __device__ explicit Normal(const Numbers &n) : mean((A)n.a), deviation((A)n.b) {}
  __device__ Values<Out, COUNT> operator()(Words w) const {
    const Values<A, COUNT> z = normal_values<A>(w);
    Values<Out, COUNT> v;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) v.at[k] = convert<Out>(fused(z.at[k], deviation, mean));
    return v;
  }
};

__device__ inline float fast_exp(float x) { return __expf(x); }
__device__ inline double fast_exp(double x) { return exp(x); }

template <class Out, class A> struct LogNormal {
  enum { COUNT = Units<A>::COUNT };
  A mean, deviation;
  __device__ explicit LogNormal(const Numbers &n) : mean((A)n.a), deviation((A)n.b) {}
  __device__ Values<Out, COUNT> operator()(Words w) const {
    const Values<A, COUNT> z = normal_values<A>(w);
    Values<Out, COUNT> v;
#pragma unroll
    for (int k = 0; k < COUNT; ++k) v.at[k] = convert<Out>(fast_exp(fused(z.at[k], deviation, mean)));
    return v;
  }
};

// A logarithm of 0 would be an element of 0, which this distribution does not have.
template <class Out, class A> struct Exponential : OfUnits<Exponential<Out, A>, Out, A> {
  A factor;
  __device__ explicit Exponential(const Numbers &n) : factor(A(-1) / (A)n.a) {}
  __device__ Out value(A u) const {
    const A half_step = same<A, float>::value ? A(0x1p-24) : A(0x1p-53);
    const A logarithm = u >= A(1) - half_step ? -half_step : fast_log(u);
    return convert<Out>(factor * logarithm);
  }
};

template <class Out, class A> struct Cauchy : OfUnits<Cauchy<Out, A>, Out, A> {
  A median, scale;
  __device__ explicit Cauchy(const Numbers &n) : median((A)n.a), scale((A)n.b) {}
  __device__ Out value(A u) const {
    if constexpr (same<A, float>::value) {
      u = u < 0x1p-23f ? 0x1p-23f : u > 1.0f - 0x1p-23f ? 1.0f - 0x1p-23f : u;
      return convert<Out>(fused(scale, __tanf(3.14159274f * (u - 0.5f)), median));
    } else {
      return convert<Out>(fused(scale, tan(3.141592653589793 * (u - 0.5)), median));
    }
  }
};

template <class Out, class A> struct Geometric : OfUnits<Geometric<Out, A>, Out, A> {
  A scale;
  __device__ explicit Geometric(const Numbers &n) {
    const A p = (A)n.a;
    if constexpr (same<A, float>::value) scale = __logf(1.0f + (-p));
    else scale = log1p(-p);
  }
  __device__ Out value(A u) const { return convert<Out>(ceil(fast_log(u) / scale)); }
};

template <class Out, class A> struct Bernoulli : OfUnits<Bernoulli<Out, A>, Out, A> {
  A p;
  __device__ explicit Bernoulli(const Numbers &n) : p((A)n.a) {}
  __device__ Out value(A u) const { return convert<Out>(u < p); }
};

// base + word mod range. With the reciprocal floor(2^bits / range) the quotient is at most one short.
template <class Out, class> struct Random32 {
  enum { COUNT = 4 };
  uint32 range, reciprocal;
  int64 base;
  __device__ explicit Random32(const Numbers &n)
      : range((uint32)n.range), reciprocal((uint32)n.reciprocal), base(n.base) {}
  __device__ Out value(uint32 word) const {
    uint32 rest = word - __umulhi(word, reciprocal) * range;
    if (rest >= range) rest -= range;
    return convert<Out>((int64)rest + base);
  }
  __device__ Values<Out, 4> operator()(Words w) const {
    return {value(w.x), value(w.y), value(w.z), value(w.w)};
  }
};
template <class Out, class> struct Random64 {
  enum { COUNT = 2 };
  uint64 range, reciprocal;
  int64 base;
  __device__ explicit Random64(const Numbers &n)
      : range(n.range), reciprocal(n.reciprocal), base(n.base) {}
  __device__ Out value(uint32 high, uint32 low) const {
    uint64 word = (uint64)high << 32 | low;
    if (range) {
      word -= __umul64hi(word, reciprocal) * range;
      if (word >= range) word -= range;
    }
    return convert<Out>((int64)(word + (uint64)base));
  }
  __device__ Values<Out, 2> operator()(Words w) const { return {value(w.x, w.y), value(w.z, w.w)}; }
};

// -- fills -------------------------------------------------------------------------------------------
// Grid: x over logical threads, y over rounds. n and the reach of a layout stay below 2^31.

template <class T, int N> struct alignas(sizeof(T) * N) Pack { T at[N]; };

// Neighbouring logical threads that one hardware thread stands for: a store of 16 bytes, if these
// are not too many blocks to hold.
template <class Out> constexpr int fill_width = sizeof(Out) == 1 ? 8 : 16 / sizeof(Out);

template <class D, class Out>
__device__ inline void fill_dense(
    Out *out, const Philox &philox, const Numbers &numbers, uint32 n, uint32 threads) {
  enum { U = D::COUNT, W = fill_width<Out> };
  const uint32 first = (blockIdx.x * RANDOM_THREADS + threadIdx.x) * W;
  if (first >= threads) return;
  FLAMBEAU_GRID_WAIT();
  const D distribution(numbers);
  const Position position(philox);
  const bool aligned = ((size_t)out & (sizeof(Out) * W - 1)) == 0;
#pragma unroll 1
  for (uint32 round = blockIdx.y; round * U * threads + first < n; round += gridDim.y) {
    Values<Out, U> drawn[W];
#pragma unroll
    for (int w = 0; w < W; ++w) drawn[w] = distribution(position.words(first + w, round));
    const uint32 start = round * U * threads + first;
    Out *to = out + start;
    const bool whole = aligned && (round + 1) * U * threads <= n;
#pragma unroll
    for (int lane = 0; lane < U; ++lane) {
      if (whole) {
        Pack<Out, W> pack;
#pragma unroll
        for (int w = 0; w < W; ++w) pack.at[w] = drawn[w].at[lane];
        *(Pack<Out, W> *)(to + lane * threads) = pack;
      } else {
#pragma unroll
        for (int w = 0; w < W; ++w)
          if (start + lane * threads + w < n) to[lane * threads + w] = drawn[w].at[lane];
      }
    }
  }
}

template <class D, class Out>
__device__ inline void fill_strided(
    Out *out, const Philox &philox, const Numbers &numbers, uint32 n, uint32 threads,
    const Layout &layout) {
  enum { U = D::COUNT };
  const uint32 thread = blockIdx.x * RANDOM_THREADS + threadIdx.x;
  if (thread >= threads) return;
  FLAMBEAU_GRID_WAIT();
  const D distribution(numbers);
  const Position position(philox);
#pragma unroll 1
  for (uint32 round = blockIdx.y; round * U * threads + thread < n; round += gridDim.y) {
    const Values<Out, U> drawn = distribution(position.words(thread, round));
#pragma unroll
    for (int lane = 0; lane < U; ++lane) {
      const uint32 i = (round * U + lane) * threads + thread;
      if (i >= n) return;
      uint32 at[1];
      offsets_at(i, layout, at);
      out[at[0]] = drawn.at[lane];
    }
  }
}
