// SPDX-License-Identifier: Apache-2.0
// Blocks that other processes were given: as long as one of those holds them they stay allocated, in
// limbo once nobody here does.
#pragma once
#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "block.hpp"
#include "driver_scope.hpp"
#include "shared_counters.hpp"

namespace flambeau {

// One send of one block.
struct Send {
  CounterFile *file = nullptr;
  std::size_t slot = 0;
  CUevent event = nullptr;  // what the receiver waits for; null: it was waited for here
  CUcontext context = nullptr;
  std::vector<int> descriptors;  // of an expandable segment's pages
};

class SentBlocks {
 public:
  static constexpr int MOST_EVENTS = 1000;
  static constexpr std::size_t MANY_IN_LIMBO = 1000;
  static inline const DriverTable *driver = nullptr;

  // Count a send of a block; null if there is no shared memory for the counter.
  static const Send *add(Block *block, Send send) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (files_.empty() || files_.back()->used == CounterFile::SLOTS) {
      auto made = CounterFile::create();
      if (!made) return nullptr;
      files_.push_back(std::move(made));
    }
    CounterFile *file = files_.back().get();
    send.file = file;
    send.slot = file->used++;
    ++file->in_use;
    file->at(send.slot).store(1);
    if (send.event) ++events_;
    std::vector<Send> &sends = sends_[block];
    sends.push_back(std::move(send));
    block->sent = true;
    return &sends.back();
  }

  static bool may_have_event() {
    std::lock_guard<std::mutex> guard(mutex_);
    return events_ < MOST_EVENTS;
  }

  // Descriptors that an earlier send of the block has open.
  static std::vector<int> descriptors_of(Block *block) {
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = sends_.find(block);
    if (found == sends_.end()) return {};
    for (const Send &send : found->second)
      if (!send.descriptors.empty()) return send.descriptors;
    return {};
  }

  // Whether to keep a block that nobody in this process holds. Called where a tensor dies.
  static bool keep(Block *block) {
    if (limbo_size()) collect();
    std::lock_guard<std::mutex> guard(mutex_);
    const auto found = sends_.find(block);
    if (found == sends_.end()) return false;
    if (end_sends(block, found->second)) {
      sends_.erase(found);
      return false;
    }
    limbo_.push_back(block);
    return true;
  }

  // Take back what no process holds any more; whether there was any.
  static bool collect() {
    std::vector<Block *> over;
    {
      std::lock_guard<std::mutex> guard(mutex_);
      for (auto it = sends_.begin(); it != sends_.end();) {
        it = end_sends(it->first, it->second) ? sends_.erase(it) : std::next(it);
      }
      std::size_t kept = 0;
      for (Block *block : limbo_) {
        if (block->sent) limbo_[kept++] = block;
        else over.push_back(block);
      }
      limbo_.resize(kept);
    }
    for (Block *block : over) static_cast<Storage *>(block)->release(block);
    return !over.empty();
  }

  // Remove the files of counters that nobody uses.
  static void drop_files() {
    std::lock_guard<std::mutex> guard(mutex_);
    for (auto it = files_.begin(); it != files_.end();) {
      if ((*it)->in_use) {
        ++it;
        continue;
      }
      (*it)->unlink();
      it = files_.erase(it);
    }
  }

  static std::size_t limbo_size() {
    std::lock_guard<std::mutex> guard(mutex_);
    return limbo_.size();
  }
  static std::vector<Block *> limbo() {
    std::lock_guard<std::mutex> guard(mutex_);
    return limbo_;
  }
  // Sends that some process has not finished with.
  static std::size_t outstanding() {
    std::lock_guard<std::mutex> guard(mutex_);
    std::size_t count = 0;
    for (auto &[block, sends] : sends_)
      for (Send &send : sends) count += send.file->at(send.slot).load() > 0;
    return count;
  }

  // The block of a send that came back to this process; one reference, or null.
  static Block *reclaim(const std::string &name, std::size_t slot) {
    std::lock_guard<std::mutex> guard(mutex_);
    for (auto &[block, sends] : sends_)
      for (Send &send : sends) {
        if (send.slot != slot || send.file->name != name) continue;
        const auto waiting = std::find(limbo_.begin(), limbo_.end(), block);
        if (waiting != limbo_.end()) {
          limbo_.erase(waiting);
          block->references.store(1);
        } else {
          block->retain();
        }
        send.file->at(slot).fetch_sub(1);
        return block;
      }
    return nullptr;
  }

  // The driver's handles are void; in a forked child the counters are the parent's.
  static void forget(bool forked) {
    new (&mutex_) std::mutex();
    for (auto &file : files_) {
      if (forked) file.release();  // stays mapped: the parent's
      else file->unlink();
    }
    files_.clear();
    sends_.clear();
    limbo_.clear();
    events_ = 0;
  }

 private:
  // Forget the sends of a block that are over; whether all are.
  static bool end_sends(Block *block, std::vector<Send> &sends) {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < sends.size(); ++i) {
      Send &send = sends[i];
      if (send.file->at(send.slot).load() > 0) {
        if (kept != i) sends[kept] = std::move(send);
        ++kept;
        continue;
      }
      --send.file->in_use;
      if (!send.event) continue;
      ContextScope scope(driver, send.context);
      driver->EventDestroy(send.event);
      --events_;
    }
    if (!kept) {
      // All sends of a block share their descriptors.
      for (const Send &send : sends)
        if (!send.descriptors.empty()) {
          for (const int descriptor : send.descriptors) close(descriptor);
          break;
        }
      block->sent = false;
    }
    sends.resize(kept);
    return kept == 0;
  }

  static inline std::mutex mutex_;
  static inline std::vector<std::unique_ptr<CounterFile>> files_;
  static inline std::unordered_map<Block *, std::vector<Send>> sends_;
  static inline std::vector<Block *> limbo_;
  static inline int events_ = 0;
};

}  // namespace flambeau
