// SPDX-License-Identifier: Apache-2.0
// Entries: conditional nodes of graphs under capture.
#pragma once
#include "flambeau/driver/virtual/graph/conditional.hpp"
#include "flambeau/driver/virtual/graph/rules.hpp"

namespace flambeau::vgpu::entries {

inline CUresult GraphSetConditional(std::uint64_t handle, CUdeviceptr value, CUstream s) {
  Call call;
  Stream *stream = work_stream(call, s);
  if (!stream) return call.status();
  const auto found = call.machine().graphs.conditions.find(handle);
  std::shared_ptr<Condition> condition =
      found == call.machine().graphs.conditions.end() ? nullptr : found->second.lock();
  if (!condition || !stream->capture) return CUDA_ERROR_INVALID_VALUE;
  return call.launch(*stream, std::make_unique<SetConditionalTask>(std::move(condition), value));
}

inline CUresult GraphBeginBody(CUstream s, CUstream body_handle, CUdeviceptr value, int kind,
                               std::uint64_t *handle) {
  Call call;
  Stream *stream = work_stream(call, s);
  if (!stream) return call.status();
  Stream *inner = call.stream(body_handle);
  if (!inner) return call.status();
  if (!handle || kind < 0 || kind > 1) return CUDA_ERROR_INVALID_VALUE;
  if (!stream->capture || inner->capture || inner->legacy) return CUDA_ERROR_ILLEGAL_STATE;
  auto condition = std::make_shared<Condition>(0);
  *handle = reinterpret_cast<std::uint64_t>(condition.get());
  GraphBook &book = call.machine().graphs;
  book.conditions[*handle] = condition;
  call.launch(*stream, std::make_unique<SetConditionalTask>(condition, value));
  GraphNode *node = stream->capture->graph->add(*stream, stream->frontier);
  node->work.type = NODE_CONDITIONAL;
  node->work.name = "";
  node->body = std::make_shared<GraphBody>();
  node->body->condition = std::move(condition);
  node->body->repeats = kind == 1;
  stream->frontier = {node};
  auto capture = std::make_shared<Capture>();
  capture->id = ++book.capture_ids;
  capture->mode = CAPTURE_RELAXED;
  capture->thread = std::this_thread::get_id();
  capture->origin = inner;
  capture->graph = std::make_unique<Graph>();
  capture->graph->id = ++book.ids;
  capture->body = node->body;
  capture->members.insert(inner);
  inner->capture = capture;
  inner->frontier.clear();
  book.captures.push_back(std::move(capture));
  return call.status();
}

}  // namespace flambeau::vgpu::entries
