// SPDX-License-Identifier: Apache-2.0
// The binary interface of DLPack 1.3, and the tensors that we export by it.
#pragma once
#include <Python.h>

#include <cstdint>
#include <cstdlib>

#include "flambeau/runtime/scalar_type.hpp"
#include "flambeau/runtime/storage.hpp"

namespace flambeau::dlpack {

constexpr std::uint32_t MAJOR = 1, MINOR = 3;

enum DeviceType : std::int32_t { CPU = 1, CUDA = 2, CUDA_HOST = 3, CUDA_MANAGED = 13 };
enum TypeCode : std::uint8_t {
  INT = 0, UINT = 1, FLOAT = 2, BFLOAT = 4, COMPLEX = 5, BOOL = 6,
  FLOAT8_E4M3FN = 10, FLOAT8_E4M3FNUZ = 11, FLOAT8_E5M2 = 12, FLOAT8_E5M2FNUZ = 13,
};
enum Flag : std::uint64_t { READ_ONLY = 1, IS_COPIED = 2 };

struct Version {
  std::uint32_t major, minor;
};
struct Device {
  std::int32_t type, index;
};
struct DataType {
  std::uint8_t code, bits;
  std::uint16_t lanes;
};
struct View {  // DLTensor
  void *data;
  Device device;
  std::int32_t ndim;
  DataType dtype;
  std::int64_t *shape, *strides;  // in elements; null strides: row-major
  std::uint64_t byte_offset;
};
struct Managed {  // DLManagedTensor
  View view;
  void *context;
  void (*deleter)(Managed *);
};
struct ManagedVersioned {  // DLManagedTensorVersioned
  Version version;
  void *context;
  void (*deleter)(ManagedVersioned *);
  std::uint64_t flags;
  View view;
};

// The table behind __dlpack_c_exchange_api__. All but the allocator are called with the GIL; -1 means
// that a Python exception is set.
struct ExchangeHeader {
  Version version;
  ExchangeHeader *older;
};
struct Exchange {
  ExchangeHeader header;
  int (*allocate)(View *prototype, ManagedVersioned **out, void *error_context,
                  void (*set_error)(void *error_context, const char *kind, const char *message));
  int (*from_object)(void *object, ManagedVersioned **out);
  int (*to_object)(ManagedVersioned *tensor, void **out_object);
  int (*view_of)(void *object, View *out);
  int (*current_stream)(std::int32_t device_type, std::int32_t device, void **out_stream);
};

// By scalar type.
inline constexpr DataType data_types[] = {
    {BOOL, 8, 1},     {UINT, 8, 1},     {INT, 8, 1},      {INT, 16, 1},
    {INT, 32, 1},     {INT, 64, 1},     {UINT, 16, 1},    {UINT, 32, 1},
    {UINT, 64, 1},    {FLOAT, 16, 1},   {BFLOAT, 16, 1},  {FLOAT, 32, 1},
    {FLOAT, 64, 1},   {COMPLEX, 32, 1}, {COMPLEX, 64, 1}, {COMPLEX, 128, 1},
    {FLOAT8_E4M3FN, 8, 1}, {FLOAT8_E5M2, 8, 1}, {FLOAT8_E4M3FNUZ, 8, 1}, {FLOAT8_E5M2FNUZ, 8, 1},
};
static_assert(sizeof(data_types) / sizeof(DataType) == SCALAR_TYPE_COUNT);

inline int scalar_type_of(const DataType &type) {  // -1: none
  for (int i = 0; i < SCALAR_TYPE_COUNT; i++) {
    const DataType &known = data_types[i];
    if (known.code == type.code && known.bits == type.bits && type.lanes == 1) return i;
  }
  return -1;
}

// A tensor that we export: the struct that the standard prescribes, the storage it keeps alive, and
// the dims, in one allocation.
template <class Face> struct Export {
  Face face;
  Storage *storage;
  std::int64_t dims[1];
};

template <class Face> void let_go(Face *face) {
  auto *whole = static_cast<Export<Face> *>(face->context);
  // After the interpreter's end a storage that a Python object owns cannot be given back.
  if (whole->storage && Py_IsInitialized()) whole->storage->drop();
  std::free(whole);
}

// Null when memory is short. Dimensions of one element get stride 1, as many consumers expect.
template <class Face>
Face *export_view(Storage *storage, void *data, Device device, DataType type, int ndim,
                  const std::int64_t *sizes, const std::int64_t *strides, bool empty) {
  auto *whole = static_cast<Export<Face> *>(
      std::calloc(1, sizeof(Export<Face>) + 2 * std::size_t(ndim) * sizeof(std::int64_t)));
  if (!whole) return nullptr;
  Face *face = &whole->face;
  whole->storage = storage;
  if (storage) storage->retain();
  face->context = whole;
  face->deleter = let_go<Face>;
  View &view = face->view;
  view.data = empty ? nullptr : data;
  view.device = device;
  view.ndim = ndim;
  view.dtype = type;
  view.shape = whole->dims;
  view.strides = whole->dims + ndim;
  for (int i = 0; i < ndim; i++) {
    view.shape[i] = sizes[i];
    view.strides[i] = sizes[i] < 2 ? 1 : strides[i];
  }
  return face;
}

inline Managed *export_legacy(Storage *storage, void *data, Device device, DataType type, int ndim,
                              const std::int64_t *sizes, const std::int64_t *strides, bool empty) {
  return export_view<Managed>(storage, data, device, type, ndim, sizes, strides, empty);
}

inline ManagedVersioned *export_versioned(Storage *storage, void *data, Device device,
                                          DataType type, int ndim, const std::int64_t *sizes,
                                          const std::int64_t *strides, bool empty,
                                          std::uint64_t flags) {
  auto *face =
      export_view<ManagedVersioned>(storage, data, device, type, ndim, sizes, strides, empty);
  if (face) {
    face->version = {MAJOR, MINOR};
    face->flags = flags;
  }
  return face;
}

// Give a tensor back to whoever exported it. Deleters may wait for a device, so they are called
// without the GIL, and must not see the exception during which a tensor of ours died.
template <class Face> void give_back(Face *face) {
  if (!face->deleter) return;
  if (!Py_IsInitialized() || !PyGILState_Check()) {
    face->deleter(face);
    return;
  }
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  Py_BEGIN_ALLOW_THREADS;
  face->deleter(face);
  Py_END_ALLOW_THREADS;
  PyErr_Restore(type, value, trace);
}

inline constexpr const char *UNUSED = "dltensor", *USED = "used_dltensor",
                            *UNUSED_VERSIONED = "dltensor_versioned",
                            *USED_VERSIONED = "used_dltensor_versioned",
                            *EXCHANGE = "dlpack_exchange_api";

// A capsule that nobody consumed still owns its tensor.
inline void end_legacy(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, UNUSED)) {
    give_back(static_cast<Managed *>(PyCapsule_GetPointer(capsule, UNUSED)));
  }
}
inline void end_versioned(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, UNUSED_VERSIONED)) {
    give_back(static_cast<ManagedVersioned *>(PyCapsule_GetPointer(capsule, UNUSED_VERSIONED)));
  }
}

// The storage of an imported tensor: `owner` is what was imported.
template <class Face> void release_import(Storage *storage) {
  give_back(static_cast<Face *>(storage->owner));
  delete storage;
}

inline Storage *import_storage(void *data, std::size_t bytes, int device, void *managed,
                               bool versioned) {
  auto *storage = new Storage();
  storage->data = static_cast<char *>(data);
  storage->bytes = bytes;
  storage->device = std::int16_t(device);
  storage->resizable = false;
  storage->owner = managed;
  storage->release = versioned ? release_import<ManagedVersioned> : release_import<Managed>;
  return storage;
}

// Whether this memory came with the remark that it must not be written. For one module alone: in
// another one `release_import` has another address.
inline bool is_read_only(const Storage *storage) {
  return storage && storage->release == release_import<ManagedVersioned> &&
         (static_cast<const ManagedVersioned *>(storage->owner)->flags & READ_ONLY);
}

}  // namespace flambeau::dlpack
