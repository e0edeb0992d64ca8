// SPDX-License-Identifier: Apache-2.0
// Streams of green contexts: their kernels run on some of a device's multiprocessors only.
#pragma once
#include "entries/stream.hpp"

namespace flambeau::vgpu::entries {

// A non-blocking stream whose kernels run on multiprocessors `first` to `first + count - 1`.
inline CUresult create_partition_stream(CUstream *handle, CUdevice ordinal, int first, int count, int priority) {
  Call call;
  Device *device = call.device(ordinal);
  if (!device) return call.status();
  if (first < 0 || count < 1 || first + count > device->model.multiprocessors) return CUDA_ERROR_INVALID_VALUE;
  Context *context = call.context(reinterpret_cast<CUcontext>(&device->context));
  if (!context) return call.status();
  add_stream(call.machine(), *context, handle, STREAM_NON_BLOCKING, priority);
  Stream &stream = *call.machine().streams[*handle];
  stream.partition = std::make_shared<const Partition>(Partition{first, count});
  stream.name += ", on " + std::to_string(count) + " multiprocessors,";
  return CUDA_SUCCESS;
}

}  // namespace flambeau::vgpu::entries
