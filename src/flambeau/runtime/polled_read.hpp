// SPDX-License-Identifier: Apache-2.0
// Reading one element of device memory. The copy goes to a pinned word that held a mark; the host
// sees the word change some 2 us before the driver would say that the copy is done. If it does not
// change soon, because the device is busy, work failed, or the element equals the mark, the driver is
// waited for as usual.
#pragma once
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>

#include "flambeau/driver/table.hpp"

namespace flambeau {

class PolledReads {
 public:
  static constexpr std::size_t LEAST = 4, MOST = 8;   // bytes: what arrives at once

  // CUDA_ERROR_NOT_FOUND if no word is free; then nothing was done.
  CUresult read(const DriverTable *driver, void *to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
    const int index = take(driver);
    if (index < 0) return CUDA_ERROR_NOT_FOUND;
    volatile std::uint64_t &word = words_.load(std::memory_order_relaxed)[index * SPACING];
    word = MARK;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    CUresult status = driver->MemcpyDtoHAsync(const_cast<std::uint64_t *>(&word), from, bytes, stream);
    if (status == CUDA_SUCCESS && !arrives(word, bytes)) status = driver->StreamSynchronize(stream);
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint64_t found = word;
    std::memcpy(to, &found, bytes);
    used_.fetch_and(~(1ull << index), std::memory_order_release);
    return status;
  }

  // The memory became void.
  void forget() {
    words_ = nullptr;
    used_ = 0;
  }

 private:
  static constexpr int SPACING = 8;                    // words: one cache line each
  static constexpr std::uint64_t MARK = 0x7ff4a5c37ff4a5c3ull;   // a signalling NaN, in either width
  static constexpr std::chrono::microseconds PATIENCE{30};

  static bool arrives(const volatile std::uint64_t &word, std::size_t bytes) {
    const auto arrived = [&] {
      const std::uint64_t changed = word ^ MARK;
      const bool low = static_cast<std::uint32_t>(changed) != 0;
      return bytes == 8 ? low && (changed >> 32) != 0 : low;
    };
    const auto end = std::chrono::steady_clock::now() + PATIENCE;
    do {
      for (int i = 0; i < 64; ++i) {
        if (arrived()) return true;
      }
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  int take(const DriverTable *driver) {
    if (!words_.load(std::memory_order_acquire) && !make(driver)) return -1;
    std::uint64_t before = used_.load(std::memory_order_relaxed);
    while (~before) {
      const int index = __builtin_ctzll(~before);
      if (used_.compare_exchange_weak(before, before | 1ull << index, std::memory_order_acquire)) return index;
    }
    return -1;
  }

  bool make(const DriverTable *driver) {
    std::lock_guard<std::mutex> guard(making_);
    if (words_) return true;
    void *memory = nullptr;
    constexpr unsigned PORTABLE = 1;
    if (driver->MemHostAlloc(&memory, 64 * SPACING * sizeof(std::uint64_t), PORTABLE) != CUDA_SUCCESS) return false;
    words_.store(static_cast<volatile std::uint64_t *>(memory), std::memory_order_release);
    return true;
  }

  std::mutex making_;
  std::atomic<volatile std::uint64_t *> words_{nullptr};
  std::atomic<std::uint64_t> used_{0};
};

}  // namespace flambeau
