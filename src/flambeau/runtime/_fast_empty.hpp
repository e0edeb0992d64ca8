// SPDX-License-Identifier: Apache-2.0
// The most frequent call of `empty`, one size with keywords for device and dtype, without what a
// function of seventeen parameters spends on sorting its arguments. All other calls go to that.
#pragma once
#include <Python.h>

namespace flambeau {

struct FastEmpty {
  static inline PyObject *whole = nullptr;   // the function that takes everything
  static inline PyObject *(*one_size)(PyObject *size, PyObject *device, PyObject *dtype) = nullptr;
  static inline PyObject *device_name = nullptr, *dtype_name = nullptr;

  static PyObject *call(PyObject *, PyObject *const *arguments, Py_ssize_t count, PyObject *names) {
    const Py_ssize_t named = names ? PyTuple_GET_SIZE(names) : 0;
    PyObject *device = Py_None, *dtype = Py_None;
    bool plain = count == 1 && PyLong_CheckExact(arguments[0]);
    for (Py_ssize_t i = 0; plain && i < named; ++i) {
      PyObject *name = PyTuple_GET_ITEM(names, i);   // names in code are interned
      if (name == device_name) {
        device = arguments[count + i];
      } else if (name == dtype_name) {
        dtype = arguments[count + i];
      } else {
        plain = false;
      }
    }
    return plain ? one_size(arguments[0], device, dtype) : PyObject_Vectorcall(whole, arguments, count, names);
  }
};

// A built-in function called `empty` with the documentation of `whole`, which begins with its signature.
inline PyObject *make_fast_empty(PyObject *whole, const char *documentation,
                                 PyObject *(*one_size)(PyObject *, PyObject *, PyObject *)) {
  static PyMethodDef definition = {"empty", reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(FastEmpty::call)),
                                   METH_FASTCALL | METH_KEYWORDS, nullptr};
  definition.ml_doc = documentation;
  FastEmpty::whole = Py_NewRef(whole);
  FastEmpty::one_size = one_size;
  FastEmpty::device_name = PyUnicode_InternFromString("device");
  FastEmpty::dtype_name = PyUnicode_InternFromString("dtype");
  PyObject *module = PyUnicode_InternFromString("flambeau");
  PyObject *made = module ? PyCFunction_NewEx(&definition, nullptr, module) : nullptr;
  Py_XDECREF(module);
  return made;
}

}  // namespace flambeau
