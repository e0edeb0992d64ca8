// SPDX-License-Identifier: Apache-2.0
// The one machine of a process: when it starts, what a forked child and a finished process answer.
#pragma once
#include <pthread.h>

#include <atomic>

#include "device/visible.hpp"
#include "machine.hpp"

namespace flambeau::vgpu {

struct Process {
  Setup setup;
  std::atomic<Machine *> machine{nullptr};
  // What every call answers: 3 before cuInit and in a forked child, 4 after the end, else 0.
  std::atomic<CUresult> gate{CUDA_ERROR_NOT_INITIALIZED};
  std::atomic<bool> forked{false};
  std::mutex starting;
};

inline Process &process() {
  static Process *instance = new Process();   // never destroyed: the executor may outlive exit()
  return *instance;
}

// As with CUDA, a driver that was initialised before a fork is unusable in the child.
inline void in_forked_child() {
  Process &p = process();
  if (p.gate.load() != CUDA_SUCCESS) return;
  p.forked = true;
  p.gate = CUDA_ERROR_NOT_INITIALIZED;
}

inline std::vector<std::string> machine_uuids(const Setup &setup) {
  std::vector<std::string> uuids;
  for (std::size_t i = 0; i < setup.models.size(); ++i) {
    uuids.push_back(uuid_text(device_uuid(setup.models[i].name, static_cast<int>(i))));
  }
  return uuids;
}

inline bool add_device(Machine &machine, const Setup &setup, int physical) {
  machine.devices.emplace_back();
  Device &device = machine.devices.back();
  device.ordinal = static_cast<int>(machine.devices.size()) - 1;
  device.physical = physical;
  device.model = setup.models[static_cast<std::size_t>(physical)];
  device.uuid = device_uuid(device.model.name, physical);
  Context &context = device.context;
  context.device = &device;
  context.life = machine.generation << 32;
  context.legacy.context = &context;
  context.legacy.legacy = true;
  context.legacy.name = "the default stream of device " + std::to_string(device.ordinal);
  const std::uint64_t capacity = (device.model.memory_bytes - device.model.context_bytes) / GRANULE * GRANULE;
  return device.arena.reserve(capacity, "flambeau-" + uuid_text(device.uuid));
}

// cuInit.
inline CUresult start_process() {
  Process &p = process();
  if (p.forked) return CUDA_ERROR_NOT_INITIALIZED;   // before the lock: its holder is not here
  std::lock_guard<std::mutex> guard(p.starting);
  if (p.gate != CUDA_ERROR_NOT_INITIALIZED) return p.gate;
  const std::vector<int> visible =
      visible_devices(std::getenv("CUDA_VISIBLE_DEVICES"), machine_uuids(p.setup));
  if (visible.empty()) return CUDA_ERROR_NO_DEVICE;
  auto machine = std::make_unique<Machine>(p.setup);
  for (const int physical : visible) {
    if (!add_device(*machine, p.setup, physical)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const char *blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  machine->launch_blocking = blocking && std::atoi(blocking) != 0;
  static const bool registered = pthread_atfork(nullptr, nullptr, in_forked_child) == 0;
  (void)registered;
  p.machine = machine.release();
  p.gate = CUDA_SUCCESS;
  return CUDA_SUCCESS;
}

// Stop the machine; calls answer 4 from now on. The object stays, for threads still inside a call.
// False if work still runs; then no code that it executes may be unloaded.
inline bool end_process() {
  Process &p = process();
  if (p.forked) return true;
  std::lock_guard<std::mutex> guard(p.starting);
  return p.gate.exchange(CUDA_ERROR_DEINITIALIZED) != CUDA_SUCCESS || p.machine.load()->stop();
}

// Drop the machine with all its memory; the next cuInit makes a new one. No other thread may be in
// a driver call. False if work still runs; it keeps its machine for ever.
inline bool reset_process() {
  Process &p = process();
  if (p.forked) return true;
  std::lock_guard<std::mutex> guard(p.starting);
  if (p.gate.exchange(CUDA_ERROR_NOT_INITIALIZED) != CUDA_SUCCESS) return true;
  Machine *machine = p.machine.exchange(nullptr);
  if (!machine->stop()) return false;
  machine->drop_work();
  delete machine;
  checker().forget();
  return true;
}

}  // namespace flambeau::vgpu
