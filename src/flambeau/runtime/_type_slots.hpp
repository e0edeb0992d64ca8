// SPDX-License-Identifier: Apache-2.0
// What Cython cannot say about a type: how Python code makes instances of Tensor, and what is in
// the dictionary of a compiled class.
#pragma once
#include <Python.h>

namespace flambeau {

inline newfunc tensor_new = nullptr;      // makes an empty instance, arguments ignored
inline PyObject *constructor = nullptr;  // legacy constructor: f(instance, args, kwargs)

inline PyObject *new_instance(PyObject *cls) {
  static PyObject *none = PyTuple_New(0);
  return tensor_new((PyTypeObject *)cls, none, nullptr);
}

// Tensor(...) from Python: an instance, then the legacy constructor if there are arguments.
inline PyObject *tensor_call(PyTypeObject *cls, PyObject *args, PyObject *kwargs) {
  PyObject *made = new_instance((PyObject *)cls);
  if (!made || !constructor) return made;
  PyObject *result = PyObject_CallFunctionObjArgs(constructor, made, args,
                                                  kwargs ? kwargs : Py_None, nullptr);
  if (!result) Py_CLEAR(made);
  Py_XDECREF(result);
  return made;
}
inline void hook_constructor(PyObject *cls) {
  PyTypeObject *type = (PyTypeObject *)cls;
  tensor_new = type->tp_new;
  type->tp_new = tensor_call;
  type->tp_vectorcall = nullptr;  // it would go around tp_new
}
inline void set_constructor(PyObject *construct) {
  Py_XSETREF(constructor, Py_NewRef(construct));
}
inline int set_class_attribute(PyObject *cls, PyObject *name, PyObject *value) {
  int failed = PyDict_SetItem(((PyTypeObject *)cls)->tp_dict, name, value);
  PyType_Modified((PyTypeObject *)cls);
  return failed;
}

}  // namespace flambeau
