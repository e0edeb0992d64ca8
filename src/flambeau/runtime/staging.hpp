// SPDX-License-Identifier: Apache-2.0
// Large copies between a device and pageable host memory. The driver's own way copies through one
// buffer with one thread; here several threads fill one pinned buffer while others are in flight.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "flambeau/driver/table.hpp"

namespace flambeau {

// A few threads that copy memory together with the caller.
class CopyTeam {
 public:
  explicit CopyTeam(int helpers) {
    for (int i = 0; i < helpers; ++i) std::thread([this, i] { serve(i + 1); }).detach();
    members_ = helpers + 1;
  }

  void copy(char *to, const char *from, std::size_t bytes) {
    {
      std::lock_guard<std::mutex> guard(lock_);
      to_ = to, from_ = from, bytes_ = bytes;
      busy_ = members_ - 1;
      ++round_;
    }
    begin_.notify_all();
    part(0, to, from, bytes);
    std::unique_lock<std::mutex> guard(lock_);
    end_.wait(guard, [this] { return busy_ == 0; });
  }

 private:
  void part(int member, char *to, const char *from, std::size_t bytes) const {
    const std::size_t each = (bytes / members_ + 63) / 64 * 64;
    const std::size_t first = std::min(bytes, member * each);
    const std::size_t last = member + 1 == members_ ? bytes : std::min(bytes, first + each);
    std::memcpy(to + first, from + first, last - first);
  }

  void serve(int member) {
    std::unique_lock<std::mutex> guard(lock_);
    for (std::uint64_t seen = 0;;) {
      begin_.wait(guard, [&] { return round_ != seen; });
      seen = round_;
      char *to = to_;
      const char *from = from_;
      const std::size_t bytes = bytes_;
      guard.unlock();
      part(member, to, from, bytes);
      guard.lock();
      if (--busy_ == 0) end_.notify_one();
    }
  }

  std::mutex lock_;
  std::condition_variable begin_, end_;
  std::uint64_t round_ = 0;
  int members_ = 1, busy_ = 0;
  char *to_ = nullptr;
  const char *from_ = nullptr;
  std::size_t bytes_ = 0;
};

// The pinned buffers of one device, each with the event that says when it is free again.
class Staging {
 public:
  static constexpr std::size_t CHUNK = std::size_t(8) << 20;
  static constexpr std::size_t WORTHWHILE = std::size_t(4) << 20;  // smaller copies are the driver's

  // Both return once the host memory may be reused (up) or holds the data (down). The device's
  // context is current. Nothing is left in flight from or into the caller's memory on failure.
  CUresult up(const DriverTable *driver, CUdeviceptr to, const char *from, std::size_t bytes,
              CUstream stream) {
    std::lock_guard<std::mutex> guard(lock_);
    CUresult status = prepare(driver);
    for (std::size_t done = 0; done < bytes && status == CUDA_SUCCESS; done += CHUNK) {
      const std::size_t part = std::min(CHUNK, bytes - done);
      Buffer &buffer = next();
      if ((status = driver->EventSynchronize(buffer.free))) break;
      team_->copy(buffer.data, from + done, part);
      if ((status = driver->MemcpyHtoDAsync(to + done, buffer.data, part, stream))) break;
      status = driver->EventRecord(buffer.free, stream);
    }
    return status;
  }

  CUresult down(const DriverTable *driver, char *to, CUdeviceptr from, std::size_t bytes,
                CUstream stream) {
    std::lock_guard<std::mutex> guard(lock_);
    CUresult status = prepare(driver);
    std::size_t asked = 0, fetched = 0;
    int first = 0, flying = 0;
    while (fetched < bytes && status == CUDA_SUCCESS) {
      while (asked < bytes && flying < BUFFERS && status == CUDA_SUCCESS) {
        Buffer &buffer = buffers_[(first + flying) % BUFFERS];
        const std::size_t part = std::min(CHUNK, bytes - asked);
        if ((status = driver->EventSynchronize(buffer.free))) break;  // of an upload before this
        if ((status = driver->MemcpyDtoHAsync(buffer.data, from + asked, part, stream))) break;
        status = driver->EventRecord(buffer.free, stream);
        asked += part;
        ++flying;
      }
      if (status) break;
      Buffer &buffer = buffers_[first];
      const std::size_t part = std::min(CHUNK, bytes - fetched);
      if ((status = driver->EventSynchronize(buffer.free))) break;
      team_->copy(to + fetched, buffer.data, part);
      fetched += part;
      first = (first + 1) % BUFFERS;
      --flying;
    }
    return status;
  }

  // Handles became void: a fresh driver, or a forked child.
  void forget() {
    for (Buffer &buffer : buffers_) buffer = Buffer();
    team_ = nullptr;
  }

 private:
  static constexpr int BUFFERS = 4;
  struct Buffer {
    char *data = nullptr;
    CUevent free = nullptr;
  };

  Buffer &next() { return buffers_[turn_++ % BUFFERS]; }

  CUresult prepare(const DriverTable *driver) {
    for (Buffer &buffer : buffers_) {
      if (!buffer.data)
        if (CUresult s = driver->MemHostAlloc(reinterpret_cast<void **>(&buffer.data), CHUNK, 1))
          return s;
      if (!buffer.free)
        if (CUresult s = driver->EventCreate(&buffer.free, 2)) return s;  // untimed
    }
    if (!team_) {
      const int cores = static_cast<int>(std::thread::hardware_concurrency());
      team_ = new CopyTeam(std::clamp(cores / 2, 1, 4) - 1);
    }
    return CUDA_SUCCESS;
  }

  // Held across calls that wait, but only by threads without the GIL, and no host callback may copy.
  std::mutex lock_;
  Buffer buffers_[BUFFERS];
  unsigned turn_ = 0;
  CopyTeam *team_ = nullptr;  // lives as long as the process: its threads may be waiting
};

inline Staging &staging_of(int device) {
  static Staging *all = new Staging[64];
  return all[device];
}

}  // namespace flambeau
