// What attention's kernels on Hopper have in common: products of three fp16 ones, and exponentials that are split for them.
#pragma once
#include "attention_tiles.cuh"

namespace rf {

constexpr float kLog2E = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
constexpr float kNumerators = 10.0f;                   // log2 of the largest numerator
constexpr float kUnscaleNumerators = 0.0009765625f;    // 2^-10
constexpr float kMostUnscale = 1.0e36f;                // of queries and keys together: scores stay in fp32's range
constexpr float kMostScore = 0.0625f;                  // 2^26, where operands are scaled to less than 2^15 each

// The tensor cores round toward zero: with every 16 products a sum loses half a unit in its last place on average, which
// is 2^-24 / (2 ln 2) of it, mantissas being spread as logarithms are. Summed evenly over `steps` such it is short by (steps + 1) / 2 of these; times restored(steps) it
// is not. An error of any sign would not matter. But this one makes all results small, and all scores: beside a logarithm
// of a sum from other arithmetic all weights of a row are wrong the same way.
constexpr double restored(long steps) { return 1.0 + 0.5 * (steps + 1) * 0.7213475204444817 * 0x1p-24; }
constexpr float kRestored = float(restored(kAttentionKeys / 16));  // of sums over a tile

// Whether plain arithmetic computes what queries and keys of these largest unscales make: something is not finite, or
// scores may be beyond 2^26. A score's difference from the largest one is taken before it is rounded, and the largest
// one is rounded, by 2 at most up to there: a numerator is 2^12 then in the place of 2^10, where fp16 ends at 2^16.
// of_scores: features, times what scores are multiplied by.
RF_FN bool is_exceptional(float queries, float keys, float of_scores) {
  const bool ordinary = queries <= kMostUnscale && keys <= kMostUnscale && queries * keys * abs(of_scores) <= kMostScore;
  return !ordinary;
}

// Of the block's threads the largest of some value, which is not negative; a NaN is the largest.
RF_FN void note_largest(unsigned* largest, float mine) {
  const unsigned most = __reduce_max_sync(kFullMask, __float_as_uint(mine));
  if (threadIdx.x % 32 == 0) atomicMax(largest, most);
}

// Sums that wgmma has written are not read before the wait.
RF_FN void settle(float (&sums)[32]) {
#pragma unroll
  for (int i = 0; i < 32; i++) asm volatile("" : "+f"(sums[i])::"memory");
}

constexpr int kPanelUnits = kDescriptorUnits<kPanelBytes>, kStepUnits = kDescriptorUnits<16 * 2>;  // 16 of a row

// sums = a times b^T of 64 rows each, along their features, as they are scaled: three products. a, b: descriptors of hi,
// behind which lo lies.
template <int Panels> RF_FN void multiply_panels(float (&sums)[32], uint32_t a, uint32_t b) {
  constexpr int kLow = Panels * kPanelUnits;
#pragma unroll
  for (int product = 0; product < 3; product++)
#pragma unroll
    for (int i = 0; i < 4 * Panels; i++) {
      const int at = i / 4 * kPanelUnits + i % 4 * kStepUnits;
      wgmma_plain_half<0>(sums, matrix_descriptor(a + at + (product == 0 ? kLow : 0)),
                          matrix_descriptor(b + at + (product == 1 ? kLow : 0)), product + i != 0);
    }
}

RF_FN float exp2_approximate(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A thread's elements of a result as wgmma takes them for its left side, hi and lo: [16 columns][rows and columns].
RF_FN void split_fragments(const float (&p)[32], uint32_t (&hi)[4][4], uint32_t (&lo)[4][4]) {
#pragma unroll
  for (int i = 0; i < 16; i++) {  // a pair of neighbours: 16 columns i / 4, eight of them i / 2 % 2, row i % 2
    const float x = p[8 * (i / 4) + 4 * (i / 2 % 2) + 2 * (i % 2)], y = p[8 * (i / 4) + 4 * (i / 2 % 2) + 2 * (i % 2) + 1];
    const __half2 high = __floats2half2_rn(x, y);
    const __half2 low = __floats2half2_rn(x - __low2float(high), y - __high2float(high));
    hi[i / 4][i % 4] = *reinterpret_cast<const uint32_t*>(&high);
    lo[i / 4][i % 4] = *reinterpret_cast<const uint32_t*>(&low);
  }
}

// Writes the features that a thread holds of its row h, of two, each times `factor`.
template <int Panels> RF_FN void store_features(float* to, const float (*from)[32], int h, float factor, int width) {
#pragma unroll
  for (int i = 0; i < 8 * Panels; i++) {
    const int column = 8 * i + 2 * (threadIdx.x % 4);
    const float x = from[i / 8][4 * (i % 8) + 2 * h] * factor, y = from[i / 8][4 * (i % 8) + 2 * h + 1] * factor;
    if (width % 2 == 0) {
      if (column < width) *reinterpret_cast<float2*>(to + column) = make_float2(x, y);
    } else {
      if (column < width) to[column] = x;
      if (column + 1 < width) to[column + 1] = y;
    }
  }
}

}  // namespace rf
