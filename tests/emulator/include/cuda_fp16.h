// Stands in for CUDA's header of 16-bit floats.
#pragma once
#include "cuda_runtime.h"

struct alignas(2) __half { uint16_t bits; };
struct alignas(4) __half2 { __half x, y; };
inline __half2 __floats2half2_rn(float x, float y) {
  return {{emulator::half_of(x)}, {emulator::half_of(y)}};
}
inline float __low2float(__half2 v) { return emulator::float_of_half(v.x.bits); }
inline float __high2float(__half2 v) { return emulator::float_of_half(v.y.bits); }
