// SPDX-License-Identifier: Apache-2.0
// A pool of memory that is allocated and freed in the order of streams (cudaMallocAsync). It takes
// large chunks from its device and keeps them until it is trimmed. What a stream has freed serves that
// stream at once, others when the free has been reached.
#pragma once
#include <algorithm>
#include <vector>

#include "arena.hpp"
#include "flambeau/driver/virtual/stream/queue.hpp"

namespace flambeau::vgpu {

constexpr std::uint64_t POOL_CHUNK = 32ull << 20;

class MemoryPool {
 public:
  std::uint64_t release_threshold = 0;
  int reuse[3] = {1, 1, 1};   // follow events, when done, with added dependencies: kept for asking
  std::uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;

  // Memory for work on this stream; 0 when the device has none.
  std::uint64_t allocate(Arena &arena, const Stream &stream, std::uint64_t bytes) {
    settle();
    const std::uint64_t size = round_up(bytes, SMALL_UNIT);
    std::uint64_t at = reuse_freed(stream, size);
    if (!at) at = take(size);
    if (!at && grow(arena, size)) at = take(size);
    if (!at) return 0;
    Allocation made;
    made.begin = at;
    made.bytes = bytes;
    made.reserved = size;
    made.pooled = true;
    arena.enter(made);
    used += bytes;
    used_high = std::max(used_high, used);
    return at;
  }

  // Freed from `marker` on, which is that stream's.
  void free(Arena &arena, const Allocation &gone, const Stream &stream, NodePtr marker) {
    freed_.push_back({gone.begin, gone.reserved, stream.name, std::move(marker)});
    used -= gone.bytes;
    arena.leave(gone.begin);
  }

  // Give wholly free chunks back until no more than `keep` bytes are reserved.
  void trim(Arena &arena, std::uint64_t keep) {
    settle();
    for (auto it = chunks_.begin(); it != chunks_.end() && reserved > keep;) {
      if (!it->second.free.whole(it->second.bytes)) {
        ++it;
        continue;
      }
      arena.give_chunk(it->first, it->second.bytes);
      reserved -= it->second.bytes;
      it = chunks_.erase(it);
    }
  }

  // Where an address lies in a chunk, but nobody has it: work that runs before its free may use it.
  template <class Visit> void each_freed(Visit visit) const {
    for (const Freed &one : freed_) {
      if (!one.marker->done) visit(one.begin, one.begin + one.bytes);
    }
  }

  void clear(Arena &arena) {
    std::vector<std::uint64_t> held;
    for (const auto &entry : arena.allocations()) {
      if (entry.second.pooled) held.push_back(entry.first);
    }
    for (const std::uint64_t begin : held) arena.leave(begin);
    for (const auto &entry : chunks_) arena.give_chunk(entry.first, entry.second.bytes);
    chunks_.clear();
    freed_.clear();
    used = used_high = reserved = reserved_high = 0;
  }

 private:
  struct Chunk {
    std::uint64_t bytes;
    Extents free;
  };
  struct Freed {
    std::uint64_t begin, bytes;
    std::string stream;   // its name, which no other stream has
    NodePtr marker;
  };

  void give(std::uint64_t begin, std::uint64_t bytes) {
    std::prev(chunks_.upper_bound(begin))->second.free.add(begin, bytes);
  }
  void settle() {
    std::vector<Freed> waiting;
    for (Freed &one : freed_) {
      if (one.marker->done) give(one.begin, one.bytes);
      else waiting.push_back(std::move(one));
    }
    freed_ = std::move(waiting);
  }
  std::uint64_t take(std::uint64_t size) {
    for (auto &entry : chunks_) {
      if (const std::uint64_t at = entry.second.free.take(size)) return at;
    }
    return 0;
  }
  std::uint64_t reuse_freed(const Stream &stream, std::uint64_t size) {
    for (Freed &one : freed_) {
      if (one.stream != stream.name || one.bytes < size) continue;
      const std::uint64_t at = one.begin;
      one.begin += size;
      one.bytes -= size;
      if (!one.bytes) freed_.erase(freed_.begin() + (&one - freed_.data()));
      return at;
    }
    return 0;
  }
  bool grow(Arena &arena, std::uint64_t size) {
    for (const std::uint64_t bytes : {round_up(size, POOL_CHUNK), round_up(size, GRANULE)}) {
      const std::uint64_t at = arena.take_chunk(bytes);
      if (!at) continue;
      chunks_[at].bytes = bytes;
      chunks_[at].free.add(at, bytes);
      reserved += bytes;
      reserved_high = std::max(reserved_high, reserved);
      return true;
    }
    return false;
  }

  std::map<std::uint64_t, Chunk> chunks_;
  std::vector<Freed> freed_;   // oldest first
};

}  // namespace flambeau::vgpu
