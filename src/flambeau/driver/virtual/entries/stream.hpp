// SPDX-License-Identifier: Apache-2.0
// Entries: streams and host functions in them.
#pragma once
#include "flambeau/driver/virtual/graph/rules.hpp"

namespace flambeau::vgpu {

class HostFunctionTask final : public Task {
 public:
  HostFunctionTask(CUhostFn function, void *data) : function_(function), data_(data) {}
  bool compiled() const override { return false; }
  bool brief() const override { return false; }
  // It may wait for the very thread that polls.
  int poll_patience() const override { return 20; }
  void describe(WorkDescription &work) const override {
    work.type = NODE_HOST;
    work.host_function = function_;
    work.host_data = data_;
  }
  void run(Machine &machine, Context &, Nanoseconds, Report &) override {
    if (ticket && checking()) {   // what it does may tell the host that all before it is done
      std::lock_guard<std::mutex> guard(machine.mutex);
      checker().host.join(ticket->before);
    }
    function_(data_);
  }

 private:
  CUhostFn function_;
  void *data_;
};

// Occupies its stream for a number of clock cycles, and the CPU not at all.
class SpinTask final : public Task {
 public:
  explicit SpinTask(std::int64_t cycles) : cycles_(cycles) {}
  void describe(WorkDescription &work) const override { work.name = "spin"; }
  void run(Machine &, Context &context, Nanoseconds, Report &report) override {
    report.duration = cycles_time(context.device->model, static_cast<double>(cycles_));
  }

 private:
  std::int64_t cycles_;
};

namespace entries {

inline void add_stream(Machine &machine, Context &context, CUstream *handle, unsigned flags, int priority) {
  auto stream = std::make_unique<Stream>();
  stream->context = &context;
  stream->flags = flags;
  stream->priority = std::max(GREATEST_PRIORITY, std::min(LEAST_PRIORITY, priority));
  stream->name = "stream " + std::to_string(++machine.streams_made) + " of device " +
                 std::to_string(context.device->ordinal);
  stream->trace_number = 12 + static_cast<unsigned>(machine.streams_made);
  *handle = reinterpret_cast<CUstream>(stream.get());
  context.streams.insert(stream.get());
  machine.streams[*handle] = std::move(stream);
}

inline CUresult StreamCreateWithPriority(CUstream *handle, unsigned flags, int priority) {
  Call call;
  Context *context = call.context();
  if (!context) return call.status();
  if (!handle || flags > STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  add_stream(call.machine(), *context, handle, flags, priority);
  return CUDA_SUCCESS;
}

// Returns at once; what the stream has left to do is still done.
inline CUresult StreamDestroy(CUstream handle) {
  Call call;
  if (call.failed()) return call.status();
  auto &streams = call.machine().streams;
  auto found = streams.find(handle);
  if (found == streams.end()) return CUDA_ERROR_INVALID_HANDLE;
  Context &context = *found->second->context;
  leave_capture(call.machine(), *found->second);
  context.streams.erase(found->second.get());
  if (!found->second->idle()) context.detached.push_back(found->second->last);
  streams.erase(found);
  return context.error;
}

inline CUresult StreamQuery(CUstream handle) {
  Call call;
  Stream *stream = call.stream(handle);
  if (!stream || refuse_captured(call, *stream, "cuStreamQuery")) return call.status();
  Context &context = *stream->context;
  const bool done = call.machine().poll(call.lock(), stream_frontier(*stream));
  if (context.error) return context.error;
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

inline CUresult StreamSynchronize(CUstream handle) {
  Call call;
  Stream *stream = call.stream(handle);
  if (!stream || refuse_captured(call, *stream, "cuStreamSynchronize")) return call.status();
  return call.wait(*stream->context, stream_frontier(*stream));
}

// The stream joins the capture that an event was recorded in.
inline CUresult join_capture(Call &call, Stream &stream, const Event &event) {
  Capture &capture = *event.capture;
  if (capture.over()) {
    refuse_captured(call, event, "cuStreamWaitEvent");
    return call.status();
  }
  if (capture.broken()) return refuse_broken(call, capture);
  if (stream.legacy) {
    return refuse(call, capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                  "The " + stream.name.substr(4) + " was to wait for an event of the capture on " +
                      capture.origin->name + ", but the default stream cannot be captured. Use another stream.");
  }
  if (stream.capture && stream.capture != event.capture) {
    break_capture(*stream.capture, "It was to wait for an event of another capture.");
    return refuse(call, capture, CUDA_ERROR_STREAM_CAPTURE_MERGE,
                  "The " + stream.name + " is being captured into one graph and was to wait for an event of "
                      "another capture.");
  }
  stream.frontier = joined(stream.frontier, event.frontier);
  stream.capture = event.capture;
  capture.members.insert(&stream);
  return CUDA_SUCCESS;
}

// A stream that is being captured waits for an event of outside.
inline CUresult wait_in_capture(Call &call, Stream &stream, CUevent handle, const Event &event, bool external) {
  if (external) {
    GraphNode *node = stream.capture->graph->add(stream, stream.frontier);
    node->work.type = NODE_WAIT_EVENT;
    node->event = handle;
    stream.frontier = {node};
    return CUDA_SUCCESS;
  }
  if (!event.record && !event.shared) return CUDA_SUCCESS;   // never recorded: nothing to wait for
  return refuse(call, *stream.capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                "The " + stream.name + " was to wait for an event that was recorded outside the capture. "
                    "Wait for it before the capture begins, or make both the record and the wait part of it.");
}

inline CUresult StreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  Call call;
  Stream *stream = call.stream(handle);
  Event *event = call.event(event_handle);
  if (call.failed()) return call.status();
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (event->capture && !(flags & 1)) return join_capture(call, *stream, *event);
  if (!work_stream(call, handle)) return call.status();
  if (stream->capture) return wait_in_capture(call, *stream, event_handle, *event, flags & 1);
  Machine &machine = call.machine();
  if (event->record) machine.submit_marker(*stream, event->record);
  if (event->shared && !event->shared->reached(event->shared->recorded()) &&
      (!event->record || event->record->ticket != event->shared->recorded())) {
    machine.submit_remote_wait(*stream, event->shared);
  }
  return CUDA_SUCCESS;
}

inline CUresult StreamGetPriority(CUstream handle, int *priority) {
  Call call;
  Stream *stream = call.stream(handle);
  if (!stream) return call.status();
  *priority = stream->priority;
  return CUDA_SUCCESS;
}

inline CUresult StreamGetFlags(CUstream handle, unsigned *flags) {
  Call call;
  Stream *stream = call.stream(handle);
  if (!stream) return call.status();
  *flags = stream->flags;
  return CUDA_SUCCESS;
}

inline CUresult StreamGetCtx(CUstream handle, CUcontext *context) {
  Call call;
  Stream *stream = call.stream(handle);
  if (!stream) return call.status();
  *context = reinterpret_cast<CUcontext>(stream->context);
  return CUDA_SUCCESS;
}

inline CUresult LaunchHostFunc(CUstream handle, CUhostFn function, void *user_data) {
  Call call(SUBMISSION_COST);
  Stream *stream = work_stream(call, handle);
  if (!stream) return call.status();
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  call.machine().submit(*stream, std::make_unique<HostFunctionTask>(function, user_data));
  return CUDA_SUCCESS;
}

inline CUresult Spin(std::int64_t cycles, CUstream handle) {
  Call call(SUBMISSION_COST);
  Stream *stream = work_stream(call, handle);
  if (!stream) return call.status();
  if (cycles < 0) return CUDA_ERROR_INVALID_VALUE;
  return call.launch(*stream, std::make_unique<SpinTask>(cycles));
}

}  // namespace entries
}  // namespace flambeau::vgpu
