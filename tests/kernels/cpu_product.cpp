// Two bodies for the CPU's product, written by hand as the emitter would write them; one of them also
// for operands and results of 16 bits, and of 16 bits with a weight in float32.
namespace rf {

// relu(acc + bias[col])
template <class T> struct Linear {
  const T* bias;
  T* y;
  long width;
  template <class V, class C> RF_FN V value(V acc, long, C col) const {
    return relu(acc + column<V>(bias, col));
  }
  static constexpr bool kStores = true;
  template <class C> RF_FN void store(long row, C col, Vec v) const { put(y, row * width, col, v); }
  using RowMonoids = List<>;
  using ColumnMonoids = List<>;
};

// acc + bias[col]: stored, reduced along rows and down columns
struct Reduced {
  const Real* bias;
  Real* y;
  Real* along;  // [sum, max, min][rows]
  Real* down;   // [sum, max, mean, m2][width]
  long width, rows;
  template <class V, class C> RF_FN V value(V acc, long, C col) const {
    return acc + column<V>(bias, col);
  }
  static constexpr bool kStores = true;
  template <class C> RF_FN void store(long row, C col, Vec v) const { put(y, row * width, col, v); }
  using RowMonoids = List<Sum, Max, Min>;
  RF_FN void finalize_row(long row, const Real* results) const {
    for (long i = 0; i < 3; i++) along[i * rows + row] = results[i];
  }
  using ColumnMonoids = List<Sum, Max, Moments>;
  struct Column { Real r[4]; };
  template <int S, class State> RF_FN void set_column(Step<S>, Column& c, const State& s) const { c.r[S] = s.get(); }
  RF_FN void set_column(Step<2>, Column& c, const MomentsState& s) const {
    c.r[2] = s.mean;
    c.r[3] = s.m2;
  }
  RF_FN void finalize_column(const Column& c, long col) const {
    for (long i = 0; i < 4; i++) down[i * width + col] = c.r[i];
  }
};

template <class T, class W = T>
static void linear(const T* a, const W* w, const T* bias, T* y, long n, long m, long k) {
  matmul(Linear<T>{bias, y, m}, a, w, n, m, k);
}
static void reduced(const Real* a, const Real* w, const Real* bias, Real* y, Real* along, Real* down,
                    long n, long m, long k) {
  matmul(Reduced{bias, y, along, down, m, n}, a, w, n, m, k);
}

}  // namespace rf

// Each argument is converted as the function's parameter says.
template <class T> static T argument(PyObject* o) {
  if constexpr (std::is_pointer_v<T>) return rf_pointer<std::remove_cv_t<std::remove_pointer_t<T>>>(o);
  else return rf_size(o);
}
template <class... T, size_t... I>
static void apply(void (*f)(T...), PyObject* const* args, std::index_sequence<I...>) {
  f(argument<T>(args[I])...);
}
template <auto F, class... T>
static PyObject* run(void (*)(T...), PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, sizeof...(T))) return nullptr;
  apply(F, args, std::index_sequence_for<T...>{});
  Py_RETURN_NONE;
}
template <auto F> static PyObject* entry(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return run<F>(F, args, n);
}
#define ENTRY(name, ...) \
  {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(entry<__VA_ARGS__>)), METH_FASTCALL, nullptr}

static PyMethodDef rf_methods[] = {
    ENTRY("linear", rf::linear<rf::Real>), ENTRY("reduced", rf::reduced),
#ifdef RF_TEST_NARROW
    ENTRY("linear_float16", rf::linear<rf::Half>), ENTRY("linear_bfloat16", rf::linear<rf::Bfloat>),
    ENTRY("folded_float16", rf::linear<rf::Half, float>), ENTRY("folded_bfloat16", rf::linear<rf::Bfloat, float>),
#endif
    {nullptr, nullptr, 0, nullptr}};
static PyModuleDef rf_module = {PyModuleDef_HEAD_INIT, "kernels", nullptr, -1, rf_methods,
                                nullptr, nullptr, nullptr, nullptr};
#define RF_INIT_(name) PyInit_##name
#define RF_INIT(name) RF_INIT_(name)
PyMODINIT_FUNC RF_INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&rf_module); }
