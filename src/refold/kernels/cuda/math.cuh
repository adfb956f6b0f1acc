// Math: the functions that generated bodies call, as accurate as PyTorch's own CUDA kernels.
//
// Every function is the full-precision one of CUDA's math library (at most 2 ulp for those used
// here), or ours where that one branches: nothing compiled from this file may be built with
// -use_fast_math, which would change them silently. Minimum and maximum give NaN where either side
// is NaN, as torch does and fmaxf does not.
#pragma once
#include "functor.cuh"

#ifdef __FAST_MATH__
#error "-use_fast_math trades the accuracy that is promised here: build without it"
#endif

namespace rf {

#define RF_MATH(name, call)                          \
  RF_FN Real name(Real x) {                          \
    if constexpr (sizeof(Real) == 4) return ::call##f(x); \
    else return ::call(x);                           \
  }
RF_MATH(exp, exp) RF_MATH(expm1, expm1) RF_MATH(log, log) RF_MATH(log1p, log1p) RF_MATH(sqrt, sqrt)
RF_MATH(rsqrt, rsqrt) RF_MATH(sin, sin) RF_MATH(cos, cos) RF_MATH(tanh, tanh)
RF_MATH(abs, fabs) RF_MATH(floor, floor) RF_MATH(ceil, ceil) RF_MATH(trunc, trunc) RF_MATH(round, rint)
#undef RF_MATH
RF_FN Real pow(Real x, Real y) {
  if constexpr (sizeof(Real) == 4) return ::powf(x, y);
  else return ::pow(x, y);
}
RF_FN Real fma(Real x, Real y, Real z) {
  if constexpr (sizeof(Real) == 4) return ::fmaf(x, y, z);
  else return ::fma(x, y, z);
}
RF_FN Real infinity() { return __int_as_float(0x7f800000); }
RF_FN bool is_nan(Real x) { return x != x; }
RF_FN bool is_finite(Real x) { return abs(x) < infinity(); }
RF_FN bool is_infinite(Real x) { return abs(x) == infinity(); }
// Floats by one instruction; doubles in words.
RF_FN float larger_or_nan(float a, float b) {
  float m;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}
RF_FN float smaller_or_nan(float a, float b) {
  float m;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}
RF_FN Real maximum(Real a, Real b) {
  if constexpr (sizeof(Real) == 4) return larger_or_nan(a, b);
  else return is_nan(a) || a > b ? a : b;
}
RF_FN Real minimum(Real a, Real b) {
  if constexpr (sizeof(Real) == 4) return smaller_or_nan(a, b);
  else return is_nan(a) || a < b ? a : b;
}
RF_FN Real relu(Real x) { return maximum(x, 0.0f); }
// To a unit in the last place. Division as IEEE has it branches for what is subnormal, and what branches is computed
// one after another.
RF_FN Real reciprocal(Real x) {
  if constexpr (sizeof(Real) == 4) {
    float r;
    asm("rcp.approx.f32 %0, %1;" : "=f"(r) : "f"(static_cast<float>(x)));
    return r;
  }
  return Real(1) / x;
}
RF_FN Real sigmoid(Real x) { return reciprocal(Real(1) + exp(-x)); }
// To a unit in the last place. CUDA's branches, so that of many numbers one is computed after another. Up to one a series,
// beyond it 1 - 2^(a polynomial of |x|), in float one from 4 on.
RF_FN Real erf(Real x) {
  if constexpr (sizeof(Real) == 8) return ::erf(x);
  const float v = static_cast<float>(x), z = v * v, a = fminf(fabsf(v), 4.0f);
  float series = 7.85385770e-5f, power = 3.03894369e-4f, rest;
  series = fmaf(series, z, -8.01019254e-4f), power = fmaf(power, a, -4.59779566e-3f);
  series = fmaf(series, z, 5.18832775e-3f), power = fmaf(power, a, 3.28912400e-2f);
  series = fmaf(series, z, -2.68538110e-2f), power = fmaf(power, a, -1.51650548e-1f);
  series = fmaf(series, z, 1.12835854e-1f), power = fmaf(power, a, -9.17310894e-1f);
  series = fmaf(series, z, -3.76126260e-1f), power = fmaf(power, a, -1.62805259f);
  series = fmaf(series, z, 1.28379166e-1f);
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(rest) : "f"(power * a));
  return fabsf(v) >= 1.0f ? copysignf(1.0f - rest, v) : fmaf(series, v, v);  // NaN is the series'
}
RF_FN Real gelu(Real x) { return Real(0.5) * x * (Real(1) + erf(x * Real(0.70710678118654752))); }
// tanh(log(1 + e)) by e alone, which is one from 20 on.
RF_FN Real mish(Real x) {
  const Real e = exp(minimum(x, Real(20))), n = e * (e + Real(2));
  return x * (n * reciprocal(n + Real(2)));
}

}  // namespace rf
