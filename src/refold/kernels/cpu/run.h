// Run: a kernel from Python.
//
//   RF_KERNEL(name, (parameters), call)   a function of Python that runs the call without the interpreter's lock
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

#define RF_KERNEL(name, parameters, ...)                                               \
  static void name##_of parameters { __VA_ARGS__; }                                    \
  static PyObject* name##_called(PyObject*, PyObject* const* args, Py_ssize_t n) {     \
    return rf_called(name##_of, 0, args, n, [](const auto& given, PyObject* const*) {  \
      return rf_run([&] { std::apply(name##_of, given); });                            \
    });                                                                                \
  }                                                                                    \
  RF_METHOD(name, name##_called)
