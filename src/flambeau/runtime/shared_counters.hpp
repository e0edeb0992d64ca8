// SPDX-License-Identifier: Apache-2.0
// Counters in memory that processes share by name: how many still hold what was sent to them.
#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <random>
#include <string>

namespace flambeau {

// A name that no other process makes.
inline std::string unique_name(const char *what) {
  static int made = 0;
  std::random_device random;
  return "/flambeau_" + std::string(what) + "_" + std::to_string(getpid()) + "_" +
         std::to_string(random()) + "_" + std::to_string(made++);
}

class CounterFile {
 public:
  static constexpr std::size_t SLOTS = 10000;
  static constexpr std::size_t BYTES = SLOTS * sizeof(std::atomic<std::int64_t>);

  // A new file, or another process's; null with errno set.
  static std::unique_ptr<CounterFile> create() {
    auto file = std::make_unique<CounterFile>();
    file->name = unique_name("counters");
    return file->map(O_CREAT | O_EXCL | O_RDWR) ? std::move(file) : nullptr;
  }
  static std::unique_ptr<CounterFile> open(const std::string &name) {
    auto file = std::make_unique<CounterFile>();
    file->name = name;
    return file->map(O_RDWR) ? std::move(file) : nullptr;
  }

  CounterFile() = default;
  CounterFile(const CounterFile &) = delete;
  CounterFile &operator=(const CounterFile &) = delete;
  ~CounterFile() {
    if (slots_) munmap(slots_, BYTES);
  }

  std::atomic<std::int64_t> &at(std::size_t slot) { return slots_[slot]; }
  void unlink() { shm_unlink(name.c_str()); }

  std::string name;
  std::size_t used = 0;    // slots ever taken; none is taken twice
  std::size_t in_use = 0;  // of those, by sends that are not over; in another process, by tensors

 private:
  bool map(int flags) {
    const int descriptor = shm_open(name.c_str(), flags, 0600);
    if (descriptor < 0) return false;
    const bool sized = !(flags & O_CREAT) || ftruncate(descriptor, BYTES) == 0;
    void *at = sized ? mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) : MAP_FAILED;
    close(descriptor);
    if (at == MAP_FAILED) {
      if (flags & O_CREAT) unlink();
      return false;
    }
    slots_ = static_cast<std::atomic<std::int64_t> *>(at);
    return true;
  }

  std::atomic<std::int64_t> *slots_ = nullptr;
};

}  // namespace flambeau
