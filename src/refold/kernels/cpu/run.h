// Run: a kernel from Python.
//
//   RF_KERNEL(name, (parameters), call)   a function of Python that runs the call without the interpreter's lock
//   RF_BESIDE(...), RF_PRODUCT(...)       the same, but for where it is compiled
//
// A file may be compiled as two units side by side. RF_UNIT is 0 in one, with RF_KERNEL and what follows a product, and
// 1 in the other, with RF_BESIDE and what all products share. Where it is not defined, one compiler reads all.
#pragma once
#include <Python.h>

#include <new>

// Runs a kernel without the interpreter's lock. What its threads throw comes here.
template <class F> static PyObject* rf_run(F f) {
  bool enough = true;
  Py_BEGIN_ALLOW_THREADS
  try {
    f();
  } catch (const std::bad_alloc&) {
    enough = false;
  }
  Py_END_ALLOW_THREADS
  if (!enough) return PyErr_NoMemory();
  Py_RETURN_NONE;
}

#define RF_WHOLE(name, parameters, ...)                                               \
  static void name##_of parameters { __VA_ARGS__; }                                   \
  static PyObject* name##_called(PyObject*, PyObject* const* args, Py_ssize_t n) {    \
    return rf_called(name##_of, 0, args, n, [](const auto& given, PyObject* const*) { \
      return rf_run([&] { std::apply(name##_of, given); });                           \
    });                                                                               \
  }                                                                                   \
  RF_METHOD(name, name##_called)
#ifndef RF_UNIT
#define RF_KERNEL RF_WHOLE
#define RF_BESIDE RF_WHOLE
#define RF_PRODUCT RF_WHOLE
#elif RF_UNIT == 0
#define RF_KERNEL RF_WHOLE
#define RF_BESIDE(...)
#define RF_PRODUCT RF_WHOLE
#else
#define RF_KERNEL(...)
#define RF_BESIDE RF_WHOLE
#define RF_PRODUCT(name, parameters, ...) [[gnu::used]] static void name##_of parameters { __VA_ARGS__; }
#endif
