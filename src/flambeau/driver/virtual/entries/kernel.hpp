// SPDX-License-Identifier: Apache-2.0
// Entries: kernels and matrix products.
#pragma once
#include "flambeau/driver/virtual/graph/rules.hpp"
#include "flambeau/driver/virtual/kernel/gemm.hpp"
#include "flambeau/driver/virtual/kernel/launch.hpp"

namespace flambeau::vgpu::entries {

inline Function *function_of(Call &call, CUfunction handle) {
  if (call.failed()) return nullptr;
  auto &functions = call.machine().functions;
  auto found = functions.find(handle);
  if (found == functions.end()) {
    call.fail(CUDA_ERROR_INVALID_HANDLE);
    return nullptr;
  }
  if (found->second->context->error) {
    call.fail(found->second->context->error);
    return nullptr;
  }
  return found->second.get();
}

inline CUresult FuncGetAttribute(int *value, int attribute, CUfunction handle) {
  Call call;
  const Function *f = function_of(call, handle);
  if (!f) return call.status();
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  const ptx::KernelInfo &info = f->info();
  switch (attribute) {
    case 0: *value = f->max_threads(); break;
    case 1: *value = static_cast<int>(info.static_shared); break;
    case 2: *value = 0; break;                                   // constant memory
    case 3: *value = static_cast<int>(info.local_bytes); break;
    case 4: *value = static_cast<int>(info.registers); break;
    case 5: case 6: *value = 80; break;                          // PTX and binary version
    case 7: *value = 0; break;                                   // cache mode
    case 8: *value = f->dynamic_shared_limit(); break;
    case 9: *value = f->carveout; break;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

inline CUresult FuncSetAttribute(CUfunction handle, int attribute, int value) {
  Call call;
  Function *f = function_of(call, handle);
  if (!f) return call.status();
  if (attribute == 8) {
    const int limit = f->context->device->model.shared_per_block_optin;
    if (value < 0 || value + static_cast<int>(f->info().static_shared) > limit) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    f->max_dynamic_shared = value;
    return CUDA_SUCCESS;
  }
  if (attribute != 9 || value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
  f->carveout = value;
  return CUDA_SUCCESS;
}

inline CUresult OccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle,
                                                          int block_size, std::size_t dynamic_shared) {
  Call call;
  const Function *f = function_of(call, handle);
  if (!f) return call.status();
  if (!blocks || block_size < 1) return CUDA_ERROR_INVALID_VALUE;
  *blocks = block_size > f->max_threads()
                ? 0
                : resident_blocks(f->context->device->model, f->info(), block_size, dynamic_shared);
  return CUDA_SUCCESS;
}

// The parameters, packed: from the array of their addresses, or from a buffer packed already
// (`extra`: pairs of a key and a value, ended by 0). False if neither gives them all.
inline bool pack_parameters(const ptx::KernelInfo &info, void **parameters, void **extra,
                            std::vector<char> &packed) {
  packed.resize(info.parameter_bytes);
  if (info.parameter_count == 0) return true;
  if (parameters) {
    for (std::uint32_t i = 0; i < info.parameter_count; ++i) {
      if (!parameters[i]) return false;
      std::memcpy(packed.data() + info.parameter_offsets[i], parameters[i], info.parameter_sizes[i]);
    }
    return true;
  }
  const void *buffer = nullptr;
  std::size_t bytes = 0;
  for (; extra && *extra; extra += 2) {
    const auto key = reinterpret_cast<std::uintptr_t>(extra[0]);
    if (key == 1) buffer = extra[1];
    if (key == 2) bytes = *static_cast<const std::size_t *>(extra[1]);
  }
  if (!buffer || bytes < info.parameter_bytes) return false;
  std::memcpy(packed.data(), buffer, info.parameter_bytes);
  return true;
}

// Have Python make a function's watched code. It takes its lock, so the machine's is not held.
inline void make_watched(CUfunction handle) {
  if (process().gate.load() != CUDA_SUCCESS || !checker().hooks.prepare) return;
  {
    Machine &machine = *process().machine.load();
    std::lock_guard<std::mutex> guard(machine.mutex);
    const auto found = machine.functions.find(handle);
    if (found == machine.functions.end() || found->second->watched || !found->second->watchable) return;
  }
  checker().hooks.prepare(reinterpret_cast<std::uint64_t>(handle));
}

inline CUresult launch(CUfunction handle, const LaunchShape &shape, CUstream s, void **parameters,
                       void **extra, const char *entry = __builtin_FUNCTION()) {
  if (checking()) make_watched(handle);
  Call call(SUBMISSION_COST, entry);
  const Function *f = function_of(call, handle);
  Stream *stream = work_stream(call, s);
  if (!f || !stream) return call.status();
  if (f->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  std::string why;
  const CUresult shaped = check_shape(*f, shape, why);
  if (shaped != CUDA_SUCCESS) return call.fail(shaped, std::move(why));
  std::vector<char> packed;
  if (!pack_parameters(f->info(), parameters, extra, packed)) return CUDA_ERROR_INVALID_VALUE;
  auto task = std::make_unique<KernelTask>(handle, f->code, shape, std::move(packed));
  task->set_place(f->context->device->model, stream->partition.get());
  task->set_watched(f->watched);
  return call.launch(*stream, std::move(task));
}

inline CUresult LaunchKernel(CUfunction f, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                             unsigned block_x, unsigned block_y, unsigned block_z,
                             unsigned dynamic_shared_bytes, CUstream s, void **parameters, void **extra) {
  return launch(f, {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, dynamic_shared_bytes}, s,
                parameters, extra);
}

// Launch attributes change how launches overlap on hardware, not what they compute.
inline CUresult LaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **parameters, void **extra) {
  if (!c) return CUDA_ERROR_INVALID_VALUE;
  return launch(f, {{c->gridDimX, c->gridDimY, c->gridDimZ},
                    {c->blockDimX, c->blockDimY, c->blockDimZ}, c->sharedMemBytes},
                c->hStream, parameters, extra);
}

inline CUresult Gemm(const GemmArgs *args, CUstream s) {
  Call call(SUBMISSION_COST);
  Stream *stream = work_stream(call, s);
  if (!stream) return call.status();
  if (!args) return CUDA_ERROR_INVALID_VALUE;
  const CUresult checked = check_gemm(*args);
  if (checked != CUDA_SUCCESS) return checked;
  if (args->m == 0 || args->n == 0 || args->batch == 0) return CUDA_SUCCESS;
  return call.launch(*stream, std::make_unique<GemmTask>(*args));
}

}  // namespace flambeau::vgpu::entries
