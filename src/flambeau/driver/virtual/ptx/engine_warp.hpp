// SPDX-License-Identifier: Apache-2.0
// Operations in which the lanes of a warp meet.
#pragma once
#include "engine_matrix.hpp"

namespace flambeau::ptx {

constexpr int WARP = 32;

// The lane that `lane` reads from, and whether it lies in its segment.
inline std::uint32_t shuffle_source(WarpOp op, std::uint32_t lane, std::uint32_t operand,
                                    std::uint32_t clamp_and_mask, bool &inside) {
  const std::uint32_t by = operand & 31, clamp = clamp_and_mask & 31;
  const std::uint32_t segment = clamp_and_mask >> 8 & 31;
  const std::uint32_t first = lane & segment, last = first | (clamp & ~segment);
  std::int32_t source = 0;
  switch (op) {
    case WarpOp::shfl_up:
      source = static_cast<std::int32_t>(lane - by);
      inside = source >= static_cast<std::int32_t>(last);
      break;
    case WarpOp::shfl_down: source = lane + by; inside = source <= static_cast<int>(last); break;
    case WarpOp::shfl_bfly: source = lane ^ by; inside = source <= static_cast<int>(last); break;
    default: source = first | (by & ~segment); inside = source <= static_cast<int>(last); break;
  }
  return inside ? static_cast<std::uint32_t>(source) : lane;
}

inline std::uint32_t reduce(WarpOp op, std::uint32_t a, std::uint32_t b) {
  const auto sa = static_cast<std::int32_t>(a), sb = static_cast<std::int32_t>(b);
  switch (op) {
    case WarpOp::redux_add: return a + b;
    case WarpOp::redux_min: return sa < sb ? a : b;
    case WarpOp::redux_max: return sa > sb ? a : b;
    case WarpOp::redux_umin: return a < b ? a : b;
    case WarpOp::redux_umax: return a > b ? a : b;
    case WarpOp::redux_and: return a & b;
    case WarpOp::redux_or: return a | b;
    default: return a ^ b;
  }
}

// The lanes of one warp; lanes that the block does not have are null.
struct Warp {
  Frame *lanes[WARP];

  template <class Visit>
  void each(std::uint32_t group, Visit visit) {
    for (; group; group &= group - 1) visit(*lanes[__builtin_ctz(group)]);
  }

  std::uint32_t ballot(std::uint32_t group) {
    std::uint32_t set = 0;
    each(group, [&](Frame &f) { set |= static_cast<std::uint32_t>(f.value & 1) << f.lane; });
    return set;
  }

  void shuffle(std::uint32_t group, WarpOp op) {
    std::uint64_t brought[WARP];
    each(group, [&](Frame &f) { brought[f.lane] = f.value; });
    each(group, [&](Frame &f) {
      bool inside = false;
      const auto source = shuffle_source(op, f.lane, f.argument[0], f.argument[1], inside);
      f.value = brought[group >> source & 1 ? source : f.lane];
      f.predicate = inside;
    });
  }

  void match(std::uint32_t group, bool all) {
    std::uint64_t brought[WARP];
    each(group, [&](Frame &f) { brought[f.lane] = f.value; });
    const std::uint64_t first = brought[__builtin_ctz(group)];
    bool same = true;
    each(group, [&](Frame &f) { same &= f.value == first; });
    each(group, [&](Frame &f) {
      f.predicate = same;
      std::uint32_t equal = 0;
      if (all) equal = same ? group : 0;
      else
        each(group, [&](Frame &g) {
          equal |= std::uint32_t(brought[g.lane] == brought[f.lane]) << g.lane;
        });
      f.value = equal;
    });
  }

  // Carry out the operation for which every lane of `group` has arrived.
  void perform(std::uint32_t group, WarpOp op);
};

inline void Warp::perform(std::uint32_t group, WarpOp op) {
  std::uint32_t result = 0;
  switch (op) {
    case WarpOp::sync: return;
    case WarpOp::shfl_up: case WarpOp::shfl_down: case WarpOp::shfl_bfly: case WarpOp::shfl_idx:
      shuffle(group, op);
      return;
    case WarpOp::match_any: case WarpOp::match_all:
      match(group, op == WarpOp::match_all);
      return;
    case WarpOp::mma: matrix::multiply(lanes, group); return;
    case WarpOp::wmma: matrix::multiply_tiles(lanes, group); return;
    case WarpOp::ldmatrix: matrix::distribute(lanes, group); return;
    case WarpOp::stmatrix: matrix::collect(lanes, group); return;
    case WarpOp::movmatrix: matrix::transpose(lanes, group); return;
    case WarpOp::vote_all: result = ballot(group) == group; break;
    case WarpOp::vote_any: result = ballot(group) != 0; break;
    case WarpOp::vote_uni: {
      const std::uint32_t set = ballot(group);
      result = set == 0 || set == group;
      break;
    }
    case WarpOp::ballot: result = ballot(group); break;
    case WarpOp::active: result = group; break;
    default: {
      bool first = true;
      each(group, [&](Frame &f) {
        const auto value = static_cast<std::uint32_t>(f.value);
        result = first ? value : reduce(op, result, value);
        first = false;
      });
    }
  }
  each(group, [&](Frame &f) { f.value = f.predicate = result; });
}

}  // namespace flambeau::ptx
