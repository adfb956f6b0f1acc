// Lanes: a SIMD vector of consecutive columns, over vectors.h.
//
// Generated text works on lanes `V` at a position (row, col). Here V is `Vec`, as wide as the
// machine's vectors, and a position is `FullVec` (all lanes) or `TailVec` (the first `count` lanes,
// at the end of a row); loads and stores of a TailVec touch nothing beyond it. Once a row has been
// reduced its values are plain numbers, and the same text runs with V = Real.
//
// All arithmetic is in `Real`, float32 unless a file says otherwise before it comes here; elements of
// other types are converted as they are loaded and stored.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "functions.h"

#ifndef RF_REAL
#define RF_REAL float
#endif

namespace rf {

using Real = RF_REAL;
constexpr long kLanes = Vec::size();

struct FullVec { long start; };
struct TailVec { long start, count; };
template <int S> struct Step {};
template <class... M> struct List { static constexpr int size = sizeof...(M); };

// kLanes elements in memory, or the first `count` of them, as lanes; and back. narrow.h has the same
// for elements of 16 bits.
RF_FN Vec read_lanes(const Real* p) { return Vec::loadu(p); }
RF_FN Vec read_lanes(const Real* p, long count) { return Vec::loadu(p, count); }
// One element; of a mask zero or one: as PyTorch has it, any byte but zero is true.
template <class T> RF_FN Real read_one(const T* p) { return static_cast<Real>(*p); }
RF_FN Real read_one(const bool* p) { return *reinterpret_cast<const unsigned char*>(p) != 0; }
RF_FN Vec read_lanes(const bool* p, long count = kLanes) {
  Real some[kLanes] = {};
  for (long i = 0; i < count; i++) some[i] = read_one(p + i);
  return Vec::loadu(some);
}
RF_FN void write_lanes(Real* p, Vec v, long count = kLanes) { v.store(p, static_cast<int>(count)); }

RF_FN Real infinity() { return std::numeric_limits<Real>::infinity(); }

template <class V> RF_FN V lanes(Real x) { return V(x); }
template <class V> RF_FN V lanes(V x) { return x; }

template <class V, class T> RF_FN V scalar(const T* p) { return V(read_one(p)); }
template <class V, class T> RF_FN V column(const T* p, FullVec c) { return read_lanes(p + c.start); }
template <class V, class T> RF_FN V column(const T* p, long col) { return V(read_one(p + col)); }
template <class V, class T> RF_FN V column(const T* p, TailVec c) { return read_lanes(p + c.start, c.count); }
template <class V, class T, class C> RF_FN V full(const T* p, long offset, C col) {
  return column<V>(p + offset, col);
}
template <class T> RF_FN void put(T* p, long offset, FullVec c, Vec v) { write_lanes(p + offset + c.start, v); }
template <class T> RF_FN void put(T* p, long offset, TailVec c, Vec v) {
  write_lanes(p + offset + c.start, v, c.count);
}
template <class T> RF_FN void put(T* p, long offset, Real v) { p[offset] = static_cast<T>(v); }

// Arithmetic of lanes with a number; of lanes with lanes it comes with Vec.
RF_FN Vec operator+(Real a, Vec b) { return Vec(a) + b; }
RF_FN Vec operator+(Vec a, Real b) { return a + Vec(b); }
RF_FN Vec operator-(Real a, Vec b) { return Vec(a) - b; }
RF_FN Vec operator-(Vec a, Real b) { return a - Vec(b); }
RF_FN Vec operator*(Real a, Vec b) { return Vec(a) * b; }
RF_FN Vec operator*(Vec a, Real b) { return a * Vec(b); }
RF_FN Vec operator/(Real a, Vec b) { return Vec(a) / b; }
RF_FN Vec operator/(Vec a, Real b) { return a / Vec(b); }
RF_FN Vec operator-(Vec a) { return a.neg(); }

// A comparison of lanes is a mask of lanes.
RF_FN Vec where(Vec mask, Vec yes, Vec no) { return Vec::blendv(no, yes, mask); }
RF_FN Vec where(Vec mask, Real yes, Vec no) { return where(mask, Vec(yes), no); }
RF_FN Vec where(Vec mask, Vec yes, Real no) { return where(mask, yes, Vec(no)); }
RF_FN Real where(bool mask, Real yes, Real no) { return mask ? yes : no; }

// A product that is rounded whatever is added to it, as all are here: compiled with -ffp-contract=off.
template <class V> RF_FN V mul_rn(V a, V b) { return a * b; }

// Functions, for lanes and for one number. Minimum and maximum give NaN where either side is NaN.
#define RF_MATH(name)                      \
  RF_FN Vec name(Vec x) { return x.name(); } \
  RF_FN Real name(Real x) { return std::name(x); }
RF_MATH(log) RF_MATH(sqrt) RF_MATH(sin) RF_MATH(cos) RF_MATH(abs) RF_MATH(floor) RF_MATH(ceil) RF_MATH(trunc)
#undef RF_MATH
#if defined(RF_IN_LINE)
#define RF_MATH(name)                          \
  RF_FN Vec name(Vec x) { return name##_of(x); } \
  RF_FN Real name(Real x) { return std::name(x); }
#else
#define RF_MATH(name)                      \
  RF_FN Vec name(Vec x) { return x.name(); } \
  RF_FN Real name(Real x) { return std::name(x); }
#endif
RF_MATH(exp) RF_MATH(expm1) RF_MATH(log1p) RF_MATH(tanh) RF_MATH(erf)
#undef RF_MATH
RF_FN Vec round(Vec x) { return x.round(); }
RF_FN Real round(Real x) { return std::nearbyint(x); }
RF_FN Vec rsqrt(Vec x) { return x.rsqrt(); }
RF_FN Real rsqrt(Real x) { return Real(1) / std::sqrt(x); }
RF_FN Vec pow(Vec x, Vec y) { return x.pow(y); }
RF_FN Real pow(Real x, Real y) { return std::pow(x, y); }
RF_FN Real maximum(Real a, Real b) { return std::isnan(a) || a > b ? a : b; }
RF_FN Real minimum(Real a, Real b) { return std::isnan(a) || a < b ? a : b; }
template <class V> RF_FN V relu(V x) { return maximum(x, V(0.0f)); }
template <class V> RF_FN V gelu(V x) {
#if defined(RF_IN_LINE)
  if constexpr (!std::is_same_v<V, Real>) return gelu_of(x);
#endif
  return Real(0.5) * x * (Real(1) + erf(x * Real(0.70710678118654752)));
}
template <class V> RF_FN V mish(V x) {  // tanh(log(1 + e)) by e alone, which is one from 20 on
  const V e = exp(minimum(x, V(20.0f))), n = e * (e + V(2.0f));
  return x * (n / (n + V(2.0f)));
}
template <class V> RF_FN V sigmoid(V x) { return Real(1) / (Real(1) + exp(-x)); }

}  // namespace rf
