// Stands in for CUDA's header, so that kernels' plain arithmetic compiles for the host and is tested
// without a GPU: the intrinsics that monoids and bodies use, with the meaning that CUDA gives them.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#define RF_FN inline

template <class To, class From> inline To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are reinterpreted, not converted");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline float __int_as_float(int x) { return same_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
inline float __ldg(const float* p) { return *p; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }

struct float2 { float x, y; };
inline float2 make_float2(float x, float y) { return {x, y}; }
