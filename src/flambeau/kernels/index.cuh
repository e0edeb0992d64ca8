// SPDX-License-Identifier: Apache-2.0
// Reading and writing at computed positions, and finding the nonzero elements.
#pragma once
#include "math.cuh"

// What goes wrong is reported the way device code can: by an assertion.
extern "C" __device__ void __assertfail(
    const char *condition, const char *file, unsigned line, const char *function, size_t char_size);

__device__ inline int64 wrapped_index(int64 index, int64 size) {
  if (index < -size || index >= size)
    __assertfail("-size <= index && index < size: index out of bounds", "index.cuh", __LINE__, "wrapped_index", 1);
  return index < 0 ? index + size : index;
}

// offsets[i] (+)= index[i] * stride after the check; contiguous over the broadcast index shape.
template <class Index>
__device__ inline void add_index(
    int64 *offsets, const Index *index, int64 size, int64 stride, int accumulate, int64 n,
    const Layout &layout) {
  const int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (i >= n) return;
  int64 at[2];
  offsets_at(i, layout, at);
  const int64 offset = wrapped_index((int64)index[at[1]], size) * stride;
  offsets[i] = accumulate ? offsets[i] + offset : offset;
}

// Positions are element offsets (size 0), or an index along one dimension of some size and stride.
template <class Index> struct Positions {
  const Index *at;
  int64 size, stride;
  __device__ int64 offset(int64 i) const {
    return size ? wrapped_index((int64)at[i], size) * stride : (int64)at[i];
  }
};

// Operand 0 of the layout is the values, 1 the indexed tensor without its indexed dimensions,
// 2 the positions. Small spaces are walked with 32-bit arithmetic.
template <class Action, class Values, class Self, class Index>
__device__ inline void index_access(
    Values *values, Self *self, const Positions<Index> &positions, int64 n, const Layout &layout) {
  const int64 i = blockIdx.x * (int64)blockDim.x + threadIdx.x;
  if (i >= n) return;
  if (layout.pad) {  // whether everything is in the reach of 32 bits
    uint32 at[3];
    offsets_at((uint32)i, layout, at);
    Action::apply(values + at[0], self + at[1] + positions.offset(at[2]));
  } else {
    int64 at[3];
    offsets_at(i, layout, at);
    Action::apply(values + at[0], self + at[1] + positions.offset(at[2]));
  }
}
struct Read {
  template <class T> __device__ static void apply(T *value, const T *element) { *value = *element; }
};
struct Write {
  template <class T> __device__ static void apply(const T *value, T *element) { *element = *value; }
};

struct Plus {
  template <class A> __device__ static A join(A a, A b) { return plus(a, b); }
};
struct Times {
  template <class A> __device__ static A join(A a, A b) { return times(a, b); }
};
struct Maximum {
  template <class A> __device__ static A join(A a, A b) { return maximum_of(a, b); }
};
struct Minimum {
  template <class A> __device__ static A join(A a, A b) { return minimum_of(a, b); }
};

// Combines with a word by compare-and-swap, for every element type including those of 1 and 2 bytes;
// sums of the common types have instructions of their own. The parts of a complex sum are two sums.
template <class Op, class T> __device__ inline void atomic_combine(T *address, T value) {
  typedef typename arithmetic<T>::type A;
  constexpr bool adds = same<Op, Plus>::value;
  if constexpr (complex_of<T>::is && adds) {
    atomicAdd(&address->re, value.re);
    atomicAdd(&address->im, value.im);
  } else if constexpr (adds && (same<T, float>::value || same<T, double>::value ||
                                same<T, int32>::value || same<T, uint32>::value ||
                                same<T, uint64>::value)) {
    atomicAdd(address, value);
  } else if constexpr (adds && same<T, int64>::value) {
    atomicAdd((uint64 *)address, (uint64)value);
  } else if constexpr (sizeof(T) == 8) {
    unsigned long long *word = (unsigned long long *)address, seen = *word, before;
    do {
      before = seen;
      union Word { unsigned long long bits; T value; __device__ Word() {} } now;
      now.bits = before;
      now.value = convert<T>(Op::join(convert<A>(now.value), convert<A>(value)));
      seen = atomicCAS(word, before, now.bits);
    } while (seen != before);
  } else {
    static_assert(sizeof(T) <= 8, "wider elements can only be added");
    const size_t byte = (size_t)address & 3;
    unsigned *word = (unsigned *)((size_t)address - byte), seen = *word, before;
    const unsigned shift = 8 * (unsigned)byte;
    const unsigned mask = (sizeof(T) == 4 ? 0xffffffffu : (1u << (8 * sizeof(T) % 32)) - 1) << shift;
    do {
      before = seen;
      union { unsigned bits; T value; } now;
      now.bits = (before & mask) >> shift;
      now.value = convert<T>(Op::join(convert<A>(now.value), convert<A>(value)));
      seen = atomicCAS(word, before, (before & ~mask) | ((now.bits << shift) & mask));
    } while (seen != before);
  }
}
template <class Op> struct Combine {
  template <class T> __device__ static void apply(const T *value, T *element) {
    atomic_combine<Op>(element, *value);
  }
};

// Nonzero elements of a contiguous tensor, in order: count per chunk, scan the counts, write.
enum { SELECT_THREADS = 256 };
enum { SELECT_ITEMS = 8 };  // neighbours per thread

// The exclusive sum over the block's threads; `total` is the block's.
__device__ inline int64 exclusive_sum(int64 value, int64 &total) {
  __shared__ int64 sums[SELECT_THREADS];
  const int t = threadIdx.x;
  sums[t] = value;
  __syncthreads();
#pragma unroll 1
  for (int reach = 1; reach < SELECT_THREADS; reach *= 2) {
    const int64 left = t >= reach ? sums[t - reach] : 0;
    __syncthreads();
    sums[t] += left;
    __syncthreads();
  }
  total = sums[SELECT_THREADS - 1];
  const int64 inclusive = sums[t];
  __syncthreads();
  return inclusive - value;
}

template <class In> __device__ inline int64 thread_count(const In *in, int64 n, int64 first) {
  int64 count = 0;
  for (int64 i = first; i < first + SELECT_ITEMS && i < n; ++i) count += convert<bool>(in[i]);
  return count;
}
template <class In> __device__ inline void nonzero_count(int64 *counts, const In *in, int64 n) {
  const int64 first = (blockIdx.x * (int64)SELECT_THREADS + threadIdx.x) * SELECT_ITEMS;
  int64 total;
  exclusive_sum(thread_count(in, n, first), total);
  if (threadIdx.x == 0) counts[blockIdx.x] = total;
}
// One block turns counts into starts; counts[chunks] becomes the total.
__device__ inline void nonzero_scan(int64 *counts, int64 chunks) {
  int64 carry = 0;
  for (int64 first = 0; first < chunks; first += SELECT_THREADS) {
    const int64 i = first + threadIdx.x;
    int64 total;
    const int64 before = exclusive_sum(i < chunks ? counts[i] : 0, total);
    if (i < chunks) counts[i] = carry + before;
    carry += total;
  }
  if (threadIdx.x == 0) counts[chunks] = carry;
}
// out is (total, ndim): the position in each dimension; layout.sizes are innermost first. With
// `linear` it is (total): the linear position.
template <class In>
__device__ inline void nonzero_write(
    int64 *out, const int64 *starts, const In *in, int64 n, int linear, const Layout &layout) {
  const int64 first = (blockIdx.x * (int64)SELECT_THREADS + threadIdx.x) * SELECT_ITEMS;
  int64 total;
  int64 place = starts[blockIdx.x] + exclusive_sum(thread_count(in, n, first), total);
  for (int64 i = first; i < first + SELECT_ITEMS && i < n; ++i) {
    if (!convert<bool>(in[i])) continue;
    if (linear) {
      out[place] = i;
    } else {
      int64 rest = i;
#pragma unroll 1
      for (int d = 0; d < layout.ndim; ++d) {
        const int64 next = rest / layout.sizes[d];
        out[place * layout.ndim + layout.ndim - 1 - d] = rest - next * layout.sizes[d];
        rest = next;
      }
    }
    ++place;
  }
}
