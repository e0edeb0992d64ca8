// SPDX-License-Identifier: Apache-2.0
// A callable around a function that works on tensors. The call passes through at the cost of a look
// at each argument, unless a tensor among them may take part in gradients or operands are to be cast.
#pragma once
#include <Python.h>
#include <structmember.h>

namespace flambeau {

// Answers the most frequent form of a call, `count` operands by position and nothing else, without
// the function; NotImplemented leaves it to that.
using ShortAnswer = PyObject *(*)(PyObject *operation, PyObject *const *operands, Py_ssize_t count);

// How modules that have such an answer hand it over: a capsule of this name.
constexpr const char *SHORT_ANSWER = "flambeau.short_answer";

inline PyObject *short_answer_capsule(void *answer) { return PyCapsule_New(answer, SHORT_ANSWER, nullptr); }

struct Recorded {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  vectorcallfunc target;     // the function's own
  PyObject *function;
  ShortAnswer answer;        // null if there is none
  PyObject *operation;       // its first argument
  PyObject *rule;            // None until it is looked up
  PyObject *cast;            // the name that autocast knows it by
  PyObject *dict;
  PyObject *weak_references;
  bool in_place;
  bool elementwise;          // its operation records by itself
};

inline vectorcallfunc recorded_call = nullptr;  // set by the Cython module

inline int recorded_traverse(PyObject *self, visitproc visit, void *arg) {
  Recorded *r = (Recorded *)self;
  Py_VISIT(r->function);
  Py_VISIT(r->operation);
  Py_VISIT(r->rule);
  Py_VISIT(r->cast);
  Py_VISIT(r->dict);
  return 0;
}
inline int recorded_clear(PyObject *self) {
  Recorded *r = (Recorded *)self;
  Py_CLEAR(r->function);
  Py_CLEAR(r->operation);
  Py_CLEAR(r->rule);
  Py_CLEAR(r->cast);
  Py_CLEAR(r->dict);
  return 0;
}
inline void recorded_dealloc(PyObject *self) {
  PyObject_GC_UnTrack(self);
  if (((Recorded *)self)->weak_references) PyObject_ClearWeakRefs(self);
  recorded_clear(self);
  Py_TYPE(self)->tp_free(self);
}
inline PyObject *recorded_bind(PyObject *self, PyObject *instance, PyObject *) {
  return instance && instance != Py_None ? PyMethod_New(self, instance) : Py_NewRef(self);
}
inline PyObject *recorded_repr(PyObject *self) {
  return PyUnicode_FromFormat("<operation %R>", ((Recorded *)self)->function);
}
inline PyObject *recorded_reduce(PyObject *self, PyObject *) {
  return PyObject_GetAttrString(self, "__qualname__");
}

inline PyTypeObject *recorded_type() {
  static PyGetSetDef attributes[] = {
      {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr}, {}};
  static PyMethodDef methods[] = {{"__reduce__", recorded_reduce, METH_NOARGS, nullptr}, {}};
  static PyTypeObject type = {PyVarObject_HEAD_INIT(nullptr, 0)};
  if (type.tp_name) return &type;
  type.tp_name = "flambeau.runtime._recording.Recorded";
  type.tp_basicsize = sizeof(Recorded);
  type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL |
                  Py_TPFLAGS_METHOD_DESCRIPTOR;
  type.tp_vectorcall_offset = offsetof(Recorded, vectorcall);
  type.tp_call = PyVectorcall_Call;
  type.tp_dictoffset = offsetof(Recorded, dict);
  type.tp_weaklistoffset = offsetof(Recorded, weak_references);
  type.tp_getset = attributes;
  type.tp_methods = methods;
  type.tp_traverse = recorded_traverse;
  type.tp_clear = recorded_clear;
  type.tp_dealloc = recorded_dealloc;
  type.tp_descr_get = recorded_bind;
  type.tp_repr = recorded_repr;
  type.tp_free = PyObject_GC_Del;
  if (PyType_Ready(&type) < 0) return nullptr;
  return &type;
}

inline PyObject *new_recorded(PyObject *function, bool in_place, bool elementwise) {
  PyTypeObject *type = recorded_type();
  Recorded *r = type ? PyObject_GC_New(Recorded, type) : nullptr;
  if (!r) return nullptr;
  r->vectorcall = recorded_call;
  r->target = PyVectorcall_Function(function);
  if (!r->target) r->target = (vectorcallfunc)PyObject_Vectorcall;
  r->function = Py_NewRef(function);
  r->answer = nullptr;
  r->operation = Py_NewRef(Py_None);
  r->rule = Py_NewRef(Py_None);
  r->cast = Py_NewRef(Py_None);
  r->dict = PyDict_New();
  r->weak_references = nullptr;
  r->in_place = in_place;
  r->elementwise = elementwise;
  PyObject_GC_Track((PyObject *)r);
  return (PyObject *)r;
}

inline void set_recorded_rule(PyObject *self, PyObject *rule) {
  Py_XSETREF(((Recorded *)self)->rule, Py_NewRef(rule));
}

// 0, or -1 with an exception if `capsule` is none.
inline int set_recorded_answer(PyObject *self, PyObject *operation, PyObject *capsule) {
  Recorded *r = (Recorded *)self;
  void *answer = PyCapsule_GetPointer(capsule, SHORT_ANSWER);
  if (!answer) return -1;
  r->answer = reinterpret_cast<ShortAnswer>(answer);
  Py_XSETREF(r->operation, Py_NewRef(operation));
  return 0;
}

inline void set_recorded_cast(PyObject *self, PyObject *name) {
  Py_XSETREF(((Recorded *)self)->cast, Py_NewRef(name));
}

inline PyObject *recorded_pass(PyObject *self, PyObject *const *args, size_t nargsf,
                               PyObject *names) {
  Recorded *r = (Recorded *)self;
  if (r->answer && !names) {
    PyObject *result = r->answer(r->operation, args, PyVectorcall_NARGS(nargsf));
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  return r->target(r->function, args, nargsf, names);
}

}  // namespace flambeau
