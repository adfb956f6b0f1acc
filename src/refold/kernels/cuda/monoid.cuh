// Monoids: what rows and columns are reduced by, and how partial results merge in a fixed order.
//
// Why: a tile leaves one partial result for each of its rows (or columns) in a workspace; whoever
// comes last merges them first tile to last. The order never depends on who that is, so a result is
// the same bits on every run, and no float is ever added atomically.
//
// A monoid has
//   Partial        what travels in registers and in the workspace (kWords floats)
//   accumulate(p, x)   takes one more value;   merge(p, q) takes another partial
//   accumulate_batch(p, x, in)   takes those of several values that count   (if kWords > 1)
//   State          what the final, ordered merge keeps (a sum carries what its additions rounded off)
//   partial(state)   a partial again
//   kResults, results(state, out)          what the body's finalize_row is given
#pragma once
#include "math.cuh"
#include "../folded.h"

namespace rf {

struct SumState {
  Real value = 0.0f, lost = 0.0f;
  RF_FN Real get() const { return value + lost; }
  RF_FN void add(Real x) {
    const Real total = value + x;
    // what the addition rounded off (Neumaier); no meaning once the total is infinite or NaN
    if (is_finite(total)) lost += abs(value) >= abs(x) ? (value - total) + x : (x - total) + value;
    else lost = 0.0f;
    value = total;
  }
};

struct Sum {
  struct Partial { Real w[1]; };
  using State = SumState;
  static constexpr int kWords = 1, kResults = 1;
  static RF_FN Partial identity() { return {{0.0f}}; }
  static RF_FN void accumulate(Partial& p, Real x) { p.w[0] += x; }
  static RF_FN void merge(Partial& p, const Partial& q) { p.w[0] += q.w[0]; }
  static RF_FN void merge(State& s, const Partial& q) { s.add(q.w[0]); }
  static RF_FN Partial partial(const State& s) { return {{s.get()}}; }
  static RF_FN void results(const State& s, Real* out) { out[0] = s.get(); }
};

// The sum of values and the sum of their squares.
struct SumAndSquares {
  struct Partial { Real w[2]; };
  struct State { SumState sum, squares; };
  static constexpr int kWords = 2, kResults = 2;
  static RF_FN Partial identity() { return {{0.0f, 0.0f}}; }
  static RF_FN void accumulate(Partial& p, Real x) { p.w[0] += x, p.w[1] += x * x; }
  static RF_FN void merge(Partial& p, const Partial& q) { p.w[0] += q.w[0], p.w[1] += q.w[1]; }
  static RF_FN void merge(State& s, const Partial& q) { s.sum.add(q.w[0]), s.squares.add(q.w[1]); }
  static RF_FN Partial partial(const State& s) { return {{s.sum.get(), s.squares.get()}}; }
  static RF_FN void results(const State& s, Real* out) { out[0] = s.sum.get(), out[1] = s.squares.get(); }
};

template <class Op> struct Folded {
  struct Partial { Real w[1]; };
  struct State {
    Real value = Op::start();
    RF_FN Real get() const { return value; }
  };
  static constexpr int kWords = 1, kResults = 1;
  static RF_FN Partial identity() { return {{Op::start()}}; }
  static RF_FN void accumulate(Partial& p, Real x) { p.w[0] = Op::of(p.w[0], x); }
  static RF_FN void merge(Partial& p, const Partial& q) { p.w[0] = Op::of(p.w[0], q.w[0]); }
  static RF_FN void merge(State& s, const Partial& q) { s.value = Op::of(s.value, q.w[0]); }
  static RF_FN Partial partial(const State& s) { return {{s.value}}; }
  static RF_FN void results(const State& s, Real* out) { out[0] = s.value; }
};

// The largest value m and sum of exp(x - m). Exponents are taken from `exp_base`: exp(inf - inf) would
// be NaN where log(sum(exp)) is plainly infinite. Only what is subtracted is replaced: a partial that
// holds nothing, or only -infinity, has m = -infinity and weighs exp(-inf - base) = 0 whatever the
// base.
struct ExpPartial { Real w[2]; };
struct ExpState {
  Real max = LargerOf::start(), sum = 0.0f;
};
RF_FN Real exp_base(Real m) { return is_infinite(m) ? 0.0f : m; }
struct LogSumExp {
  using Partial = ExpPartial;
  using State = ExpState;
  static constexpr int kWords = 2, kResults = 1;
  static RF_FN Partial identity() { return {{LargerOf::start(), 0.0f}}; }
  static RF_FN void accumulate(Partial& p, Real x) {
    if (x <= p.w[0]) {  // the common case costs one exponential
      p.w[1] += exp(x - exp_base(p.w[0]));
    } else {
      const Real m = maximum(p.w[0], x), base = exp_base(m);
      p.w[1] = p.w[1] * exp(p.w[0] - base) + exp(x - base);
      p.w[0] = m;
    }
  }
  // Several values, of which some count: one exponential each and one for what came before.
  template <int N> static RF_FN void accumulate_batch(Partial& p, const Real (&x)[N], const bool (&in)[N]) {
    Real m = p.w[0];
#pragma unroll
    for (int i = 0; i < N; i++) m = in[i] ? maximum(m, x[i]) : m;
    const Real base = exp_base(m);
    Real sum = p.w[1] * exp(p.w[0] - base);
#pragma unroll
    for (int i = 0; i < N; i++) sum += in[i] ? exp(x[i] - base) : 0.0f;
    p.w[0] = m, p.w[1] = sum;
  }
  static RF_FN void merge(Partial& p, const Partial& q) {
    const Real m = maximum(p.w[0], q.w[0]), base = exp_base(m);
    p.w[1] = p.w[1] * exp(p.w[0] - base) + q.w[1] * exp(q.w[0] - base);
    p.w[0] = m;
  }
  static RF_FN void merge(State& s, const Partial& q) {
    Partial p{{s.max, s.sum}};
    merge(p, q);
    s = {p.w[0], p.w[1]};
  }
  static RF_FN Partial partial(const State& s) { return {{s.max, s.sum}}; }
  static RF_FN void results(const State& s, Real* out) { out[0] = log(s.sum) + exp_base(s.max); }
};

// The same state given as it is, for a softmax in two steps: exp(x - out[0]) / out[1].
struct Softmax : LogSumExp {
  static constexpr int kResults = 2;
  static RF_FN void results(const State& s, Real* out) {
    out[0] = s.max;
    // a row whose largest value is infinite has no softmax: exp(inf - inf) is NaN
    out[1] = is_infinite(s.max) ? __int_as_float(0x7fffffff) : s.sum;
  }
};

// The same where a logsumexp is made of it: of an infinite maximum the sum is that of exp(x).
struct LogSumExpState : LogSumExp {
  static constexpr int kResults = 2;
  static RF_FN void results(const State& s, Real* out) { out[0] = s.max, out[1] = s.sum; }
};

// Mean and sum of squared deviations of a row in one pass. Values come in batches, whose own are merged into the
// others' by Chan's formula: E[x^2] - E[x]^2 would cancel.
struct RowMoments {
  struct Partial { Real w[3]; };  // count, mean, m2
  using State = Partial;
  static constexpr int kWords = 3, kResults = 2;
  static RF_FN Partial identity() { return {{0.0f, 0.0f, 0.0f}}; }
  template <int N> static RF_FN void accumulate_batch(Partial& p, const Real (&x)[N], const bool (&in)[N]) {
    Partial q = identity();
#pragma unroll
    for (int i = 0; i < N; i++) q.w[0] += in[i] ? 1.0f : 0.0f, q.w[1] += in[i] ? x[i] : 0.0f;
    const Real one = 1.0f / maximum(q.w[0], 1.0f);
    q.w[1] *= one;
    Real left = 0.0f;  // by the mean's rounding: of equal values the mean is exact, and no deviation is left
#pragma unroll
    for (int i = 0; i < N; i++) {
      const Real d = in[i] ? x[i] - q.w[1] : 0.0f;
      left += d, q.w[2] += d * d;
    }
    const Real share = left * one, more = left * share;
    if (is_finite(more)) q.w[1] += share, q.w[2] -= more;
    merge(p, q);
  }
  static RF_FN void merge(Partial& p, const Partial& q) {
    if (q.w[0] == 0.0f) return;
    const Real total = p.w[0] + q.w[0], delta = q.w[1] - p.w[1], share = q.w[0] / total;
    p.w[1] += delta * share;
    p.w[2] += q.w[2] + delta * (delta * (p.w[0] * share));  // 0 where p holds nothing, however large delta is
    p.w[0] = total;
  }
  static RF_FN Partial partial(const State& s) { return s; }
  static RF_FN void results(const State& s, Real* out) { out[0] = s.w[1], out[1] = s.w[2]; }
};

// Count, mean and sum of squared deviations of a column, merged by Chan's formula: E[x^2] - E[x]^2
// would cancel. The count of a partial is known from its rows and travels apart.
struct MomentsState {
  Real count = 0.0f, mean = 0.0f, m2 = 0.0f;
  RF_FN void merge(const MomentsState& o) {
    if (o.count == 0.0f) return;
    const Real total = count + o.count, delta = o.mean - mean, share = o.count / total;
    mean += delta * share;
    m2 += o.m2 + delta * (delta * (count * share));  // 0 where this holds nothing, however large delta is
    count = total;
  }
};
struct Moments { static constexpr int kWords = 2, kResults = 0; };

// How much the second of two partials weighs, n rows of the first and m of the second; the same for all
// columns, so that its division is done once.
struct Weight {
  Real share = 0.0f, cross = 0.0f;  // m / (n + m), and n times that
  Weight() = default;
  RF_FN Weight(Real n, Real m) : share(m == 0.0f ? 0.0f : m / (n + m)), cross(n * share) {}
};

// A monoid down a column: partials with their counts of rows.
template <class M> struct Down {
  using Partial = typename M::Partial;
  using State = typename M::State;
  static constexpr int kWords = M::kWords;
  // The partial of R values of which some count; share: one over how many do, 0 if none.
  template <int R> static RF_FN Partial of(const Real (&x)[R], const bool (&in)[R], Real share) {
    Partial p = M::identity();
#pragma unroll
    for (int i = 0; i < R; i++)
      if (in[i]) M::accumulate(p, x[i]);
    return p;
  }
  static RF_FN Partial merge(Partial p, const Partial& q, Weight) {
    M::merge(p, q);
    return p;
  }
  static RF_FN void merge(State& s, const Partial& q, Real) { M::merge(s, q); }
};
template <> struct Down<Moments> {
  struct Partial { Real w[2]; };  // mean, m2
  using State = MomentsState;
  static constexpr int kWords = 2;
  template <int R> static RF_FN Partial of(const Real (&x)[R], const bool (&in)[R], Real share) {
    Partial p{{in[0] ? x[0] : 0.0f, 0.0f}};
#pragma unroll
    for (int i = 1; i < R; i++) p.w[0] += in[i] ? x[i] : 0.0f;
    p.w[0] *= share;
    Real left = 0.0f;  // as of rows
#pragma unroll
    for (int i = 0; i < R; i++) {
      const Real d = in[i] ? x[i] - p.w[0] : 0.0f;
      left += d, p.w[1] += d * d;
    }
    const Real mean_more = left * share, m2_more = left * mean_more;
    if (is_finite(m2_more)) p.w[0] += mean_more, p.w[1] -= m2_more;
    return p;
  }
  static RF_FN Partial merge(const Partial& p, const Partial& q, Weight w) {
    const Real delta = q.w[0] - p.w[0];
    return {{p.w[0] + delta * w.share, p.w[1] + q.w[1] + delta * (delta * w.cross)}};
  }
  static RF_FN void merge(State& s, const Partial& q, Real m) { s.merge({m, q.w[0], q.w[1]}); }
};

// Whether each of a thread's lanes has a partial of its own; partials then merge to the same bits in either order.
template <class M> constexpr bool kByLane = M::kWords == 1;
template <> inline constexpr bool kByLane<SumAndSquares> = true;

// Words of the workspace that one row (or column) of partial results takes, and results of a row.
template <class L> struct Words;
template <class... M> struct Words<List<M...>> {
  static constexpr int row = (0 + ... + M::kWords);
  static constexpr int results = (0 + ... + M::kResults);
  static constexpr int column = (0 + ... + Down<M>::kWords);
};

// The same for the monoids before the S-th: where its words and results start.
template <int S, class L> struct Before;
template <class M, class... Rest> struct Before<0, List<M, Rest...>> {
  static constexpr int row = 0, results = 0, column = 0;
};
template <int S, class M, class... Rest> struct Before<S, List<M, Rest...>> {
  using Less = Before<S - 1, List<Rest...>>;
  static constexpr int row = M::kWords + Less::row;
  static constexpr int results = M::kResults + Less::results;
  static constexpr int column = Down<M>::kWords + Less::column;
};

}  // namespace rf
