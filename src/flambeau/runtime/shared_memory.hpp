// SPDX-License-Identifier: Apache-2.0
// Host memory that other processes can map: by a descriptor, or by a name with a count of who holds it.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "shared_counters.hpp"
#include "storage.hpp"

namespace flambeau {

struct SharedStorage : Storage {
  void *mapping = nullptr;
  std::size_t mapped = 0;
  int descriptor = -1;  // -1: it has a name
  int process = 0;      // that made this object; a forked child's copy counts for nothing
  std::string name;
};

struct SharedMemory {
  // Before the bytes of a file with a name: how many mappings and messages hold it.
  static constexpr std::size_t HEADER = 64;

  static bool owns(const Storage *storage) { return storage->release == release; }
  static SharedStorage *as_own(Storage *storage) { return static_cast<SharedStorage *>(storage); }

  // New memory, all zero; null with errno set.
  static SharedStorage *create(std::size_t bytes, bool named) {
    const std::string name = unique_name("memory");
    const int descriptor = named ? shm_open(name.c_str(), O_CREAT | O_EXCL | O_RDWR, 0600)
                                 : memfd_create(name.c_str() + 1, MFD_CLOEXEC);
    if (descriptor < 0) return nullptr;
    const std::size_t all = bytes + (named ? HEADER : 0);
    if (ftruncate(descriptor, static_cast<off_t>(all ? all : 1)) != 0) {
      const int problem = errno;
      close(descriptor);
      if (named) shm_unlink(name.c_str());
      errno = problem;
      return nullptr;
    }
    SharedStorage *storage = map(descriptor, bytes, named ? name : "");
    if (storage && named) counter(storage).store(1);
    return storage;
  }

  // The descriptor becomes ours.
  static SharedStorage *open(int descriptor, std::size_t bytes) { return map(descriptor, bytes, ""); }

  // What a message held is the new storage's.
  static SharedStorage *open(const std::string &name, std::size_t bytes) {
    const int descriptor = shm_open(name.c_str(), O_RDWR, 0600);
    return descriptor < 0 ? nullptr : map(descriptor, bytes, name);
  }

  // A message holds the memory too.
  static void hold(SharedStorage *storage) { counter(storage).fetch_add(1); }

  // The process ends: what it still holds by name counts no more.
  static void let_go_of_all() {
    for (SharedStorage *storage : named_) let_go(storage);
    named_.clear();
  }

 private:
  static std::atomic<std::int64_t> &counter(SharedStorage *storage) {
    return *static_cast<std::atomic<std::int64_t> *>(storage->mapping);
  }

  static SharedStorage *map(int descriptor, std::size_t bytes, const std::string &name) {
    const std::size_t header = name.empty() ? 0 : HEADER;
    const std::size_t mapped = bytes + header ? bytes + header : 1;
    void *at = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    const int problem = errno;
    if (!name.empty() || at == MAP_FAILED) close(descriptor);
    if (at == MAP_FAILED) {
      errno = problem;
      return nullptr;
    }
    SharedStorage *storage = new SharedStorage();
    storage->data = static_cast<char *>(at) + header;
    storage->bytes = bytes;
    storage->resizable = false;
    storage->release = release;
    storage->mapping = at;
    storage->mapped = mapped;
    storage->descriptor = name.empty() ? descriptor : -1;
    storage->process = getpid();
    storage->name = name;
    if (!name.empty()) named_.insert(storage);
    return storage;
  }

  static void let_go(SharedStorage *storage) {
    if (storage->process == getpid() && counter(storage).fetch_sub(1) == 1) shm_unlink(storage->name.c_str());
  }

  static void release(Storage *dead) {
    SharedStorage *storage = as_own(dead);
    if (storage->descriptor >= 0) close(storage->descriptor);
    if (!storage->name.empty() && named_.erase(storage)) let_go(storage);
    munmap(storage->mapping, storage->mapped);
    delete storage;
  }

  static inline std::set<SharedStorage *> named_;  // guarded by the GIL
};

}  // namespace flambeau
