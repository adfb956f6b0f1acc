// Run: a kernel from Python, on the stream and device that it says last. Entries synchronise and allocate nothing.
//
//   RF_KERNEL(name, (parameters), call)     launches on the stream `on`, with the workspace `work`
//   RF_ON_STREAM(name, (parameters), call)  launches on the stream `on`
//   RF_WORKSPACE(name, function)            name_workspace_size: the bytes that the kernel works in, by a function of
//                                           WorkspaceSize& and what Python gives
#pragma once
#ifdef __CUDACC_RTC__
#define RF_ON_STREAM(...)
#define RF_KERNEL(...)
#define RF_WORKSPACE(...)
#else
#include <Python.h>

#include "device.cuh"

[[maybe_unused]] static inline PyObject* rf_result(rf::Error error) {
  if (error == nullptr) Py_RETURN_NONE;
  PyErr_SetString(PyExc_RuntimeError, error);
  return nullptr;
}

namespace rf {

// Calls `run` with its parameters, on the device that the last argument is the number of.
template <class... P> static inline PyObject* launched(Error (*run)(P...), PyObject* const* args, Py_ssize_t n) {
  return rf_called(run, 1, args, n, [run](const auto& given, PyObject* const* device) -> PyObject* {
    const long on = RfArgument{*device};
    if (PyErr_Occurred()) return nullptr;
    Error error;
    Py_BEGIN_ALLOW_THREADS
    error = launch_on(on, [&] { return std::apply(run, given); });
    Py_END_ALLOW_THREADS
    return rf_result(error);
  });
}

template <class... P>
static inline PyObject* workspace_size_of(Error (*run)(WorkspaceSize&, P...), PyObject* const* args, Py_ssize_t n) {
  Error (*const takes)(P...) = nullptr;
  return rf_called(takes, 1, args, n, [run](const auto& given, PyObject* const* device) -> PyObject* {
    const long on = RfArgument{*device};
    if (PyErr_Occurred()) return nullptr;
    const OnDevice here(static_cast<int>(on));
    WorkspaceSize size;
    const Error error = std::apply([&](auto... p) { return run(size, p...); }, given);
    if (error) return rf_result(error);
    return Py_BuildValue("nn", Py_ssize_t(size.scratch), Py_ssize_t(size.arrivals));
  });
}

}  // namespace rf

#define RF_ON_STREAM(name, parameters, ...)                                                               \
  static rf::Error name##_of(RF_LIST parameters, cudaStream_t on) { return __VA_ARGS__; }                 \
  static PyObject* name##_called(PyObject*, PyObject* const* args, Py_ssize_t n) {                        \
    return rf::launched(name##_of, args, n);                                                              \
  }                                                                                                       \
  RF_METHOD(name, name##_called)
#define RF_KERNEL(name, parameters, ...) RF_ON_STREAM(name, (RF_LIST parameters, rf::Workspace work), __VA_ARGS__)
#define RF_WORKSPACE(name, ...)                                                                           \
  static PyObject* name##_sized(PyObject*, PyObject* const* args, Py_ssize_t n) {                         \
    return rf::workspace_size_of(__VA_ARGS__, args, n);                                                   \
  }                                                                                                       \
  RF_METHOD(name##_workspace_size, name##_sized)
#endif
