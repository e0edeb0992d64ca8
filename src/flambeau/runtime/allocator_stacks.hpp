// SPDX-License-Identifier: Apache-2.0
// Python stacks, each kept once: a tree in which every node is a place in the program, under the
// place that called it.
#pragma once
#include <Python.h>

#include <memory>
#include <unordered_map>
#include <vector>

namespace flambeau {

struct StackNode {
  const StackNode *caller;
  PyCodeObject *code;
  int instruction;

  int line() const { return PyCode_Addr2Line(code, instruction); }
};

// Used with the GIL held. Nodes stay for good, so that whoever keeps one needs no count.
class StackTable {
 public:
  // The present stack of this thread; null if it runs no Python.
  const StackNode *capture() {
    std::vector<std::pair<PyCodeObject *, int>> places;  // innermost first
    places.reserve(32);
    PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
    while (frame) {
      places.push_back({PyFrame_GetCode(frame), PyFrame_GetLasti(frame)});
      PyFrameObject *caller = PyFrame_GetBack(frame);
      Py_DECREF(frame);
      frame = caller;
    }
    const StackNode *node = nullptr;
    for (auto place = places.rbegin(); place != places.rend(); ++place)
      node = intern({node, place->first, place->second});
    for (const auto &place : places) Py_DECREF(place.first);
    return node;
  }

 private:
  struct Hash {
    std::size_t operator()(const StackNode &node) const {
      std::size_t hash = reinterpret_cast<std::size_t>(node.caller) * 0x9E3779B97F4A7C15u;
      hash = (hash ^ (hash >> 29) ^ reinterpret_cast<std::size_t>(node.code)) *
             0xBF58476D1CE4E5B9u;
      return (hash ^ (hash >> 32)) + static_cast<std::size_t>(node.instruction) * 31;
    }
  };
  struct Same {
    bool operator()(const StackNode &a, const StackNode &b) const {
      return a.caller == b.caller && a.code == b.code && a.instruction == b.instruction;
    }
  };

  const StackNode *intern(const StackNode &place) {
    std::unique_ptr<StackNode> &kept = nodes_[place];
    if (!kept) {
      Py_INCREF(place.code);
      kept = std::make_unique<StackNode>(place);
    }
    return kept.get();
  }

  std::unordered_map<StackNode, std::unique_ptr<StackNode>, Hash, Same> nodes_;
};

}  // namespace flambeau
