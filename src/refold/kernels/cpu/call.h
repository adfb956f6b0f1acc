// Calls from Python: every argument is an int (an address or a size) or a float.
#pragma once
#include <Python.h>

static inline float* rf_pointer(PyObject* o) { return static_cast<float*>(PyLong_AsVoidPtr(o)); }
static inline long rf_size(PyObject* o) { return PyLong_AsLong(o); }
static inline float rf_number(PyObject* o) { return static_cast<float>(PyFloat_AsDouble(o)); }
static inline bool rf_takes(Py_ssize_t given, Py_ssize_t wanted) {
  if (given != wanted) PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", wanted, given);
  return given == wanted;
}
