// SPDX-License-Identifier: Apache-2.0
// What a stream capture forbids. A call that breaks a rule is refused, every capture that it would
// have spoilt becomes invalid, and the text of the first such call is kept.
#pragma once
#include <unordered_set>

#include "flambeau/driver/virtual/entries/call.hpp"

namespace flambeau::vgpu {

inline thread_local CaptureMode thread_capture_mode = CAPTURE_GLOBAL;

inline void break_capture(Capture &capture, const std::string &why) {
  if (!capture.broken()) capture.broken_by = why;
}

inline CUresult refuse_broken(Call &call, const Capture &capture) {
  return call.fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                   "The capture on " + capture.origin->name + " is invalid. " + capture.broken_by);
}

// Refuse a call because of one capture, which is spoilt by it.
inline CUresult refuse(Call &call, Capture &capture, CUresult status, const std::string &why) {
  if (capture.broken()) return refuse_broken(call, capture);
  break_capture(capture, why);
  return call.fail(status, why);
}

inline std::string under_way(const Capture &capture) {
  const bool own = capture.thread == std::this_thread::get_id();
  return "while " + capture.origin->name + " is being captured" + (own ? "" : " by another thread");
}

// A capture that work or a question on the default stream of a context would have to wait for.
inline Capture *implicit_capture(Machine &machine, const Context &context) {
  for (const auto &capture : machine.graphs.captures) {
    for (const Stream *member : capture->members) {
      if (member->context == &context && member->blocking()) return capture.get();
    }
  }
  return nullptr;
}

// A stream that work may be given to.
inline Stream *work_stream(Call &call, CUstream handle) {
  Stream *stream = call.stream(handle);
  if (!stream) return nullptr;
  if (stream->capture) {
    if (!stream->capture->broken()) return stream;
    refuse_broken(call, *stream->capture);
    return nullptr;
  }
  if (stream->legacy && !call.machine().graphs.captures.empty()) {
    if (Capture *capture = implicit_capture(call.machine(), *stream->context)) {
      refuse(call, *capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
             "Work was given to " + stream->name + " " + under_way(*capture) +
                 "; the default stream waits for every blocking stream. Use another stream, or create "
                 "the captured one as non-blocking.");
      return nullptr;
    }
  }
  return stream;
}

// Refuse a call that may disturb captures of this thread, or global ones of others. True if it is.
inline bool refuse_unsafe(Call &call, const char *entry) {
  if (call.failed()) return true;
  auto &captures = call.machine().graphs.captures;
  if (captures.empty() || thread_capture_mode == CAPTURE_RELAXED) return false;
  bool refused = false;
  for (const auto &capture : captures) {
    const bool own = capture->thread == std::this_thread::get_id() && capture->mode != CAPTURE_RELAXED;
    const bool other = capture->thread != std::this_thread::get_id() && capture->mode == CAPTURE_GLOBAL &&
                       thread_capture_mode == CAPTURE_GLOBAL;
    if (!own && !other) continue;
    refuse(call, *capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
           std::string(entry) + " was called " + under_way(*capture) + "; it could wait for captured work. " +
               (own ? "Call it before or after the capture."
                    : "Let that thread wait, or capture with capture_error_mode=\"thread_local\"."));
    refused = true;
  }
  return refused;
}

// Refuse a question to, or a wait for, a stream that is being captured: nothing there ever runs.
inline bool refuse_captured(Call &call, const Stream &stream, const char *entry) {
  if (!stream.capture) return refuse_unsafe(call, entry);
  refuse(call, *stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
         std::string(entry) + " was called for " + stream.name + " " + under_way(*stream.capture) +
             "; captured work does not run. Call it after the capture, or after a replay.");
  return true;
}

// The same for an event.
inline bool refuse_captured(Call &call, const Event &event, const char *entry) {
  if (!event.capture) return refuse_unsafe(call, entry);
  if (event.capture->over()) {
    call.fail(CUDA_ERROR_INVALID_VALUE,
              std::string(entry) + ": the event was last recorded in a stream capture, which leaves only an "
              "order in the graph. Record it again, or record it with external=True in the capture.");
  } else {
    refuse(call, *event.capture, CUDA_ERROR_CAPTURED_EVENT,
           std::string(entry) + " was called for an event that was recorded in the capture on " +
               event.capture->origin->name + "; captured work does not run. Wait for it with a stream.");
  }
  return true;
}

// Refuse a copy of pageable memory, which would have to be done before the call returns.
inline bool refuse_pageable(Call &call, const Stream &stream, const char *entry) {
  if (!stream.capture) return false;
  refuse(call, *stream.capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
         std::string(entry) + " was given pageable host memory " + under_way(*stream.capture) +
             ". Copy from or to page-locked memory, or before the capture.");
  return true;
}

// Whether a device-wide wait meets a capture.
inline bool refuse_device_wait(Call &call, const Context &context, const char *entry) {
  for (const auto &capture : call.machine().graphs.captures) {
    for (const Stream *member : capture->members) {
      if (member->context != &context) continue;
      refuse(call, *capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
             std::string(entry) + " was called " + under_way(*capture) +
                 "; it waits for the whole device. Call it before or after the capture.");
      return true;
    }
  }
  return refuse_unsafe(call, entry);
}

// --- what captured streams depend on

inline void add_ancestors(const std::vector<GraphNode *> &from, std::unordered_set<const GraphNode *> &found) {
  std::vector<const GraphNode *> open(from.begin(), from.end());
  while (!open.empty()) {
    const GraphNode *node = open.back();
    open.pop_back();
    for (const GraphNode *earlier : node->dependencies) {
      if (found.insert(earlier).second) open.push_back(earlier);
    }
  }
}

// Both sets of nodes, without those that others of them depend on.
inline std::vector<GraphNode *> joined(const std::vector<GraphNode *> &a, const std::vector<GraphNode *> &b) {
  std::vector<GraphNode *> all = a;
  for (GraphNode *node : b) {
    if (std::find(all.begin(), all.end(), node) == all.end()) all.push_back(node);
  }
  std::unordered_set<const GraphNode *> earlier;
  add_ancestors(all, earlier);
  all.erase(std::remove_if(all.begin(), all.end(), [&](GraphNode *node) { return earlier.count(node); }),
            all.end());
  return all;
}

// Nodes that the capture's origin does not wait for in the end; null if there are none.
inline const GraphNode *unjoined(const Capture &capture) {
  std::unordered_set<const GraphNode *> earlier(capture.origin->frontier.begin(),
                                                capture.origin->frontier.end());
  add_ancestors(capture.origin->frontier, earlier);
  for (const auto &node : capture.graph->nodes) {
    if (!earlier.count(node.get())) return node.get();
  }
  return nullptr;
}

// The streams and events of a capture go back to normal; the graph is the caller's.
inline std::unique_ptr<Graph> end_capture(Machine &machine, const std::shared_ptr<Capture> &capture) {
  for (Stream *member : capture->members) {
    member->capture.reset();
    member->frontier.clear();
  }
  auto &captures = machine.graphs.captures;
  captures.erase(std::remove(captures.begin(), captures.end(), capture), captures.end());
  return std::move(capture->graph);
}

// A stream that is being captured goes away.
inline void leave_capture(Machine &machine, Stream &stream) {
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) return;
  break_capture(*capture, "Its " + stream.name + " was destroyed.");
  capture->members.erase(&stream);
  stream.capture.reset();
  if (capture->origin == &stream) end_capture(machine, capture);
}

}  // namespace flambeau::vgpu
