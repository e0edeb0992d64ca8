// SPDX-License-Identifier: Apache-2.0
// The host's generator: Mersenne Twister with 32-bit words, and the 5056 bytes its state is kept in.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace flambeau {

class Mt19937 {
 public:
  static constexpr int N = 624;

  explicit Mt19937(std::uint64_t seed = 5489) { reseed(seed); }

  void reseed(std::uint64_t seed) {
    seed_ = seed;
    state_[0] = std::uint32_t(seed);
    for (std::uint32_t i = 1; i < N; ++i)
      state_[i] = 1812433253u * (state_[i - 1] ^ state_[i - 1] >> 30) + i;
    left_ = 1;
    next_ = 0;
    has_sine_ = false;
    sine_ = 0;
  }

  std::uint64_t seed() const { return seed_; }

  std::uint32_t word() {
    if (--left_ == 0) refill();
    std::uint32_t y = state_[next_++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
  }
  std::uint64_t wide_word() {
    const std::uint64_t high = word();
    return high << 32 | word();
  }

  // In [0, 1): 24 and 53 bits.
  float unit_float() { return float(word() & 0xffffff) * 0x1p-24f; }
  double unit_double() { return double(wide_word() & 0x1fffffffffffff) * 0x1p-53; }

  // Standard normal, in pairs: the sine of each pair waits for the next call.
  double normal() {
    if (has_sine_) {
      has_sine_ = false;
      const double kept = sine_;
      sine_ = 0;
      return kept;
    }
    const double angle = 6.283185307179586476925 * unit_double();
    const double radius = std::sqrt(-2.0 * std::log1p(-unit_double()));
    sine_ = radius * std::sin(angle);
    has_sine_ = true;
    return radius * std::cos(angle);
  }

  // The byte layout is the one that saved states have.
  struct Saved {
    std::uint64_t seed;
    std::int32_t left;
    std::int32_t seeded;
    std::uint64_t next;
    std::uint64_t words[N];
    double unused_x;
    double sine;
    double unused_rho;
    std::int32_t has_sine;
    std::int32_t padding;
    float float_sine;
    std::int32_t has_float_sine;
  };

  void save(void *to) const {
    Saved saved{};
    saved.seed = seed_;
    saved.left = left_;
    saved.seeded = 1;
    saved.next = next_;
    for (int i = 0; i < N; ++i) saved.words[i] = state_[i];
    saved.sine = sine_;
    saved.has_sine = has_sine_;
    std::memcpy(to, &saved, sizeof saved);
  }

  // False, and no change, if this is no state.
  bool restore(const void *from) {
    Saved saved;
    std::memcpy(&saved, from, sizeof saved);
    if (saved.seeded != 1 || saved.left < 1 || saved.left > N || saved.next > N) return false;
    if (saved.left != 1 && saved.left != N + 1 - int(saved.next)) return false;
    seed_ = saved.seed;
    left_ = saved.left;
    next_ = std::uint32_t(saved.next);
    for (int i = 0; i < N; ++i) state_[i] = std::uint32_t(saved.words[i]);
    sine_ = saved.sine;
    has_sine_ = saved.has_sine != 0;
    return true;
  }

 private:
  static std::uint32_t twist(std::uint32_t high, std::uint32_t low) {
    const std::uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
  }
  void refill() {
    constexpr int M = 397;
    for (int i = 0; i < N; ++i)
      state_[i] = state_[(i + M) % N] ^ twist(state_[i], state_[(i + 1) % N]);
    left_ = N;
    next_ = 0;
  }

  std::uint64_t seed_;
  std::uint32_t state_[N];
  std::int32_t left_;
  std::uint32_t next_;
  double sine_;
  bool has_sine_;
};
static_assert(sizeof(Mt19937::Saved) == 5056);

}  // namespace flambeau
