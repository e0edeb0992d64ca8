// SPDX-License-Identifier: Apache-2.0
// Entries: events.
#pragma once
#include "flambeau/driver/virtual/graph/rules.hpp"

namespace flambeau::vgpu::entries {

inline CUresult EventCreate(CUevent *handle, unsigned flags) {
  Call call;
  Context *context = call.context();
  if (!context) return call.status();
  if (!handle || flags > (EVENT_BLOCKING | EVENT_UNTIMED | EVENT_INTERPROCESS) ||
      ((flags & EVENT_INTERPROCESS) && !(flags & EVENT_UNTIMED))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto event = std::make_unique<Event>();
  event->context = context;
  event->flags = flags;
  if (flags & EVENT_INTERPROCESS) {
    event->shared = make_shared_event(call.machine().shared_events);
    if (!event->shared) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *handle = reinterpret_cast<CUevent>(event.get());
  call.machine().events[*handle] = std::move(event);
  return CUDA_SUCCESS;
}

// What was recorded with it keeps its place in the streams.
inline CUresult EventDestroy(CUevent handle) {
  Call call;
  if (call.failed()) return call.status();
  auto &events = call.machine().events;
  auto found = events.find(handle);
  if (found == events.end()) return CUDA_ERROR_INVALID_HANDLE;
  const CUresult error = found->second->context->error;
  events.erase(found);
  return error;
}

// In a capture an event leaves an order between nodes, and an external one (flag 1) a node.
inline CUresult record_in_capture(Stream &stream, CUevent handle, Event &event, bool external) {
  if (!external) {
    event.capture = stream.capture;
    event.frontier = stream.frontier;
    event.record = nullptr;
    return CUDA_SUCCESS;
  }
  GraphNode *node = stream.capture->graph->add(stream, stream.frontier);
  node->work.type = NODE_EVENT_RECORD;
  node->event = handle;
  stream.frontier = {node};
  event.capture.reset();
  return CUDA_SUCCESS;
}

inline CUresult EventRecordWithFlags(CUevent event_handle, CUstream handle, unsigned flags) {
  Call call;
  Stream *stream = work_stream(call, handle);
  Event *event = call.event(event_handle);
  if (call.failed()) return call.status();
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture) return record_in_capture(*stream, event_handle, *event, flags & 1);
  event->capture.reset();
  const std::uint64_t ticket = event->shared ? event->shared->record() : 0;
  record_event(*event, call.machine().submit_marker(*stream), ticket);
  return CUDA_SUCCESS;
}

inline CUresult EventRecord(CUevent event, CUstream stream) { return EventRecordWithFlags(event, stream, 0); }

// Whether the newest record of an interprocess event, whoever made it, is done.
inline bool remote_done(const Event &event) {
  return !event.shared || event.shared->reached(event.shared->recorded());
}

inline CUresult EventQuery(CUevent handle) {
  Call call;
  Event *event = call.event(handle);
  if (!event || refuse_captured(call, *event, "cuEventQuery")) return call.status();
  Context &context = *event->context;
  const bool remote = remote_done(*event);
  const bool done = call.machine().poll(call.lock(), {event->record}) && remote;
  if (context.error) return context.error;
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

inline CUresult EventSynchronize(CUevent handle) {
  Call call;
  Event *event = call.event(handle);
  if (!event || refuse_captured(call, *event, "cuEventSynchronize")) return call.status();
  Context &context = *event->context;
  const std::shared_ptr<SharedEvent> shared = event->shared;
  const CUresult waited = call.wait(context, {event->record});
  if (waited != CUDA_SUCCESS || !shared) return waited;
  const std::uint64_t ticket = shared->recorded();
  call.lock().unlock();
  while (!shared->reached(ticket)) std::this_thread::sleep_for(REMOTE_POLL);
  return CUDA_SUCCESS;
}

inline CUresult EventElapsedTime(float *milliseconds, CUevent start_handle, CUevent end_handle) {
  Call call;
  const Event *start = call.event(start_handle);
  const Event *end = call.event(end_handle);
  if (call.failed()) return call.status();
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  for (const Event *event : {start, end}) {
    if (event->capture && refuse_captured(call, *event, "cuEventElapsedTime")) return call.status();
  }
  if (!start->timed() || !end->timed() || !start->record || !end->record ||
      start->context != end->context) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!start->record->done || !end->record->done) return CUDA_ERROR_NOT_READY;
  const double from = static_cast<double>(start->record->end);
  *milliseconds = static_cast<float>((static_cast<double>(end->record->end) - from) * 1e-6);
  return CUDA_SUCCESS;
}

}  // namespace flambeau::vgpu::entries
