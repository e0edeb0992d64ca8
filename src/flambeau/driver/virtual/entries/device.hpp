// SPDX-License-Identifier: Apache-2.0
// Entries: initialisation and devices.
#pragma once
#include "call.hpp"
#include "flambeau/driver/virtual/device/attributes.hpp"

namespace flambeau::vgpu::entries {

inline CUresult Init(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return start_process();
}

inline CUresult DriverGetVersion(int *version) {
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = DRIVER_VERSION;
  return CUDA_SUCCESS;
}

inline CUresult DeviceGetCount(int *count) {
  Call call;
  if (call.failed()) return call.status();
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(call.machine().devices.size());
  return CUDA_SUCCESS;
}

inline CUresult DeviceGet(CUdevice *device, int ordinal) {
  Call call;
  if (!call.device(ordinal)) return call.status();
  *device = ordinal;
  return CUDA_SUCCESS;
}

inline CUresult DeviceGetName(char *name, int length, CUdevice ordinal) {
  Call call;
  const Device *device = call.device(ordinal);
  if (!device) return call.status();
  if (!name || length < 1) return CUDA_ERROR_INVALID_VALUE;
  const std::string &text = device->model.name;
  const std::size_t copied = std::min(text.size(), static_cast<std::size_t>(length) - 1);
  std::memcpy(name, text.data(), copied);
  name[copied] = '\0';
  return CUDA_SUCCESS;
}

inline CUresult DeviceGetUuid(CUuuid *uuid, CUdevice ordinal) {
  Call call;
  const Device *device = call.device(ordinal);
  if (!device) return call.status();
  *uuid = device->uuid;
  return CUDA_SUCCESS;
}

inline CUresult DeviceTotalMem(std::size_t *bytes, CUdevice ordinal) {
  Call call;
  const Device *device = call.device(ordinal);
  if (!device) return call.status();
  *bytes = device->model.memory_bytes;
  return CUDA_SUCCESS;
}

inline CUresult DeviceGetAttribute(int *value, int attribute, CUdevice ordinal) {
  Call call;
  const Device *device = call.device(ordinal);
  if (!device) return call.status();
  if (!value || !device_attribute(device->model, device->physical, attribute, value)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

inline CUresult DeviceCanAccessPeer(int *can, CUdevice ordinal, CUdevice peer) {
  Call call;
  if (!call.device(ordinal) || !call.device(peer)) return call.status();
  *can = ordinal != peer;
  return CUDA_SUCCESS;
}

inline CUresult ProfilerStart() { return Call().status(); }
inline CUresult ProfilerStop() { return Call().status(); }

}  // namespace flambeau::vgpu::entries
