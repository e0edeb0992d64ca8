// SPDX-License-Identifier: Apache-2.0
// Device memory of another process: mapped once for all tensors that lie in it, given back when the
// last of them dies.
#pragma once
#include <Python.h>

#include <map>
#include <mutex>
#include <new>

#include "block.hpp"
#include "driver_scope.hpp"
#include "shared_counters.hpp"

namespace flambeau {

// A whole segment, or some pages of an expandable one.
struct RemoteMapping {
  std::string handle;
  CUcontext context = nullptr;
  CUdeviceptr base = 0;
  std::size_t bytes = 0;               // of addresses that were reserved; 0: opened by a handle
  std::size_t page = 0;
  int users = 0;
};

struct ReceivedStorage : Storage {
  RemoteMapping *mapping = nullptr;
  CounterFile *counters = nullptr;
  std::size_t slot = 0;
  int epoch = 0;                // when the mapping was valid
  int process = 0;              // that received it; a forked child's copy counts for nothing
  std::vector<StreamUse> uses;  // that must have ended before the sender may have the memory back
};

struct RemoteMemory {
  static inline int epoch = 0;
  static inline const DriverTable *driver = nullptr;

  static bool owns(const Storage *storage) { return storage->release == release; }
  static ReceivedStorage *as_own(Storage *storage) { return static_cast<ReceivedStorage *>(storage); }

  static void record_use(ReceivedStorage *storage, StreamUse use) {
    std::lock_guard<std::mutex> guard(mutex_);
    for (const StreamUse &known : storage->uses)
      if (known == use) return;
    storage->uses.push_back(use);
  }

  // One user more of a mapping; null with the status if it could not be made.
  static RemoteMapping *open(const std::string &key, const CUipcHandle &handle, CUcontext context,
                             CUresult *status) {
    std::lock_guard<std::mutex> guard(mutex_);
    RemoteMapping *known = find(key);
    if (known) return known;
    CUdeviceptr base = 0;
    *status = driver->IpcOpenMemHandle(&base, handle, 1);  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
    return *status == CUDA_SUCCESS ? add(key, context, base, 0, 0) : nullptr;
  }

  static RemoteMapping *open_pages(const std::string &key, const std::vector<int> &descriptors,
                                   std::size_t page, int device, CUcontext context, CUresult *status) {
    std::lock_guard<std::mutex> guard(mutex_);
    RemoteMapping *known = find(key);
    if (known) return known;
    const std::size_t bytes = page * descriptors.size();
    CUdeviceptr base = 0;
    *status = driver->MemAddressReserve(&base, bytes, 0, 0, 0);
    if (*status != CUDA_SUCCESS) return nullptr;
    std::size_t mapped = 0;
    for (const int descriptor : descriptors) {
      CUmemHandle handle = 0;
      void *shared = reinterpret_cast<void *>(static_cast<std::intptr_t>(descriptor));
      *status = driver->MemImportFromShareableHandle(&handle, shared, 1);
      if (*status != CUDA_SUCCESS) break;
      *status = driver->MemMap(base + mapped, page, 0, handle, 0);
      driver->MemRelease(handle);  // the mapping keeps it
      if (*status != CUDA_SUCCESS) break;
      mapped += page;
    }
    const CUmemAccessDesc access = {{1, device}, 3};
    if (*status == CUDA_SUCCESS) *status = driver->MemSetAccess(base, bytes, &access, 1);
    if (*status == CUDA_SUCCESS) return add(key, context, base, bytes, page);
    if (mapped) driver->MemUnmap(base, mapped);
    driver->MemAddressFree(base, bytes);
    return nullptr;
  }

  // A storage in a mapping that this call's caller is a user of; null if there is no such counter.
  static ReceivedStorage *make(RemoteMapping *mapping, std::size_t offset, std::size_t bytes, int device,
                               const std::string &counters, std::size_t slot, StreamUse use) {
    std::lock_guard<std::mutex> guard(mutex_);
    CounterFile *file = counters_of(counters);
    if (!file) {
      drop(mapping);
      return nullptr;
    }
    ReceivedStorage *storage = new ReceivedStorage();
    storage->data = reinterpret_cast<char *>(mapping->base + offset);
    storage->bytes = bytes;
    storage->device = static_cast<std::int16_t>(device);
    storage->resizable = false;
    storage->release = release;
    storage->mapping = mapping;
    storage->counters = file;
    storage->slot = slot;
    storage->epoch = epoch;
    storage->process = getpid();
    storage->uses.push_back(use);
    ++file->in_use;
    return storage;
  }

  // Say that something received is not needed; false if its sender is unknown.
  static bool decrement(const std::string &counters, std::size_t slot) {
    std::lock_guard<std::mutex> guard(mutex_);
    CounterFile *file = counters_of(counters);
    if (!file) return false;
    file->at(slot).fetch_sub(1);
    if (!file->in_use) files_.erase(counters);
    return true;
  }

  // Every mapping is void.
  static void forget() {
    new (&mutex_) std::mutex();
    mappings_.clear();
    ++epoch;
  }

 private:
  static RemoteMapping *find(const std::string &key) {
    const auto known = mappings_.find(key);
    if (known == mappings_.end()) return nullptr;
    ++known->second.users;
    return &known->second;
  }
  static RemoteMapping *add(const std::string &key, CUcontext context, CUdeviceptr base,
                            std::size_t bytes, std::size_t page) {
    RemoteMapping &made = mappings_[key];
    made = {key, context, base, bytes, page, 1};
    return &made;
  }
  static CounterFile *counters_of(const std::string &name) {
    std::unique_ptr<CounterFile> &file = files_[name];
    if (!file) file = CounterFile::open(name);
    if (!file) files_.erase(name);
    const auto found = files_.find(name);
    return found == files_.end() ? nullptr : found->second.get();
  }

  // The sender may overwrite the memory as soon as the counter falls, so work on it must be over.
  static void release(Storage *dead) {
    ReceivedStorage *storage = as_own(dead);
    PyThreadState *state = PyGILState_Check() ? PyEval_SaveThread() : nullptr;
    if (storage->epoch == epoch) {
      for (const StreamUse &use : storage->uses) {
        ContextScope scope(driver, use.context);
        OutsideCapture outside(driver);
        driver->StreamSynchronize(use.stream);
      }
    }
    {
      std::lock_guard<std::mutex> guard(mutex_);
      if (storage->process == getpid()) storage->counters->at(storage->slot).fetch_sub(1);
      if (--storage->counters->in_use == 0) files_.erase(std::string(storage->counters->name));
      if (storage->epoch == epoch) drop(storage->mapping);
    }
    if (state) PyEval_RestoreThread(state);
    delete storage;
  }

  static void drop(RemoteMapping *mapping) {
    if (--mapping->users > 0) return;
    ContextScope scope(driver, mapping->context);
    OutsideCapture outside(driver);
    if (mapping->bytes) {
      driver->MemUnmap(mapping->base, mapping->bytes);
      driver->MemAddressFree(mapping->base, mapping->bytes);
    } else {
      driver->IpcCloseMemHandle(mapping->base);
    }
    mappings_.erase(std::string(mapping->handle));
  }

  static inline std::mutex mutex_;
  static inline std::map<std::string, RemoteMapping> mappings_;  // by handle
  static inline std::map<std::string, std::unique_ptr<CounterFile>> files_;
};

}  // namespace flambeau
