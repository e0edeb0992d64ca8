// SPDX-License-Identifier: Apache-2.0
// What elementwise dispatch keeps in C: caches and the operands of one call.
#pragma once
#include <cstdint>
#include <vector>

#include "flambeau/runtime/_convert.hpp"
#include "flambeau/runtime/_layout.hpp"

namespace flambeau {

// A small hash table from a non-zero 64-bit key to a 64-bit value.
class FlatTable {
 public:
  std::uint64_t *find(std::uint64_t key) {
    if (slots_.empty()) return nullptr;
    for (std::size_t i = start(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key == key) return &slots_[i].value;
      if (slots_[i].key == 0) return nullptr;
    }
  }

  void put(std::uint64_t key, std::uint64_t value) {
    if (2 * (used_ + 1) > slots_.size()) grow();
    for (std::size_t i = start(key);; i = (i + 1) & (slots_.size() - 1)) {
      if (slots_[i].key != 0 && slots_[i].key != key) continue;
      used_ += slots_[i].key == 0;
      slots_[i] = {key, value};
      return;
    }
  }

  void clear() {
    slots_.clear();
    used_ = 0;
  }

 private:
  struct Slot { std::uint64_t key = 0, value = 0; };

  std::size_t start(std::uint64_t key) const {
    return std::size_t(key * 0x9E3779B97F4A7C15u >> 40) & (slots_.size() - 1);
  }

  void grow() {
    std::vector<Slot> old(slots_.empty() ? 8 : 2 * slots_.size());
    old.swap(slots_);
    used_ = 0;
    for (const Slot &slot : old)
      if (slot.key) put(slot.key, slot.value);
  }

  std::vector<Slot> slots_;
  std::size_t used_ = 0;
};

// A number that travels by value, in the form that a kernel's parameter wants.
struct Number {
  double real = 0, imag = 0;
  std::int64_t integer = 0;
};

struct Parameter {
  union { double real; std::int64_t integer; } first;
  double imag;
};

inline Parameter parameter_of(const Number &number, int compute_type) {
  Parameter p{};
  if (type_category[compute_type] >= 2)
    p.first.real = number.real;
  else
    p.first.integer = number.integer;
  p.imag = number.imag;
  return p;
}

// Whether a value of one type may be stored in another without changing its kind.
inline bool can_cast(int from, int to) {
  const int a = type_category[from], b = type_category[to];
  return a <= b || (a == 1 && b == 1);
}

// How many neighbours one access may take where the innermost dimension is contiguous or broadcast in
// every operand: `width`, or 1 if an address, a size or an outer stride does not allow it.
inline int inner_width(const Space &space, char **addresses, const int *types, int width) {
  if (width == 1 || space.ndim == 0 || space.strides[0][0] != 1 || space.sizes[0] % width) return 1;
  if (space.count() / width > INT32_MAX) return 1;
  for (int i = 0; i < space.operands; ++i) {
    if (space.strides[i][0] == 0) continue;
    if (space.strides[i][0] != 1) return 1;
    if (reinterpret_cast<std::uintptr_t>(addresses[i]) % (width * item_bytes[types[i]])) return 1;
    for (int d = 1; d < space.ndim; ++d)
      if (space.strides[i][d] % width) return 1;
  }
  return width;
}

constexpr int TRANSPOSING_TILE = 64;

// Blocks of a kernel that goes through shared memory: dimensions 0 and 1 are cut into tiles.
inline std::int64_t transposing_tiles(const Layout &layout) {
  std::int64_t tiles = 1;
  for (int d = 0; d < layout.ndim; ++d)
    tiles *= d < 2 ? (layout.sizes[d] + TRANSPOSING_TILE - 1) / TRANSPOSING_TILE : layout.sizes[d];
  return tiles;
}

// Elements that one thread of the vectorised kernel handles.
inline int vector_width(int widest_bytes) { return widest_bytes >= 16 ? 1 : 16 / widest_bytes; }

}  // namespace flambeau
