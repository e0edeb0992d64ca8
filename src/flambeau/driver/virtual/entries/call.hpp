// SPDX-License-Identifier: Apache-2.0
// What every entry does first: see that the driver is up, take the machine's mutex, move the host's
// clock, and turn handles into objects, with CUDA's answers for bad ones.
#pragma once
#include "flambeau/driver/virtual/process.hpp"

namespace flambeau::vgpu {

struct CurrentContext {
  std::uint64_t generation = 0;   // of the machine it belongs to
  Context *context = nullptr;
};
inline thread_local CurrentContext current_context;

inline CUstream const LEGACY_STREAM = reinterpret_cast<CUstream>(0x1);
inline CUstream const PER_THREAD_STREAM = reinterpret_cast<CUstream>(0x2);

// Why this thread's last call was refused, where more is to be said than the status.
struct Refusal {
  CUresult status = CUDA_SUCCESS;
  std::string text;
};
inline thread_local Refusal last_refusal;

class Call {
 public:
  // `name` is for traces: that of the entry that makes this object.
  explicit Call(Nanoseconds cost = CALL_COST, const char *name = __builtin_FUNCTION())
      : status_(process().gate.load()) {
    last_refusal.status = CUDA_SUCCESS;
    if (status_ != CUDA_SUCCESS) return;
    if (checking()) stack_of_call = present_stack();
    machine_ = process().machine.load();
    lock_ = std::unique_lock<std::mutex>(machine_->mutex);
    if (cost && tracing()) begin_trace(name);
    machine_->clock.advance(cost);
    machine_->last_call = std::chrono::steady_clock::now();
  }

  ~Call() {
    if (traced_) end_trace();
  }
  Call(const Call &) = delete;
  Call &operator=(const Call &) = delete;

  bool failed() const { return status_ != CUDA_SUCCESS; }
  CUresult status() const { return status_; }
  CUresult fail(CUresult status) {
    status_ = status;
    return status;
  }
  CUresult fail(CUresult status, std::string text) {
    last_refusal.status = status;
    last_refusal.text = std::move(text);
    return fail(status);
  }
  Machine &machine() { return *machine_; }
  std::unique_lock<std::mutex> &lock() { return lock_; }

  // The thread's current context, null if there is none. Does not fail the call.
  Context *current() {
    if (failed() || current_context.generation != machine_->generation) return nullptr;
    Context *context = current_context.context;
    return context && context->active() ? context : nullptr;
  }
  // The current context, or the call fails: 201 without one, its sticky error if it has one.
  Context *context() {
    if (failed()) return nullptr;
    Context *context = current();
    if (!context) {
      status_ = CUDA_ERROR_INVALID_CONTEXT;
      return nullptr;
    }
    return sound(context);
  }
  // As `context`, of a handle.
  Context *context(CUcontext handle) {
    if (failed()) return nullptr;
    for (Device &device : machine_->devices) {
      if (reinterpret_cast<CUcontext>(&device.context) == handle && device.context.active()) {
        return sound(&device.context);
      }
    }
    status_ = CUDA_ERROR_INVALID_CONTEXT;
    return nullptr;
  }
  Device *device(CUdevice ordinal) {
    if (failed()) return nullptr;
    if (ordinal < 0 || ordinal >= static_cast<int>(machine_->devices.size())) {
      status_ = CUDA_ERROR_INVALID_DEVICE;
      return nullptr;
    }
    return &machine_->devices[static_cast<std::size_t>(ordinal)];
  }
  // A stream that can take work. Streams per thread (0x2) are not offered.
  Stream *stream(CUstream handle) {
    if (failed()) return nullptr;
    if (handle == nullptr || handle == LEGACY_STREAM) {
      Context *current = context();
      return current ? &current->legacy : nullptr;
    }
    if (handle == PER_THREAD_STREAM) {
      fail(CUDA_ERROR_NOT_SUPPORTED,
           "Virtual GPUs have no per-thread default stream (handle 0x2). Create a stream instead.");
      return nullptr;
    }
    auto found = machine_->streams.find(handle);
    if (found == machine_->streams.end()) {
      status_ = CUDA_ERROR_INVALID_HANDLE;
      return nullptr;
    }
    return sound(found->second->context) ? found->second.get() : nullptr;
  }
  Event *event(CUevent handle) {
    if (failed()) return nullptr;
    auto found = machine_->events.find(handle);
    if (found == machine_->events.end()) {
      status_ = CUDA_ERROR_INVALID_HANDLE;
      return nullptr;
    }
    return sound(found->second->context) ? found->second.get() : nullptr;
  }
  // Hand a launch to its stream and, if launches block, wait for it. Launches are called with
  // Python's lock held, which work before them may need.
  CUresult launch(Stream &stream, std::unique_ptr<Task> task) {
    Context &context = *stream.context;
    return settle(context, machine_->submit(stream, std::move(task)));
  }
  CUresult settle(Context &context, const NodePtr &node) {
    if (!machine_->launch_blocking || machine_->on_executor()) return CUDA_SUCCESS;
    const GlobalInterpreterLock &python = interpreter_lock();
    void *state = python.held && python.held() ? python.release() : nullptr;
    const CUresult status = wait(context, {node});
    lock_.unlock();
    if (state) python.acquire(state);
    return status;
  }
  // Wait for nodes of a context; a fault among them is the answer.
  CUresult wait(Context &context, const std::vector<NodePtr> &targets) {
    const CUresult waited = machine_->wait(lock_, targets);
    return waited != CUDA_SUCCESS ? waited : context.error;
  }

 private:
  Context *sound(Context *context) {
    status_ = context->error;
    return failed() ? nullptr : context;
  }

  void begin_trace(const char *name) {
    traced_ = name;
    began_ = machine_->clock.now();
    correlation_ = current_correlation = ++tracer().correlations;
  }
  void end_trace() {
    if (!lock_.owns_lock()) lock_.lock();
    tracer().calls.push_back({traced_, correlation_, system_thread(), began_, machine_->clock.now()});
    current_correlation = 0;
  }

  const char *traced_ = nullptr;   // the entry's name, if this call is traced
  Nanoseconds began_ = 0;
  std::uint64_t correlation_ = 0;
  CUresult status_;
  Machine *machine_ = nullptr;
  std::unique_lock<std::mutex> lock_;
};

// What waiting for a stream means: for the default stream, all blocking ones too.
inline std::vector<NodePtr> stream_frontier(const Stream &stream) {
  std::vector<NodePtr> nodes{stream.last};
  if (!stream.legacy) return nodes;
  for (const Stream *other : stream.context->streams) {
    if (other->blocking()) nodes.push_back(other->last);
  }
  return nodes;
}

}  // namespace flambeau::vgpu
