// Lanes: a SIMD vector of consecutive columns, over PyTorch's own vector headers.
//
// Generated text works on lanes `V` at a position (row, col). Here V is `Vec`, as wide as the
// machine's vectors, and a position is `Whole` (all lanes) or `Part` (the first `count` lanes, at
// the end of a row); loads and stores of a Part touch nothing beyond it. Once a row has been
// reduced its values are plain floats, and the same text runs with V = float.
#pragma once
#include <ATen/cpu/vec/vec.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#define RF_FN inline __attribute__((always_inline))

namespace rf {

using Vec = at::vec::Vectorized<float>;
constexpr long kLanes = Vec::size();

struct Whole { long start; };
struct Part { long start, count; };
template <int S> struct Step {};
template <class... M> struct List { static constexpr int size = sizeof...(M); };

template <class V> RF_FN V lanes(float x) { return V(x); }
template <class V> RF_FN V lanes(V x) { return x; }

template <class V> RF_FN V scalar(const float* p) { return V(*p); }
template <class V> RF_FN V column(const float* p, Whole c) { return Vec::loadu(p + c.start); }
template <class V> RF_FN V column(const float* p, Part c) {
  return Vec::loadu(p + c.start, c.count);
}
template <class V, class C> RF_FN V full(const float* p, long offset, C col) {
  return column<V>(p + offset, col);
}
RF_FN void put(float* p, long offset, Whole c, Vec v) { v.store(p + offset + c.start); }
RF_FN void put(float* p, long offset, Part c, Vec v) {
  v.store(p + offset + c.start, static_cast<int>(c.count));
}
RF_FN void put(float* p, long offset, float v) { p[offset] = v; }

// Arithmetic of lanes with a number; of lanes with lanes it comes with Vec.
RF_FN Vec operator+(float a, Vec b) { return Vec(a) + b; }
RF_FN Vec operator+(Vec a, float b) { return a + Vec(b); }
RF_FN Vec operator-(float a, Vec b) { return Vec(a) - b; }
RF_FN Vec operator-(Vec a, float b) { return a - Vec(b); }
RF_FN Vec operator*(float a, Vec b) { return Vec(a) * b; }
RF_FN Vec operator*(Vec a, float b) { return a * Vec(b); }
RF_FN Vec operator/(float a, Vec b) { return Vec(a) / b; }
RF_FN Vec operator/(Vec a, float b) { return a / Vec(b); }
RF_FN Vec operator-(Vec a) { return a.neg(); }

// A comparison of lanes is a mask of lanes.
RF_FN Vec where(Vec mask, Vec yes, Vec no) { return Vec::blendv(no, yes, mask); }
RF_FN Vec where(Vec mask, float yes, Vec no) { return where(mask, Vec(yes), no); }
RF_FN Vec where(Vec mask, Vec yes, float no) { return where(mask, yes, Vec(no)); }
RF_FN float where(bool mask, float yes, float no) { return mask ? yes : no; }

// Functions, for lanes and for one float. Minimum and maximum give NaN where either side is NaN.
#define RF_MATH(name)                      \
  RF_FN Vec name(Vec x) { return x.name(); } \
  RF_FN float name(float x) { return std::name(x); }
RF_MATH(exp) RF_MATH(expm1) RF_MATH(log) RF_MATH(log1p) RF_MATH(sqrt) RF_MATH(sin) RF_MATH(cos)
RF_MATH(tanh) RF_MATH(erf) RF_MATH(abs) RF_MATH(floor) RF_MATH(ceil) RF_MATH(trunc)
#undef RF_MATH
RF_FN Vec round(Vec x) { return x.round(); }
RF_FN float round(float x) { return std::nearbyint(x); }
RF_FN Vec rsqrt(Vec x) { return x.rsqrt(); }
RF_FN float rsqrt(float x) { return 1.0f / std::sqrt(x); }
RF_FN Vec pow(Vec x, Vec y) { return x.pow(y); }
RF_FN float pow(float x, float y) { return std::pow(x, y); }
RF_FN Vec maximum(Vec a, Vec b) { return at::vec::maximum(a, b); }
RF_FN Vec minimum(Vec a, Vec b) { return at::vec::minimum(a, b); }
RF_FN float maximum(float a, float b) { return std::isnan(a) || a > b ? a : b; }
RF_FN float minimum(float a, float b) { return std::isnan(a) || a < b ? a : b; }
template <class V> RF_FN V relu(V x) { return maximum(x, V(0.0f)); }
template <class V> RF_FN V sigmoid(V x) { return 1.0f / (1.0f + exp(-x)); }

}  // namespace rf
