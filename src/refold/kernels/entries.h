// Entries: what dictionaries hold, and the tags by which CPython tells that one, or a type, was written to.
#pragma once
#ifndef __CUDACC_RTC__
#include <cstdint>
#include <cstring>

#include "call.h"

namespace rf_watch {

// --- dictionaries: CPython up to 3.12 numbers every change of a dict (PEP 509) ---
#if PY_VERSION_HEX < 0x030D0000
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
static inline uint64_t tag_of(PyObject* dict) { return reinterpret_cast<PyDictObject*>(dict)->ma_version_tag; }
#pragma GCC diagnostic pop
constexpr bool kTags = true;
#else
static inline uint64_t tag_of(PyObject*) { return 0; }
constexpr bool kTags = false;
#endif

static bool same_entries(PyObject* row) {
  PyObject* dict = PyTuple_GET_ITEM(row, 0);
  const Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(row, 1));
  if (size >= 0 && PyDict_GET_SIZE(dict) != size) return false;
  for (Py_ssize_t i = 2; i + 1 < PyTuple_GET_SIZE(row); i += 2) {
    PyObject* wanted = PyTuple_GET_ITEM(row, i + 1);
    PyObject* value = PyDict_GetItemWithError(dict, PyTuple_GET_ITEM(row, i));
    if (value != (wanted == dict ? nullptr : wanted)) return false;
  }
  return true;
}

// --- values: Python takes 1, True and 1.0 for equal, and 0.0 and -0.0; who computes with them does not ---
static bool alike(PyObject* held, PyObject* copy) {
  if (held == copy) return true;
  PyTypeObject* type = Py_TYPE(held);
  if (type != Py_TYPE(copy)) return false;
  if (type == &PyFloat_Type) {
    const double a = PyFloat_AS_DOUBLE(held), b = PyFloat_AS_DOUBLE(copy);
    return memcmp(&a, &b, sizeof a) == 0;
  }
  if (type == &PyLong_Type || type == &PyUnicode_Type || type == &PyBytes_Type)
    return PyObject_RichCompareBool(held, copy, Py_EQ) == 1;
  if (!PyTuple_Check(held) || PyTuple_GET_SIZE(held) != PyTuple_GET_SIZE(copy)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(held); i++)
    if (!alike(PyTuple_GET_ITEM(held, i), PyTuple_GET_ITEM(copy, i))) return false;
  return true;
}
// Of a list or a dict and its copy: the same values in the same order. Others tell by themselves what they equal.
static bool same_values(PyObject* held, PyObject* copy) {
  if (PyList_Check(held) && PyList_Check(copy)) {
    if (PyList_GET_SIZE(held) != PyList_GET_SIZE(copy)) return false;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(held); i++)
      if (!alike(PyList_GET_ITEM(held, i), PyList_GET_ITEM(copy, i))) return false;
    return true;
  }
  const bool dicts = PyDict_Check(held) && PyDict_Check(copy);
  // an ordered one has its order in a place of its own, which it compares itself
  if ((!dicts || PyODict_Check(held)) && PyObject_RichCompareBool(held, copy, Py_EQ) != 1) return false;
  if (!dicts) return true;
  if (PyDict_GET_SIZE(held) != PyDict_GET_SIZE(copy)) return false;
  Py_ssize_t at = 0, there = 0;
  PyObject *key, *value, *name, *wanted;
  while (PyDict_Next(copy, &there, &name, &wanted)) {
    if (PyODict_Check(held))
      value = PyDict_GetItemWithError(held, name);
    else if (!PyDict_Next(held, &at, &key, &value) || !alike(key, name))
      return false;
    if (value == nullptr || !alike(value, wanted)) return false;
  }
  return true;
}

// --- types: CPython gives a type another tag when the type or a base is written to; 0: it has none ---
static uint64_t tag_of_type(PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030B0000
  if (!(type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return type->tp_version_tag;
}

}  // namespace rf_watch
#endif
