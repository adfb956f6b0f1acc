// Split: rows of fp32 as pairs of scaled fp16, ready for the tensor cores.
//
// Why: x * 2^e = hi + lo with fp16 hi and lo keeps 22 bits if neither is subnormal. Each row is scaled
// by the power of two that takes its largest value to [2^14, 2^15): exact, undone by the epilogue, and
// as far from fp16's subnormals as can be (elements down to 2^-17 of the row's largest keep all 22
// bits, smaller ones an absolute error of 2^-39 of it).
//
// Layout: out[row] is `depth` rounded up to 32. Ieee: 32 hi then 32 lo for every 32 of k, 128 bytes,
// which is one row of a stage of the product's ring. Tf32: hi only. What is beyond `depth` is zero.
// unscale[row] = 2^-e. An infinity or NaN leaves its row unscaled; the product computes every element
// that it reaches again in fp32.
//
// One block a row: the largest value, then the conversion; the second reading of the row comes from
// the first-level cache. Bound by memory: 4 bytes read and 4 (Ieee) or 2 (Tf32) written an element.
#pragma once
#include <cuda_fp16.h>

#include "math.cuh"
#include "ptx.cuh"

namespace rf {

constexpr int kSplitThreads = 256;

// Eight values of a row from k on; zero beyond its end. Aligned: x is, by 16 bytes, and depth by 8.
template <bool Aligned>
RF_FN void load_eight(const float* x, long k, long depth, float (&v)[8]) {
  if constexpr (Aligned) {
    const float4 a = __ldg(reinterpret_cast<const float4*>(x + k));
    const float4 b = __ldg(reinterpret_cast<const float4*>(x + k + 4));
    v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w;
    v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
  } else {
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = k + i < depth ? __ldg(x + k + i) : 0.0f;
  }
}

// The exponent e that takes |largest| to [2^14, 2^15), within what a power of two can be in fp32.
RF_FN int scale_exponent(float largest) {
  if (largest == 0.0f || !is_finite(largest)) return 0;
  int exponent;
  ::frexpf(largest, &exponent);  // largest = f * 2^exponent, f in [1/2, 1)
  const int e = 15 - exponent;
  return e > 126 ? 126 : e;
}
RF_FN float power_of_two(int e) { return __int_as_float((e + 127) << 23); }  // -126 <= e <= 127

template <bool Pair, bool Aligned>
__global__ void __launch_bounds__(kSplitThreads)
    split_rows(const float* __restrict__ x, long ld, long depth, long padded, __half* out,
               float* unscale) {
  wait_for_previous_kernel();
  const long row = blockIdx.x;
  x += row * ld;
  out += row * padded * (Pair ? 2 : 1);
  __shared__ unsigned most[kSplitThreads / 32];
  unsigned largest = 0;  // of |x| as bits, which order as the values do; a NaN is above infinity
  for (long k = 8L * threadIdx.x; k < depth; k += 8L * kSplitThreads) {
    float v[8];
    load_eight<Aligned>(x, k, depth, v);
#pragma unroll
    for (int i = 0; i < 8; i++) largest = max(largest, __float_as_uint(v[i]) & 0x7fffffffu);
  }
  largest = __reduce_max_sync(0xffffffffu, largest);
  if (threadIdx.x % 32 == 0) most[threadIdx.x / 32] = largest;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSplitThreads / 32; i++) largest = max(largest, most[i]);
  const int e = scale_exponent(__uint_as_float(largest));
  const float scale = power_of_two(e);
  if (threadIdx.x == 0) unscale[row] = power_of_two(-e);
  for (long k = 8L * threadIdx.x; k < padded; k += 8L * kSplitThreads) {
    float v[8] = {};
    if (!Aligned || k < depth) load_eight<Aligned>(x, k, depth, v);
    __half2 hi[4], lo[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float a = v[2 * i] * scale, b = v[2 * i + 1] * scale;
      hi[i] = __floats2half2_rn(a, b);
      lo[i] = __floats2half2_rn(a - __low2float(hi[i]), b - __high2float(hi[i]));
    }
    __half* to = Pair ? out + k / 32 * 64 + k % 32 : out + k;
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(hi);
    if constexpr (Pair) *reinterpret_cast<uint4*>(to + 32) = *reinterpret_cast<const uint4*>(lo);
  }
  let_next_kernel_start();
}

}  // namespace rf
