// SPDX-License-Identifier: Apache-2.0
// Which ready piece of work runs next. Policies choose an order among what dependencies allow and
// nothing else.
#pragma once
#include <algorithm>
#include <map>
#include <random>
#include <unordered_set>

#include "stream/node.hpp"

namespace flambeau::vgpu {

enum class Order : int { Fifo, Random, Adversarial };

using ReadyNodes = std::map<std::uint64_t, NodePtr>;   // by submission

class Scheduler {
 public:
  void set(Order order, std::uint64_t seed) {
    order_ = order;
    random_.seed(seed);
  }

  // What to run when somebody waits (`demanded`) or when time has passed; null: nothing suitable.
  //  fifo         by the streams' priorities, else in the order of submission
  //  random       any ready work
  //  adversarial  only what is waited for, the newest first; the rest stays for as long as it may
  NodePtr choose(const ReadyNodes &ready, bool demanded) {
    if (ready.empty()) return nullptr;
    switch (order_) {
      case Order::Fifo:
        return std::min_element(ready.begin(), ready.end(), [](const auto &a, const auto &b) {
                 return a.second->priority < b.second->priority;
               })->second;
      case Order::Random:
        return std::next(ready.begin(), static_cast<long>(random_() % ready.size()))->second;
      case Order::Adversarial:
        break;
    }
    for (auto it = ready.rbegin(); it != ready.rend(); ++it) {
      if (!demanded || it->second->wanted) return it->second;
    }
    return nullptr;
  }

  // What a poll of `target` may run.
  NodePtr choose_for_poll(const ReadyNodes &ready, const NodePtr &target) {
    if (order_ != Order::Adversarial) return choose(ready, false);
    std::unordered_set<const Node *> ancestors;
    std::vector<const Node *> open{target.get()};
    while (!open.empty()) {
      const Node *node = open.back();
      open.pop_back();
      if (!ancestors.insert(node).second) continue;
      for (const NodePtr &earlier : node->waits_for) {
        if (!earlier->done) open.push_back(earlier.get());
      }
    }
    for (auto it = ready.rbegin(); it != ready.rend(); ++it) {
      if (ancestors.count(it->second.get())) return it->second;
    }
    return nullptr;
  }

 private:
  Order order_ = Order::Fifo;
  std::mt19937_64 random_{0};
};

// Mark everything that `target` depends on. Marks stay: a wait is never given up.
inline void want(const NodePtr &target) {
  std::vector<Node *> open{target.get()};
  while (!open.empty()) {
    Node *node = open.back();
    open.pop_back();
    if (node->wanted || node->done) continue;
    node->wanted = true;
    for (const NodePtr &earlier : node->waits_for) open.push_back(earlier.get());
  }
}

}  // namespace flambeau::vgpu
