// SPDX-License-Identifier: Apache-2.0
// Events that must pass before something may be reused: one queue per stream, in order.
#pragma once
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "block.hpp"
#include "driver_scope.hpp"

namespace flambeau {

// Owner is what waits. All methods are called with the owner's lock held; those that take the lock
// let go of it around driver calls, and look again at what they find afterwards.
template <class Owner> class PendingEvents {
 public:
  bool empty() const { return count_ == 0; }
  void forget() {
    queues_.clear();
    idle_.clear();
    count_ = 0;
  }

  // Mark the present end of a stream's work. Called without the lock.
  static CUresult record(const DriverTable *driver, const StreamUse &use, CUevent *event) {
    ContextScope scope(driver, use.context);
    if (!*event) {
      const CUresult status = driver->EventCreate(event, 2);  // CU_EVENT_DISABLE_TIMING
      if (status != CUDA_SUCCESS) return status;
    }
    return driver->EventRecord(*event, use.stream);
  }

  // An event to record, or null: then record() makes one.
  CUevent idle_event(const StreamUse &use) {
    std::vector<CUevent> &idle = idle_[use.context];
    if (idle.empty()) return nullptr;
    const CUevent event = idle.back();
    idle.pop_back();
    return event;
  }
  void give_back(const StreamUse &use, CUevent event) {
    if (event) idle_[use.context].push_back(event);
  }

  void push(const StreamUse &use, CUevent event, Owner *owner) {
    queues_[{use.context, use.stream}].push_back({event, owner, ++tickets_});
    ++count_;
  }

  // Hand over whose events have passed, oldest first, in each queue up to the first that has not.
  // `passed(owner)` is called with the lock held.
  template <class Passed>
  CUresult poll(const DriverTable *driver, std::unique_lock<std::mutex> &lock, Passed passed) {
    for (const Key &key : keys()) {
      const CUresult status = advance(driver, lock, key, passed, &DriverTable::EventQuery);
      if (status != CUDA_SUCCESS && status != CUDA_ERROR_NOT_READY) return status;
    }
    return CUDA_SUCCESS;
  }

  // The same for all, waiting for each event.
  template <class Passed>
  CUresult wait(const DriverTable *driver, std::unique_lock<std::mutex> &lock, Passed passed) {
    for (const Key &key : keys()) {
      const CUresult status = advance(driver, lock, key, passed, &DriverTable::EventSynchronize);
      if (status != CUDA_SUCCESS) return status;
    }
    return CUDA_SUCCESS;
  }

 private:
  struct Entry {
    CUevent event;
    Owner *owner;
    std::int64_t ticket;
  };
  using Key = std::pair<CUcontext, CUstream>;

  std::vector<Key> keys() const {
    std::vector<Key> all;
    for (const auto &queue : queues_) all.push_back(queue.first);
    return all;
  }

  template <class Passed>
  CUresult advance(const DriverTable *driver, std::unique_lock<std::mutex> &lock, const Key &key,
                   Passed passed, CUresult (*DriverTable::*ask)(CUevent)) {
    for (auto queue = queues_.find(key); queue != queues_.end(); queue = queues_.find(key)) {
      const Entry entry = queue->second.front();
      lock.unlock();
      CUresult status;
      {
        OutsideCapture outside(driver);
        status = (driver->*ask)(entry.event);
      }
      lock.lock();
      queue = queues_.find(key);
      if (queue == queues_.end() || queue->second.front().ticket != entry.ticket)
        continue;  // another thread was faster
      if (status != CUDA_SUCCESS) return status;
      queue->second.pop_front();
      --count_;
      if (queue->second.empty()) queues_.erase(queue);
      idle_[key.first].push_back(entry.event);
      passed(entry.owner);
    }
    return CUDA_SUCCESS;
  }

  std::map<Key, std::deque<Entry>> queues_;
  std::map<CUcontext, std::vector<CUevent>> idle_;
  std::int64_t count_ = 0, tickets_ = 0;
};

}  // namespace flambeau
