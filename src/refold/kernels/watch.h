// watch and unchanged: every call of an emitted module asks first whether all that its kernels were prepared for is
// still so. In Python the answer would cost more than a small kernel.
//
//   watch(dicts, types, exact_types, tensors, stores, contents, blocks) -> bytearray: how things are now
//   unchanged(dicts, types, exact_types, tensors, stores, contents, cells, equal, memory) -> bool: are they so still?
//   look(memory, words, expected, count, epoch, flag): let the next kernel compare `count` words of device memory
//   altered(memory) -> int: what `unchanged` found last (see Change)
//   written(memory) -> int: another one after a write to a tensor that is counted, where one has moved, and where
//             `unchanged` found last that memory holds something else, after other writes to that
//   differing(before, after) -> tuple of bool, or None: which contents differ between two memories of the same contents
//
//   dicts     (dict, size or -1, key, value, ...), ...: dict[key] is value; the dict as value: there is no such key
//   types     type, ...: nothing was written to the type or to one of its bases
//   exact_types  object, type, ...: the object is of exactly that type
//   tensors   tensor, counted, ...: is at its address and, if counted is true, at its version
//   stores    weak reference, ...: the storage that a tensor lay in is alive, so its address is nobody else's
//   contents  address, bytes, ...: the memory holds what it held. Whole where it is small; else a few words of it at
//             every call, and `blocks` KiB more of one of them, each at its time (the audit)
//   cells     cell, value, ...: a closure's cell holds the value; or function, (code, defaults, defaults of keywords)
//   equal     object, copy, ...: a list or dict is its copy in values, classes and order; others equal theirs
//
// memory holds addresses of these objects: whoever keeps it keeps the tuples, too.
#pragma once
#ifndef __CUDACC_RTC__
#include <dlfcn.h>

#include <cstdint>

#include "call.h"
#include "contents.h"
#include "entries.h"
#include "look.h"

namespace rf_watch {

enum Change : uint64_t { kNothing, kDict, kType, kExactType, kTensor, kContent, kAudit, kCell, kEqual, kStore, kLate };

struct Header {
  uint64_t dicts, types, exact_types, tensors, contents, blocks, change;
  uint64_t words;  // that are read of each of the contents
  uint64_t content, block;  // the audit's place
  Look look;
};
struct Dict {
  PyObject* dict;
  uint64_t tag;
};
struct Type {
  PyTypeObject* type;
  uint64_t tag;
};
struct ExactType {
  PyObject* object;
  PyTypeObject* type;
};
struct Tensor {
  PyObject* tensor;
  int64_t version;  // -1: not counted
  void* address;
  const char* impl;         // where PyTorch keeps what it knows of the tensor
  const char* const* held;  // where the Python object holds `impl`; null: not found
};

constexpr uint64_t kAhead = 4;  // tensors

// --- tensors ---
// at::TensorBase::_version() of libtorch_cpu. A TensorBase is one pointer, to the tensor's implementation, and each Python
// tensor holds one. torch.Tensor._version gives the same, behind checks and a new number, and takes six times as long.
using VersionOf = int64_t(const char* const* held);
static VersionOf* version_function() {
  void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  void* function = library ? dlsym(library, "_ZNK2at10TensorBase8_versionEv") : nullptr;
  return reinterpret_cast<VersionOf*>(function);
}
// Where in a Python tensor the address of its implementation lies: PyTorch does not say, so it is searched for.
static const char* const* held_by(PyObject* tensor, const char* impl) {
  const auto* words = reinterpret_cast<const char* const*>(tensor);
  for (size_t i = sizeof(PyObject) / sizeof *words; i < Py_TYPE(tensor)->tp_basicsize / sizeof *words; i++)
    if (words[i] == impl) return words + i;
  return nullptr;
}

static int64_t version_by_python(PyObject* tensor) {
  static PyGetSetDescrObject* field;
  if (field == nullptr) {
    PyObject* module = PyImport_ImportModule("torch._C");
    PyObject* base = module ? PyObject_GetAttrString(module, "TensorBase") : nullptr;
    PyObject* descriptor = base ? PyObject_GetAttrString(base, "_version") : nullptr;
    Py_XDECREF(base);
    Py_XDECREF(module);
    if (descriptor == nullptr) return -1;
    if (!PyObject_TypeCheck(descriptor, &PyGetSetDescr_Type)) {
      PyErr_SetString(PyExc_TypeError, "a tensor's _version is no field");
      return -1;
    }
    field = reinterpret_cast<PyGetSetDescrObject*>(descriptor);
  }
  PyObject* number = field->d_getset->get(tensor, field->d_getset->closure);
  if (number == nullptr) return -1;
  const int64_t version = PyLong_AsLongLong(number);
  Py_DECREF(number);
  return version;
}
static int64_t version_of(const Tensor& t) {
  // not by a static initialiser: who waits for that holds the interpreter's lock, which the search may need
  static VersionOf* version;
  static bool looked;
  if (!looked) version = version_function(), looked = true;
  if (version == nullptr || t.held == nullptr) return version_by_python(t.tensor);
  try {
    return version(t.held);
  } catch (...) {  // a tensor of inference_mode counts nothing
    PyErr_SetString(PyExc_RuntimeError, "a tensor has no version");
    return -1;
  }
}

// Of many tensors little is in the near caches, and each read waits for the one before.
static inline void fetch(const Tensor& t) {
  __builtin_prefetch(t.tensor);
  for (int line = 0; line < 4; line++) __builtin_prefetch(t.impl + 64 * line);
}

struct Memory {
  char* at;
  Header& header() const { return *reinterpret_cast<Header*>(at); }
  Dict* dicts() const { return reinterpret_cast<Dict*>(at + sizeof(Header)); }
  Type* types() const { return reinterpret_cast<Type*>(dicts() + header().dicts); }
  ExactType* exact_types() const { return reinterpret_cast<ExactType*>(types() + header().types); }
  Tensor* tensors() const { return reinterpret_cast<Tensor*>(exact_types() + header().exact_types); }
  Content* contents() const { return reinterpret_cast<Content*>(tensors() + header().tensors); }
  uint64_t* digests(const Content& c) const { return reinterpret_cast<uint64_t*>(at + c.digests); }
};

// Audits the next blocks of the contents, one after another: whether they are as they were.
static bool audit(const Memory& m) {
  Header& h = m.header();
  uint64_t left = h.contents ? h.blocks : 0;
  for (uint64_t tried = 0; left > 0 && tried <= h.contents; tried++) {
    if (h.content >= h.contents) h.content = h.block = 0;
    const Content& c = m.contents()[h.content];
    for (const uint64_t end = blocks_of(c.bytes); left > 0 && h.block < end; h.block++, left--)
      if (block_digest(c, h.block) != m.digests(c)[h.block]) return false;
    if (h.block >= blocks_of(c.bytes)) h.content++, h.block = 0;
  }
  return true;
}

static bool is_dead(PyObject* reference) {
#if PY_VERSION_HEX < 0x030D0000
  return PyWeakref_Check(reference) && PyWeakref_GetObject(reference) == Py_None;
#else
  PyObject* referent = nullptr;
  const int alive = PyWeakref_GetRef(reference, &referent);
  Py_XDECREF(referent);
  return alive == 0;
#endif
}

// --- cells and functions: what a cell holds; of a function its (code, defaults, defaults of keywords) ---
static bool holds(PyObject* held, PyObject* value) {
  if (PyCell_Check(held)) return PyCell_GET(held) == value;
  const auto is = [value](Py_ssize_t i, PyObject* now) { return PyTuple_GET_ITEM(value, i) == (now ? now : Py_None); };
  return PyFunction_Check(held) && is(0, PyFunction_GET_CODE(held)) && is(1, PyFunction_GET_DEFAULTS(held)) &&
         is(2, PyFunction_GET_KW_DEFAULTS(held));
}

static Change changed(PyObject* const* given, const Memory& m) {
  const Header& h = m.header();
  // first: behind another change it would not be seen, and once all is looked at anew it is gone
  if (h.look.flag != nullptr && *static_cast<volatile uint32_t*>(h.look.flag) == h.look.epoch) return kLate;
  for (uint64_t i = 0; i < h.dicts; i++) {
    Dict& d = m.dicts()[i];
    const uint64_t tag = tag_of(d.dict);
    if (kTags && tag == d.tag) continue;
    if (!same_entries(PyTuple_GET_ITEM(given[0], i))) return kDict;
    d.tag = tag;  // what was written is nothing that is read here
  }
  for (uint64_t i = 0; i < h.types; i++) {
    const Type& t = m.types()[i];
    if (t.tag == 0 || tag_of_type(t.type) != t.tag) return kType;
  }
  for (uint64_t i = 0; i < h.exact_types; i++)
    if (Py_TYPE(m.exact_types()[i].object) != m.exact_types()[i].type) return kExactType;
  PyObject *stores = given[4], *cells = given[6], *equal = given[7];
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(stores); i++)
    if (is_dead(PyTuple_GET_ITEM(stores, i))) return kStore;
  for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(cells); i += 2)
    if (!holds(PyTuple_GET_ITEM(cells, i), PyTuple_GET_ITEM(cells, i + 1))) return kCell;
  for (uint64_t i = 0; i < h.tensors; i++) {
    const Tensor& t = m.tensors()[i];
    if (i + kAhead < h.tensors) fetch(m.tensors()[i + kAhead]);
    if (t.held != nullptr && *t.held != t.impl) return kTensor;  // exchanged for another's
    if (t.version >= 0 && version_of(t) != t.version) return kTensor;
    if (rf_address(t.tensor) != t.address) return kTensor;
  }
  for (Py_ssize_t i = 0; i + 1 < PyTuple_GET_SIZE(equal); i += 2) {
    const bool same = same_values(PyTuple_GET_ITEM(equal, i), PyTuple_GET_ITEM(equal, i + 1));
    PyErr_Clear();  // what cannot be compared is not what it was
    if (!same) return kEqual;
  }
  for (uint64_t i = 0; i < h.contents; i++) {  // last: memory of a tensor that moved may be gone
    const Content& c = m.contents()[i];
    if (!as_sampled(c, h.words, m.at + c.samples)) return kContent;
  }
  return audit(m) ? kNothing : kAudit;
}

static bool are_tuples(PyObject* const* args, int n) {
  for (int i = 0; i < n; i++)
    if (!PyTuple_Check(args[i])) {
      PyErr_Format(PyExc_TypeError, "argument %d is a %s, not a tuple", i, Py_TYPE(args[i])->tp_name);
      return false;
    }
  return true;
}
static bool memory_of(PyObject* o, Memory& m) {
  if (!PyByteArray_Check(o) || PyByteArray_GET_SIZE(o) < Py_ssize_t(sizeof(Header))) {
    PyErr_SetString(PyExc_TypeError, "the memory is not one that `watch` gave");
    return false;
  }
  m.at = PyByteArray_AS_STRING(o);
  return true;
}

static PyObject* watch(PyObject*, PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, 7) || !are_tuples(args, 6)) return nullptr;
  Header h{};
  h.dicts = PyTuple_GET_SIZE(args[0]), h.types = PyTuple_GET_SIZE(args[1]),
  h.exact_types = PyTuple_GET_SIZE(args[2]) / 2;
  h.tensors = PyTuple_GET_SIZE(args[3]) / 2, h.contents = PyTuple_GET_SIZE(args[5]) / 2;
  h.blocks = PyLong_AsUnsignedLongLong(args[6]);
  h.words = h.contents > kMany ? kFewer : kSamples;
  uint64_t size = sizeof h + h.dicts * sizeof(Dict) + h.types * sizeof(Type) + h.exact_types * sizeof(ExactType) +
                  h.tensors * sizeof(Tensor) + h.contents * sizeof(Content);
  const uint64_t fixed = size;
  for (uint64_t i = 0; i < h.contents; i++) {
    const uint64_t bytes = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(args[5], 2 * i + 1));
    size += samples_bytes(bytes, h.words) + 8 * blocks_of(bytes);
  }
  if (PyErr_Occurred()) return nullptr;
  PyObject* made = PyByteArray_FromStringAndSize(nullptr, size);
  if (made == nullptr) return nullptr;
  const Memory m{PyByteArray_AS_STRING(made)};
  m.header() = h;
  next_look.count = 0;  // one that was due and never taken may be of a module that is gone
  for (uint64_t i = 0; i < h.dicts; i++) {
    PyObject* row = PyTuple_GET_ITEM(args[0], i);
    if (!PyTuple_Check(row) || PyTuple_GET_SIZE(row) < 2 || !PyDict_Check(PyTuple_GET_ITEM(row, 0))) {
      PyErr_SetString(PyExc_TypeError, "a row of dicts is (dict, size, key, value, ...)");
      goto failed;
    }
    PyObject* dict = PyTuple_GET_ITEM(row, 0);
    const uint64_t tag = tag_of(dict);
    // what changed since the row was made is seen at the first look
    m.dicts()[i] = {dict, same_entries(row) ? tag : ~uint64_t{0}};
  }
  for (uint64_t i = 0; i < h.types; i++) {
    PyObject* type = PyTuple_GET_ITEM(args[1], i);
    if (!PyType_Check(type)) {
      PyErr_SetString(PyExc_TypeError, "a row of types is a type");
      goto failed;
    }
    // a type gets its tag where it is looked into, which the metatype's own __doc__ does not ask for
    PyObject* init = PyObject_GetAttrString(type, "__init__");
    Py_XDECREF(init);
    PyErr_Clear();
    m.types()[i] = {reinterpret_cast<PyTypeObject*>(type), tag_of_type(reinterpret_cast<PyTypeObject*>(type))};
  }
  for (uint64_t i = 0; i < h.exact_types; i++)
    m.exact_types()[i] = {PyTuple_GET_ITEM(args[2], 2 * i),
                    reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(args[2], 2 * i + 1))};
  for (uint64_t i = 0; i < h.tensors; i++) {
    PyObject* tensor = PyTuple_GET_ITEM(args[3], 2 * i);
    const bool counted = PyObject_IsTrue(PyTuple_GET_ITEM(args[3], 2 * i + 1)) == 1;
    Tensor& t = m.tensors()[i];
    t = {tensor, -1, rf_address(tensor), nullptr, nullptr};
    if (PyErr_Occurred()) goto failed;
    PyObject* impl = PyObject_GetAttrString(tensor, "_cdata");
    if (impl != nullptr) {
      t.impl = static_cast<const char*>(PyLong_AsVoidPtr(impl));
      t.held = held_by(tensor, t.impl);
      Py_DECREF(impl);
    }
    PyErr_Clear();
    if (counted) t.version = version_of(t);
    if (PyErr_Occurred()) goto failed;
  }
  size = fixed;
  for (uint64_t i = 0; i < h.contents; i++) {
    Content& c = m.contents()[i];
    c.address = static_cast<const char*>(PyLong_AsVoidPtr(PyTuple_GET_ITEM(args[5], 2 * i)));
    c.bytes = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(args[5], 2 * i + 1));
    c.samples = size, c.digests = size + samples_bytes(c.bytes, h.words);
    size = c.digests + 8 * blocks_of(c.bytes);
    std::memset(m.at + c.samples, 0, c.digests - c.samples);
    sample(c, h.words, m.at + c.samples);
    for (uint64_t b = 0; b < blocks_of(c.bytes); b++) m.digests(c)[b] = block_digest(c, b);
  }
  if (PyErr_Occurred()) goto failed;
  return made;
failed:
  Py_DECREF(made);
  return nullptr;
}

static PyObject* unchanged(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Memory m{};
  if (!rf_takes(n, 9) || !are_tuples(args, 8) || !memory_of(args[8], m)) return nullptr;
  const Change change = changed(args, m);
  m.header().change = change;
  next_look = m.header().look;
  if (change != kNothing) next_look.count = 0;
  if (PyErr_Occurred()) return nullptr;
  return PyBool_FromLong(change == kNothing);
}

static PyObject* look(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Memory m{};
  if (!rf_takes(n, 6) || !memory_of(args[0], m)) return nullptr;
  Look& l = m.header().look;
  l.words = static_cast<const uint32_t* const*>(PyLong_AsVoidPtr(args[1]));
  l.expected = static_cast<const uint32_t*>(PyLong_AsVoidPtr(args[2]));
  l.count = PyLong_AsUnsignedLongLong(args[3]);
  l.epoch = static_cast<uint32_t>(PyLong_AsUnsignedLong(args[4]));
  l.flag = static_cast<uint32_t*>(PyLong_AsVoidPtr(args[5]));
  if (PyErr_Occurred()) return nullptr;
  next_look = l;  // this call's kernel looks, too
  Py_RETURN_NONE;
}

static PyObject* altered(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Memory m{};
  if (!rf_takes(n, 1) || !memory_of(args[0], m)) return nullptr;
  return PyLong_FromUnsignedLongLong(m.header().change);
}

static PyObject* written(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Memory m{};
  if (!rf_takes(n, 1) || !memory_of(args[0], m)) return nullptr;
  uint64_t all = 0;
  for (uint64_t i = 0; i < m.header().tensors; i++) {
    const Tensor& t = m.tensors()[i];
    if (t.version < 0) continue;
    const uint64_t version = version_of(t), address = reinterpret_cast<uint64_t>(rf_address(t.tensor));
    all = (all ^ version) * 0x9E3779B97F4A7C15ul;
    all = (all ^ address ^ all >> 29) * 0x9E3779B97F4A7C15ul;
  }
  for (uint64_t i = 0; m.header().change == kContent && i < m.header().contents; i++) {  // addresses are what they were
    const Content& c = m.contents()[i];
    char words[kWhole];
    sample(c, m.header().words, words);
    const uint64_t bytes = c.bytes <= kWhole ? c.bytes : samples_bytes(c.bytes, m.header().words);
    all = (all ^ digest(words, bytes)) * 0x9E3779B97F4A7C15ul;
  }
  if (PyErr_Occurred()) return nullptr;
  return PyLong_FromUnsignedLongLong(all);
}

static PyObject* differing(PyObject*, PyObject* const* args, Py_ssize_t n) {
  Memory a{}, b{};
  if (!rf_takes(n, 2) || !memory_of(args[0], a) || !memory_of(args[1], b)) return nullptr;
  const uint64_t contents = a.header().contents;
  bool equal = contents == b.header().contents;
  for (uint64_t i = 0; equal && i < contents; i++) equal = a.contents()[i].bytes == b.contents()[i].bytes;
  if (!equal) Py_RETURN_NONE;
  PyObject* flags = PyTuple_New(contents);
  if (flags == nullptr) return nullptr;
  for (uint64_t i = 0; i < contents; i++) {
    const Content &x = a.contents()[i], &y = b.contents()[i];
    const uint64_t bytes = samples_bytes(x.bytes, a.header().words) + 8 * blocks_of(x.bytes);
    const bool differs = std::memcmp(a.at + x.samples, b.at + y.samples, bytes) != 0;
    PyTuple_SET_ITEM(flags, i, PyBool_FromLong(differs));
  }
  return flags;
}

RF_METHOD(watch, watch)
RF_METHOD(unchanged, unchanged)
RF_METHOD(look, look)
RF_METHOD(altered, altered)
RF_METHOD(written, written)
RF_METHOD(differing, differing)

}  // namespace rf_watch
#endif
