// Monoids: how lanes are accumulated, and how partial results merge in a fixed order.
//
// Results never depend on the number of threads: a row (or column) is cut into chunks of a fixed
// length, each chunk is accumulated by lanes, and chunks merge first to last. A sum adds its chunks
// with the rounding error carried along, so a long row is as accurate as a short one.
#pragma once
#include "lanes.h"
#include "../folded.h"

namespace rf {

constexpr long kChunk = 4096;  // columns of one row accumulated before they merge
constexpr long kChain = 8;     // values added one by one: a sum of equal ones must stay near them

struct SumState {
  Real value = 0.0f, lost = 0.0f;
  Real get() const { return value + lost; }
};

struct Sum {
  using State = SumState;
  static Vec identity() { return Vec(0.0f); }
  static Vec nothing() { return identity(); }  // lanes that change nothing
  static RF_FN Vec accumulate(Vec a, Vec b) { return a + b; }
  static Real horizontal(Vec a) { return total(a); }
  static void merge(State& s, Real x) {
    const Real total = s.value + x;
    if (std::isfinite(total))  // what the addition rounded off (Neumaier)
      s.lost += std::fabs(s.value) >= std::fabs(x) ? (s.value - total) + x : (x - total) + s.value;
    else
      s.lost = 0.0f;
    s.value = total;
  }
};

// The sum of values and the sum of their squares.
struct SumAndSquares {
  struct Lanes { Vec sum, squares; };
  struct Both { Real sum, squares; };
  struct State {
    SumState sum, squares;
    void get(Real (&values)[2]) const { values[0] = sum.get(), values[1] = squares.get(); }
  };
  static Lanes identity() { return {Vec(0.0f), Vec(0.0f)}; }
  static Vec nothing() { return Vec(0.0f); }
  static RF_FN Lanes accumulate(const Lanes& a, Vec x) { return {a.sum + x, fmadd(x, x, a.squares)}; }
  static RF_FN Lanes accumulate(const Lanes& a, const Lanes& b) {
    return {a.sum + b.sum, a.squares + b.squares};
  }
  static Both horizontal(const Lanes& a) { return {Sum::horizontal(a.sum), Sum::horizontal(a.squares)}; }
  static void merge(State& s, Both x) { Sum::merge(s.sum, x.sum), Sum::merge(s.squares, x.squares); }
};

template <class Op> struct Folded {
  struct State {
    Real value = Op::start();
    Real get() const { return value; }
  };
  static Vec identity() { return Vec(Op::start()); }
  static Vec nothing() { return identity(); }
  static RF_FN Vec accumulate(Vec a, Vec b) { return Op::of(a, b); }
  static Real horizontal(Vec a) {
    Real x[kLanes];
    a.store(x);
    for (long i = 1; i < kLanes; i++) x[0] = Op::of(x[0], x[i]);
    return x[0];
  }
  static void merge(State& s, Real x) { s.value = Op::of(s.value, x); }
};

// Mean and sum of squared deviations of a column, merged by Chan's formula: never E[x^2] - E[x]^2.
struct MomentsState {
  Real count = 0.0f, mean = 0.0f, m2 = 0.0f;
  void merge(const MomentsState& o) {
    if (o.count == 0.0f) return;
    const Real total = count + o.count, delta = o.mean - mean, share = o.count / total;
    mean += delta * share;
    m2 += o.m2 + delta * (delta * (count * share));  // 0 where this holds nothing, however large delta is
    count = total;
  }
};

}  // namespace rf
