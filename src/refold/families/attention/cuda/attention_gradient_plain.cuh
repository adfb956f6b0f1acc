// Gradients of attention by plain fp32 arithmetic, a warp for each query or key: where something is not finite, or
// scores lie beyond what scales can undo. It is rare; what it gives is what fp32 arithmetic gives.
//
// Registers of a lane: of 32 columns at a time one weight and its d, then every 32nd feature of the results.
#pragma once
#include "attention_gradient_tiles.cuh"
#include "attention_plain.cuh"

namespace rf {

constexpr int kQueryGradient = 1, kKeyGradient = 2, kValueGradient = 4;  // what a kernel computes

struct WeightAndDifference {
  float p, d;
};

// The weight of a key for a query, as values are multiplied by it, and what the score's gradient is, but for the scale.
template <class Body> RF_FN WeightAndDifference plain_weight(const AttentionGradient& a, long batch, int query, int key, int head) {
  if (Body::kCausal && key > query) return {};
  const float2 facts = a.facts_of(batch, head)[query];
  const float score = plain_score<Body>(a, a.q.at(batch, query, head), batch, query, key, head);
  const float *g = a.gradient.at(batch, query, head), *v = a.v.at(batch, key, head);
  float dot = 0.0f;
#pragma unroll 1
  for (int i = 0; i < a.width; i++) dot = fmaf(g[i], v[i], dot);
  const float p = exp(score - facts.x);
  const float kept = !Body::kDropped || is_kept(a, batch, head, query, key) ? Body::kKeptScale : 0.0f;
  return {p * kept, p * (dot * kept - facts.y)};
}

// The rows first, first + step, ... up to last.
template <int Panels, int What, class Body>
RF_FN void plain_gradient(const AttentionGradient& a, long batch, int head, int first, int last, int step) {
  constexpr bool kOfQueries = What == kQueryGradient;
  const int lane = threadIdx.x % 32, columns = kOfQueries ? a.keys : a.queries;
#pragma unroll 1
  for (int row = first; row < last; row += step) {
    float of_first[2 * Panels] = {}, of_values[2 * Panels] = {};
#pragma unroll 1
    for (int first_column = 0; first_column < columns; first_column += 32) {
      const int column = first_column + lane;
      WeightAndDifference mine{};
      if (column < columns)
        mine = kOfQueries ? plain_weight<Body>(a, batch, row, column, head) : plain_weight<Body>(a, batch, column, row, head);
#pragma unroll 1
      for (int j = 0; j < 32 && first_column + j < columns; j++) {
        const float p = __shfl_sync(kFullMask, mine.p, j), d = __shfl_sync(kFullMask, mine.d, j);
        const int other = first_column + j;
        const float* const first_of = (kOfQueries ? a.k : a.q).at(batch, other, head);
        const float* const given = a.gradient.at(batch, kOfQueries ? 0 : other, head);
#pragma unroll
        for (int i = 0; i < 2 * Panels; i++) {
          const int feature = lane + 32 * i;
          if (feature >= a.width) continue;
          if constexpr (What != kValueGradient)
            of_first[i] = fmaf(d, first_of[feature], of_first[i]);
          if constexpr (What & kValueGradient) of_values[i] = fmaf(p, given[feature], of_values[i]);
        }
      }
    }
    const long to = kOfQueries ? a.query_at(batch, row, head) : a.key_at(batch, row, head);
    float* const first_to = kOfQueries ? a.dq : a.dk;
#pragma unroll
    for (int i = 0; i < 2 * Panels; i++) {
      const int feature = lane + 32 * i;
      if (feature >= a.width) continue;
      if (What != kValueGradient && first_to != nullptr) first_to[to + feature] = of_first[i] * Body::kScale;
      if ((What & kValueGradient) && a.dv != nullptr) a.dv[to + feature] = of_values[i];
    }
  }
}

}  // namespace rf
