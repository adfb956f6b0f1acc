// Functor: the names that generated bodies are written in, for CUDA.
//
// Why: a body (struct Matmul0 {...}) is one C++ text for every backend. On the CPU its lanes `Vec`
// are a SIMD vector and a position `C` is a run of columns; here a lane is one float and a position
// is one column index, so each thread runs the body once for each element that it holds.
//
// All arithmetic is in `Real`, float32 unless a file says otherwise before it comes here; what is
// loaded and stored may be narrower, and is converted there.
//
// Layout: data row after row; offsets and rows are 64-bit, columns 32-bit.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#ifndef RF_FN  // the tests compile monoids and bodies for the host
#define RF_FN __device__ __forceinline__
#endif

#ifndef RF_REAL
#define RF_REAL float
#endif

namespace rf {

using Real = RF_REAL;
using Vec = Real;
// Elements of 16 bits in memory.
struct Half {
  static constexpr bool kBfloat = false;
  uint16_t bits;
};
struct Bfloat {
  static constexpr bool kBfloat = true;
  uint16_t bits;
};
template <int S> struct Step { static constexpr int index = S; };
template <class... M> struct List { static constexpr int size = sizeof...(M); };

// Calls f(Step<i>, monoid) for each monoid of a list.
template <int S, class F> RF_FN void for_monoids(List<>, F&&) {}
template <int S, class F, class M, class... Rest> RF_FN void for_monoids(List<M, Rest...>, F&& f) {
  f(Step<S>{}, M{});
  for_monoids<S + 1>(List<Rest...>{}, f);
}

// --- elements in memory ----------------------------------------------------------------------------
template <class T> constexpr bool is_narrow = sizeof(T) == 2;

// Two elements of 16 bits from one word, the first in the lower half; and back, rounded to nearest even.
template <class T> RF_FN float2 widened(uint32_t two) {
  if constexpr (T::kBfloat) return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xffff0000u));
  float2 v;
  asm("{\n.reg .b16 lower, upper;\nmov.b32 {lower, upper}, %2;\n"
      "cvt.f32.f16 %0, lower;\ncvt.f32.f16 %1, upper;\n}" : "=f"(v.x), "=f"(v.y) : "r"(two));
  return v;
}
template <class T> RF_FN uint32_t narrowed(float lower, float upper) {
  uint32_t two;
  if constexpr (T::kBfloat) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(upper), "f"(lower));
  else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(two) : "f"(upper), "f"(lower));
  return two;
}

template <class T> RF_FN Real read_one(const T* p) {
  if constexpr (is_narrow<T>) return widened<T>(__ldg(reinterpret_cast<const uint16_t*>(p))).x;
  else return __ldg(p);
}
template <class T> RF_FN void write_one(T* p, Real v) {
  if constexpr (is_narrow<T>) p->bits = static_cast<uint16_t>(narrowed<T>(v, 0.0f));
  else *p = v;
}

template <class V> RF_FN V lanes(Real x) { return x; }
template <class V, class T> RF_FN V scalar(const T* p) { return read_one(p); }
template <class V, class T, class C> RF_FN V column(const T* p, C col) { return read_one(p + col); }
template <class V, class T, class C> RF_FN V full(const T* p, long offset, C col) {
  return read_one(p + offset + col);
}
template <class T, class C> RF_FN void put(T* p, long offset, C col, Real v) {
  write_one(p + offset + col, v);
}
template <class T> RF_FN void put(T* p, long offset, Real v) { write_one(p + offset, v); }

// Two columns that one thread holds: a body's store(row, Pair{col, next}, v) writes v to `col` and `next`
// beside it, as one access where the address allows it.
struct Pair {
  int col;
  Real next;
};
template <class T> RF_FN void put(T* p, long offset, Pair pair, Real v) {
  T* to = p + offset + pair.col;
  if constexpr (!is_narrow<T>) {
    if (sizeof(T) == 4 && reinterpret_cast<uintptr_t>(to) % 8 == 0) {
      *reinterpret_cast<float2*>(to) = make_float2(v, pair.next);
    } else {
      to[0] = v;
      to[1] = pair.next;
    }
  } else {
    const uint32_t two = narrowed<T>(v, pair.next);
    if (reinterpret_cast<uintptr_t>(to) % 4 == 0) {
      *reinterpret_cast<uint32_t*>(to) = two;
    } else {
      to[0].bits = static_cast<uint16_t>(two);
      to[1].bits = static_cast<uint16_t>(two >> 16);
    }
  }
}

// Rounded as if it had been stored as T.
template <class T> RF_FN Real rounded(Real x) {
  if constexpr (is_narrow<T>) return widened<T>(narrowed<T>(x, 0.0f)).x;
  else return static_cast<T>(x);
}

RF_FN Real where(bool mask, Real yes, Real no) { return mask ? yes : no; }

}  // namespace rf
