// SPDX-License-Identifier: Apache-2.0
// What watched code calls at each access, and how the watcher learns of blocks.
#pragma once
#include "engine_context.hpp"

namespace flambeau::ptx {

// The watcher's record of the block that a context runs now.
inline void *watched_block(Context &context) {
  const std::uint32_t *at = context.block_index, *grid = context.grid_dim;
  const std::uint64_t number = (std::uint64_t(at[2]) * grid[1] + at[1]) * grid[0] + at[0];
  if (context.watched && context.watched_block == number) return context.watched;
  WatchedBlock block{number, {at[0], at[1], at[2]}, {}, 0, context.shared_size};
  std::memcpy(block.dim, context.block_dim, sizeof block.dim);
  block.shared_begin = reinterpret_cast<std::uint64_t>(context.shared);
  context.watched = context.job->launch->watcher->begin_block(context.watched, block);
  context.watched_block = number;
  return context.watched;
}

namespace helpers {

// An access that was found good. Local memory and parameters are a thread's own business.
inline void watch(Context *context, std::uint32_t thread, std::uint64_t address, std::uint32_t site,
                  std::uint32_t flags) {
  const Launch &launch = *context->job->launch;
  if (!launch.watcher) return;
  if (!(flags & WatchedAccess::shared)) {
    if (address - reinterpret_cast<std::uint64_t>(context->shared) < context->shared_size) {
      flags |= WatchedAccess::shared;
    } else if (address - context->known_begin >= context->known_end - context->known_begin) {
      const MemoryRange *range = find_range(*launch.memory, address);
      if (!range) return;
      context->known_begin = range->begin;
      context->known_end = range->end;
    }
  }
  launch.watcher->access(watched_block(*context),
                         {address, launch.code->sites[site].bytes, thread, site, flags});
}

inline void watch_fence(Context *context, std::uint32_t thread) {
  if (Watcher *watcher = context->job->launch->watcher)
    watcher->fence(watched_block(*context), thread);
}

}  // namespace helpers
}  // namespace flambeau::ptx
