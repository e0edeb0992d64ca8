// SPDX-License-Identifier: Apache-2.0
// Conditional nodes: a graph of its own that runs, or runs again, as a value says that captured work
// sets before it.
#pragma once
#include <atomic>

#include "flambeau/driver/virtual/checks/ranges.hpp"
#include "flambeau/driver/virtual/machine.hpp"

namespace flambeau::vgpu {

// Sets the value from a byte of device memory.
class SetConditionalTask final : public Task {
 public:
  SetConditionalTask(std::shared_ptr<Condition> condition, CUdeviceptr value)
      : condition_(std::move(condition)), value_(value) {}
  void describe(WorkDescription &work) const override { work.name = "set_conditional"; }

  void run(Machine &machine, Context &context, Nanoseconds, Report &report) override {
    const std::shared_ptr<const ptx::MemoryMap> map = machine.memory_map(context);
    const bool allowed = std::any_of(map->ranges.begin(), map->ranges.end(), [this](const auto &range) {
      return range.begin <= value_ && value_ < range.end;
    });
    if (!allowed) {
      report.status = CUDA_ERROR_ILLEGAL_ADDRESS;
      report.fault = "The condition of a conditional node was read from memory that is not there.";
      return;
    }
    RangeChecks(ticket, "the condition of a graph's node").read(value_, 1);
    condition_->store(*reinterpret_cast<const unsigned char *>(value_));
  }

 private:
  std::shared_ptr<Condition> condition_;
  CUdeviceptr value_;
};

// Runs the body's work in the order in which it was captured.
class ConditionalTask final : public Task {
 public:
  ConditionalTask(const GraphBody &body, std::vector<std::shared_ptr<Task>> steps)
      : repeats_(body.repeats), condition_(body.condition), steps_(std::move(steps)) {}
  bool brief() const override { return false; }
  bool compiled() const override {
    return std::all_of(steps_.begin(), steps_.end(), [](const auto &step) { return step->compiled(); });
  }

  void run(Machine &machine, Context &context, Nanoseconds start, Report &report) override {
    bool again = condition_->load() != 0;
    while (again && report.status == CUDA_SUCCESS) {
      for (const auto &step : steps_) {
        Report part;
        step->ticket = ticket_at(ticket, step->epoch, checker().since);
        step->run(machine, context, start + report.duration, part);
        report.duration += part.duration;
        report.status = part.status;
        report.fault = std::move(part.fault);
        if (report.status != CUDA_SUCCESS) return;
      }
      again = repeats_ && condition_->load() != 0;
    }
  }

 private:
  bool repeats_;
  std::shared_ptr<Condition> condition_;
  std::vector<std::shared_ptr<Task>> steps_;
};

// The work of a node, made when its graph is instantiated; null if a body has what none may have.
inline std::shared_ptr<Task> task_of(const GraphNode &node) {
  if (!node.body) return node.task;
  if (!node.body->graph) return nullptr;   // its capture has not ended
  std::vector<std::shared_ptr<Task>> steps;
  for (const auto &inner : node.body->graph->nodes) {
    std::shared_ptr<Task> step = task_of(*inner);
    if (!step || inner->work.type == NODE_HOST) return nullptr;
    steps.push_back(std::move(step));
  }
  return std::make_shared<ConditionalTask>(*node.body, std::move(steps));
}

}  // namespace flambeau::vgpu
