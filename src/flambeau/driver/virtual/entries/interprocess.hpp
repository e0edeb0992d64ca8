// SPDX-License-Identifier: Apache-2.0
// Entries: handles between processes.
#pragma once
#include "call.hpp"
#include "flambeau/driver/virtual/ipc/handle.hpp"
#include "flambeau/driver/virtual/memory/place.hpp"

namespace flambeau::vgpu::entries {

inline HandleContent own_handle(std::uint32_t kind, int file) {
  HandleContent content;
  content.kind = kind;
  content.process = static_cast<std::int32_t>(getpid());
  content.file = file;
  content.inode = inode_of(file);
  return content;
}

inline CUresult IpcGetEventHandle(CUipcHandle *handle, CUevent event_handle) {
  Call call;
  const Event *event = call.event(event_handle);
  if (!event) return call.status();
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (!event->shared || event->shared->home->file < 0) return CUDA_ERROR_INVALID_HANDLE;
  HandleContent content = own_handle(EVENT_HANDLE, event->shared->home->file);
  content.place = event->shared->slot;
  pack(handle, content);
  return CUDA_SUCCESS;
}

inline CUresult IpcOpenEventHandle(CUevent *handle, CUipcHandle packed) {
  Call call;
  Context *context = call.context();
  if (!context) return call.status();
  const HandleContent content = unpack(packed);
  if (!handle || content.kind != EVENT_HANDLE || content.place >= SHARED_EVENT_SLOTS) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (content.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const int file = open_handle_file(content);
  if (file < 0) return CUDA_ERROR_INVALID_HANDLE;
  auto home = std::make_shared<SharedEventFile>();
  const bool mapped = home->map(file);
  close(file);
  if (!mapped) return CUDA_ERROR_OUT_OF_MEMORY;
  auto event = std::make_unique<Event>();
  event->context = context;
  event->flags = EVENT_INTERPROCESS | EVENT_UNTIMED;
  event->shared = std::make_shared<SharedEvent>();
  event->shared->home = home;
  event->shared->slot = content.place;
  *handle = reinterpret_cast<CUevent>(event.get());
  call.machine().events[*handle] = std::move(event);
  return CUDA_SUCCESS;
}

inline CUresult IpcGetMemHandle(CUipcHandle *handle, CUdeviceptr pointer) {
  Call call;
  if (!call.context()) return call.status();
  const Place place = place_of(call.machine(), pointer);
  if (!handle || !place.allocation || !place.allocation->plain()) return CUDA_ERROR_INVALID_VALUE;
  const Arena &arena = place.device->arena;
  HandleContent content = own_handle(MEMORY_HANDLE, arena.file());
  content.place = place.allocation->begin - arena.base();
  content.bytes = place.allocation->bytes;
  pack(handle, content);
  place.device->arena.note_export(place.allocation->begin);
  if (checking()) checker().ledger.share(place.allocation->begin, place.allocation->bytes);
  return CUDA_SUCCESS;
}

// Maps the whole allocation and answers its first byte, wherever in it the pointer was that the
// handle was made from.
inline CUresult IpcOpenMemHandle(CUdeviceptr *pointer, CUipcHandle packed, unsigned flags) {
  Call call;
  Context *context = call.context();
  if (!context) return call.status();
  const HandleContent content = unpack(packed);
  if (!pointer || flags != 1 || content.kind != MEMORY_HANDLE) return CUDA_ERROR_INVALID_VALUE;
  if (content.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const int file = open_handle_file(content);
  if (file < 0) return CUDA_ERROR_INVALID_HANDLE;
  const std::uint64_t at = context->device->arena.import(file, content.inode, content.place, content.bytes);
  close(file);
  if (!at) return CUDA_ERROR_OUT_OF_MEMORY;
  ++call.machine().memory_epoch;
  *pointer = at;
  return CUDA_SUCCESS;
}

inline CUresult IpcCloseMemHandle(CUdeviceptr pointer) {
  Call call;
  if (!call.context()) return call.status();
  const Place place = place_of(call.machine(), pointer);
  if (!place.allocation || !place.allocation->imported || place.allocation->begin != pointer) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context &context = place.device->context;
  const CUresult waited = call.wait(context, context.frontier());
  place.device->arena.close_import(pointer);
  ++call.machine().memory_epoch;
  return waited;
}

}  // namespace flambeau::vgpu::entries
