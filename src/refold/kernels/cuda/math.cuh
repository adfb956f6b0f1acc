// Math: the functions that generated bodies call, as accurate as PyTorch's own CUDA kernels.
//
// Every function is the full-precision one of CUDA's math library (at most 2 ulp for those used
// here): nothing compiled from this file may be built with -use_fast_math, which would change them
// silently. Minimum and maximum give NaN where either side is NaN, as torch does and fmaxf does not.
#pragma once
#include "functor.cuh"

#ifdef __FAST_MATH__
#error "-use_fast_math trades the accuracy that is promised here: build without it"
#endif

namespace rf {

#define RF_MATH(name, call) \
  RF_FN float name(float x) { return ::call(x); }
RF_MATH(exp, expf) RF_MATH(expm1, expm1f) RF_MATH(log, logf) RF_MATH(log1p, log1pf)
RF_MATH(sqrt, sqrtf) RF_MATH(rsqrt, rsqrtf) RF_MATH(sin, sinf) RF_MATH(cos, cosf)
RF_MATH(tanh, tanhf) RF_MATH(erf, erff) RF_MATH(abs, fabsf) RF_MATH(floor, floorf)
RF_MATH(ceil, ceilf) RF_MATH(trunc, truncf) RF_MATH(round, rintf)
#undef RF_MATH
RF_FN float pow(float x, float y) { return ::powf(x, y); }
RF_FN float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
RF_FN bool is_nan(float x) { return x != x; }
RF_FN bool is_finite(float x) { return ::fabsf(x) <= 3.402823466e38f; }
RF_FN bool is_infinite(float x) { return ::fabsf(x) == __int_as_float(0x7f800000); }
// One instruction where there is a GPU; in words for those that test on the host.
#ifdef __CUDA_ARCH__
RF_FN float maximum(float a, float b) {
  float m;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}
RF_FN float minimum(float a, float b) {
  float m;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(m) : "f"(a), "f"(b));
  return m;
}
#else
RF_FN float maximum(float a, float b) { return is_nan(a) || a > b ? a : b; }
RF_FN float minimum(float a, float b) { return is_nan(a) || a < b ? a : b; }
#endif
RF_FN float relu(float x) { return maximum(x, 0.0f); }
RF_FN float sigmoid(float x) { return 1.0f / (1.0f + ::expf(-x)); }

}  // namespace rf
