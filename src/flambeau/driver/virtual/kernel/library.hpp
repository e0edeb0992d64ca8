// SPDX-License-Identifier: Apache-2.0
// A library's call as work: a Python function that computes it with NumPy on the executor thread, and
// the ranges of memory that it reads and writes, which are checked before it runs.
#pragma once
#include <atomic>
#include <memory>
#include <set>

#include "flambeau/driver/virtual/checks/ranges.hpp"
#include "flambeau/driver/virtual/memory/transfer.hpp"

namespace flambeau::vgpu {

// Runs the function kept under a number; on failure writes a sentence into `message`. Takes the GIL.
using LibraryFunction = CUresult (*)(std::uint64_t number, char *message, std::size_t length);

inline LibraryFunction &library_function() {
  static LibraryFunction function = nullptr;
  return function;
}

// Numbers of functions that no work needs any more. Work dies where Python's lock may not be taken,
// so they are only noted here, and let go by the next call.
struct UnusedFunctions {
  std::mutex lock;
  std::vector<std::uint64_t> numbers;
};

inline UnusedFunctions &unused_functions() {
  static UnusedFunctions *all = new UnusedFunctions();
  return *all;
}

inline std::vector<std::uint64_t> take_unused_functions() {
  std::vector<std::uint64_t> taken;
  std::lock_guard<std::mutex> guard(unused_functions().lock);
  taken.swap(unused_functions().numbers);
  return taken;
}

// Names that live as long as the process.
inline const char *lasting_name(const std::string &name) {
  static std::mutex lock;
  static std::set<std::string> names;
  std::lock_guard<std::mutex> guard(lock);
  return names.insert(name).first->c_str();
}

struct MemoryRange { std::uint64_t begin, bytes; bool writes; };

struct LibraryCall {
  std::uint64_t number = 0;
  std::string name;
  std::vector<MemoryRange> ranges;
  double bytes = 0, operations = 0;   // what the model's time comes from
};

class LibraryTask final : public Task {
 public:
  explicit LibraryTask(LibraryCall call) : call_(std::move(call)), name_(lasting_name(call_.name)) {}
  ~LibraryTask() override {
    std::lock_guard<std::mutex> guard(unused_functions().lock);
    unused_functions().numbers.push_back(call_.number);
  }
  bool compiled() const override { return false; }
  bool brief() const override { return false; }
  Engine engine() const override { return Engine::Compute; }
  void describe(WorkDescription &work) const override { work.name = name_; }

  void run(Machine &machine, Context &context, Nanoseconds, Report &report) override {
    if (!allowed(machine, report)) return;
    if (ticket && checking()) {
      RangeChecks checks(ticket, name_);
      for (const MemoryRange &range : call_.ranges) {
        if (!range.writes) checks.read(range.begin, range.bytes);
      }
      for (const MemoryRange &range : call_.ranges) {
        if (range.writes) checks.write(range.begin, range.bytes);
      }
    }
    char message[512] = "";
    report.status = library_function()(call_.number, message, sizeof message);
    if (report.status != CUDA_SUCCESS) report.fault = std::string(name_) + " failed: " + message;
    report.duration = kernel_time(context.device->model, call_.bytes, call_.operations);
  }

 private:
  bool allowed(Machine &machine, Report &report) {
    for (const MemoryRange &range : call_.ranges) {
      const bool known = [&] {
        std::lock_guard<std::mutex> guard(machine.mutex);
        if (range.bytes == 0 || holds(place_of(machine, range.begin), range.begin, range.bytes)) return true;
        report.status = CUDA_ERROR_ILLEGAL_ADDRESS;
        const std::string what = std::string(name_) + (range.writes ? "'s write" : "'s read");
        report.fault = describe_bad_range(machine, what.c_str(), range.begin, range.bytes);
        return false;
      }();
      if (!known || (range.writes && !hold(range.begin, range.bytes, report))) return false;
    }
    return true;
  }

  LibraryCall call_;
  const char *const name_;
};

}  // namespace flambeau::vgpu
