// Column reduce: how the lanes of a warp that have rows of the same columns reduce their partial results.
//
// Layout: the fragment's (fragment.cuh). Lanes 4 i + k, for i from 0 to 7, have other rows of the same columns.
#pragma once
#include "fragment.cuh"
#include "monoid.cuh"

namespace rf {

// How the partials of a column weigh that three exchanges merge (reduce_columns_across_lanes), seen from this lane.
// Whole: each lane's rows all count, so that the weights are constants.
template <int Rows, bool Whole> struct ColumnWeights {
  Weight step[3];
  float share, warp_count;  // one over the thread's rows; the rows of all eight lanes
  RF_FN ColumnWeights(float count, int lane) : share(count > 0.0f ? 1.0f / count : 0.0f), warp_count(count) {
    if (Whole) share = 1.0f / Rows, warp_count = Rows;
#pragma unroll
    for (int i = 0; i < 3; i++) {
      const float other = Whole ? warp_count : __shfl_xor_sync(kFullMask, warp_count, 16 >> i);
      step[i] = Weight(warp_count, other);
      warp_count += other;
    }
  }
};

// Eight lanes hold partials of the same 8 columns. Three exchanges halve the columns that a lane keeps and double
// the rows that it covers: 7 exchanges a word, where summing each column across the lanes would take 24. One
// column a lane is left, in partial[0]: its number among the 8.
template <class D, class Weights>
RF_FN int reduce_columns_across_lanes(typename D::Partial (&partial)[8], const Weights& weights, int lane) {
  int mine = 0;
#pragma unroll
  for (int step = 0; step < 3; step++) {
    const int half = 4 >> step, mask = 16 >> step;
    const bool upper = lane & mask;
#pragma unroll
    for (int i = 0; i < half; i++) {
      typename D::Partial got;
#pragma unroll
      for (int w = 0; w < D::kWords; w++) {
        const float send = upper ? partial[i].w[w] : partial[i + half].w[w];
        if (upper) partial[i].w[w] = partial[i + half].w[w];
        got.w[w] = __shfl_xor_sync(kFullMask, send, mask);
      }
      partial[i] = D::merge(partial[i], got, weights.step[step]);
    }
    if (upper) mine += half;
  }
  return mine;
}

}  // namespace rf
