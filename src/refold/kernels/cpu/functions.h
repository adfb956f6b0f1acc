// Functions of float lanes, in line: PyTorch calls Sleef's, before which all registers go to memory.
//
// Cycles for 16 numbers of a core with AVX-512, ours beside the calls: exp 10 and 13, sigmoid 13 and 17, erf 13 and 29,
// gelu 27 and 32, tanh 20 and 61, expm1 13 and 49, log1p 21 and 32, mish 16 and 155. Errors are at most two units in
// the last place, five of erf. NaN stays, and what is infinite or overflows is so here. Doubles, and processors
// without AVX2, have PyTorch's functions.
#pragma once
#include "vectors.h"

#define RF_FN inline __attribute__((always_inline))

#if defined(RF_FLOAT_LANES) && (defined(CPU_CAPABILITY_AVX512) || defined(CPU_CAPABILITY_AVX2))
#define RF_IN_LINE
namespace rf {

#if defined(CPU_CAPABILITY_AVX512)
// The smaller and the larger of a bound and x; NaN where x is: the instruction gives its second operand then.
RF_FN Vec at_most(float bound, Vec x) { return _mm512_min_ps(Vec(bound), x); }
RF_FN Vec at_least(float bound, Vec x) { return _mm512_max_ps(Vec(bound), x); }
// p * 2^n, rounded once where it is tiny.
RF_FN Vec scaled(Vec p, Vec n) { return _mm512_scalef_ps(p, n); }
// y = m * 2^e with m within a factor of sqrt(2) of one, for what is normal and positive.
RF_FN Vec exponent(Vec y, Vec* m) {
  const __m512i bits = _mm512_castps_si512(y);
  const __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(bits, _mm512_castps_si512(Vec(0.70710678f))), 23);
  *m = _mm512_castsi512_ps(_mm512_sub_epi32(bits, _mm512_slli_epi32(e, 23)));
  return _mm512_cvtepi32_ps(e);
}
#else
RF_FN Vec at_most(float bound, Vec x) { return _mm256_min_ps(Vec(bound), x); }
RF_FN Vec at_least(float bound, Vec x) { return _mm256_max_ps(Vec(bound), x); }
RF_FN Vec power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
// In two steps, of which neither factor overflows.
RF_FN Vec scaled(Vec p, Vec n) {
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  return p * power_of_two(half) * power_of_two(_mm256_sub_epi32(whole, half));
}
RF_FN Vec exponent(Vec y, Vec* m) {
  const __m256i bits = _mm256_castps_si256(y);
  const __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(bits, _mm256_castps_si256(Vec(0.70710678f))), 23);
  *m = _mm256_castsi256_ps(_mm256_sub_epi32(bits, _mm256_slli_epi32(e, 23)));
  return _mm256_cvtepi32_ps(e);
}
#endif
RF_FN Vec chosen(Vec mask, Vec yes, Vec no) { return Vec::blendv(no, yes, mask); }
RF_FN Vec with_sign_of(Vec x, Vec size) { return size | (x & Vec(-0.0f)); }
// The polynomial of z with these coefficients, that of the highest power first.
template <class... C> RF_FN Vec polynomial(Vec z, float first, C... rest) {
  Vec p(first);
  ((p = fmadd(p, z, Vec(rest))), ...);
  return p;
}

// e^x is 2^n (1 + p), where x - n log 2 is within half of log 2: gives n, and p in `rest`.
RF_FN Vec exp_reduced(Vec x, Vec* rest) {
  const Vec n = (x * Vec(1.44269504f)).round();
  const Vec r = fmadd(n, Vec(-1.42860677e-6f), fmadd(n, Vec(-0.693145752f), x));
  const Vec p = polynomial(
      r, 1.98412698e-4f, 1.38904620e-3f, 8.33333377e-3f, 4.16664928e-2f, 1.66666672e-1f, 0.5f);
  *rest = fmadd(r * r, p, r);
  return n;
}
// Of an x that is neither below -105 nor above 89, where all is zero or infinite; or NaN.
RF_FN Vec exp_within(Vec x) {
  Vec p;
  const Vec n = exp_reduced(x, &p);
  return scaled(Vec(1.0f) + p, n);
}
RF_FN Vec exp_of(Vec x) { return exp_within(at_most(89.0f, at_least(-105.0f, x))); }

RF_FN Vec expm1_of(Vec x) {
  Vec p;
  const Vec n = exp_reduced(at_most(89.0f, at_least(-20.0f, x)), &p);
  const Vec less = scaled(Vec(1.0f), n.neg());  // (1 + p) 2^n - 1 is this, without what the two ones cancel
  return with_sign_of(x, scaled(p + (Vec(1.0f) - less), n).abs());
}

RF_FN Vec tanh_of(Vec x) {
  const Vec a = x.abs(), z = a * a;
  const Vec large = Vec(1.0f) - Vec(2.0f) / (exp_within(at_most(40.0f, a + a)) + Vec(1.0f));
  const Vec s = polynomial(
      z, -5.70498872745e-3f, 2.06390887954e-2f, -5.37397155531e-2f, 1.33314422036e-1f, -3.33332819422e-1f);
  return with_sign_of(x, chosen(a < Vec(0.625f), fmadd(z * a, s, a), large));
}

// A quotient of polynomials up to 3.84; beyond it erf is one in float.
RF_FN Vec erf_of(Vec x) {
  const Vec z = x * x;
  const Vec a = polynomial(
      z, -2.72614225801306e-10f, 2.77068142495902e-08f, -2.10102402082508e-06f, -5.69250639462346e-05f,
      -7.34990630326855e-04f, -2.95459980854025e-03f, -1.60960333262415e-02f);
  const Vec b = polynomial(
      z, -1.45660718464996e-05f, -2.13374055278905e-04f, -1.68282697438203e-03f, -7.37332916720468e-03f,
      -1.42647390514189e-02f);
  return chosen(z > Vec(14.7456f), with_sign_of(x, Vec(1.0f)), x * (a / b));
}

// x times the normal distribution's share below it. The share beyond |x| is e^(-x^2 / 2) times a polynomial of
// 1 / (1 + 0.35 |x|): of relative accuracy, where one plus erf, as PyTorch has it, cancels. Near zero the share is one half
// and the first terms of a series, with half the roundings: as accurate as PyTorch's, which is twice as accurate there.
// Below -8.29 the share is zero, as PyTorch's is of doubles.
RF_FN Vec gelu_of(Vec x) {
  const Vec a = x.abs(), t = Vec(1.0f) / fmadd(a, Vec(0.35f), Vec(1.0f));
  const Vec p = polynomial(
      t, -2.915703143e-02f, 1.440271063e-01f, -2.558317714e-01f, 1.593120914e-01f, -2.320751323e-02f,
      1.055505953e-01f, 1.198217406e-01f, 1.398634564e-01f, 1.396213101e-01f);
  const Vec beyond = p * t * exp_within(at_least(-105.0f, x * x * Vec(-0.5f)));
  const Vec z = x * x;
  const Vec near = fmadd(
      x,
      polynomial(
          z, 6.659693668e-07f, -9.444655916e-06f, 1.154346901e-04f, -1.187328249e-03f,
          9.973556735e-03f, -6.649038196e-02f, 3.989422917e-01f),
      Vec(0.5f));
  const Vec less = chosen(z > Vec(68.73f), Vec(0.0f), beyond);
  return x * chosen(z < Vec(0.5f), near, chosen(x > Vec(0.0f), Vec(1.0f) - less, less));
}

RF_FN Vec log1p_of(Vec x) {
  const Vec y = Vec(1.0f) + x;
  Vec m;
  const Vec e = exponent(y, &m);
  const Vec lost = x - (y - Vec(1.0f));  // what one plus x has rounded off
  const Vec f = (m - Vec(1.0f)) + scaled(lost, e.neg());
  const Vec p = polynomial(
      f, 7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
      -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f);
  const Vec z = f * f;
  const Vec low = fmadd(e, Vec(-2.12194440e-4f), fmadd(z * f, p, z * Vec(-0.5f)));
  const Vec sum = fmadd(e, Vec(0.693359375f), f + low);
  const float infinite = __builtin_inff();
  const Vec finite = chosen(y < Vec(infinite), sum, y);
  const Vec ends = chosen(y == Vec(0.0f), Vec(-infinite), Vec(__builtin_nanf("")));
  return chosen(y > Vec(0.0f), chosen(x == Vec(0.0f), x, finite), ends);
}

}  // namespace rf
#endif
