// SPDX-License-Identifier: Apache-2.0
// Element types, the types arithmetic is done in, conversions, and what every kernel starts with.
// No CUDA header is included: parsing cuda_fp16.h takes longer than compiling most of our kernels.
#pragma once

typedef signed char int8;
typedef unsigned char uint8;
typedef short int16;
typedef unsigned short uint16;
typedef int int32;
typedef unsigned int uint32;
typedef long long int64;
typedef unsigned long long uint64;

struct float16 { uint16 bits; };
struct bfloat16 { uint16 bits; };

// Under programmatic dependent launch a kernel may start before its predecessor has ended.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define FLAMBEAU_GRID_WAIT() asm volatile("griddepcontrol.wait;" ::: "memory")
#else
#define FLAMBEAU_GRID_WAIT()
#endif

#define FLAMBEAU_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)

template <class A, class B> struct same { enum { value = false }; };
template <class A> struct same<A, A> { enum { value = true }; };

template <class T> constexpr bool is_float =
    same<T, float>::value || same<T, double>::value || same<T, float16>::value || same<T, bfloat16>::value;

// The type arithmetic is done in.
template <class T> struct arithmetic { typedef T type; };
template <> struct arithmetic<float16> { typedef float type; };
template <> struct arithmetic<bfloat16> { typedef float type; };

__device__ inline float to_float(float16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
__device__ inline float to_float(bfloat16 x) { return __uint_as_float((uint32)x.bits << 16); }
__device__ inline float16 to_float16(float x) {
  float16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
__device__ inline bfloat16 to_bfloat16(float x) {
  const uint32 bits = __float_as_uint(x);
  bfloat16 y;
  // Round to nearest even; a NaN must not round up to infinity.
  y.bits = x != x ? 0x7fc0 : (uint16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  return y;
}

template <class To, class From> struct converter {
  __device__ static To apply(From x) { return (To)x; }
};
template <class T> struct converter<T, T> {
  __device__ static T apply(T x) { return x; }
};
template <class From> struct converter<bool, From> {
  __device__ static bool apply(From x) { return x != From(0); }
};
template <> struct converter<bool, bool> {
  __device__ static bool apply(bool x) { return x; }
};
// A negative float becomes a uint8 by way of a wide integer, so that it wraps instead of saturating.
template <> struct converter<uint8, float> {
  __device__ static uint8 apply(float x) { return (uint8)(int64)x; }
};
template <> struct converter<uint8, double> {
  __device__ static uint8 apply(double x) { return (uint8)(int64)x; }
};
#define FLAMBEAU_HALF_CONVERTERS(H, to_half)                                              \
  template <class To> struct converter<To, H> {                                           \
    __device__ static To apply(H x) { return converter<To, float>::apply(to_float(x)); }  \
  };                                                                                      \
  template <class From> struct converter<H, From> {                                       \
    __device__ static H apply(From x) { return to_half((float)x); }                       \
  };                                                                                      \
  template <> struct converter<H, H> {                                                    \
    __device__ static H apply(H x) { return x; }                                          \
  };                                                                                      \
  template <> struct converter<bool, H> {                                                 \
    __device__ static bool apply(H x) { return to_float(x) != 0.0f; }                     \
  };
FLAMBEAU_HALF_CONVERTERS(float16, to_float16)
FLAMBEAU_HALF_CONVERTERS(bfloat16, to_bfloat16)
template <> struct converter<float16, bfloat16> {
  __device__ static float16 apply(bfloat16 x) { return to_float16(to_float(x)); }
};
template <> struct converter<bfloat16, float16> {
  __device__ static bfloat16 apply(float16 x) { return to_bfloat16(to_float(x)); }
};

template <class To, class From> __device__ inline To convert(From x) {
  return converter<To, From>::apply(x);
}

// V neighbours that are loaded and stored with one wide access.
template <class T, int V> struct alignas(sizeof(T) * V) Vector { T at[V]; };

// Sizes and strides of up to five operands, innermost dimension first, strides in elements.
enum { MAX_DIMS = 12, MAX_OPERANDS = 5 };
struct Layout {
  int32 ndim;
  int32 pad;
  int64 sizes[MAX_DIMS];
  int64 strides[MAX_OPERANDS][MAX_DIMS];
};

// Element offsets of the first N operands at linear index i.
template <int N, class Index>
__device__ inline void offsets_at(Index i, const Layout &layout, Index (&offsets)[N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) offsets[k] = 0;
#pragma unroll 1
  for (int d = 0; d < layout.ndim; ++d) {
    const Index size = (Index)layout.sizes[d];
    const Index rest = i / size;
    const Index at = i - rest * size;
    i = rest;
#pragma unroll
    for (int k = 0; k < N; ++k) offsets[k] += at * (Index)layout.strides[k][d];
  }
}

template <class T> __device__ inline T lowest();
template <> __device__ inline bool lowest<bool>() { return false; }
template <> __device__ inline uint8 lowest<uint8>() { return 0; }
template <> __device__ inline int8 lowest<int8>() { return -128; }
template <> __device__ inline int16 lowest<int16>() { return -32768; }
template <> __device__ inline int32 lowest<int32>() { return -2147483647 - 1; }
template <> __device__ inline int64 lowest<int64>() { return -9223372036854775807LL - 1; }
template <> __device__ inline float lowest<float>() { return __int_as_float(0xff800000); }
template <> __device__ inline double lowest<double>() { return __longlong_as_double(0xfff0000000000000LL); }
template <class T> __device__ inline T highest();
template <> __device__ inline bool highest<bool>() { return true; }
template <> __device__ inline uint8 highest<uint8>() { return 255; }
template <> __device__ inline int8 highest<int8>() { return 127; }
template <> __device__ inline int16 highest<int16>() { return 32767; }
template <> __device__ inline int32 highest<int32>() { return 2147483647; }
template <> __device__ inline int64 highest<int64>() { return 9223372036854775807LL; }
template <> __device__ inline float highest<float>() { return __int_as_float(0x7f800000); }
template <> __device__ inline double highest<double>() { return __longlong_as_double(0x7ff0000000000000LL); }

template <class T> __device__ inline bool is_nan(T x) {
  if constexpr (is_float<T>) return x != x;
  else return false;
}
