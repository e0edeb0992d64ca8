// SPDX-License-Identifier: Apache-2.0
// A pool is a home of segments that share nothing with other pools: each device has a default one,
// and whoever wants memory apart (a graph, a user) another.
#pragma once
#include <sys/types.h>

#include <map>
#include <memory>
#include <tuple>
#include <unordered_map>

#include "free_list.hpp"

namespace flambeau {

constexpr std::size_t KiB = 1024, MiB = 1024 * KiB;
constexpr std::size_t SMALL_LIMIT = 1 * MiB;      // requests up to here live in small segments
constexpr std::size_t SMALL_SEGMENT = 2 * MiB;
constexpr std::size_t OWN_SEGMENT_LIMIT = 10 * MiB;  // from here on a request gets its own segment
constexpr std::size_t SEGMENT_GRANULARITY = 2 * MiB;

// How many addresses the expandable segments of one stream take.
struct StreamReserve {
  CUstream stream;
  double share;       // of the device's memory; 0: `bytes` counts
  std::size_t bytes;
};

struct AllocatorSettings {
  std::size_t large_segment = 20 * MiB;
  std::size_t max_split_size = SIZE_MAX;  // blocks of at least this size are never split
  std::size_t max_non_split_rounding = 20 * MiB;
  double garbage_threshold = 0;  // share of the limit above which idle segments go back; 0: never
  unsigned roundup_divisions[16] = {};    // for sizes from 2^i MiB; 0 and 1 mean none
  bool expandable = false;         // new segments grow
  double reserve_share = 0;        // their addresses: a share of the device's memory,
  std::size_t reserve_bytes = 0;   // or so many; with neither, nine eighths of it
  std::vector<StreamReserve> stream_reserves;  // of streams that have another
  bool reject_early = false;       // refuse what goes beyond the configured share, without a retry
  double configured_fraction = 1;  // that share of the device's memory
  bool reuse_in_capture = false;   // blocks that several captured streams used, once the graph proves them free

  std::size_t round(std::size_t bytes) const {
    if (bytes < MIN_BLOCK) return MIN_BLOCK;
    const unsigned divisions = divisions_for(bytes);
    if (divisions > 1 && bytes > MIN_BLOCK * divisions) {
      const std::size_t power = std::size_t{1} << (63 - __builtin_clzll(bytes));
      return round_up(bytes, power / divisions);
    }
    return round_up(bytes, MIN_BLOCK);
  }

  std::size_t segment_size(std::size_t rounded) const {
    if (rounded <= SMALL_LIMIT) return SMALL_SEGMENT;
    if (rounded < OWN_SEGMENT_LIMIT) return large_segment;
    return round_up(rounded, SEGMENT_GRANULARITY);
  }

  // How many addresses an expandable segment takes on a device with so much memory.
  std::size_t reserve_size(std::size_t total, std::size_t page, CUstream stream) const {
    StreamReserve reserve{stream, reserve_share, reserve_bytes};
    for (const StreamReserve &of_stream : stream_reserves)
      if (of_stream.stream == stream) reserve = of_stream;
    if (reserve.bytes) return round_up(reserve.bytes, page);
    if (reserve.share > 0)
      return round_up(static_cast<std::size_t>(reserve.share * static_cast<double>(total)), page);
    return round_up(total + total / 8, page);
  }

  std::size_t page_size(PoolKind kind) const {
    return kind == SMALL_POOL ? SMALL_SEGMENT : large_segment;
  }

  static std::size_t round_up(std::size_t bytes, std::size_t multiple) {
    return (bytes + multiple - 1) / multiple * multiple;
  }

 private:
  unsigned divisions_for(std::size_t bytes) const {
    const std::size_t mebibytes = bytes / MiB;
    if (!mebibytes) return roundup_divisions[0];
    const int interval = 63 - __builtin_clzll(mebibytes);
    return roundup_divisions[interval < 15 ? interval : 15];
  }
};

struct PoolId {
  std::int64_t first = 0, second = 0;

  PoolId() = default;
  PoolId(std::int64_t a, std::int64_t b) : first(a), second(b) {}
  bool operator<(const PoolId &other) const {
    return std::tie(first, second) < std::tie(other.first, other.second);
  }
  bool operator==(const PoolId &other) const {
    return first == other.first && second == other.second;
  }
};

// Who gives a pool its segments in place of the driver. Called without a lock.
struct SegmentSource {
  void *(*allocate)(ssize_t bytes, int device, CUstream stream);
  void (*release)(void *memory, std::size_t bytes, int device, CUstream stream);
};

struct Pool {
  PoolId id;
  std::int64_t users = 1;     // with none left, its free segments may go back to the driver
  std::int64_t pins = 0;      // allocations under way
  std::int64_t segments = 0;
  bool is_default = true;
  bool splits = true;
  bool serves_on_oom = false;  // its free blocks serve the default pool before that runs out
  const SegmentSource *source = nullptr;  // null: the driver
  StatArray *reserved_bytes = nullptr;    // null for the default pool

  // The expandable ranges of one kind and stream, by address, and their free blocks.
  struct Expandable {
    FreeList free_list;
    std::vector<ExpandableRange *> ranges;
  };
  Expandable &expandable(PoolKind kind, CUstream stream) {
    std::unique_ptr<Expandable> &found = expandable_[{kind, stream}];
    if (!found) found = std::make_unique<Expandable>();
    return *found;
  }

  FreeList *free_list(PoolKind kind, CUstream stream) {
    Lists &lists = of_[kind == SMALL_POOL];
    if (lists.recent && lists.recent_stream == stream) return lists.recent;
    std::unique_ptr<FreeList> &list = lists.by_stream[stream];
    if (!list) list = std::make_unique<FreeList>();
    lists.recent_stream = stream;
    return lists.recent = list.get();
  }

 private:
  struct Lists {
    CUstream recent_stream = nullptr;
    FreeList *recent = nullptr;
    std::unordered_map<CUstream, std::unique_ptr<FreeList>> by_stream;
  };
  Lists of_[2];
  std::map<std::pair<int, CUstream>, std::unique_ptr<Expandable>> expandable_;
};

// Whether what is allocated now, by this thread and for this stream, belongs to a pool. Called with
// the allocator's lock held: it must not wait.
using RouteFilter = bool (*)(void *context, CUstream stream);

struct Route {
  Pool *pool;
  RouteFilter filter;
  void *context;
};

}  // namespace flambeau
