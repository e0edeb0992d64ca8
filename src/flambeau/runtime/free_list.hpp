// SPDX-License-Identifier: Apache-2.0
// The free blocks of one stream in one pool, found by best fit.
//
// Sizes are multiples of 512 bytes. Up to 2 MiB there is a class for every size, above that 32 classes
// for every power of two, and a bitmap tells which have blocks, so that the best fit is a few bit
// scans away. The blocks of a class form a pairing heap in the order of comes_before().
#pragma once
#include <algorithm>

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

// Which of the classes have blocks.
class ClassBitmap {
 public:
  static constexpr unsigned WORDS = 84;

  void set(unsigned index) {
    words_[index / 64] |= bit(index);
    used_[index / 4096] |= bit(index / 64);
  }
  void clear(unsigned index) {
    words_[index / 64] &= ~bit(index);
    if (!words_[index / 64]) used_[index / 4096] &= ~bit(index / 64);
  }
  // The first class from `index` on that has blocks, or -1.
  int next(unsigned index) const {
    unsigned word = index / 64;
    if (word >= WORDS) return -1;
    if (const std::uint64_t here = words_[word] & from(index)) return position(word, here);
    if (++word >= WORDS) return -1;
    if (const std::uint64_t used = used_[word / 64] & from(word)) {
      word = word / 64 * 64 + __builtin_ctzll(used);
      return position(word, words_[word]);
    }
    if (word < 64 && used_[1]) {
      word = 64 + __builtin_ctzll(used_[1]);
      return position(word, words_[word]);
    }
    return -1;
  }

 private:
  static std::uint64_t bit(unsigned index) { return 1ull << (index % 64); }
  static std::uint64_t from(unsigned index) { return ~0ull << (index % 64); }
  static int position(unsigned word, std::uint64_t bits) {
    return static_cast<int>(word * 64 + __builtin_ctzll(bits));
  }

  std::uint64_t used_[2] = {};  // words that are not zero
  std::uint64_t words_[WORDS] = {};
};

struct FreeList {
  // Blocks behind which addresses are free for more memory; few. They are looked at one by one.
  std::vector<Block *> growable;

  void insert(Block *block) {
    if (block->growable) return growable.push_back(block);
    const unsigned index = class_of(block->size);
    if (!heads_[index]) used_.set(index);
    heads_[index] = pairing_heap::meld(heads_[index], block);
  }

  void erase(Block *block) {
    if (block->growable) {
      growable.erase(std::find(growable.begin(), growable.end(), block));
      block->growable = false;
      return;
    }
    const unsigned index = class_of(block->size);
    heads_[index] = pairing_heap::remove(heads_[index], block);
    if (!heads_[index]) used_.clear(index);
  }

  // The smallest block of at least `size` bytes, or null. Does not look at growable ones.
  Block *best(std::size_t size) const {
    const unsigned index = class_of(size);
    if (Block *smallest = heads_[index]) {
      if (smallest->size >= size) return smallest;
      if (Block *found = best_in_class(index, size)) return found;
    }
    const int next = used_.next(index + 1);
    return next < 0 ? nullptr : heads_[next];
  }

  template <class Visit> void each(Visit visit) const {
    for (int index = used_.next(0); index >= 0; index = used_.next(index + 1))
      pairing_heap::each(heads_[index], visit);
    for (Block *block : growable) visit(block);
  }

 private:
  // Above EXACT classes of one size, every power of two has PARTS classes.
  static constexpr unsigned EXACT = 4096, EXACT_LOG = 21, PARTS = 32, PARTS_LOG = 5;
  static constexpr unsigned CLASSES = ClassBitmap::WORDS * 64;

  static unsigned class_of(std::size_t size) {
    if (size <= EXACT * MIN_BLOCK) return static_cast<unsigned>(size / MIN_BLOCK) - 1;
    const unsigned log = 63 - __builtin_clzll(size);
    const unsigned part = static_cast<unsigned>(size >> (log - PARTS_LOG)) % PARTS;
    return EXACT + (log - EXACT_LOG) * PARTS + part;
  }

  Block *best_in_class(unsigned index, std::size_t size) const {
    Block *best = nullptr;
    pairing_heap::each(heads_[index], [&](Block *block) {
      if (block->size >= size && (!best || comes_before(block, best))) best = block;
    });
    return best;
  }

  ClassBitmap used_;
  Block *heads_[CLASSES] = {};
};

}  // namespace flambeau
