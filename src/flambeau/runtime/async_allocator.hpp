// SPDX-License-Identifier: Apache-2.0
// Device memory from the driver's own pools, allocated and freed in the order of streams
// (cuMemAllocAsync). Nothing is cached here; what is free is the driver's to know.
#pragma once
#include <algorithm>
#include <mutex>
#include <new>
#include <vector>

#include "driver_scope.hpp"
#include "pool.hpp"

namespace flambeau {

struct AsyncStorage : Storage {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  int epoch = 0;          // when the context was valid
  bool captured = false;  // a graph's: the driver maps it with each launch
  std::vector<StreamUse> uses;
};

struct AsyncAllocator {
  static inline int epoch = 0;
  static inline const DriverTable *driver = nullptr;

  static AsyncStorage *make(CUdeviceptr memory, std::size_t bytes, int device, CUcontext context,
                            CUstream stream, bool captured) {
    AsyncStorage *storage = new AsyncStorage();
    storage->data = reinterpret_cast<char *>(memory);
    storage->bytes = bytes;
    storage->device = static_cast<std::int16_t>(device);
    storage->context = context;
    storage->stream = stream;
    storage->epoch = epoch;
    storage->captured = captured;
    storage->release = release;
    return storage;
  }

  static bool owns(const Storage *storage) { return storage->release == release; }
  static AsyncStorage *as_own(Storage *storage) { return static_cast<AsyncStorage *>(storage); }

  // False if the stream is the one that the memory was made for.
  static bool record_use(AsyncStorage *storage, StreamUse use) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (use == StreamUse{storage->context, storage->stream}) return false;
    for (const StreamUse &known : storage->uses)
      if (known == use) return true;
    storage->uses.push_back(use);
    return true;
  }

  // While a capture runs, memory from outside it is not freed: that would become a part of the graph.
  static void set_capturing(bool on) {
    std::vector<AsyncStorage *> waiting;
    {
      std::lock_guard<std::mutex> guard(mutex_);
      capturing_ = on;
      if (!on) waiting.swap(deferred_);
    }
    for (AsyncStorage *storage : waiting) free(storage);
  }

  // What could not be freed in the order of a stream, because that is gone. Waits for the device.
  static CUresult free_stranded() {
    std::vector<Stranded> all;
    {
      std::lock_guard<std::mutex> guard(mutex_);
      all.swap(stranded_);
    }
    CUresult result = CUDA_SUCCESS;
    for (const Stranded &one : all) {
      ContextScope scope(driver, one.context);
      const CUresult status = driver->MemFree(one.address);
      if (result == CUDA_SUCCESS) result = status;
    }
    return result;
  }

  // Every address is void.
  static void forget() {
    new (&mutex_) std::mutex();  // a thread that exists no more may hold the old one
    deferred_.clear();
    stranded_.clear();
    joints_.clear();
    capturing_ = false;
    ++epoch;
  }

 private:
  struct Stranded {
    CUcontext context;
    CUdeviceptr address;
  };
  // Where the uses of several streams come together: a stream that nothing else runs on.
  struct Joint {
    CUcontext context;
    CUstream stream;
    CUevent event;
  };

  static void release(Storage *dead) {
    AsyncStorage *storage = as_own(dead);
    if (storage->epoch != epoch) {
      delete storage;
      return;
    }
    {
      std::lock_guard<std::mutex> guard(mutex_);
      if (capturing_ && !storage->captured) {
        deferred_.push_back(storage);
        return;
      }
    }
    free(storage);
  }

  static void free(AsyncStorage *storage) {
    const CUdeviceptr address = reinterpret_cast<CUdeviceptr>(storage->data);
    ContextScope scope(driver, storage->context);
    CUresult status = CUDA_SUCCESS;
    CUstream where = storage->stream;
    if (!storage->uses.empty()) {
      std::lock_guard<std::mutex> guard(mutex_);
      status = join(*storage, &where);
    }
    if (status == CUDA_SUCCESS) status = driver->MemFreeAsync(address, where);
    // Of a graph's memory the driver may say that it is not mapped now: the graph frees it itself.
    if (status != CUDA_SUCCESS && !storage->captured) {
      std::lock_guard<std::mutex> guard(mutex_);
      stranded_.push_back({storage->context, address});
    }
    delete storage;
  }

  // A stream that waits for all that use the memory.
  static CUresult join(const AsyncStorage &storage, CUstream *where) {
    Joint *joint = nullptr;
    for (Joint &known : joints_)
      if (known.context == storage.context) joint = &known;
    if (!joint) {
      Joint made{storage.context, nullptr, nullptr};
      CUresult status = driver->StreamCreateWithPriority(&made.stream, 1, 0);
      if (status != CUDA_SUCCESS) return status;
      status = driver->EventCreate(&made.event, 2);  // CU_EVENT_DISABLE_TIMING
      if (status != CUDA_SUCCESS) {
        driver->StreamDestroy(made.stream);
        return status;
      }
      joints_.push_back(made);
      joint = &joints_.back();
    }
    std::vector<StreamUse> uses = storage.uses;
    uses.push_back({storage.context, storage.stream});
    for (const StreamUse &use : uses) {
      const CUresult status = wait_for(*joint, use);
      if (status != CUDA_SUCCESS) return status;
    }
    *where = joint->stream;
    return CUDA_SUCCESS;
  }

  static CUresult wait_for(const Joint &joint, const StreamUse &use) {
    if (use.context == joint.context) {
      const CUresult status = driver->EventRecord(joint.event, use.stream);
      return status == CUDA_SUCCESS ? driver->StreamWaitEvent(joint.stream, joint.event, 0) : status;
    }
    ContextScope scope(driver, use.context);  // events record streams of their own device only
    CUevent event = nullptr;
    CUresult status = driver->EventCreate(&event, 2);
    if (status != CUDA_SUCCESS) return status;
    status = driver->EventRecord(event, use.stream);
    if (status == CUDA_SUCCESS) status = driver->StreamWaitEvent(joint.stream, event, 0);
    driver->EventDestroy(event);
    return status;
  }

  static inline std::mutex mutex_;
  static inline bool capturing_ = false;
  static inline std::vector<AsyncStorage *> deferred_;
  static inline std::vector<Stranded> stranded_;
  static inline std::vector<Joint> joints_;  // one a device
};

}  // namespace flambeau
