// SPDX-License-Identifier: Apache-2.0
// The most frequent call of a function that makes tensors, one size with keywords for device and
// dtype, without what a function of many parameters spends on sorting its arguments. All other
// calls go to that.
#pragma once
#include <Python.h>

namespace flambeau {

using OneSize = PyObject *(*)(PyObject *size, PyObject *device, PyObject *dtype);

template <int number>   // tells the functions of one module apart
struct FastFactory {
  static inline PyMethodDef definition = {nullptr, nullptr, METH_FASTCALL | METH_KEYWORDS, nullptr};
  static inline PyObject *whole = nullptr;   // the function that takes everything
  static inline OneSize one_size = nullptr;
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

// A built-in function with the documentation of `whole`, which begins with its signature.
template <int number>
inline PyObject *make_fast_factory(const char *name, PyObject *whole, const char *documentation, OneSize one_size) {
  using Factory = FastFactory<number>;
  Factory::definition.ml_name = name;
  Factory::definition.ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void *>(Factory::call));
  Factory::definition.ml_doc = documentation;
  Factory::whole = Py_NewRef(whole);
  Factory::one_size = one_size;
  Factory::device_name = PyUnicode_InternFromString("device");
  Factory::dtype_name = PyUnicode_InternFromString("dtype");
  PyObject *module = PyUnicode_InternFromString("flambeau");
  PyObject *made = module ? PyCFunction_NewEx(&Factory::definition, nullptr, module) : nullptr;
  Py_XDECREF(module);
  return made;
}

}  // namespace flambeau
