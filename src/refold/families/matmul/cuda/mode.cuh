// Mode: how the operands of a product are given and multiplied on tensor cores, and in which order its
// tiles are taken.
//
// Ieee: fp32 split into two scaled fp16 values, three products of four; fp32's accuracy.
// IeeeRS: the same, but a comes as fp32 and is split on its way to the tensor cores (mainloop_rs_sm90.cuh).
// Tf32: one scaled fp16 value, whose ten bits are TF32's; where the user allows TF32.
// Native<Half>, Native<Bfloat>: 16-bit operands as they are. Native<T, 2>: b is given as two 16-bit terms, hi and lo,
// that add up to it, one after the other along k; a is taken once for each.
#pragma once
#include "ptx_sm80.cuh"

namespace rf {

// kScaled: rows of b are scaled by powers of two; and those of a, unless it comes as it is (kRS).
// kStageDepth: of k in the 128 bytes of a stage's row.
struct Ieee {
  using Type = Half;
  static constexpr bool kSplit = true, kScaled = true, kRS = false;
  static constexpr int kStageDepth = 32, kTerms = 1;
};
struct IeeeRS : Ieee {
  static constexpr bool kRS = true;
};
struct Tf32 {
  using Type = Half;
  static constexpr bool kSplit = false, kScaled = true, kRS = false;
  static constexpr int kStageDepth = 64, kTerms = 1;
};
template <class T, int Terms = 1> struct Native {
  using Type = T;
  static constexpr bool kSplit = false, kScaled = false, kRS = false;
  static constexpr int kStageDepth = 64, kTerms = Terms;
};

// The t-th tile of a grid of tiles: bands of 8 tiles of rows, column after column, so that blocks at work
// at a time read few rows and columns and the L2 serves them again. Every other band goes
// from the last column to the first, whose columns the cache has at hand.
RF_FN void tile_at(int t, int tile_rows, int tile_cols, int& row, int& col) {
  constexpr int kBand = 8;
  const int band = t / (kBand * tile_cols), top = band * kBand;
  const int high = tile_rows - top < kBand ? tile_rows - top : kBand;
  const int in_band = t - top * tile_cols, right = in_band / high;
  row = top + in_band % high;
  col = band % 2 ? tile_cols - 1 - right : right;
}

}  // namespace rf
