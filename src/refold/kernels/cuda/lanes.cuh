// Lanes: four consecutive columns at once, for the kernels that are bound by memory.
//
// Why: a thread that moves 16 bytes with one instruction needs a quarter of the instructions, and
// keeps four times the bytes in flight. Generated bodies are templates on their lanes `V` and their
// position `C`: here V is `Vec4` at a `Vec4At`, or one number at a column where rows do not start at
// multiples of 16 bytes. A comparison of Vec4s gives a `Vec4::Mask`; numbers convert to Vec4s.
//
// Layout: a Vec4At's columns start at a multiple of 4, its addresses at multiples of 16 bytes (of 8 where
// elements have 16 bits).
#pragma once
#include "math.cuh"

namespace rf {

struct Vec4At { long start; };

struct alignas(16) Vec4 {
  struct Mask { bool in[4]; };
  Real x[4];
  Vec4() = default;
  RF_FN Vec4(Real a) : x{a, a, a, a} {}
  RF_FN Vec4(float4 a) : x{a.x, a.y, a.z, a.w} {}
  template <class F> static RF_FN Vec4 each(F f) {
    Vec4 y;
#pragma unroll
    for (int i = 0; i < 4; i++) y.x[i] = f(i);
    return y;
  }
};

// Four elements by one access of 16 bytes, of doubles by two. `read` loads a whole vector type. A store
// written so stays one instruction: the compiler takes the assignment of a float4 apart. Without
// "memory" later loads may move before it; no body reads what it writes.
template <class Read> RF_FN Vec4 read_vec4(const float* p, Read read) {
  return Vec4(read(reinterpret_cast<const float4*>(p)));
}
RF_FN void write_vec4(float* p, Vec4 v) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(float(v.x[0])), "f"(float(v.x[1])),
               "f"(float(v.x[2])), "f"(float(v.x[3])));
}
template <class Read> RF_FN Vec4 read_vec4(const double* p, Read read) {
  const double2 a = read(reinterpret_cast<const double2*>(p)), b = read(reinterpret_cast<const double2*>(p) + 1);
  const Real x[4] = {Real(a.x), Real(a.y), Real(b.x), Real(b.y)};
  return Vec4::each([&](int i) { return x[i]; });
}
RF_FN void write_vec4(double* p, Vec4 v) {
  asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(p), "d"(double(v.x[0])), "d"(double(v.x[1])));
  asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(p + 2), "d"(double(v.x[2])), "d"(double(v.x[3])));
}

template <class Read> RF_FN Vec4 read_vec4(const bool* p, Read read) {
  const uint32_t bytes = read(reinterpret_cast<const uint32_t*>(p));
  return Vec4::each([&](int i) { return Real((bytes >> 8 * i & 255) != 0); });
}

template <class V> RF_FN V lanes(Vec4 x) { return x; }
template <class V, class T> RF_FN V column(const T* p, Vec4At c) {
  return read_vec4(p + c.start, [](const auto* from) { return *from; });
}
template <class V, class T> RF_FN V full(const T* p, long offset, Vec4At c) { return column<V>(p + offset, c); }
template <class T> RF_FN void put(T* p, long offset, Vec4At c, Vec4 v) { write_vec4(p + offset + c.start, v); }

#define RF_ARITHMETIC(op)                                                              \
  RF_FN Vec4 operator op(Vec4 a, Vec4 b) {                                             \
    return Vec4::each([&](int i) { return a.x[i] op b.x[i]; });                        \
  }
RF_ARITHMETIC(+) RF_ARITHMETIC(-) RF_ARITHMETIC(*) RF_ARITHMETIC(/)
#undef RF_ARITHMETIC
RF_FN Vec4 operator-(Vec4 a) { return Vec4::each([&](int i) { return -a.x[i]; }); }

#define RF_COMPARISON(op)                                                              \
  RF_FN Vec4::Mask operator op(Vec4 a, Vec4 b) {                                       \
    return {{a.x[0] op b.x[0], a.x[1] op b.x[1], a.x[2] op b.x[2], a.x[3] op b.x[3]}}; \
  }
RF_COMPARISON(<) RF_COMPARISON(<=) RF_COMPARISON(>) RF_COMPARISON(>=) RF_COMPARISON(==)
RF_COMPARISON(!=)
#undef RF_COMPARISON

RF_FN Vec4 where(Vec4::Mask mask, Vec4 yes, Vec4 no) {
  return Vec4::each([&](int i) { return mask.in[i] ? yes.x[i] : no.x[i]; });
}

template <class V> RF_FN V mul_rn(Vec4 a, Vec4 b) {
  return Vec4::each([&](int i) { return mul_rn<Real>(a.x[i], b.x[i]); });
}

#define RF_MATH(name) \
  RF_FN Vec4 name(Vec4 a) { return Vec4::each([&](int i) { return name(a.x[i]); }); }
RF_MATH(exp) RF_MATH(expm1) RF_MATH(log) RF_MATH(log1p) RF_MATH(sqrt) RF_MATH(rsqrt) RF_MATH(sin)
RF_MATH(cos) RF_MATH(tanh) RF_MATH(erf) RF_MATH(abs) RF_MATH(floor) RF_MATH(ceil) RF_MATH(trunc)
RF_MATH(round) RF_MATH(relu) RF_MATH(sigmoid) RF_MATH(gelu)
RF_MATH(mish)
#undef RF_MATH
RF_FN Vec4 pow(Vec4 a, Vec4 b) { return Vec4::each([&](int i) { return pow(a.x[i], b.x[i]); }); }
RF_FN Vec4 maximum(Vec4 a, Vec4 b) { return Vec4::each([&](int i) { return maximum(a.x[i], b.x[i]); }); }
RF_FN Vec4 minimum(Vec4 a, Vec4 b) { return Vec4::each([&](int i) { return minimum(a.x[i], b.x[i]); }); }
RF_FN Vec4 fma(Vec4 a, Vec4 b, Vec4 c) { return Vec4::each([&](int i) { return fma(a.x[i], b.x[i], c.x[i]); }); }

// What a kernel knows of its lanes: how many, and where the n-th of a row's are ("unit" n).
template <class V> struct LanesOf;
template <> struct LanesOf<Vec4> {
  static constexpr int count = 4;
  static RF_FN Vec4At at(long unit) { return {4 * unit}; }
  static RF_FN Real get(const Vec4& v, int lane) { return v.x[lane]; }
  // Reads what another block has written: not by way of the L1.
  static RF_FN Vec4 fresh(const Real* p) {
    return read_vec4(p, [](const auto* from) { return __ldcg(from); });
  }
};
template <> struct LanesOf<Real> {
  static constexpr int count = 1;
  static RF_FN long at(long unit) { return unit; }
  static RF_FN Real get(Real v, int) { return v; }
  static RF_FN Real fresh(const Real* p) { return __ldcg(p); }
};

}  // namespace rf
