// SPDX-License-Identifier: Apache-2.0
// The free blocks of one stream in one pool, found by best fit.
//
// Sizes are multiples of 512 bytes. Up to 2 MiB there is a class for every size and a bitmap of the
// classes in use, so that the best fit is two bit scans away; above that, an ordered set. Within a
// class the blocks form a pairing heap in the order of comes_before().
#pragma once
#include <set>

#include "block.hpp"

namespace flambeau {

constexpr std::size_t MIN_BLOCK = 512;

namespace pairing_heap {

inline Block *meld(Block *a, Block *b) {
  if (!a) return b;
  if (!b) return a;
  if (comes_before(b, a)) std::swap(a, b);
  b->heap_next = a->heap_child;
  if (b->heap_next) b->heap_next->heap_back = b;
  b->heap_back = a;
  a->heap_child = b;
  return a;
}

// The children of a removed root, melded pairwise from the left and then from the right.
inline Block *meld_children(Block *first) {
  Block *pairs = nullptr;  // a stack, linked by heap_next
  while (first) {
    Block *a = first, *b = a->heap_next;
    first = b ? b->heap_next : nullptr;
    a->heap_next = a->heap_back = nullptr;
    if (b) b->heap_next = b->heap_back = nullptr;
    Block *pair = meld(a, b);
    pair->heap_next = pairs;
    pairs = pair;
  }
  Block *root = nullptr;
  while (pairs) {
    Block *pair = pairs;
    pairs = pair->heap_next;
    pair->heap_next = nullptr;
    root = meld(root, pair);
  }
  return root;
}

inline Block *remove(Block *root, Block *block) {
  Block *children = meld_children(block->heap_child);
  block->heap_child = nullptr;
  if (block == root) return children;
  Block *back = block->heap_back;  // its parent, or the sibling before it
  (back->heap_child == block ? back->heap_child : back->heap_next) = block->heap_next;
  if (block->heap_next) block->heap_next->heap_back = back;
  block->heap_next = block->heap_back = nullptr;
  return meld(root, children);
}

template <class Visit> void each(Block *root, Visit visit) {
  std::vector<Block *> open;
  if (root) open.push_back(root);
  while (!open.empty()) {
    Block *block = open.back();
    open.pop_back();
    if (block->heap_next) open.push_back(block->heap_next);
    if (block->heap_child) open.push_back(block->heap_child);
    visit(block);
  }
}

}  // namespace pairing_heap

struct FreeList {
  void insert(Block *block) {
    if (block->size > CLASSES * MIN_BLOCK) {
      large_.insert(block);
      return;
    }
    const unsigned index = index_of(block->size);
    heads_[index] = pairing_heap::meld(heads_[index], block);
    words_[index / 64] |= bit(index);
    used_words_ |= bit(index / 64);
  }

  void erase(Block *block) {
    if (block->size > CLASSES * MIN_BLOCK) {
      large_.erase(block);
      return;
    }
    const unsigned index = index_of(block->size);
    heads_[index] = pairing_heap::remove(heads_[index], block);
    if (heads_[index]) return;
    words_[index / 64] &= ~bit(index);
    if (!words_[index / 64]) used_words_ &= ~bit(index / 64);
  }

  // The smallest block of at least `size` bytes, or null.
  Block *best(std::size_t size) const {
    if (size <= CLASSES * MIN_BLOCK) {
      const unsigned index = index_of(size), word = index / 64;
      if (const std::uint64_t here = words_[word] & (~0ull << (index % 64)))
        return heads_[word * 64 + __builtin_ctzll(here)];
      if (const std::uint64_t later = word == 63 ? 0 : used_words_ & (~0ull << (word + 1))) {
        const unsigned found = __builtin_ctzll(later);
        return heads_[found * 64 + __builtin_ctzll(words_[found])];
      }
    }
    const auto found = large_.lower_bound(size);
    return found == large_.end() ? nullptr : *found;
  }

  // The blocks above 2 MiB by falling size; `visit` returns whether to go on.
  template <class Visit> void each_large_descending(Visit visit) const {
    for (auto it = large_.rbegin(); it != large_.rend(); ++it)
      if (!visit(*it)) return;
  }

  template <class Visit> void each(Visit visit) const {
    for (std::uint64_t used = used_words_; used; used &= used - 1) {
      const unsigned word = __builtin_ctzll(used);
      for (std::uint64_t bits = words_[word]; bits; bits &= bits - 1)
        pairing_heap::each(heads_[word * 64 + __builtin_ctzll(bits)], visit);
    }
    for (Block *block : large_) visit(block);
  }

 private:
  static constexpr unsigned CLASSES = 4096;

  struct BySize {
    using is_transparent = void;
    bool operator()(const Block *a, const Block *b) const {
      return a->size != b->size ? a->size < b->size : comes_before(a, b);
    }
    bool operator()(const Block *a, std::size_t size) const { return a->size < size; }
    bool operator()(std::size_t size, const Block *b) const { return size < b->size; }
  };

  static unsigned index_of(std::size_t size) { return static_cast<unsigned>(size / MIN_BLOCK) - 1; }
  static std::uint64_t bit(unsigned index) { return 1ull << (index % 64); }

  std::uint64_t used_words_ = 0;
  std::uint64_t words_[CLASSES / 64] = {};
  Block *heads_[CLASSES] = {};
  std::set<Block *, BySize> large_;
};

}  // namespace flambeau
