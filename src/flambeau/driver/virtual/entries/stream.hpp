// SPDX-License-Identifier: Apache-2.0
// Entries: streams and host functions in them.
#pragma once
#include "call.hpp"

namespace flambeau::vgpu {

class HostFunctionTask final : public Task {
 public:
  HostFunctionTask(CUhostFn function, void *data) : function_(function), data_(data) {}
  bool compiled() const override { return false; }
  bool brief() const override { return false; }
  // It may wait for the very thread that polls.
  int poll_patience() const override { return 20; }
  void run(Machine &, Context &, Nanoseconds, Report &) override { function_(data_); }

 private:
  CUhostFn function_;
  void *data_;
};

// Occupies its stream for a number of clock cycles, and the CPU not at all.
class SpinTask final : public Task {
 public:
  explicit SpinTask(std::int64_t cycles) : cycles_(cycles) {}
  void run(Machine &, Context &context, Nanoseconds, Report &report) override {
    report.duration = cycles_time(context.device->model, static_cast<double>(cycles_));
  }

 private:
  std::int64_t cycles_;
};

namespace entries {

inline CUresult StreamCreateWithPriority(CUstream *handle, unsigned flags, int priority) {
  Call call;
  Context *context = call.context();
  if (!context) return call.status();
  if (!handle || flags > STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  auto stream = std::make_unique<Stream>();
  stream->context = context;
  stream->flags = flags;
  stream->priority = std::max(GREATEST_PRIORITY, std::min(LEAST_PRIORITY, priority));
  stream->name = "stream " + std::to_string(++call.machine().streams_made) + " of device " +
                 std::to_string(context->device->ordinal);
  *handle = reinterpret_cast<CUstream>(stream.get());
  context->streams.insert(stream.get());
  call.machine().streams[*handle] = std::move(stream);
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
  context.streams.erase(found->second.get());
  if (!found->second->idle()) context.detached.push_back(found->second->last);
  streams.erase(found);
  return context.error;
}

inline CUresult StreamQuery(CUstream handle) {
  Call call;
  Stream *stream = call.stream(handle);
  if (!stream) return call.status();
  Context &context = *stream->context;
  const bool done = call.machine().poll(call.lock(), stream_frontier(*stream));
  if (context.error) return context.error;
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

inline CUresult StreamSynchronize(CUstream handle) {
  Call call;
  Stream *stream = call.stream(handle);
  if (!stream) return call.status();
  return call.wait(*stream->context, stream_frontier(*stream));
}

inline CUresult StreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags) {
  Call call;
  Stream *stream = call.stream(handle);
  Event *event = call.event(event_handle);
  if (call.failed()) return call.status();
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
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

inline CUresult StreamIsCapturing(CUstream handle, int *status) {
  Call call;
  if (!call.stream(handle)) return call.status();
  *status = 0;
  return CUDA_SUCCESS;
}

inline CUresult ThreadExchangeStreamCaptureMode(int *mode) {
  thread_local int current = 0;   // global
  Call call;
  if (call.failed()) return call.status();
  if (!mode || *mode < 0 || *mode > 2) return CUDA_ERROR_INVALID_VALUE;
  std::swap(*mode, current);
  return CUDA_SUCCESS;
}

inline CUresult LaunchHostFunc(CUstream handle, CUhostFn function, void *user_data) {
  Call call(SUBMISSION_COST);
  Stream *stream = call.stream(handle);
  if (!stream) return call.status();
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  call.machine().submit(*stream, std::make_unique<HostFunctionTask>(function, user_data));
  return CUDA_SUCCESS;
}

inline CUresult Spin(std::int64_t cycles, CUstream handle) {
  Call call(SUBMISSION_COST);
  Stream *stream = call.stream(handle);
  if (!stream) return call.status();
  if (cycles < 0) return CUDA_ERROR_INVALID_VALUE;
  return call.launch(*stream, std::make_unique<SpinTask>(cycles));
}

}  // namespace entries
}  // namespace flambeau::vgpu
