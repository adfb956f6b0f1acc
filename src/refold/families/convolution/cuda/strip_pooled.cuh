// Windows of a strip's result, next to each other, of which the largest or the mean is stored, for convolution_strips.cuh.
//
// Why here: what is pooled is four or sixteen times as large as what is stored, and would be written and read for nothing.
// A warpgroup computes the rows of a window one after the other. Of a row a lane has two places next to each other, and
// its neighbour two more; rows are joined in registers.
//
// Registers of a thread: 64 values of a row, 32 of a window.
#pragma once
#include "strip_epilogue.cuh"

namespace rf {

template <class Body> RF_FN float joined_in_window(float a, float b) {
  if constexpr (Body::kLargest) return maximum(a, b);
  else return a + b;
}

// What a lane has of a row of windows: the i-th of its feature 8 (i % 2) + lane / 4 of the warp's 16, and of the two places
// that begin at 8 (i / 2) + 2 (lane % 4); of windows of four places two lanes have the same.
template <class Body> struct PooledRow {
  float of[32];
  RF_FN void clear() {
#pragma unroll
    for (float& v : of) v = Body::kLargest ? -INFINITY : 0.0f;
  }
  RF_FN void join(const float (&acc)[64]) {
#pragma unroll
    for (int i = 0; i < 32; i++) {
      const int first = i / 2 * 4 + i % 2 * 2;
      float v = joined_in_window<Body>(acc[first], acc[first + 1]);
      if constexpr (Body::kPoolWide == 4) v = joined_in_window<Body>(v, __shfl_xor_sync(kFullMask, v, 1));
      of[i] = joined_in_window<Body>(of[i], v);
    }
  }
};

// A row of windows, 16 features of a warp, to memory: a feature after the other, next to each other. at: of the result that
// is pooled, a window's first row.
template <bool kWhole, class Body, class Stage>
RF_FN void store_windows(const Body& body, const PooledRow<Body>& pooled, const RowOfResult& at, int high, int wide0,
                         Stage& stage, int lane) {
  using W = typename Body::Window;
  constexpr int kWindows = 128 / Body::kPoolWide, kCols = Stage::kCols < kWindows ? Stage::kCols : kWindows;
  constexpr int kOfLane = Body::kPoolWide / 2;  // lanes that have the same window
  const int quad = lane / 4, from = lane % 4 / kOfLane, first = wide0 / Body::kPoolWide;
  constexpr float kShare = 1.0f / (Body::kPoolHigh * Body::kPoolWide);
#pragma unroll
  for (int h = 0; h < 2; h++)  // of eight features
#pragma unroll
    for (int piece = 0; piece < kWindows / kCols; piece++) {
      constexpr int kEach = 8 / Body::kPoolWide;  // windows of eight places
      if (lane % kOfLane == 0)
#pragma unroll
        for (int j = 0; j < kCols / kEach; j++)
          stage.at[quad][kEach * j + from] = pooled.of[2 * (piece * kCols / kEach + j) + h];
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 8 * kCols / 32; i++) {
        const int which = i / (kCols / 32), feature = at.feature0 + 8 * h + which;
        const int there = i % (kCols / 32) * 32 + lane, col = first + piece * kCols + there;
        const int channel = at.group * W::kFeatures + (kWhole ? feature : min(feature, W::kFeatures - 1));
        const long row = at.image * (long(W::kGroups) * W::kFeatures) + channel;
        const int place = high * Body::kPooledWide + min(col, Body::kPooledWide - 1);
        const float window = stage.at[which][there];
        const Real v = body.pooled(Real(Body::kLargest ? window : window * kShare), row, channel, place);
        if ((kWhole || feature < W::kFeatures) && col < Body::kPooledWide) body.store(row, place, v);
      }
      __syncwarp();
    }
}

}  // namespace rf
