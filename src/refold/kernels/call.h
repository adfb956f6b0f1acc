// Calls from Python: every argument is a tensor, an int (a size, or an address) or a float.
//
//   RF_FUNCTION(name, (parameters), result)   a function of Python, whose arguments are the parameters in order:
//     T*, long, float, double   one argument
//     a struct with kArguments  so many arguments, its members
//     Members<Body, N>          N arguments, the first members of a kernel's struct
#pragma once
namespace rf {

// What a kernel's struct is made from where its headers have nothing for it.
struct Bare {};

}  // namespace rf

#ifdef __CUDACC_RTC__  // NVRTC compiles what runs on a GPU alone
#define RF_FUNCTION(...)
#else
#include <Python.h>

#include <tuple>
#include <type_traits>
#include <utility>

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
static inline bool rf_takes(Py_ssize_t given, Py_ssize_t wanted) {
  if (given != wanted) PyErr_Format(PyExc_TypeError, "expected %zd arguments, got %zd", wanted, given);
  return given == wanted;
}

// The functions that Python sees. Each is declared where it is defined.
using RfFunction = PyObject*(PyObject*, PyObject* const*, Py_ssize_t);
struct RfMethod;
inline RfMethod* rf_methods = nullptr;  // of all files of the module
struct RfMethod {
  PyMethodDef rows[2] = {};
  RfMethod* next = rf_methods;
  RfMethod(const char* name, RfFunction* function) {
    rows[0].ml_name = name, rows[0].ml_flags = METH_FASTCALL;
    rows[0].ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
    rf_methods = this;
  }
};
#if !defined(RF_UNIT) || RF_UNIT == 0
static PyModuleDef rf_module = {PyModuleDef_HEAD_INIT, "kernels", nullptr, -1, nullptr, nullptr, nullptr, nullptr, nullptr};
#define RF_INIT_(name) PyInit_##name
#define RF_INIT(name) RF_INIT_(name)
PyMODINIT_FUNC RF_INIT(TORCH_EXTENSION_NAME)() {
  PyObject* module = PyModule_Create(&rf_module);
  for (RfMethod* m = rf_methods; module != nullptr && m != nullptr; m = m->next)
    if (PyModule_AddFunctions(module, m->rows) != 0) Py_CLEAR(module);
  return module;
}
#endif

// An argument, as what it initialises.
struct RfArgument {
  PyObject* given;
  template <class T> operator T*() const { return static_cast<T*>(rf_address(given)); }
  operator long() const { return PyLong_AsLong(given); }
  operator float() const { return static_cast<float>(PyFloat_AsDouble(given)); }
  operator double() const { return PyFloat_AsDouble(given); }
};

// A parameter of type T from the arguments at `args`, of which it takes kCount.
template <class T, class = void> struct RfParameter {
  static constexpr int kCount = 1;
  static T from(PyObject* const* args) { return RfArgument{args[0]}; }
};
template <class T, size_t... I> static inline T rf_filled(PyObject* const* args, std::index_sequence<I...>) {
  return {RfArgument{args[I]}...};
}
template <class T> struct RfParameter<T, std::void_t<decltype(T::kArguments)>> {
  static constexpr int kCount = T::kArguments;
  static T from(PyObject* const* args) { return rf_filled<T>(args, std::make_index_sequence<kCount>{}); }
};

namespace rf {

// A kernel's struct of which Python gives the first N members; sizes fill the rest.
template <class Body, int N> struct Members {
  Body body;
  bool is_aligned() const { return body.is_aligned(); }
  Body sized(long width) const {
    Body whole = body;
    whole.width = width;
    return whole;
  }
  Body sized(long width, long count) const {
    Body whole = sized(width);
    whole.count = count;
    return whole;
  }
};

}  // namespace rf

template <class Body, int N> struct RfParameter<rf::Members<Body, N>> {
  static constexpr int kCount = N;
  template <size_t... I> static Body filled(PyObject* const* args, std::index_sequence<I...>) {
    return {{}, RfArgument{args[I]}...};
  }
  static rf::Members<Body, N> from(PyObject* const* args) { return {filled(args, std::make_index_sequence<N>{})}; }
};

template <class T> static inline T rf_next(PyObject* const*& args) {
  PyObject* const* const here = args;
  args += RfParameter<T>::kCount;
  return RfParameter<T>::from(here);
}

// Reads the parameters of `run` from the arguments and calls call(parameters, the arguments after them), which gives
// Python's result. more: how many come after them.
template <class R, class... P, class Call>
static inline PyObject* rf_called(R (*)(P...), int more, PyObject* const* args, Py_ssize_t n, const Call& call) {
  if (!rf_takes(n, (RfParameter<P>::kCount + ... + more))) return nullptr;
  const std::tuple<P...> given{rf_next<P>(args)...};  // in order: the elements of a braced list are
  return PyErr_Occurred() ? nullptr : call(given, args);
}

[[maybe_unused]] static inline PyObject* rf_result(size_t bytes) { return PyLong_FromSize_t(bytes); }

#define RF_LIST(...) __VA_ARGS__
#define RF_METHOD(name, function) static const RfMethod name##_method(#name, function);
#define RF_FUNCTION(name, parameters, ...)                                                    \
  static auto name##_of parameters { return __VA_ARGS__; }                                    \
  static PyObject* name##_called(PyObject*, PyObject* const* args, Py_ssize_t n) {            \
    return rf_called(name##_of, 0, args, n, [](const auto& given, PyObject* const*) {         \
      return rf_result(std::apply(name##_of, given));                                         \
    });                                                                                       \
  }                                                                                           \
  RF_METHOD(name, name##_called)
#endif
