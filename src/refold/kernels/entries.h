// Entries: what dictionaries hold, and the tags by which CPython tells that one, or a type, was written to.
#pragma once
#ifndef __CUDACC_RTC__
#include <cstdint>

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

// --- types: CPython gives a type another tag when the type or a base is written to; 0: it has none ---
static uint64_t tag_of_type(PyTypeObject* type) {
#if PY_VERSION_HEX < 0x030B0000
  if (!(type->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) return 0;
#endif
  return type->tp_version_tag;
}

}  // namespace rf_watch
#endif
