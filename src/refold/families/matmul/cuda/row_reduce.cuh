// Row reduce: a fragment's rows, reduced in registers and across the four lanes that share them; and the merge of the
// partial results that fragments leave of a row.
#pragma once
#include "fragment.cuh"
#include "monoid.cuh"

namespace rf {

// Merges a row's `blocks` partial results of M, `stride` floats apart, in order. The loads of a batch
// are in flight together: what is read here is in the L2, hundreds of cycles away.
template <class M> RF_FN typename M::State merge_partials(const float* partials, long stride, int blocks) {
  constexpr int kBatch = 16 / M::kWords;
  typename M::State state;
#pragma unroll 1
  for (int t = 0; t < blocks; t += kBatch) {
    typename M::Partial partial[kBatch];
    const float* at = partials;
#pragma unroll
    for (int i = 0; i < kBatch; i++) {
#pragma unroll
      for (int w = 0; w < M::kWords; w++) partial[i].w[w] = __ldcg(at + w);
      if (t + i + 1 < blocks) at += stride;  // beyond the last, read it again
    }
    partials = at;
#pragma unroll
    for (int i = 0; i < kBatch; i++)
      if (t + i < blocks) M::merge(state, partial[i]);
  }
  return state;
}

// This fragment's partial of monoid M for each of its rows, to partials[row * pitch]. One monoid at a time:
// what several would keep for each row at once does not fit in the registers.
template <class M, int MI, int G>
RF_FN void reduce_rows(Fragment<MI, G>& acc, const Problem& p, int row0, int col0, int thread,
                       int pitch, float* partials) {
  const int lane = thread % 32, warp = thread / 32;
  typename M::Partial partial[2 * MI];
#pragma unroll
  for (int r = 0; r < 2 * MI; r++) partial[r] = M::identity();
  auto accumulate = [&](int g, int from) {
    bool in[8];
#pragma unroll
    for (int i = 0; i < 8; i++) in[i] = col0 + 32 * g + 8 * (i / 2) + 2 * (lane % 4) + i % 2 < p.cols;
#pragma unroll
    for (int r = 0; r < 2 * MI; r++) {
      float x[8];
#pragma unroll
      for (int i = 0; i < 8; i++) x[i] = acc.x[r / 2][from + 4 * (i / 2) + 2 * (r % 2) + i % 2];
      if constexpr (M::kWords > 1) {
        M::accumulate_batch(partial[r], x, in);
      } else {
#pragma unroll
        for (int i = 0; i < 8; i++)
          if (in[i]) M::accumulate(partial[r], x[i]);
      }
    }
  };
  if constexpr (M::kWords == 1) {
#pragma unroll
    for (int g = 0; g < G; g++) accumulate(g, 16 * g);  // an instruction or two an element
  } else {
#pragma unroll 1
    for (int g = 0; g < G; g++) {
      accumulate(g, 0);
      acc.rotate(false);
    }
  }
#pragma unroll
  for (int r = 0; r < 2 * MI; r++) {
#pragma unroll
    for (int mask = 1; mask < 4; mask *= 2) {
      typename M::Partial other;
#pragma unroll
      for (int w = 0; w < M::kWords; w++)
        other.w[w] = __shfl_xor_sync(kFullMask, partial[r].w[w], mask);
      M::merge(partial[r], other);  // only lanes that come first in their pairs are read in the end
    }
    const long row = row0 + 64 * (r / 2) + 16 * warp + 8 * (r % 2) + lane / 4;
    if (lane % 4 == 0 && row < p.rows)
#pragma unroll
      for (int w = 0; w < M::kWords; w++) partials[row * pitch + w] = partial[r].w[w];
  }
}

}  // namespace rf
