// SPDX-License-Identifier: Apache-2.0
// A virtual device and its primary context, the only kind of context there is.
#pragma once
#include <cstring>
#include <set>
#include <vector>

#include "flambeau/driver/virtual/clock.hpp"
#include "flambeau/driver/virtual/memory/arena.hpp"
#include "flambeau/driver/virtual/memory/mapping.hpp"
#include "flambeau/driver/virtual/memory/pool.hpp"
#include "flambeau/driver/virtual/ptx/engine.hpp"
#include "flambeau/driver/virtual/stream/queue.hpp"

namespace flambeau::vgpu {

struct Device;

struct Context {
  Device *device = nullptr;
  int retained = 0;                  // active while above 0
  std::uint64_t life = 0;            // another number each time it is destroyed and made again
  CUresult error = CUDA_SUCCESS;     // sticky: every later call on this context answers it
  std::string fault;                 // what brought it about, for people
  Stream legacy;                     // the default stream
  std::set<Stream *> streams;        // the others
  std::vector<NodePtr> detached;     // what destroyed streams still had to do
  std::set<Context *> peers;         // whose memory device code of this context may touch
  std::shared_ptr<const ptx::MemoryMap> map;   // cached, see Machine::memory_map
  std::uint64_t map_epoch = 0;

  bool active() const { return retained > 0; }

  // The newest node of every stream: what a device-wide wait is for.
  std::vector<NodePtr> frontier() {
    std::vector<NodePtr> nodes{legacy.last};
    for (Stream *s : streams) nodes.push_back(s->last);
    std::size_t kept = 0;
    for (NodePtr &node : detached) {
      if (!node->done) detached[kept++] = node;
    }
    detached.resize(kept);
    nodes.insert(nodes.end(), detached.begin(), detached.end());
    return nodes;
  }
};

struct Device {
  int ordinal = 0;    // as callers count
  int physical = 0;   // before CUDA_VISIBLE_DEVICES
  Model model;
  CUuuid uuid;
  Arena arena;
  VirtualMemory mappings;
  MemoryPool pool;     // the default one, which is the only one
  EngineTimes engines;
  Context context;

  std::uint64_t used_bytes() const {
    return arena.used() + (context.active() ? model.context_bytes : 0);
  }
};

// The same for the same model and index in every process, so that a list of visible devices and
// handles between processes mean the same device.
inline CUuuid device_uuid(const std::string &model, int index) {
  std::uint64_t state = 0xcbf29ce484222325ull;
  for (const char c : model) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  CUuuid uuid;
  for (int half = 0; half < 2; ++half) {
    std::uint64_t z = state + 0x9e3779b97f4a7c15ull * static_cast<std::uint64_t>(2 * index + half + 1);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    std::memcpy(uuid.bytes + 8 * half, &z, 8);
  }
  return uuid;
}

inline std::string uuid_text(const CUuuid &uuid) {
  static const char digits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += digits[uuid.bytes[i] >> 4];
    text += digits[uuid.bytes[i] & 15];
  }
  return text;
}

}  // namespace flambeau::vgpu
