// SPDX-License-Identifier: Apache-2.0
// Device memory without a cache: every request goes to the driver, or to functions of the user's.
#pragma once
#include <Python.h>

#include <mutex>
#include <new>
#include <vector>

#include "driver_scope.hpp"
#include "pool.hpp"

namespace flambeau {

// What the user's allocator may also want to know; null for what it does not.
struct AllocatorHooks {
  void (*initialize)(int device_count) = nullptr;
  void (*reset)() = nullptr;  // at empty_cache()
  void (*memory_fraction)(double fraction, int device) = nullptr;
  void (*record_stream)(void *memory, CUstream stream) = nullptr;
};

struct DirectStorage : Storage {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  int epoch = 0;                            // when the context was valid
  const SegmentSource *source = nullptr;    // null: the driver
  const AllocatorHooks *hooks = nullptr;
};

// Freeing through the driver may wait, so storages that die only leave their addresses here.
struct DirectAllocator {
  static inline int epoch = 0;
  // Called with the first address after free_dead(); takes the GIL.
  static inline void (*on_dead)() = nullptr;

  static DirectStorage *make(void *memory, std::size_t bytes, int device, CUcontext context,
                             CUstream stream, const SegmentSource *source,
                             const AllocatorHooks *hooks) {
    DirectStorage *storage = new DirectStorage();
    storage->data = static_cast<char *>(memory);
    storage->bytes = bytes;
    storage->device = static_cast<std::int16_t>(device);
    storage->context = context;
    storage->stream = stream;
    storage->epoch = epoch;
    storage->source = source;
    storage->hooks = hooks;
    storage->release = source ? release_to_source : release_to_driver;
    return storage;
  }

  static bool owns(const Storage *storage) {
    return storage->release == release_to_source || storage->release == release_to_driver;
  }

  static CUresult free_dead(const DriverTable *driver) {
    std::vector<Dead> all;
    {
      std::lock_guard<std::mutex> guard(mutex_);
      all.swap(dead_);
    }
    CUresult result = CUDA_SUCCESS;
    for (const Dead &one : all) {
      ContextScope scope(driver, one.context);
      OutsideCapture outside(driver);
      const CUresult status = driver->MemFree(one.address);
      if (result == CUDA_SUCCESS) result = status;
    }
    return result;
  }

  // Every address is void.
  static void forget() {
    new (&mutex_) std::mutex();  // a thread that exists no more may hold the old one
    dead_.clear();
    ++epoch;
  }

 private:
  struct Dead {
    CUcontext context;
    CUdeviceptr address;
  };

  static void release_to_driver(Storage *storage) {
    DirectStorage *direct = static_cast<DirectStorage *>(storage);
    if (direct->epoch == epoch) {
      bool first;
      {
        std::lock_guard<std::mutex> guard(mutex_);
        first = dead_.empty();
        dead_.push_back({direct->context, reinterpret_cast<CUdeviceptr>(direct->data)});
      }
      if (first && on_dead) on_dead();
    }
    delete direct;
  }

  // The user's function may wait for the device, and for others that need the GIL.
  static void release_to_source(Storage *storage) {
    DirectStorage *direct = static_cast<DirectStorage *>(storage);
    if (direct->epoch == epoch) {
      PyThreadState *state = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
      direct->source->release(direct->data, direct->bytes, direct->device, direct->stream);
      if (state) PyEval_RestoreThread(state);
    }
    delete direct;
  }

  static inline std::mutex mutex_;
  static inline std::vector<Dead> dead_;
};

}  // namespace flambeau
