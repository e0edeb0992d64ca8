// SPDX-License-Identifier: Apache-2.0
// The state of an interprocess event, in memory that both processes map: how often it was recorded
// and how far those records are done. A process keeps all of its events in one file.
#pragma once
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>

namespace flambeau::vgpu {

struct SharedEventState {
  std::atomic<std::uint64_t> recorded, completed;
  std::atomic<std::int32_t> recorder;   // the process that recorded last
  char unused[44];
};
static_assert(sizeof(SharedEventState) == 64, "slots are 64 bytes");

constexpr std::uint64_t SHARED_EVENT_SLOTS = 1 << 16;
constexpr std::uint64_t SHARED_EVENT_BYTES = SHARED_EVENT_SLOTS * sizeof(SharedEventState);

// Whether a process has ended, reaped or not.
inline bool process_gone(std::int32_t pid) {
  if (kill(pid, 0) != 0) return errno == ESRCH;
  char path[32], line[512] = "";
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return errno == ENOENT;
  const ssize_t got = read(file, line, sizeof line - 1);
  close(file);
  // The state follows the command name, which is in parentheses and may hold any character.
  for (ssize_t i = got - 1; i > 0; --i) {
    if (line[i] == ')') return i + 2 < got && (line[i + 2] == 'Z' || line[i + 2] == 'X');
  }
  return false;
}

// A mapping of an events' file, this process's own or another's.
struct SharedEventFile {
  int file = -1;            // our own only
  SharedEventState *slots = nullptr;
  std::uint64_t used = 0;
  std::deque<std::uint64_t> free;

  ~SharedEventFile() {
    if (slots) munmap(slots, SHARED_EVENT_BYTES);
    if (file >= 0) close(file);
  }
  bool map(int descriptor) {
    void *at = mmap(nullptr, SHARED_EVENT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (at == MAP_FAILED) return false;
    slots = static_cast<SharedEventState *>(at);
    return true;
  }
  // Slots are used again as late as possible: another process may still look at a destroyed event's.
  bool take(std::uint64_t &slot) {
    if (used < SHARED_EVENT_SLOTS) {
      slot = used++;
      return true;
    }
    if (free.empty()) return false;
    slot = free.front();
    free.pop_front();
    slots[slot].recorded = slots[slot].completed = 0;
    return true;
  }
};

struct SharedEvent {
  std::shared_ptr<SharedEventFile> home;
  std::uint64_t slot = 0;

  ~SharedEvent() {
    if (home && home->file >= 0) home->free.push_back(slot);
  }
  SharedEventState &state() const { return home->slots[slot]; }
  std::uint64_t record() {
    state().recorder.store(static_cast<std::int32_t>(getpid()));
    return state().recorded.fetch_add(1) + 1;
  }
  std::uint64_t recorded() const { return state().recorded.load(); }
  void complete(std::uint64_t ticket) {
    std::uint64_t seen = state().completed.load();
    while (seen < ticket && !state().completed.compare_exchange_weak(seen, ticket)) {
    }
  }
  // A record of a process that is gone will never be done; it no longer holds anybody up.
  bool reached(std::uint64_t ticket) const {
    if (state().completed.load() >= ticket) return true;
    const std::int32_t process = state().recorder.load();
    return process > 0 && process != getpid() && process_gone(process);
  }
};

// A new event in the process's own file, which is made at first use; null when the system refuses.
inline std::shared_ptr<SharedEvent> make_shared_event(std::shared_ptr<SharedEventFile> &own) {
  if (!own) {
    auto made = std::make_shared<SharedEventFile>();
    made->file = memfd_create("flambeau-events", MFD_CLOEXEC);
    if (made->file < 0 || ftruncate(made->file, static_cast<off_t>(SHARED_EVENT_BYTES)) != 0 ||
        !made->map(made->file)) {
      return nullptr;
    }
    own = made;
  }
  auto event = std::make_shared<SharedEvent>();
  if (!own->take(event->slot)) return nullptr;
  event->home = own;
  return event;
}

}  // namespace flambeau::vgpu
