// Narrow: elements of 16 bits, loaded and stored by the names of functor.cuh, lanes.cuh and
// matmul_plain.cuh.
//
// Why: a fused kernel computes in fp32 what PyTorch rounds to 16 bits after every op. A value is widened
// where it is loaded, which is exact, and rounded to nearest even where it is stored.
#pragma once
#include "elements.cuh"
#include "lanes.cuh"

namespace rf {

// Two elements from one word, the first in the lower half; and back.
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
template <class T> RF_FN float4 widened(uint2 words) {
  const float2 a = widened<T>(words.x), b = widened<T>(words.y);
  return make_float4(a.x, a.y, b.x, b.y);
}
template <bool Together, class T> RF_FN void write_pair(T* p, int more, uint32_t two) {
  if constexpr (Together) {
    *reinterpret_cast<uint32_t*>(p + more) = two;
  } else {
    p[more].bits = static_cast<uint16_t>(two);
    p[more + 1].bits = static_cast<uint16_t>(two >> 16);
  }
}
// Lanes 2 i and 2 i + 1 have columns next to each other: one takes the first pairs of both, the other one the second,
// 8 bytes each. Four lanes write 32 bytes in a row then, which memory takes as a whole.
template <class T> RF_FN void exchange_pairs(T* p, int more, uint32_t first, uint32_t second) {
  const bool odd = threadIdx.x % 2;
  const uint32_t got = __shfl_xor_sync(kFullMask, odd ? first : second, 1);
  *reinterpret_cast<uint2*>(p + more + (odd ? 6 : 0)) = odd ? make_uint2(got, second) : make_uint2(first, got);
}
RF_FN uint2 read_once(const void* p) {
  uint2 words;
  asm volatile("ld.global.L1::no_allocate.v2.b32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "l"(p));
  return words;
}

#define RF_NARROW(T)                                                                                      \
  RF_FN Real read_one(const T* p) { return widened<T>(p->bits).x; }                                       \
  RF_FN void write_one(T* p, Real v) { p->bits = static_cast<uint16_t>(narrowed<T>(v, 0.0f)); }           \
  RF_FN Vec2 read_vec2(const T* p) {                                                                        \
    const float2 v = widened<T>(*reinterpret_cast<const uint32_t*>(p));                                   \
    return {v.x, v.y};                                                                                    \
  }                                                                                                       \
  template <bool Together> RF_FN void write_vec2(T* p, int more, Real first, Real second) {                \
    write_pair<Together>(p, more, narrowed<T>(first, second));                                            \
  }                                                                                                       \
  RF_FN void write_pairs(T* p, int more, Real v, const Real (&next)[3]) {                                 \
    exchange_pairs(p, more, narrowed<T>(v, next[0]), narrowed<T>(next[1], next[2]));                      \
  }                                                                                                       \
  template <class Read> RF_FN Vec4 read_vec4(const T* p, Read read) {                                     \
    return Vec4(widened<T>(read(reinterpret_cast<const uint2*>(p))));                                     \
  }                                                                                                       \
  RF_FN void write_vec4(T* p, Vec4 v) {                                                                   \
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(p), "r"(narrowed<T>(v.x[0], v.x[1])),           \
                 "r"(narrowed<T>(v.x[2], v.x[3])));                                                       \
  }                                                                                                       \
  RF_FN float4 load_vec4(const T* p) { return widened<T>(*reinterpret_cast<const uint2*>(p)); }             \
  RF_FN float4 load_once(const T* p) { return widened<T>(read_once(p)); }
RF_NARROW(Half) RF_NARROW(Bfloat)
#undef RF_NARROW

// Rounded as if it had been stored as T.
template <class T> RF_FN Real rounded(Real x) { return widened<T>(narrowed<T>(x, 0.0f)).x; }
template <class T> RF_FN Vec4 rounded(Vec4 v) {
  return Vec4::each([&](int i) { return rounded<T>(v.x[i]); });
}

}  // namespace rf
