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

template <auto F, class... T, size_t... I>
static void apply(void (*)(T...), PyObject* const* args, std::index_sequence<I...>) {
  F(RfParameter<T>::from(args + I)...);
}
template <auto F, class... T> static PyObject* run(void (*f)(T...), PyObject* const* args, Py_ssize_t n) {
  if (!rf_takes(n, sizeof...(T))) return nullptr;
  apply<F>(f, args, std::index_sequence_for<T...>{});
  Py_RETURN_NONE;
}
template <auto F> static PyObject* entry(PyObject*, PyObject* const* args, Py_ssize_t n) { return run<F>(F, args, n); }

static RfMethod linear_("linear", entry<rf::linear<rf::Real>>), reduced_("reduced", entry<rf::reduced>);
#ifdef RF_TEST_NARROW
static RfMethod float16_("linear_float16", entry<rf::linear<rf::Half>>),
    bfloat16_("linear_bfloat16", entry<rf::linear<rf::Bfloat>>),
    folded_float16_("folded_float16", entry<rf::linear<rf::Half, float>>),
    folded_bfloat16_("folded_bfloat16", entry<rf::linear<rf::Bfloat, float>>);
#endif
