// SPDX-License-Identifier: Apache-2.0
// Which algorithm a product of a given form gets while products are tuned.
#pragma once
#include <cstdint>
#include <cstring>
#include <unordered_map>

#include "flambeau/driver/gemm_options.hpp"
#include "flambeau/driver/table.hpp"

namespace flambeau {

struct TunedKey {
  std::int64_t m, n, k, batch, lda, ldb, ldc, stride_a, stride_b, stride_c;
  int transpose_a, transpose_b, dtype, compute, device, bias;
  bool operator==(const TunedKey &other) const { return !std::memcmp(this, &other, sizeof other); }
};

struct TunedKeyHash {
  std::size_t operator()(const TunedKey &key) const {
    std::uint64_t hash = 1469598103934665603ull;
    const auto *words = reinterpret_cast<const std::uint32_t *>(&key);
    for (std::size_t i = 0; i < sizeof key / 4; ++i) hash = (hash ^ words[i]) * 1099511628211ull;
    return hash;
  }
};

struct TunedChoice {
  int number = 0;   // of the algorithm; 0 the default
  std::size_t workspace = 0;
};

// Used with Python's lock held.
class TunedProducts {
 public:
  const TunedChoice *find(const GemmArgs &g, int device) const {
    const auto found = choices_.find(key_of(g, device));
    return found == choices_.end() ? nullptr : &found->second;
  }
  void put(const GemmArgs &g, int device, TunedChoice choice) { choices_[key_of(g, device)] = choice; }
  void clear() { choices_.clear(); }

 private:
  static TunedKey key_of(const GemmArgs &g, int device) {
    TunedKey key;
    std::memset(static_cast<void *>(&key), 0, sizeof key);
    key.m = g.m; key.n = g.n; key.k = g.k; key.batch = g.batch;
    key.lda = g.lda; key.ldb = g.ldb; key.ldc = g.ldc;
    key.stride_a = g.stride_a; key.stride_b = g.stride_b; key.stride_c = g.stride_c;
    key.transpose_a = g.transpose_a; key.transpose_b = g.transpose_b;
    key.dtype = g.dtype; key.compute = g.compute; key.device = device;
    key.bias = g.bias != 0;
    return key;
  }
  std::unordered_map<TunedKey, TunedChoice, TunedKeyHash> choices_;
};

// Algorithms assume that matrices lie at multiples of 16 bytes.
inline bool well_aligned(const GemmArgs &g) { return ((g.a | g.b | g.c | g.bias) & 15) == 0; }

}  // namespace flambeau
