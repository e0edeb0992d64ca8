// SPDX-License-Identifier: Apache-2.0
// Kernels launched as graphs of one node: an executable per stream and kernel is kept, and a launch
// gives its node new parameters. The driver does less for that than for a kernel launch.
#pragma once
#include <cstdint>
#include <unordered_map>

#include "driver_scope.hpp"

namespace flambeau {

struct KernelShape {
  unsigned grid[3], block[3], dynamic_shared;
};

class GraphLaunches {
 public:
  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED if the stream is being captured: launch it plainly then.
  CUresult launch(const DriverTable *driver, CUfunction f, const KernelShape &shape, CUstream stream,
                  void **parameters) {
    const Key key{f, stream};
    if (!recent_ || !(key == recent_key_)) {
      recent_ = &all_[key];
      recent_key_ = key;
    }
    if (!recent_->exec) {
      const CUresult status = make(driver, f, shape, parameters, *recent_);
      if (status != CUDA_SUCCESS) return status;
    }
    CUkernelNodeParams p{};
    p.func = f;
    p.gridDimX = shape.grid[0], p.gridDimY = shape.grid[1], p.gridDimZ = shape.grid[2];
    p.blockDimX = shape.block[0], p.blockDimY = shape.block[1], p.blockDimZ = shape.block[2];
    p.sharedMemBytes = shape.dynamic_shared;
    p.kernelParams = parameters;
    const CUresult status = driver->GraphExecKernelNodeSetParams(recent_->exec, recent_->node, &p);
    return status == CUDA_SUCCESS ? driver->GraphLaunch(recent_->exec, stream) : status;
  }

  // Give all of them back; launches under way still finish.
  void clear(const DriverTable *driver) {
    for (auto &entry : all_) {
      if (entry.second.exec) driver->GraphExecDestroy(entry.second.exec);
      if (entry.second.graph) driver->GraphDestroy(entry.second.graph);
    }
    forget();
  }

  void forget() {
    all_.clear();
    recent_ = nullptr;
  }

  std::size_t size() const { return all_.size(); }

 private:
  struct Key {
    CUfunction f;
    CUstream stream;
    bool operator==(const Key &other) const { return f == other.f && stream == other.stream; }
  };
  struct Hash {
    std::size_t operator()(const Key &key) const {
      return reinterpret_cast<std::uintptr_t>(key.f) * 31 + reinterpret_cast<std::uintptr_t>(key.stream) / 16;
    }
  };
  struct Launchable {
    CUgraph graph = nullptr;          // its node's handle is valid while it lives
    CUgraphNode node = nullptr;
    CUgraphExec exec = nullptr;
  };

  // Capture the launch on a stream of its own, so that no stream of the user's is touched.
  static CUresult make(const DriverTable *driver, CUfunction f, const KernelShape &s, void **parameters,
                       Launchable &made) {
    OutsideCapture outside(driver);
    CUstream scratch = nullptr;
    CUresult status = driver->StreamCreateWithPriority(&scratch, 1, 0);   // CU_STREAM_NON_BLOCKING
    if (status != CUDA_SUCCESS) return status;
    status = driver->StreamBeginCapture(scratch, 2);                      // relaxed
    if (status == CUDA_SUCCESS) {
      status = driver->LaunchKernel(f, s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2],
                                    s.dynamic_shared, scratch, parameters, nullptr);
      const CUresult ended = driver->StreamEndCapture(scratch, &made.graph);
      if (status == CUDA_SUCCESS) status = ended;
    }
    const CUresult destroyed = driver->StreamDestroy(scratch);
    if (status == CUDA_SUCCESS) status = destroyed;
    std::size_t one = 1;
    if (status == CUDA_SUCCESS) status = driver->GraphGetNodes(made.graph, &made.node, &one);
    if (status == CUDA_SUCCESS) status = driver->GraphInstantiateWithFlags(&made.exec, made.graph, 0);
    if (status != CUDA_SUCCESS && made.graph) {
      driver->GraphDestroy(made.graph);
      made = {};
    }
    return status;
  }

  std::unordered_map<Key, Launchable, Hash> all_;
  Key recent_key_{};
  Launchable *recent_ = nullptr;   // references into an unordered_map stay valid
};

}  // namespace flambeau
