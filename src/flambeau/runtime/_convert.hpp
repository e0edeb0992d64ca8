// SPDX-License-Identifier: Apache-2.0
// Element types as C++ types, and conversion between any two of them on the host.
#pragma once
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>

#include "flambeau/runtime/scalar_type.hpp"

namespace flambeau {

namespace detail {

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

}  // namespace detail

// A binary float of up to 16 bits. `bias` and `special` say what the top exponent and the NaNs are.
enum class Specials {
  ieee,    // infinities and NaNs in the top exponent
  finite,  // e4m3fn: no infinity, only all-ones is NaN
  fnuz,    // no infinity, no negative zero; its code is the one NaN
};

template <class Bits, int exponent_bits, int mantissa_bits, int bias, Specials specials>
struct SmallFloat {
  Bits bits;
  static constexpr int top_exponent = (1 << exponent_bits) - 1;
  static constexpr std::uint32_t magnitude_mask = (1u << (exponent_bits + mantissa_bits)) - 1;
  static constexpr int sign_shift = exponent_bits + mantissa_bits;

  SmallFloat() = default;
  explicit SmallFloat(float value)
      : bits(specials == Specials::ieee ? encode_ieee(value) : encode(value)) {}

  explicit operator float() const {
    if (specials == Specials::ieee) return decode_ieee(bits);
    const std::uint32_t magnitude = bits & magnitude_mask;
    const bool negative = bits >> sign_shift;
    const int exponent = int(magnitude >> mantissa_bits);
    const std::uint32_t mantissa = magnitude & ((1u << mantissa_bits) - 1);
    if (is_nan(magnitude, negative)) return std::numeric_limits<float>::quiet_NaN();
    float value;
    if (specials == Specials::ieee && exponent == top_exponent)
      value = std::numeric_limits<float>::infinity();
    else if (exponent == 0)
      value = std::ldexp(float(mantissa), 1 - bias - mantissa_bits);
    else
      value = std::ldexp(float(mantissa | 1u << mantissa_bits), exponent - bias - mantissa_bits);
    return negative ? -value : value;
  }

 private:
  static bool is_nan(std::uint32_t magnitude, bool negative) {
    switch (specials) {
      case Specials::ieee:
        return magnitude > std::uint32_t(top_exponent) << mantissa_bits;
      case Specials::finite:
        return magnitude == magnitude_mask;
      default:
        return negative && magnitude == 0;
    }
  }

  static constexpr Bits nan_bits() {
    if (specials == Specials::ieee)
      return Bits(std::uint32_t(top_exponent) << mantissa_bits | 1u << (mantissa_bits - 1));
    return specials == Specials::finite ? Bits(magnitude_mask) : Bits(1u << sign_shift);
  }

  // With infinities the fields are a float's, shortened: moving bits is enough, and the processor
  // rounds subnormals when a constant aligns their last place with a float's.
  static constexpr int dropped = 23 - mantissa_bits;

  static Bits encode_ieee(float value) {
    const std::uint32_t all = detail::bits_of(value), sign = all >> 31 << sign_shift;
    std::uint32_t x = all & 0x7FFFFFFFu;
    if (x >= std::uint32_t(bias + 1 + 127) << 23)
      return Bits(sign | (x > 0x7F800000u ? nan_bits() : std::uint32_t(top_exponent) << mantissa_bits));
    if (x < std::uint32_t(1 - bias + 127) << 23) {
      const std::uint32_t aligner = std::uint32_t(1 - bias + dropped + 127) << 23;
      return Bits(sign | (detail::bits_of(detail::float_of(x) + detail::float_of(aligner)) - aligner));
    }
    x -= std::uint32_t(127 - bias) << 23;
    x += (1u << (dropped - 1)) - 1 + (x >> dropped & 1);
    return Bits(sign | x >> dropped);
  }

  static float decode_ieee(Bits code) {
    const std::uint32_t sign = std::uint32_t(code >> sign_shift & 1) << 31;
    const std::uint32_t magnitude = code & magnitude_mask;
    std::uint32_t x = (magnitude << dropped) + (std::uint32_t(127 - bias) << 23);
    if (magnitude >= std::uint32_t(top_exponent) << mantissa_bits) {
      x = magnitude << dropped | 0x7F800000u;
    } else if (magnitude < 1u << mantissa_bits) {  // subnormal: give it a leading one, take it off
      const std::uint32_t aligner = std::uint32_t(1 - bias + 127) << 23;
      x = detail::bits_of(detail::float_of(x + (1u << 23)) - detail::float_of(aligner));
    }
    return detail::float_of(sign | x);
  }

  static Bits encode(float value) {
    const bool negative = std::signbit(value);
    const Bits sign = Bits(std::uint32_t(negative) << sign_shift);
    if (std::isnan(value)) return nan_bits();
    constexpr std::uint32_t infinity = std::uint32_t(top_exponent) << mantissa_bits;
    // The largest code that is finite, and what lies beyond it.
    constexpr std::uint32_t largest = specials == Specials::ieee     ? infinity - 1
                                      : specials == Specials::finite ? magnitude_mask - 1
                                                                     : magnitude_mask;
    const Bits beyond = specials == Specials::ieee ? Bits(sign | infinity) : nan_bits();
    const float magnitude = std::fabs(value);
    if (std::isinf(magnitude)) return beyond;
    int exponent = 0;
    if (magnitude > 0) std::frexp(magnitude, &exponent);
    const int lowest = 1 - bias;  // exponent of the smallest normal number
    const int e = exponent - 1 < lowest ? lowest : exponent - 1;
    if (e > top_exponent - bias + 1) return beyond;
    // Round to the nearest even multiple of the last place; a carry runs into the exponent field.
    const auto multiple = std::uint32_t(std::nearbyint(std::ldexp(magnitude, mantissa_bits - e)));
    const std::uint32_t code =
        multiple + (magnitude > 0 ? std::uint32_t(e - lowest) << mantissa_bits : 0u);
    if (code > largest) return beyond;
    if (specials == Specials::fnuz && code == 0) return 0;
    return Bits(sign | code);
  }
};

using Half = SmallFloat<std::uint16_t, 5, 10, 15, Specials::ieee>;
using E4M3FN = SmallFloat<std::uint8_t, 4, 3, 7, Specials::finite>;
using E5M2 = SmallFloat<std::uint8_t, 5, 2, 15, Specials::ieee>;
using E4M3FNUZ = SmallFloat<std::uint8_t, 4, 3, 8, Specials::fnuz>;
using E5M2FNUZ = SmallFloat<std::uint8_t, 5, 2, 16, Specials::fnuz>;

struct Brain {
  std::uint16_t bits;
  Brain() = default;
  explicit Brain(float value) {
    const std::uint32_t b = detail::bits_of(value);
    bits = std::isnan(value) ? 0x7FC0 : std::uint16_t((b + 0x7FFF + (b >> 16 & 1)) >> 16);
  }
  explicit operator float() const { return detail::float_of(std::uint32_t(bits) << 16); }
};

struct HalfComplex { Half real, imag; };

// Every element type is read as, and written from, one of four carriers.
template <class T> struct Element {  // integers
  using Carrier = std::int64_t;
  static Carrier load(T value) { return value; }
};
template <> struct Element<std::uint64_t> {
  using Carrier = std::uint64_t;
  static Carrier load(std::uint64_t value) { return value; }
};
template <> struct Element<float> {
  using Carrier = float;
  static Carrier load(float value) { return value; }
};
template <> struct Element<double> {
  using Carrier = double;
  static Carrier load(double value) { return value; }
};
template <class B, int e, int m, int b, Specials s> struct Element<SmallFloat<B, e, m, b, s>> {
  using Carrier = float;
  static Carrier load(SmallFloat<B, e, m, b, s> value) { return float(value); }
};
template <> struct Element<Brain> {
  using Carrier = float;
  static Carrier load(Brain value) { return float(value); }
};
template <> struct Element<HalfComplex> {
  using Carrier = std::complex<double>;
  static Carrier load(HalfComplex v) { return {double(float(v.real)), double(float(v.imag))}; }
};
template <class F> struct Element<std::complex<F>> {
  using Carrier = std::complex<double>;
  static Carrier load(std::complex<F> v) { return {double(v.real()), double(v.imag())}; }
};

// Out of range and NaN give the lowest value, as the processor's own conversion does.
template <class F> inline std::int64_t truncate(F value) {
  if (value >= F(-9223372036854775808.0) && value < F(9223372036854775808.0)) return std::int64_t(value);
  if (value >= F(9223372036854775808.0) && value < F(18446744073709551616.0))
    return std::int64_t(std::uint64_t(value));  // meant for uint64
  return std::numeric_limits<std::int64_t>::min();
}

template <class To> struct Store {  // integers
  static To from(std::int64_t v) { return To(v); }
  static To from(std::uint64_t v) { return To(v); }
  static To from(float v) { return To(truncate(v)); }
  static To from(double v) { return To(truncate(v)); }
  static To from(std::complex<double> v) { return from(v.real()); }
};
template <> struct Store<bool> {
  template <class C> static bool from(C v) { return v != C(0); }
};
template <class F> struct StoreFloat {
  template <class C> static F from(C v) { return F(v); }
  static F from(std::complex<double> v) { return F(v.real()); }
};
template <> struct Store<float> : StoreFloat<float> {};
template <> struct Store<double> : StoreFloat<double> {};
template <class S> struct StoreSmall {
  template <class C> static S from(C v) { return S(float(v)); }
  static S from(std::complex<double> v) { return S(float(v.real())); }
};
template <class B, int e, int m, int b, Specials s>
struct Store<SmallFloat<B, e, m, b, s>> : StoreSmall<SmallFloat<B, e, m, b, s>> {};
template <> struct Store<Brain> : StoreSmall<Brain> {};
template <> struct Store<HalfComplex> {
  template <class C> static HalfComplex from(C v) { return {Half(float(v)), Half(0.0f)}; }
  static HalfComplex from(std::complex<double> v) { return {Half(float(v.real())), Half(float(v.imag()))}; }
};
template <class F> struct Store<std::complex<F>> {
  template <class C> static std::complex<F> from(C v) { return {F(v), F(0)}; }
  static std::complex<F> from(std::complex<double> v) { return {F(v.real()), F(v.imag())}; }
};

// X(ScalarType, C++ type), in the order of the enumeration.
#define FLAMBEAU_HOST_TYPES(X)                                                                   \
  X(Bool, bool) X(UInt8, std::uint8_t) X(Int8, std::int8_t) X(Int16, std::int16_t)               \
  X(Int32, std::int32_t) X(Int64, std::int64_t) X(UInt16, std::uint16_t) X(UInt32, std::uint32_t) \
  X(UInt64, std::uint64_t) X(Float16, Half) X(BFloat16, Brain) X(Float32, float)                 \
  X(Float64, double) X(Complex32, HalfComplex) X(Complex64, std::complex<float>)                 \
  X(Complex128, std::complex<double>) X(Float8E4M3FN, E4M3FN) X(Float8E5M2, E5M2)                \
  X(Float8E4M3FNUZ, E4M3FNUZ) X(Float8E5M2FNUZ, E5M2FNUZ)

template <class T> inline T read(const char *p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
template <> inline bool read<bool>(const char *p) { return *p != 0; }

// One element out of memory or into it, through a carrier.
template <class Carrier> inline Carrier load_as(const char *p, int type) {
  switch (type) {
#define FLAMBEAU_X(name, T) \
  case name: return Store<Carrier>::from(Element<T>::load(read<T>(p)));
    FLAMBEAU_HOST_TYPES(FLAMBEAU_X)
#undef FLAMBEAU_X
  }
  return Carrier(0);
}

template <class Carrier> inline void store_from(char *p, int type, Carrier value) {
  switch (type) {
#define FLAMBEAU_X(name, T)                  \
  case name: {                               \
    const T element = Store<T>::from(value); \
    std::memcpy(p, &element, sizeof(T));     \
    break;                                   \
  }
    FLAMBEAU_HOST_TYPES(FLAMBEAU_X)
#undef FLAMBEAU_X
  }
}

inline std::int64_t load_int(const char *p, int type) { return load_as<std::int64_t>(p, type); }
inline double load_double(const char *p, int type) { return load_as<double>(p, type); }
inline std::complex<double> load_complex(const char *p, int type) {
  return load_as<std::complex<double>>(p, type);
}
inline double load_real(const char *p, int type) { return load_complex(p, type).real(); }
inline double load_imag(const char *p, int type) { return load_complex(p, type).imag(); }
inline void store_int(char *p, int type, std::int64_t v) { store_from(p, type, v); }
inline void store_uint(char *p, int type, std::uint64_t v) { store_from(p, type, v); }
inline void store_double(char *p, int type, double v) { store_from(p, type, v); }
inline void store_complex(char *p, int type, double real, double imag) {
  store_from(p, type, std::complex<double>(real, imag));
}

}  // namespace flambeau
