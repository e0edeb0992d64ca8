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
// Eight-bit floats are for storage: they are converted, and arithmetic on them is refused before.
struct float8_e4m3fn { uint8 bits; };
struct float8_e5m2 { uint8 bits; };
struct float8_e4m3fnuz { uint8 bits; };
struct float8_e5m2fnuz { uint8 bits; };

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
template <> struct arithmetic<float8_e4m3fn> { typedef float type; };
template <> struct arithmetic<float8_e5m2> { typedef float type; };
template <> struct arithmetic<float8_e4m3fnuz> { typedef float type; };
template <> struct arithmetic<float8_e5m2fnuz> { typedef float type; };

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

// Out-of-range floats wrap in the narrow unsigned types as in uint8.
template <> struct converter<uint16, float> {
  __device__ static uint16 apply(float x) { return (uint16)(int64)x; }
};
template <> struct converter<uint16, double> {
  __device__ static uint16 apply(double x) { return (uint16)(int64)x; }
};
template <> struct converter<uint32, float> {
  __device__ static uint32 apply(float x) { return (uint32)(int64)x; }
};
template <> struct converter<uint32, double> {
  __device__ static uint32 apply(double x) { return (uint32)(int64)x; }
};

// How an eight-bit float is laid out; those without infinities have one NaN (fnuz: for -0).
template <class T> struct float8_format { enum { is = false }; };
template <> struct float8_format<float8_e4m3fn> { enum { is = true, mantissa = 3, bias = 7, ieee = false, fnuz = false }; };
template <> struct float8_format<float8_e5m2> { enum { is = true, mantissa = 2, bias = 15, ieee = true, fnuz = false }; };
template <> struct float8_format<float8_e4m3fnuz> { enum { is = true, mantissa = 3, bias = 8, ieee = false, fnuz = true }; };
template <> struct float8_format<float8_e5m2fnuz> { enum { is = true, mantissa = 2, bias = 16, ieee = false, fnuz = true }; };

template <class F8> __device__ inline float from_float8(F8 x) {
  typedef float8_format<F8> F;
  const uint32 magnitude = x.bits & 0x7f, sign = (uint32)(x.bits >> 7) << 31;
  const uint32 top = 0x7f >> F::mantissa;
  if (F::fnuz && x.bits == 0x80) return __uint_as_float(0x7fc00000);
  if (F::ieee && magnitude >> F::mantissa == top)
    return __uint_as_float(magnitude == top << F::mantissa ? sign | 0x7f800000 : 0x7fc00000);
  if (!F::ieee && !F::fnuz && magnitude == 0x7f) return __uint_as_float(0x7fc00000);
  // Moved into a float's fields the exponent lacks the difference of the biases; a product restores
  // it, and makes subnormals normal.
  const float scale = __uint_as_float((uint32)(127 + 127 - F::bias) << 23);
  return __uint_as_float(sign | __float_as_uint(__uint_as_float(magnitude << (23 - F::mantissa)) * scale));
}
template <class F8> __device__ inline F8 to_float8(float value) {
  typedef float8_format<F8> F;
  enum { dropped = 23 - F::mantissa, top = 0x7f >> F::mantissa };
  const uint32 all = __float_as_uint(value), sign = all >> 31 << 7;
  const uint32 infinity = top << F::mantissa;
  const uint32 largest = F::ieee ? infinity - 1 : F::fnuz ? 0x7f : 0x7e;
  const uint32 nan = F::ieee ? 0x7f : F::fnuz ? 0x80 : 0x7f | sign;
  F8 y;
  uint32 x = all & 0x7fffffff, code;
  if (x > 0x7f800000) { y.bits = (uint8)(F::ieee ? nan | sign : nan); return y; }
  if (x < (uint32)(1 - F::bias + 127) << 23) {
    // A sum with this constant rounds at the last place of the subnormals.
    const uint32 aligner = (uint32)(1 - F::bias + dropped + 127) << 23;
    code = __float_as_uint(__fadd_rn(__uint_as_float(x), __uint_as_float(aligner))) - aligner;
  } else {
    const uint32 moved = x - ((uint32)(127 - F::bias) << 23);
    code = (moved + ((1u << (dropped - 1)) - 1) + (moved >> dropped & 1)) >> dropped;
  }
  if (code > largest) code = F::ieee ? sign | infinity : nan;
  else if (!(F::fnuz && code == 0)) code |= sign;
  y.bits = (uint8)code;
  return y;
}

// What a complex type specialises; see complex.cuh.
template <class T> struct complex_of { enum { is = false }; };
template <class T> constexpr bool is_complex = complex_of<T>::is;

template <class To, class From> __device__ inline To convert(From x) {
  if constexpr (same<To, From>::value) return x;
  else if constexpr (complex_of<From>::is) {
    if constexpr (complex_of<To>::is)
      return To{(typename complex_of<To>::part)x.re, (typename complex_of<To>::part)x.im};
    else if constexpr (same<To, bool>::value) return x.re != 0 || x.im != 0;
    else return convert<To>(x.re);
  } else if constexpr (complex_of<To>::is) {
    return To{convert<typename complex_of<To>::part>(x), 0};
  } else if constexpr (float8_format<From>::is) {
    return convert<To>(from_float8(x));
  } else if constexpr (float8_format<To>::is) {
    return to_float8<To>(convert<float>(x));
  } else return converter<To, From>::apply(x);
}

// A block's shared array of a type that may have constructors.
#define FLAMBEAU_SHARED(Type, name, count)                                         \
  __shared__ alignas(16) unsigned char name##_bytes[sizeof(Type) * (count)];       \
  Type *const name = (Type *)name##_bytes

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
  const int last = layout.ndim - 1;  // what is left there needs no division
#pragma unroll 1
  for (int d = 0; d < last; ++d) {
    const Index size = (Index)layout.sizes[d];
    const Index rest = i / size;
    const Index at = i - rest * size;
    i = rest;
#pragma unroll
    for (int k = 0; k < N; ++k) offsets[k] += at * (Index)layout.strides[k][d];
  }
  if (last >= 0)
#pragma unroll
    for (int k = 0; k < N; ++k) offsets[k] += i * (Index)layout.strides[k][last];
}

template <class T> __device__ inline T lowest();
template <> __device__ inline bool lowest<bool>() { return false; }
template <> __device__ inline uint8 lowest<uint8>() { return 0; }
template <> __device__ inline uint16 lowest<uint16>() { return 0; }
template <> __device__ inline uint32 lowest<uint32>() { return 0; }
template <> __device__ inline uint64 lowest<uint64>() { return 0; }
template <> __device__ inline int8 lowest<int8>() { return -128; }
template <> __device__ inline int16 lowest<int16>() { return -32768; }
template <> __device__ inline int32 lowest<int32>() { return -2147483647 - 1; }
template <> __device__ inline int64 lowest<int64>() { return -9223372036854775807LL - 1; }
template <> __device__ inline float lowest<float>() { return __int_as_float(0xff800000); }
template <> __device__ inline double lowest<double>() { return __longlong_as_double(0xfff0000000000000LL); }
template <class T> __device__ inline T highest();
template <> __device__ inline bool highest<bool>() { return true; }
template <> __device__ inline uint8 highest<uint8>() { return 255; }
template <> __device__ inline uint16 highest<uint16>() { return 65535; }
template <> __device__ inline uint32 highest<uint32>() { return 4294967295u; }
template <> __device__ inline uint64 highest<uint64>() { return 18446744073709551615ull; }
template <> __device__ inline int8 highest<int8>() { return 127; }
template <> __device__ inline int16 highest<int16>() { return 32767; }
template <> __device__ inline int32 highest<int32>() { return 2147483647; }
template <> __device__ inline int64 highest<int64>() { return 9223372036854775807LL; }
template <> __device__ inline float highest<float>() { return __int_as_float(0x7f800000); }
template <> __device__ inline double highest<double>() { return __longlong_as_double(0x7ff0000000000000LL); }

template <class T> __device__ inline bool is_nan(T x) {
  if constexpr (is_float<T>) return x != x;
  else if constexpr (is_complex<T>) return x.re != x.re || x.im != x.im;
  else return false;
}
