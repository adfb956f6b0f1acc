// Calls from Python: every argument is a tensor, an int (a size, or an address) or a float.
#pragma once
#include <Python.h>

// A tensor's address by PyTorch's own function for C code that has no headers of PyTorch; by the method, which makes a
// Python number of it, where there is none.
typedef void* RfAddressOf(PyObject*);
static RfAddressOf* rf_address_of() {
  PyObject* guards = PyImport_ImportModule("torch._C._dynamo.guards");
  PyObject* function = guards ? PyObject_GetAttrString(guards, "_torchinductor_pyobject_tensor_data_ptr") : nullptr;
  void* address = function ? PyLong_AsVoidPtr(function) : nullptr;
  Py_XDECREF(function);
  Py_XDECREF(guards);
  PyErr_Clear();
  return reinterpret_cast<RfAddressOf*>(address);
}
static void* rf_address(PyObject* o) {
  if (PyLong_Check(o)) return PyLong_AsVoidPtr(o);
  // not by a static initialiser: who waits for that holds the interpreter's lock, which the import may need
  static RfAddressOf* address_of;
  static bool looked;
  if (!looked) address_of = rf_address_of(), looked = true;
  if (address_of != nullptr) {
    try {
      return address_of(o);
    } catch (...) {
      PyErr_SetString(PyExc_RuntimeError, "a tensor has no address");
      return nullptr;
    }
  }
  PyObject* number = PyObject_CallMethod(o, "data_ptr", nullptr);
  void* address = number ? PyLong_AsVoidPtr(number) : nullptr;
  Py_XDECREF(number);
  return address;
}
template <class T> static inline T* rf_pointer(PyObject* o) { return static_cast<T*>(rf_address(o)); }
[[maybe_unused]] static inline long rf_size(PyObject* o) { return PyLong_AsLong(o); }
[[maybe_unused]] static inline double rf_number(PyObject* o) { return PyFloat_AsDouble(o); }
static inline bool rf_takes(Py_ssize_t given, Py_ssize_t wanted) {
  if (given != wanted) PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", wanted, given);
  return given == wanted;
}
