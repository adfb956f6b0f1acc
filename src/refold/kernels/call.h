// Calls from Python: every argument is a tensor, an int (a size, or an address) or a float.
#pragma once
#include <Python.h>

// A tensor's address by PyTorch's own function for C code that has no headers of PyTorch; by the method, which makes a
// Python number of it, where there is none.
typedef void* RfAddressOf(PyObject*);
static RfAddressOf* rf_address_of() {
  PyObject* guards = PyImport_ImportModule("torch._C._dynamo.guards");
  PyObject* found = guards ? PyObject_GetAttrString(guards, "_torchinductor_pyobject_tensor_data_ptr") : nullptr;
  void* address = found ? PyLong_AsVoidPtr(found) : nullptr;
  Py_XDECREF(found);
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

// unchanged(held, empty, kinds, tensors, alike): whether what a check once found is still so. It is what
// every call of the module asks first, and in Python it would cost more than a small kernel.
//   held     dict, key, value, ...         dict[key] is value; a dict as its own value: no such key
//   empty    dict, ...                     has no keys
//   kinds    object, type, ...             is of exactly that type
//   tensors  tensor, version, address, ... is at that version (None: any) and address
//   alike    list, copy, ...               holds what the copy holds; a dict or a set likewise
static bool rf_is_number(PyObject* got, PyObject* wanted) {
  if (got == nullptr) return false;
  const bool same = got == wanted || PyObject_RichCompareBool(got, wanted, Py_EQ) == 1;
  Py_DECREF(got);
  return same;
}
static bool rf_all_unchanged(PyObject* const* stamp) {
  PyObject *held = stamp[0], *empty = stamp[1], *kinds = stamp[2], *tensors = stamp[3];
  for (Py_ssize_t i = 0; i + 2 < PyTuple_GET_SIZE(held); i += 3) {
    PyObject* dict = PyTuple_GET_ITEM(held, i);
    PyObject* wanted = PyTuple_GET_ITEM(held, i + 2);
    PyObject* value = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(held, i + 1));
    if (value != (wanted == dict ? nullptr : wanted)) return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(empty); i++)
    if (PyDict_Size(PyTuple_GET_ITEM(empty, i)) != 0) return false;
  for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(kinds); i += 2)
    if (reinterpret_cast<PyObject*>(Py_TYPE(PyTuple_GET_ITEM(kinds, i))) != PyTuple_GET_ITEM(kinds, i + 1))
      return false;
  static PyObject* version_name = PyUnicode_InternFromString("_version");
  for (Py_ssize_t i = 0; i + 2 < PyTuple_GET_SIZE(tensors); i += 3) {
    PyObject *tensor = PyTuple_GET_ITEM(tensors, i), *version = PyTuple_GET_ITEM(tensors, i + 1);
    if (version != Py_None && !rf_is_number(PyObject_GetAttr(tensor, version_name), version)) return false;
    if (rf_address(tensor) != PyLong_AsVoidPtr(PyTuple_GET_ITEM(tensors, i + 2))) return false;
  }
  PyObject* alike = stamp[4];
  for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(alike); i += 2) {
    const int same = PyObject_RichCompareBool(PyTuple_GET_ITEM(alike, i), PyTuple_GET_ITEM(alike, i + 1), Py_EQ);
    PyErr_Clear();  // what cannot be compared, as tensors, is not what it was
    if (same != 1) return false;
  }
  return true;
}
static PyObject* rf_unchanged(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, 5)) return nullptr;
  for (int i = 0; i < 5; i++)
    if (!PyTuple_Check(args[i])) return PyErr_Format(PyExc_TypeError, "a stamp is five tuples");
  const bool same = rf_all_unchanged(args);
  if (PyErr_Occurred()) return nullptr;
  return PyBool_FromLong(same);
}
