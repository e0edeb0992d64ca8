// SPDX-License-Identifier: Apache-2.0
// A dictionary for attributes of instances that is made at the first attribute. Cython's own
// `cdef dict __dict__` makes one with every instance, which costs more than the rest of a view.
#pragma once
#include <Python.h>

namespace flambeau {

struct LazyDict {
  static inline Py_ssize_t offset = 0;
  static inline traverseproc traverse_rest = nullptr;
  static inline inquiry clear_rest = nullptr;

  static PyObject *&of(PyObject *instance) {
    return *reinterpret_cast<PyObject **>(reinterpret_cast<char *>(instance) + offset);
  }
  static int traverse(PyObject *instance, visitproc visit, void *arg) {
    Py_VISIT(of(instance));
    return traverse_rest(instance, visit, arg);
  }
  static int clear(PyObject *instance) {
    Py_CLEAR(of(instance));
    return clear_rest(instance);
  }
};

// `where` is the slot in `instance`, one of the type. Before the type has subclasses.
inline int add_lazy_dict(PyObject *cls, PyObject *instance, void *where) {
  static PyGetSetDef attribute = {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict,
                                  "The attributes that Python code added.", nullptr};
  auto *type = reinterpret_cast<PyTypeObject *>(cls);
  LazyDict::offset = static_cast<char *>(where) - reinterpret_cast<char *>(instance);
  LazyDict::traverse_rest = type->tp_traverse;
  LazyDict::clear_rest = type->tp_clear;
  type->tp_traverse = LazyDict::traverse;
  type->tp_clear = LazyDict::clear;
  type->tp_dictoffset = LazyDict::offset;
  PyObject *descriptor = PyDescr_NewGetSet(type, &attribute);
  if (!descriptor) return -1;
  const int failed = PyDict_SetItemString(type->tp_dict, "__dict__", descriptor);
  Py_DECREF(descriptor);
  PyType_Modified(type);
  return failed;
}

}  // namespace flambeau
