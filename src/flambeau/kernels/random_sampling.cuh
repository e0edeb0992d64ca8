// SPDX-License-Identifier: Apache-2.0
// Draws whose stream is dealt out otherwise than random.cuh's fills: elements with their own
// probability or rate, choices by weight, ties of random keys, and dropout.
#pragma once
#include "random.cuh"

// What is wrong with the numbers is reported the way device code can: by an assertion.
extern "C" __device__ void __assertfail(
    const char *condition, const char *file, unsigned line, const char *function, size_t char_size);
#define RANDOM_REQUIRE(condition, text) \
  if (!(condition)) __assertfail(text, __FILE__, __LINE__, "random", 1)

__device__ inline int64 random_thread() {
  return blockIdx.x * (int64)blockDim.x + threadIdx.x;
}

// The words of one subsequence, one after another.
struct WordStream {
  const Position &position;
  uint64 subsequence, taken;
  Words words;
  int lane;
  __device__ WordStream(const Position &position, uint64 subsequence)
      : position(position), subsequence(subsequence), taken(0), words(), lane(4) {}
  __device__ uint32 next() {
    if (lane == 4) {
      words = position.words(subsequence, taken++);
      lane = 0;
    }
    const int now = lane++;
    return now == 0 ? words.x : now == 1 ? words.y : now == 2 ? words.z : words.w;
  }
};

// Four neighbours share a block. P is float or double; the draw is a float in any case.
template <class Out, class P>
__device__ inline void bernoulli_each(Out *out, const P *p, const Philox &philox, int64 n) {
  const int64 first = random_thread() * 4;
  if (first >= n) return;
  const Values<float, 4> u = Units<float>::from(Position(philox).words(first / 4, 0));
#pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    const int64 i = first + lane;
    if (i >= n) return;
    RANDOM_REQUIRE(P(0) <= p[i] && p[i] <= P(1), "bernoulli: 0 <= p && p <= 1");
    out[i] = convert<Out>((P)u.at[lane] <= p[i]);
  }
}

// Small rates: a product of uniform numbers, started at exp(rate), that falls to 1. Others:
// Hörmann's transformed rejection (PTRS).
__device__ inline float poisson_one(float rate, WordStream &stream) {
  if (rate < 64.0f) {
    float product = expf(rate), draws = 0;
    do {
      product *= unit_float(stream.next());
      ++draws;
    } while (product > 1.0f);
    return draws - 1;
  }
  const double mean = rate, b = 0.931 + 2.53 * sqrt(mean), a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), accepted = 0.9277 - 3.6224 / (b - 2);
  for (;;) {
    const double u = unit_float(stream.next()) - 0.5, v = unit_float(stream.next());
    const double us = fmax(0.5 - fabs(u), 1e-9);
    const double k = floor((2 * a / us + b) * u + mean + 0.43);
    if (us >= 0.07 && v <= accepted) return (float)k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (log(v * inverse_alpha / (a / (us * us) + b)) <= -mean + k * log(mean) - lgamma(k + 1))
      return (float)k;
  }
}
template <class T>
__device__ inline void poisson_each(T *out, const T *rates, const Philox &philox, int64 n) {
  const int64 i = random_thread();
  if (i >= n) return;
  const float rate = convert<float>(rates[i]);
  RANDOM_REQUIRE(rate >= 0, "poisson: rate >= 0");
  const Position position(philox);
  WordStream stream(position, i);
  out[i] = convert<T>(poisson_one(rate, stream));
}

// A gamma number of scale 1 by squeezing a normal one (Marsaglia and Tsang, 2000).
__device__ inline double gamma_one(double shape, WordStream &stream) {
  double scale = 1;
  if (shape < 1) {
    scale = pow((double)unit_float(stream.next()), 1 / shape);
    shape += 1;
  }
  const double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
  for (;;) {
    float x, unused;
    const uint32 first = stream.next(), second = stream.next();
    normal_pair(first, second, x, unused);
    const double y = 1 + c * x;
    if (y <= 0) continue;
    const double v = y * y * y, u = unit_float(stream.next()), square = (double)x * x;
    if (u < 1 - 0.0331 * square * square || log(u) < 0.5 * square + d * (1 - v + log(v)))
      return scale * d * v;
  }
}
template <class T>
__device__ inline void gamma_each(T *out, const T *shapes, const Philox &philox, int64 n) {
  const int64 i = random_thread();
  if (i >= n) return;
  const Position position(philox);
  WordStream stream(position, i);
  const double drawn = gamma_one(convert<double>(shapes[i]), stream);
  const double least = sizeof(T) == 8 ? 2.2250738585072014e-308 : 1.1754943508222875e-38;
  out[i] = convert<T>(drawn > least ? drawn : least);
}

// Successes of n trials with p up to 1/2: distances between them where they are few, else by transformed rejection
// (Hoermann's BTRS, 1993).
__device__ inline double few_successes(double n, double p, WordStream &stream) {
  if (n * p < 10) {
    const double scale = log1p(-p);
    double trials = 0, successes = -1;
    do {
      trials += ceil(log((double)unit_float(stream.next())) / scale);
      ++successes;
    } while (trials <= n);
    return successes;
  }
  const double spread = sqrt(n * p * (1 - p)), b = 1.15 + 2.53 * spread;
  const double a = -0.0873 + 0.0248 * b + 0.01 * p, middle = floor((n + 1) * p);
  const double accepted = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * spread;
  const double odds = log(p / (1 - p)), height = lgamma(middle + 1) + lgamma(n - middle + 1);
  for (;;) {
    const double u = unit_float(stream.next()) - 0.5, v = unit_float(stream.next());
    const double us = fmax(0.5 - fabs(u), 1e-9), k = floor((2 * a / us + b) * u + n * p + 0.5);
    if (us >= 0.07 && v <= accepted) return k;
    if (k < 0 || k > n) continue;
    const double bound = height - lgamma(k + 1) - lgamma(n - k + 1) + (k - middle) * odds;
    if (log(v * alpha / (a / (us * us) + b)) <= bound) return k;
  }
}
__device__ inline double binomial_one(double n, double p, WordStream &stream) {
  if (!(n > 0) || p <= 0) return 0;
  if (p >= 1) return n;
  const double successes = few_successes(n, p > 0.5 ? 1 - p : p, stream);
  return p > 0.5 ? n - successes : successes;
}
template <class T>
__device__ inline void binomial_each(
    T *out, const T *counts, const T *probabilities, const Philox &philox, int64 n) {
  const int64 i = random_thread();
  if (i >= n) return;
  const double p = convert<double>(probabilities[i]);
  RANDOM_REQUIRE(p >= 0 && p <= 1, "binomial: probabilities are in [0, 1]");
  const Position position(philox);
  WordStream stream(position, i);
  out[i] = convert<T>(binomial_one(floor(convert<double>(counts[i])), p, stream));
}

// For each row of cumulative weights, `samples` positions: the first whose sum reaches the draw.
enum { CHOICE_THREADS = 128 };
template <class T>
__device__ inline void choose_each(
    int64 *out, const T *sums, const T *weights, const Philox &philox, int64 rows, int64 categories,
    int64 samples) {
  const int64 sample = blockIdx.x * (int64)CHOICE_THREADS + threadIdx.x;
  if (sample >= samples) return;
  const Position position(philox);
  const uint64 subsequence = blockIdx.y * (uint64)gridDim.x * CHOICE_THREADS + sample;
  uint64 pass = 0;
  for (int64 row = blockIdx.y; row < rows; row += gridDim.y, ++pass) {
    const float u = unit_float(position.words(subsequence, pass).x);
    const T *up_to = sums + row * categories, *own = weights + row * categories;
    int64 low = 0, high = categories;
    while (low < high) {
      const int64 middle = (low + high) / 2;
      if (convert<typename arithmetic<T>::type>(up_to[middle]) < u) low = middle + 1;
      else high = middle;
    }
    if (low == categories) --low;
    while (low > 0 && !convert<bool>(own[low])) --low;
    out[row * samples + sample] = low;
  }
}

// A run of values whose keys are equal, from `first` on, is shuffled.
__device__ inline void shuffle_run(int64 *values, int64 first, int64 size, const Philox &philox) {
  const Position position(philox);
  WordStream stream(position, first);
  for (int64 i = size - 1; i > 0; --i) {
    const int64 other = stream.next() % (uint32)(i + 1);
    const int64 kept = values[first + i];
    values[first + i] = values[first + other];
    values[first + other] = kept;
  }
}

// How many keys from `first` on are equal, if a run of several begins there; otherwise 0.
template <class Key> __device__ inline int64 run_at(const Key *keys, int64 first, int64 n) {
  if (first >= n - 1 || keys[first] != keys[first + 1]) return 0;
  if (first > 0 && keys[first - 1] == keys[first]) return 0;
  int64 size = 2;
  while (first + size < n && keys[first + size] == keys[first]) ++size;
  return size;
}

// Elements whose keys turned out equal stand in order after a stable sort; shuffle each such run.
template <class Key>
__device__ inline void shuffle_ties(int64 *values, const Key *keys, const Philox &philox, int64 n) {
  const int64 first = random_thread(), size = run_at(keys, first, n);
  if (size) shuffle_run(values, first, size, philox);
}

// The high ones of the bits that keys have, as integers that a sort of their low `kept` bits orders.
__device__ inline void high_bits(int32 *high, const int64 *keys, int64 n, int bits, int kept) {
  const int64 i = random_thread();
  if (i >= n) return;
  const uint32 own = (uint32)(((uint64)keys[i] & ((1ull << bits) - 1)) >> (bits - kept));
  high[i] = (int32)(kept == 32 ? own ^ 0x80000000u : own);
}

// The values are positions of keys, in order of the keys' high bits. Few of those are equal: such a
// run is put in order of the whole keys, and what is equal even then is shuffled.
__device__ inline void settle_runs(
    int64 *values, const int32 *high, const int64 *keys, const Philox &philox, int64 n, int bits) {
  const int64 first = random_thread(), size = run_at(high, first, n);
  if (!size) return;
  const uint64 mask = (1ull << bits) - 1;
  int64 *const run = values + first;
  for (int64 i = 1; i < size; ++i) {
    const int64 value = run[i];
    const uint64 key = keys[value] & mask;
    int64 to = i;
    for (; to > 0 && (keys[run[to - 1]] & mask) > key; --to) run[to] = run[to - 1];
    run[to] = value;
  }
  for (int64 begin = 0, end; begin < size; begin = end) {
    const uint64 key = keys[run[begin]] & mask;
    for (end = begin + 1; end < size && (keys[run[end]] & mask) == key;) ++end;
    if (end - begin > 1) shuffle_run(values, first + begin, end - begin, philox);
  }
}

template <class T>
__device__ inline bool in_range(const T *values, int64 n, double least, double greatest) {
  const int64 i = random_thread();
  if (i >= n) return true;
  const double value = convert<double>(values[i]);
  return least <= value && value <= greatest;
}

// -- dropout ---------------------------------------------------------------------------------------

template <class T> struct Dropout {
  typedef typename arithmetic<T>::type A;
  A keep, scale;
  bool *mask;
  __device__ T operator()(T x, uint32 word, int64 i) const {
    const bool kept = (A)unit_float(word) < keep;
    if (mask) mask[i] = kept;
    return convert<T>(convert<A>(x) * (A)kept * scale);
  }
};

// V neighbours per thread and round, from V / 4 blocks, or from half of one. n is a multiple of V.
template <class T, int V>
__device__ inline void dropout_packs(
    T *out, const T *in, bool *mask, const Philox &philox, double keep, double scale, int64 n,
    int64 threads) {
  enum { BLOCKS = V < 4 ? 1 : V / 4, LANES = V < 4 ? V : 4 };
  const int64 thread = random_thread();
  const Dropout<T> dropout = {(typename Dropout<T>::A)keep, (typename Dropout<T>::A)scale, mask};
  const Position position(philox);
#pragma unroll 1
  for (int64 round = blockIdx.y; (round * threads + thread) * V < n; round += gridDim.y) {
    const int64 first = (round * threads + thread) * V;
    const Pack<T, V> given = *(const Pack<T, V> *)(in + first);
    Pack<T, V> pack;
#pragma unroll
    for (int block = 0; block < BLOCKS; ++block) {
      const Words words = position.words(thread, round * BLOCKS + block);
      const uint32 lanes[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int lane = 0; lane < LANES; ++lane) {
        const int at = block * 4 + lane;
        pack.at[at] = dropout(given.at[at], lanes[lane], first + at);
      }
    }
    *(Pack<T, V> *)(out + first) = pack;
  }
}

// One element at a time in the layout of the fills. Operand 0 is the output, 1 the input; the mask
// is contiguous in the order of the elements.
template <class T>
__device__ inline void dropout_strided(
    T *out, const T *in, bool *mask, const Philox &philox, double keep, double scale, int64 n,
    int64 threads, const Layout &layout) {
  const int64 thread = random_thread();
  const Dropout<T> dropout = {(typename Dropout<T>::A)keep, (typename Dropout<T>::A)scale, mask};
  const Position position(philox);
#pragma unroll 1
  for (int64 round = blockIdx.y; round * 4 * threads + thread < n; round += gridDim.y) {
    const Words words = position.words(thread, round);
    const uint32 lanes[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      const int64 i = (round * 4 + lane) * threads + thread;
      if (i >= n) return;
      int64 at[2];
      offsets_at(i, layout, at);
      out[at[0]] = dropout(in[at[1]], lanes[lane], i);
    }
  }
}
