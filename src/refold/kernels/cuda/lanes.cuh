// Lanes: four consecutive columns at once, for the kernels that are bound by memory.
//
// Why: a thread that moves 16 bytes with one instruction needs a quarter of the instructions, and
// keeps four times the bytes in flight. Generated bodies are templates on their lanes `V` and their
// position `C`: here V is `Four` at a `Quad`, or one number at a column where rows do not start at
// multiples of 16 bytes. A comparison of Fours gives a `Four::Mask`; numbers convert to Fours.
//
// Layout: a Quad's columns start at a multiple of 4, its addresses at multiples of 16 bytes (of 8 where
// elements have 16 bits).
#pragma once
#include "math.cuh"

namespace rf {

struct Quad { long start; };

struct alignas(16) Four {
  struct Mask { bool in[4]; };
  Real x[4];
  Four() = default;
  RF_FN Four(Real a) : x{a, a, a, a} {}
  RF_FN Four(float4 a) : x{a.x, a.y, a.z, a.w} {}
  template <class F> static RF_FN Four each(F f) {
    Four y;
#pragma unroll
    for (int i = 0; i < 4; i++) y.x[i] = f(i);
    return y;
  }
};

// Four elements by one access of 16 bytes, of doubles by two. `read` loads a whole vector type. A store
// written so stays one instruction: the compiler takes the assignment of a float4 apart. Without
// "memory" later loads may move before it; no body reads what it writes.
template <class Read> RF_FN Four read_four(const float* p, Read read) {
  return Four(read(reinterpret_cast<const float4*>(p)));
}
RF_FN void write_four(float* p, Four v) {
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p), "f"(float(v.x[0])), "f"(float(v.x[1])),
               "f"(float(v.x[2])), "f"(float(v.x[3])));
}
template <class Read> RF_FN Four read_four(const double* p, Read read) {
  const double2 a = read(reinterpret_cast<const double2*>(p)), b = read(reinterpret_cast<const double2*>(p) + 1);
  const Real x[4] = {Real(a.x), Real(a.y), Real(b.x), Real(b.y)};
  return Four::each([&](int i) { return x[i]; });
}
RF_FN void write_four(double* p, Four v) {
  asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(p), "d"(double(v.x[0])), "d"(double(v.x[1])));
  asm volatile("st.global.v2.f64 [%0], {%1, %2};" ::"l"(p + 2), "d"(double(v.x[2])), "d"(double(v.x[3])));
}

template <class Read> RF_FN Four read_four(const bool* p, Read read) {
  const uint32_t bytes = read(reinterpret_cast<const uint32_t*>(p));
  return Four::each([&](int i) { return Real((bytes >> 8 * i & 255) != 0); });
}

template <class V> RF_FN V lanes(Four x) { return x; }
template <class V, class T> RF_FN V column(const T* p, Quad c) {
  return read_four(p + c.start, [](const auto* from) { return *from; });
}
template <class V, class T> RF_FN V full(const T* p, long offset, Quad c) { return column<V>(p + offset, c); }
template <class T> RF_FN void put(T* p, long offset, Quad c, Four v) { write_four(p + offset + c.start, v); }

#define RF_ARITHMETIC(op)                                                              \
  RF_FN Four operator op(Four a, Four b) {                                             \
    return Four::each([&](int i) { return a.x[i] op b.x[i]; });                        \
  }
RF_ARITHMETIC(+) RF_ARITHMETIC(-) RF_ARITHMETIC(*) RF_ARITHMETIC(/)
#undef RF_ARITHMETIC
RF_FN Four operator-(Four a) { return Four::each([&](int i) { return -a.x[i]; }); }

#define RF_COMPARISON(op)                                                              \
  RF_FN Four::Mask operator op(Four a, Four b) {                                       \
    return {{a.x[0] op b.x[0], a.x[1] op b.x[1], a.x[2] op b.x[2], a.x[3] op b.x[3]}}; \
  }
RF_COMPARISON(<) RF_COMPARISON(<=) RF_COMPARISON(>) RF_COMPARISON(>=) RF_COMPARISON(==)
RF_COMPARISON(!=)
#undef RF_COMPARISON

RF_FN Four where(Four::Mask mask, Four yes, Four no) {
  return Four::each([&](int i) { return mask.in[i] ? yes.x[i] : no.x[i]; });
}

template <class V> RF_FN V product(Four a, Four b) {
  return Four::each([&](int i) { return product<Real>(a.x[i], b.x[i]); });
}

#define RF_MATH(name) \
  RF_FN Four name(Four a) { return Four::each([&](int i) { return name(a.x[i]); }); }
RF_MATH(exp) RF_MATH(expm1) RF_MATH(log) RF_MATH(log1p) RF_MATH(sqrt) RF_MATH(rsqrt) RF_MATH(sin)
RF_MATH(cos) RF_MATH(tanh) RF_MATH(erf) RF_MATH(abs) RF_MATH(floor) RF_MATH(ceil) RF_MATH(trunc)
RF_MATH(round) RF_MATH(relu) RF_MATH(sigmoid)
#undef RF_MATH
RF_FN Four pow(Four a, Four b) { return Four::each([&](int i) { return pow(a.x[i], b.x[i]); }); }
RF_FN Four maximum(Four a, Four b) { return Four::each([&](int i) { return maximum(a.x[i], b.x[i]); }); }
RF_FN Four minimum(Four a, Four b) { return Four::each([&](int i) { return minimum(a.x[i], b.x[i]); }); }
RF_FN Four fma(Four a, Four b, Four c) { return Four::each([&](int i) { return fma(a.x[i], b.x[i], c.x[i]); }); }

// What a kernel knows of its lanes: how many, and where the n-th of a row's are ("unit" n).
template <class V> struct LanesOf;
template <> struct LanesOf<Four> {
  static constexpr int count = 4;
  static RF_FN Quad at(long unit) { return {4 * unit}; }
  static RF_FN Real get(const Four& v, int lane) { return v.x[lane]; }
  // Reads what another block has written: not by way of the first-level cache.
  static RF_FN Four fresh(const Real* p) {
    return read_four(p, [](const auto* from) { return __ldcg(from); });
  }
};
template <> struct LanesOf<Real> {
  static constexpr int count = 1;
  static RF_FN long at(long unit) { return unit; }
  static RF_FN Real get(Real v, int) { return v; }
  static RF_FN Real fresh(const Real* p) { return __ldcg(p); }
};

}  // namespace rf
