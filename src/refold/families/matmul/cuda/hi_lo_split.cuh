// Hi/lo split: rows of fp32 as hi and lo, scaled fp16 each, ready for the tensor cores.
//
// Why: x * 2^e = hi + lo with fp16 hi and lo keeps 22 bits if neither is subnormal. Each row is scaled
// by the power of two that takes its largest value to [2^14, 2^15): exact, undone by the epilogue, and
// as far from fp16's subnormals as can be (elements down to 2^-17 of the row's largest keep all 22
// bits, smaller ones an absolute error of 2^-39 of it).
//
// Layout: out[row] is `depth` rounded up to 32. Ieee: 32 hi then 32 lo for every 32 of k, 128 bytes,
// which is one row of a stage of the product's pipeline. Among the 32, k = 8 q + 4 s + 2 h + e lies at
// 16 s + 8 h + 2 q + e: the four k that lane q of a fragment of tensor cores holds of slice s of 16 are
// next to each other in fp32, so that a row that comes as fp32 can be read by 16 bytes (mainloop_rs_sm90.cuh).
// Tf32: hi only, in order. What is beyond `depth` is zero.
// unscale[row] = 2^-e. An infinity or NaN leaves its row unscaled; the product computes every element
// that it reaches again in fp32.
//
// One block a row, of short ones some lanes of a warp. Every thread's values of a row, up to 32 or 64 values, is
// loaded at once and stays in registers from the search for the largest value to the conversion; what a row of
// more than 32768 has beyond that is read a second time, from a cache. Bound by memory: 4 bytes read and 4 (Ieee)
// or 2 (Tf32) written an element.
//
//   kernel                   threads                        registers (a thread)      shared memory
//   hi_lo_split_rows         128, 256 or 512, one row       51 to 64; of 512: 110     a word a warp
//   hi_lo_split_short_rows   256: 8, 16 or 32 lanes a row   32; of 8 vectors 64, 76   none
#pragma once
#include <cuda_fp16.h>

#include "math.cuh"
#include "ptx_sm80.cuh"

namespace rf {

// Four values of a row from k on; zero beyond its end. Aligned: x is, by 16 bytes, and depth by 4.
template <bool Aligned> RF_FN float4 load_four(const float* x, int k, int depth) {
  float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if constexpr (Aligned) {
    if (k < depth) v = __ldcs(reinterpret_cast<const float4*>(x + k));  // read once: leave the cache to out
  } else {
    if (k < depth) v.x = x[k];
    if (k + 1 < depth) v.y = x[k + 1];
    if (k + 2 < depth) v.z = x[k + 2];
    if (k + 3 < depth) v.w = x[k + 3];
  }
  return v;
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

// The larger of `most` and four absolute values as bits, which order as the values do; a NaN is above
// infinity.
RF_FN unsigned larger(unsigned most, float4 v) {
  constexpr unsigned kNoSign = 0x7fffffffu;
  most = max(most, max(__float_as_uint(v.x) & kNoSign, __float_as_uint(v.y) & kNoSign));
  return max(most, max(__float_as_uint(v.z) & kNoSign, __float_as_uint(v.w) & kNoSign));
}

// Four values from k on, of which the other lanes of eight hold what is next to them. Pairs: the lanes that
// hold k and k ^ 8 exchange halves, so that each writes 8 bytes of hi and of lo.
template <bool Pairs> RF_FN void put_hi_lo(__half* out, int k, float4 v, float scale) {
  const float4 x = make_float4(v.x * scale, v.y * scale, v.z * scale, v.w * scale);
  __half2 hi[2] = {__floats2half2_rn(x.x, x.y), __floats2half2_rn(x.z, x.w)};
  if constexpr (!Pairs) {
    *reinterpret_cast<uint2*>(out + k) = *reinterpret_cast<const uint2*>(hi);
  } else {
    __half2 lo[2] = {__floats2half2_rn(x.x - __low2float(hi[0]), x.y - __high2float(hi[0])),
                     __floats2half2_rn(x.z - __low2float(hi[1]), x.w - __high2float(hi[1]))};
    const unsigned eight = 0xffu << (threadIdx.x & 24);
    const bool odd = k & 8;
    const __half2 got_hi = __shfl_xor_sync(eight, odd ? hi[0] : hi[1], 2);
    const __half2 got_lo = __shfl_xor_sync(eight, odd ? lo[0] : lo[1], 2);
    (odd ? hi[0] : hi[1]) = got_hi;
    (odd ? lo[0] : lo[1]) = got_lo;
    __half* to = out + k / 32 * 64 + (k & 4) * 4 + (k & 8) + (k & 16) / 4;
    *reinterpret_cast<uint2*>(to) = *reinterpret_cast<const uint2*>(hi);
    *reinterpret_cast<uint2*>(to + 32) = *reinterpret_cast<const uint2*>(lo);
  }
}

// Values of a row that a thread holds; the longest rows by more, since 512 threads can have 128 registers
// each where 1024 have 64.
// Half as many without alignment, where there is more to keep besides.
template <bool Aligned, int Threads>
constexpr int kHeldValues = (Threads == 512 ? 64 : 32) / (Aligned ? 1 : 2);

template <bool Pairs, bool Aligned, int Threads>
__global__ void __launch_bounds__(Threads, Threads == 512 ? 1 : 1024 / Threads)
    hi_lo_split_rows(const float* x, long ld, int depth, int padded, __half* out,
               float* unscale) {
  wait_on_dependent_grids();
  launch_dependent_grids();  // it waits for this one's results itself
  const long row = blockIdx.x;
  x += row * ld;
  out += row * (Pairs ? 2 : 1) * padded;
  constexpr int kHeld = kHeldValues<Aligned, Threads> / 4;
  constexpr int kReach = 4 * kHeld * Threads;
  const int first = 4 * threadIdx.x;
  float4 held[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; i++) held[i] = load_four<Aligned>(x, first + 4 * i * Threads, depth);
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < kHeld; i++) most = larger(most, held[i]);
  constexpr int kMore = Aligned ? 8 : 4;  // in flight of what is not held
#pragma unroll 1
  for (int k = first + kReach; k < depth; k += 4 * kMore * Threads) {
    float4 more[kMore];
#pragma unroll
    for (int i = 0; i < kMore; i++) more[i] = load_four<Aligned>(x, k + 4 * i * Threads, depth);
#pragma unroll
    for (int i = 0; i < kMore; i++) most = larger(most, more[i]);
  }

  __shared__ unsigned of_warp[Threads / 32];
  most = __reduce_max_sync(kFullMask, most);
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < Threads / 32; i++) most = max(most, of_warp[i]);
  const int e = scale_exponent(__uint_as_float(most));
  const float scale = power_of_two(e);
  if (threadIdx.x == 0) unscale[row] = power_of_two(-e);

#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int k = first + 4 * i * Threads;
    if (k < padded) put_hi_lo<Pairs>(out, k, held[i], scale);
  }
#pragma unroll 1
  for (int k = first + kReach; k < padded; k += 4 * kMore * Threads) {
    float4 more[kMore];
#pragma unroll
    for (int i = 0; i < kMore; i++) more[i] = load_four<Aligned>(x, k + 4 * i * Threads, depth);
#pragma unroll
    for (int i = 0; i < kMore; i++)
      if (k + 4 * i * Threads < padded) put_hi_lo<Pairs>(out, k + 4 * i * Threads, more[i], scale);
  }
}

// Short rows: `lanes` of a warp, a power of two from 8, take one, up to 4 Units values each.
template <bool Pairs, bool Aligned, int Units>
__global__ void __launch_bounds__(256, Units > 2 ? 3 : 4)
    hi_lo_split_short_rows(const float* x, long ld, long rows, int depth, int padded, int lanes, __half* out,
                     float* unscale) {
  wait_on_dependent_grids();
  launch_dependent_grids();
  const int lane = threadIdx.x % lanes;
  const long mine = blockIdx.x * long(256 / lanes) + threadIdx.x / lanes, row = mine < rows ? mine : rows - 1;
  float4 held[Units];
#pragma unroll
  for (int i = 0; i < Units; i++) held[i] = load_four<Aligned>(x + row * ld, 4 * (lane + i * lanes), depth);
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < Units; i++) most = larger(most, held[i]);
  for (int mask = lanes / 2; mask; mask /= 2) most = max(most, __shfl_xor_sync(kFullMask, most, mask));
  const int e = scale_exponent(__uint_as_float(most));
  if (mine >= rows) return;  // as one for all lanes of a row
  if (lane == 0) unscale[row] = power_of_two(-e);
#pragma unroll
  for (int i = 0; i < Units; i++) {
    const int k = 4 * (lane + i * lanes);
    if (k < padded) put_hi_lo<Pairs>(out + row * (Pairs ? 2 : 1) * padded, k, held[i], power_of_two(e));
  }
}

}  // namespace rf
