// Vectors: the processor's own, with what lanes.h and the templates ask of them.
//
// PyTorch's vector headers have all of it for every type and processor, and reading them takes the compiler longer
// than most files' kernels. Floats of AVX2 and of AVX-512 stand here, instruction by instruction as PyTorch has them,
// so that results have the same bits (tests/kernels/test_vectors.py). All else is PyTorch's: doubles, other processors,
// a PyTorch that does not bring Sleef, whose functions it exports, and what a file asks for by RF_VECTORS: elements of
// 16 bits.
#pragma once
#if !defined(RF_REAL) && !defined(RF_VECTORS) && __has_include(<sleef.h>) && \
    (defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2))
#if defined(__GNUC__) && !defined(__clang__) && !defined(__INTEL_COMPILER) && !defined(__NVCOMPILER)
#define _IMMINTRIN_H_INCLUDED  // GCC refuses what is in it by itself; all of it takes as long as a kernel
#include <smmintrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#include <fmaintrin.h>
#if defined(CPU_CAPABILITY_AVX512)
#include <avx512fintrin.h>
#include <avx512dqintrin.h>
#endif
#undef _IMMINTRIN_H_INCLUDED
#else
#include <immintrin.h>
#endif

#include <utility>

#if defined(CPU_CAPABILITY_AVX512)
#define RF_WIDE(name) _mm512_##name
#define RF_SLEEF(name, ulps) Sleef_##name##f16_##ulps
using RfWide = __m512;
#else
#define RF_WIDE(name) _mm256_##name
#define RF_SLEEF(name, ulps) Sleef_##name##f8_##ulps
using RfWide = __m256;
#endif
#define RF_SLEEVES(F) \
  F(log, u10) F(sin, u35) F(cos, u35)
#define RF_DECLARED(name, ulps) RfWide RF_SLEEF(name, ulps)(RfWide);
extern "C" {
RF_SLEEVES(RF_DECLARED)
RfWide RF_SLEEF(pow, u10)(RfWide, RfWide);
}

namespace rf {

class Vec {
 public:
  Vec() : values(RF_WIDE(setzero_ps)()) {}
  Vec(RfWide v) : values(v) {}
  Vec(float x) : values(RF_WIDE(set1_ps)(x)) {}
  operator RfWide() const { return values; }
  static constexpr int size() { return sizeof(RfWide) / sizeof(float); }

#define RF_METHOD_OF(name, ulps) Vec name() const { return RF_SLEEF(name, ulps)(values); }
  RF_SLEEVES(RF_METHOD_OF)
#undef RF_METHOD_OF
  Vec pow(Vec y) const { return RF_SLEEF(pow, u10)(values, y); }
  Vec neg() const { return RF_WIDE(xor_ps)(RF_WIDE(set1_ps)(-0.f), values); }
  Vec abs() const { return RF_WIDE(andnot_ps)(RF_WIDE(set1_ps)(-0.f), values); }
  Vec sqrt() const { return RF_WIDE(sqrt_ps)(values); }
  Vec rsqrt() const { return RF_WIDE(div_ps)(RF_WIDE(set1_ps)(1), RF_WIDE(sqrt_ps)(values)); }
  Vec floor() const { return RF_WIDE(floor_ps)(values); }
  Vec ceil() const { return RF_WIDE(ceil_ps)(values); }
#if defined(CPU_CAPABILITY_AVX512)
  Vec round() const { return _mm512_roundscale_ps(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  Vec trunc() const { return _mm512_roundscale_ps(values, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
  static __mmask16 first(long count) { return static_cast<__mmask16>((1ULL << count) - 1); }
  static Vec loadu(const float* p, long count = size()) {
    return count == size() ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(first(count), p);
  }
  void store(float* p, long count = size()) const {
    if (count == size()) _mm512_storeu_ps(p, values);
    else if (count > 0) _mm512_mask_storeu_ps(p, first(count), values);
  }
  static Vec set(Vec a, Vec b, long count) { return _mm512_mask_blend_ps(first(count), a, b); }
  static Vec blendv(Vec a, Vec b, Vec mask) {
    const __m512i all = _mm512_set1_epi32(-1);
    return _mm512_mask_blend_ps(_mm512_cmp_epi32_mask(_mm512_castps_si512(mask), all, _MM_CMPINT_EQ), a, b);
  }
  template <int How> static Vec compared(Vec a, Vec b) {
    const __m512i none{};
    return _mm512_castsi512_ps(_mm512_mask_set1_epi32(none, _mm512_cmp_ps_mask(a, b, How), -1));
  }
#else
  Vec round() const { return _mm256_round_ps(values, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  Vec trunc() const { return _mm256_round_ps(values, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC); }
  static __m256i first(long count) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static Vec loadu(const float* p, long count = size()) {
    return count >= size() ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, first(count));
  }
  void store(float* p, long count = size()) const {
    if (count >= size()) _mm256_storeu_ps(p, values);
    else if (count > 0) _mm256_maskstore_ps(p, first(count), values);
  }
  static Vec set(Vec a, Vec b, long count) { return blendv(a, b, _mm256_castsi256_ps(first(count))); }
  static Vec blendv(Vec a, Vec b, Vec mask) { return _mm256_blendv_ps(a, b, mask); }
  template <int How> static Vec compared(Vec a, Vec b) { return _mm256_cmp_ps(a, b, How); }
#endif
  Vec operator==(Vec b) const { return compared<_CMP_EQ_OQ>(*this, b); }
  Vec operator!=(Vec b) const { return compared<_CMP_NEQ_UQ>(*this, b); }
  Vec operator<(Vec b) const { return compared<_CMP_LT_OQ>(*this, b); }
  Vec operator<=(Vec b) const { return compared<_CMP_LE_OQ>(*this, b); }
  Vec operator>(Vec b) const { return compared<_CMP_GT_OQ>(*this, b); }
  Vec operator>=(Vec b) const { return compared<_CMP_GE_OQ>(*this, b); }

 private:
  RfWide values;
};
using FloatVec = Vec;
#define RF_FLOAT_LANES

#define RF_OPERATOR(sign, name) \
  inline Vec operator sign(Vec a, Vec b) { return RF_WIDE(name)(a, b); } \
  inline Vec& operator sign##=(Vec& a, Vec b) { return a = a sign b; }
RF_OPERATOR(+, add_ps) RF_OPERATOR(-, sub_ps) RF_OPERATOR(*, mul_ps) RF_OPERATOR(/, div_ps)
RF_OPERATOR(&, and_ps) RF_OPERATOR(|, or_ps) RF_OPERATOR(^, xor_ps)
#undef RF_OPERATOR
inline Vec fmadd(Vec a, Vec b, Vec c) { return RF_WIDE(fmadd_ps)(a, b, c); }
// NaN where either side is: all ones are a NaN.
inline Vec maximum(Vec a, Vec b) { return Vec(RF_WIDE(max_ps)(a, b)) | Vec::compared<_CMP_UNORD_Q>(a, b); }
inline Vec minimum(Vec a, Vec b) { return Vec(RF_WIDE(min_ps)(a, b)) | Vec::compared<_CMP_UNORD_Q>(a, b); }

// The sum of all, halves added to halves.
inline float total(Vec a) {
#if defined(CPU_CAPABILITY_AVX512)
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
#else
  const __m256 half = a;
#endif
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}

// a0 b0 a1 b1 ..., and the way back.
inline std::pair<Vec, Vec> interleave2(Vec a, Vec b) {
#if defined(CPU_CAPABILITY_AVX512)
  const __m512i low = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  const __m512i high = _mm512_set_epi32(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8);
  return {_mm512_permutex2var_ps(a, low, b), _mm512_permutex2var_ps(a, high, b)};
#else
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  const __m256 low = _mm256_permute2f128_ps(a, b, 0x20), high = _mm256_permute2f128_ps(a, b, 0x31);
  return {_mm256_permutevar8x32_ps(low, order), _mm256_permutevar8x32_ps(high, order)};
#endif
}
inline std::pair<Vec, Vec> deinterleave2(Vec a, Vec b) {
#if defined(CPU_CAPABILITY_AVX512)
  const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odd = _mm512_set_epi32(31, 29, 27, 25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
  return {_mm512_permutex2var_ps(a, even, b), _mm512_permutex2var_ps(a, odd, b)};
#else
  const __m256i order = _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7);
  const __m256 x = _mm256_permutevar8x32_ps(a, order), y = _mm256_permutevar8x32_ps(b, order);
  return {_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31)};
#endif
}
#undef RF_SLEEVES
#undef RF_DECLARED

}  // namespace rf
#else
#include <ATen/cpu/vec/vec.h>

#ifndef RF_REAL
#define RF_REAL float
#define RF_FLOAT_LANES
#endif

namespace rf {

using Vec = at::vec::Vectorized<RF_REAL>;
using FloatVec = at::vec::Vectorized<float>;
inline Vec maximum(Vec a, Vec b) { return at::vec::maximum(a, b); }
inline Vec minimum(Vec a, Vec b) { return at::vec::minimum(a, b); }
inline RF_REAL total(Vec a) {
  RF_REAL x[Vec::size()];
  a.store(x);
  for (int n = Vec::size() / 2; n; n /= 2)
    for (int i = 0; i < n; i++) x[i] += x[i + n];
  return x[0];
}

}  // namespace rf
#endif
