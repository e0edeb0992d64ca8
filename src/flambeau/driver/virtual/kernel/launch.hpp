// SPDX-License-Identifier: Apache-2.0
// A kernel launch as work, and the report of what went wrong in it.
#pragma once
#include "flambeau/driver/virtual/checks/watcher.hpp"
#include "flambeau/driver/virtual/memory/place.hpp"
#include "function.hpp"

namespace flambeau::vgpu {

inline std::string describe_fault(Machine &machine, const char *kernel, const ptx::Outcome &o) {
  char where[256];
  std::snprintf(where, sizeof where, " in thread (%u, %u, %u) of block (%u, %u, %u)", o.thread[0],
                o.thread[1], o.thread[2], o.block[0], o.block[1], o.block[2]);
  std::string text = std::string("Kernel ") + kernel + " failed" + where;
  if (o.source[0]) text += std::string(", ") + o.source;
  text += ".";
  if (o.access_bytes) {
    char access[160];
    std::snprintf(access, sizeof access, " It made a %s of %u bytes at 0x%llx. ", o.access,
                  o.access_bytes, static_cast<unsigned long long>(o.address));
    std::lock_guard<std::mutex> guard(machine.mutex);
    text += access + describe_address(machine, o.address);
  }
  if (o.message[0]) text += std::string(" ") + o.message;
  return text;
}

// A kernel that polls memory waits for other work or for the host.
struct Waiting {
  Machine &machine;
  Node &node;
  std::thread::id owner = std::this_thread::get_id();

  static void stalled(void *host) {
    const Waiting &self = *static_cast<Waiting *>(host);
    self.machine.stall(self.node, std::this_thread::get_id() == self.owner);
  }
};

class KernelTask final : public Task {
 public:
  KernelTask(CUfunction function, const ptx::KernelCode *code, const LaunchShape &shape,
             std::vector<char> parameters)
      : function_(function), code_(code), shape_(shape), parameters_(std::move(parameters)) {}

  void set_watched(const ptx::KernelCode *code) { watched_ = code; }
  // It may wait in device code for the host.
  bool brief() const override { return false; }
  // A grid that leaves multiprocessors free runs beside others; those that fill the device queue up.
  Engine engine() const override { return fills_device_ ? Engine::Compute : Engine::None; }
  void set_place(const Model &model, const Partition *partition) {
    const int count = partition ? partition->count : model.multiprocessors;
    fills_device_ = shape_.blocks() >= static_cast<std::uint64_t>(count);
  }

  void describe(WorkDescription &work) const override {
    const ptx::KernelInfo &info = *kernel_engine().info(code_);
    work.name = info.name;
    work.static_shared = info.static_shared;
    work.registers = info.registers;
    work.function = function_;
    std::copy(shape_.grid, shape_.grid + 3, work.grid);
    std::copy(shape_.block, shape_.block + 3, work.block);
    work.dynamic_shared = shape_.dynamic_shared;
  }

  void run(Machine &machine, Context &context, Nanoseconds start, Report &report) override {
    const Model &model = context.device->model;
    const std::shared_ptr<const ptx::MemoryMap> map = machine.memory_map(context);
    ptx::Launch launch{};
    launch.code = code_;
    std::copy(shape_.grid, shape_.grid + 3, launch.grid);
    std::copy(shape_.block, shape_.block + 3, launch.block);
    launch.dynamic_shared = shape_.dynamic_shared;
    launch.parameters = parameters_.data();
    launch.memory = map.get();
    launch.workers = machine.workers;
    launch.multiprocessors = multiprocessors ? multiprocessors : model.multiprocessors;
    launch.clock_start = static_cast<std::uint64_t>(static_cast<double>(start) * 1e-9 * model.clock_hz());
    Waiting waiting{machine, *report.node};
    launch.stalled = Waiting::stalled;
    launch.host = &waiting;
    launch.cancelled = &report.node->cancelled;
    ptx::Outcome outcome{};
    std::unique_ptr<GridWatcher> watcher;
    if (ticket && !watched_ && checking()) {   // captured before the check was on
      std::lock_guard<std::mutex> guard(machine.mutex);
      const auto found = machine.functions.find(function_);
      if (found != machine.functions.end()) watched_ = found->second->watched;
    }
    if (ticket && watched_ && checking()) {
      watcher = std::make_unique<GridWatcher>(checker(), ticket, *kernel_engine().info(watched_), shape_.grid,
                                              shape_.block, parameters_.data());
      launch.code = watched_;
      launch.watcher = watcher.get();
    }
    kernel_engine().run(&launch, &outcome);
    const Nanoseconds whole = kernel_time(model, outcome.global_bytes, outcome.operations);
    report.duration = (fills_device_ ? kernel_time_on(model, multiprocessors, whole) : whole) +
                      cycles_time(model, static_cast<double>(outcome.clock_cycles));
    if (outcome.status == CUDA_SUCCESS) return;
    report.status = outcome.status;
    report.fault = describe_fault(machine, kernel_engine().info(code_)->name, outcome);
  }

 private:
  CUfunction function_;
  const ptx::KernelCode *code_, *watched_ = nullptr;
  LaunchShape shape_;
  std::vector<char> parameters_;
  bool fills_device_ = false;
};

}  // namespace flambeau::vgpu
