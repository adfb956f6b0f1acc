// Bodies as an emitter writes them, one for each kind of sink, with the C entries that tests call.
#pragma once
#include <type_traits>

#include "finalize.cuh"
#include "narrow.cuh"
#include "operand.cuh"

struct Call {
  const void *a, *b;  // operands as the tensor cores read them
  const float *a_unscale, *b_unscale, *a_plain, *b_plain;
  long rows, cols, depth, lda, ldb;  // of the plain operands; lda, ldb are pitches for native ones
  long batches;                      // matrices of `cols` rows that b is made of
  void* scratch;
  unsigned* arrivals;
  const float* in[4];
  float* out[8];
  cudaStream_t stream;
};

namespace rf {

#define RF_STORE(pointer)                                             \
  static constexpr bool kStores = true;                               \
  template <class C> RF_FN void store(long row, C col, Vec v) const { \
    put(pointer, row * width, col, v);                                \
  }
#define RF_NO_STORE static constexpr bool kStores = false;
// how many operands are read of rows, and whether they and what is stored are aligned; of one product
#define RF_READS(count, ...)             \
  static constexpr int kReads = count;   \
  static constexpr bool kBatched = false; \
  RF_FN bool in_pairs() const { return __VA_ARGS__; }

struct Copy {
  Call c;
  long width;
  static constexpr bool kLight = true;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const { return acc; }
  RF_STORE(c.out[0])
  RF_READS(0, rf::in_pairs(c.out[0], width))
  using RowMonoids = List<>;
  using ColumnMonoids = List<>;
};

template <class T> struct CopyNarrow {  // elements of 16 bits
  Call c;
  long width;
  static constexpr bool kLight = true;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const { return acc; }
  RF_STORE(reinterpret_cast<T*>(c.out[0]))
  RF_READS(0, rf::in_pairs(reinterpret_cast<T*>(c.out[0]), width))
  using RowMonoids = List<>;
  using ColumnMonoids = List<>;
};

// A bias a column, a factor a row, a residual, a number: every kind of operand.
struct Operands {
  Call c;
  long width;
  static constexpr bool kLight = false;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const {
    const V t0 = column<V>(c.in[0], col);
    const V t1 = scalar<V>(c.in[1] + row);
    const V t2 = full<V>(c.in[2], row * width, col);
    const V t3 = scalar<V>(c.in[3]);
    return (acc + t0) * t1 + t2 * t3;
  }
  RF_STORE(c.out[0])
  RF_READS(1, rf::in_pairs(c.in[2], width) && rf::in_pairs(c.out[0], width))
  using RowMonoids = List<>;
  using ColumnMonoids = List<>;
};

struct OperandsOfBatch : Operands {
  static constexpr bool kBatched = true;
};

struct AllRows {
  Call c;
  long width;
  static constexpr bool kLight = true;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const {
    return acc + column<V>(c.in[0], col);
  }
  RF_STORE(c.out[0])
  RF_READS(0, rf::in_pairs(c.out[0], width))
  using RowMonoids = List<Sum, Max, Min, LogSumExp, Softmax>;
  RF_FN void finalize_row(long row, const float* results) const {
    for (int i = 0; i < 6; i++) c.out[1 + i][row] = results[i];
  }
  using ColumnMonoids = List<>;
};

struct AllColumns {
  Call c;
  long width;
  static constexpr bool kLight = true;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const { return acc; }
  RF_STORE(c.out[0])
  RF_READS(0, rf::in_pairs(c.out[0], width))
  using RowMonoids = List<>;
  using ColumnMonoids = List<Moments, Sum, Max>;
  struct Column { float mean, var, sum, max; };
  RF_FN void set_column(Step<0>, Column& to, const MomentsState& s) const {
    to.mean = s.mean;
    to.var = s.m2 / (static_cast<float>(c.rows) - 1.0f);
  }
  RF_FN void set_column(Step<1>, Column& to, const SumState& s) const { to.sum = s.get(); }
  RF_FN void set_column(Step<2>, Column& to, const Max::State& s) const { to.max = s.get(); }
  RF_FN void finalize_column(const Column& of, long col) const {
    c.out[1][col] = of.mean, c.out[2][col] = of.var, c.out[3][col] = of.sum, c.out[4][col] = of.max;
  }
};

struct Both {  // rows and columns reduced, nothing stored
  Call c;
  long width;
  static constexpr bool kLight = false;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const { return acc; }
  RF_NO_STORE
  RF_READS(0, true)
  using RowMonoids = List<Max>;
  RF_FN void finalize_row(long row, const float* results) const { c.out[0][row] = results[0]; }
  using ColumnMonoids = List<Moments>;
  struct Column { float mean, m2; };
  RF_FN void set_column(Step<0>, Column& to, const MomentsState& s) const { to.mean = s.mean, to.m2 = s.m2; }
  RF_FN void finalize_column(const Column& of, long col) const { c.out[1][col] = of.mean, c.out[2][col] = of.m2; }
};

struct GeluMax {  // linear, average pooling (in the weights), gelu, max
  Call c;
  long width;
  static constexpr bool kLight = false;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const {
    const V t0 = column<V>(c.in[0], col);
    const auto t1 = acc + t0;
    return 0.5f * t1 * (1.0f + erf(t1 * 0.70710678118654752f));
  }
  RF_NO_STORE
  RF_READS(0, true)
  using RowMonoids = List<Max>;
  RF_FN void finalize_row(long row, const float* results) const {
    c.out[0][row] = results[0] * 2.0f;
  }
  using ColumnMonoids = List<>;
};

struct StoreMoments {  // linear, batch norm in training mode
  Call c;
  long width;
  static constexpr bool kLight = true;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const { return acc; }
  RF_STORE(c.out[0])
  RF_READS(0, rf::in_pairs(c.out[0], width))
  using RowMonoids = List<>;
  using ColumnMonoids = List<Moments>;
  struct Column { float mean, var; };
  RF_FN void set_column(Step<0>, Column& to, const MomentsState& s) const {
    to.mean = s.mean;
    to.var = s.m2 / (static_cast<float>(c.rows) - 1.0f);
  }
  RF_FN void finalize_column(const Column& of, long col) const { c.out[1][col] = of.mean, c.out[2][col] = of.var; }
};

struct ScaleSoftmax {  // linear, batch norm in eval mode, softmax: what its second pass needs
  Call c;
  long width;
  static constexpr bool kLight = true;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const {
    const V t0 = column<V>(c.in[0], col);
    return acc + t0;
  }
  RF_STORE(c.out[0])
  RF_READS(0, rf::in_pairs(c.out[0], width))
  using RowMonoids = List<Softmax>;
  RF_FN void finalize_row(long row, const float* results) const {
    c.out[1][row] = results[0];
    c.out[2][row] = results[1];
  }
  using ColumnMonoids = List<>;
};

struct SigmoidSum {  // linear, sigmoid, sum
  Call c;
  long width;
  static constexpr bool kLight = true;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const {
    const V t0 = column<V>(c.in[0], col);
    const auto t1 = acc + t0;
    return sigmoid(t1);
  }
  RF_NO_STORE
  RF_READS(0, true)
  using RowMonoids = List<Sum>;
  RF_FN void finalize_row(long row, const float* results) const { c.out[0][row] = results[0]; }
  using ColumnMonoids = List<>;
};

template <class S, class Body> Error run(const Call& c) {
  using Mode = typename S::Mode;
  const long b_rows = c.cols * c.batches;
  Operand a{c.a, c.rows, c.lda}, b{c.b, b_rows, c.ldb};
  if constexpr (std::is_void_v<Mode>) {
    a = plain_operand(c.a_plain, c.rows, c.lda);
    b = plain_operand(c.b_plain, b_rows, c.ldb);
  } else if constexpr (Mode::kScaled) {
    if constexpr (Mode::kRS) a = rs_operand(c.a_plain, c.rows, c.lda);
    else a = split_operand<Mode>(c.a, c.a_unscale, c.a_plain, c.rows, c.depth, c.lda);
    b = split_operand<Mode>(c.b, c.b_unscale, c.b_plain, b_rows, c.depth, c.ldb);
  }
  return matmul<S>(Body{c, c.cols}, a, batch_of(b, c.batches), c.depth, {c.scratch, c.arrivals}, c.stream);
}

}  // namespace rf

// name(call) runs a product by a schedule; name_sizes(rows, cols, unsplit_depth, sizes) gives the bytes of its
// parts and turns.
#define RF_ENTRY(name, Body, ...)                                                                \
  extern "C" rf::Error name(const Call* call) { return rf::run<__VA_ARGS__, rf::Body>(*call); } \
  extern "C" rf::Error name##_sizes(long rows, long cols, long unsplit, size_t* sizes) {        \
    return rf::workspace_bytes<__VA_ARGS__, rf::Body>(rows, cols, sizes[0], sizes[1], unsplit); \
  }
// of a batch, whose number is given in the place of the depth of what is not split
#define RF_BATCH_ENTRY(name, ...)                                                                                  \
  extern "C" rf::Error name(const Call* call) { return rf::run<__VA_ARGS__, rf::OperandsOfBatch>(*call); }         \
  extern "C" rf::Error name##_sizes(long rows, long cols, long batches, size_t* sizes) {                           \
    return rf::workspace_bytes<__VA_ARGS__, rf::OperandsOfBatch>(rows, cols, sizes[0], sizes[1], 0, batches);      \
  }
