// Attention by plain arithmetic, a warp for each query: where a query, a key or a value is not finite, or scores lie
// beyond what scales can undo. It is rare; infinities and NaN are what fp32 arithmetic gives. Scores are summed in fp64: large
// ones are sums of values far from zero, where a sum of fp32, one product after another, had 2.3 times the error of
// PyTorch's kernels.
//
// Registers of a lane: of 32 keys at a time one key's score, then every 32nd feature of the result.
#pragma once
#include "attention_draws.cuh"

namespace rf {

// The score of a key as PyTorch has it: -infinity where it is masked.
template <class Body> RF_FN float plain_score(const Attention& a, const float* q, long batch, int query, int key, int head) {
  if (key >= a.keys || (Body::kCausal && key > query)) return -infinity();
  const float* k = a.k.at(batch, key, head);
  double exact = 0.0;
#pragma unroll 1
  for (int d = 0; d < a.width; d++) exact = ::fma(double(q[d]), double(k[d]), exact);
  float dot = static_cast<float>(exact) * Body::kScale;
  if constexpr (Body::kMasked) {
    const float mask = a.mask_row(batch, head, query)[key];
    dot = !Body::kFilled ? dot + mask : mask == 0.0f ? dot : mask;
  }
  return dot;
}

// The queries first, first + step, ... up to last.
template <int Panels, class Body>
RF_FN void plain_attention(const Attention& a, long batch, int head, int first, int last, int step) {
  const int lane = threadIdx.x % 32;
  if (last == a.queries && a.sums != nullptr && threadIdx.x < a.places - last)
    a.store_sum(batch, head, last + threadIdx.x, infinity());
#pragma unroll 1
  for (int query = first; query < last; query += step) {
    const float* q = a.q.at(batch, query, head);
    float sums[2 * Panels] = {}, most = -infinity(), total = 0.0f;
    const int keys = Body::kCausal && query < a.keys ? query + 1 : a.keys;
#pragma unroll 1
    for (int first_key = 0; first_key < keys; first_key += 32) {
      const float score = plain_score<Body>(a, q, batch, query, first_key + lane, head);
      float now = score;
#pragma unroll
      for (int i = 16; i; i /= 2) now = maximum(now, __shfl_xor_sync(kFullMask, now, i));
      now = maximum(now, most);
      const float from = now == -infinity() ? 0.0f : now;
      const float again = exp(most - from), p = exp(score - from);
      most = now, total = fmaf(total, again, p);
#pragma unroll
      for (int i = 0; i < 2 * Panels; i++) sums[i] *= again;
#pragma unroll 1
      for (int j = 0; j < 32 && first_key + j < keys; j++) {
        float weight = __shfl_sync(kFullMask, p, j);
        if (Body::kDropped && !is_kept(a, batch, head, query, first_key + j)) weight = 0.0f;
        const float* v = a.v.at(batch, first_key + j, head);
#pragma unroll
        for (int i = 0; i < 2 * Panels; i++)
          if (lane + 32 * i < a.width) sums[i] = fmaf(weight, v[lane + 32 * i], sums[i]);
      }
    }
#pragma unroll
    for (int i = 16; i; i /= 2) total += __shfl_xor_sync(kFullMask, total, i);
    if (lane == 0 && a.sums != nullptr)
      a.store_sum(batch, head, query, total == 0.0f ? infinity() : most + ::logf(total));
    if (a.out == nullptr) continue;
    float* out = a.out + a.query_at(batch, query, head);
#pragma unroll
    for (int i = 0; i < 2 * Panels; i++)
      if (lane + 32 * i < a.width) out[lane + 32 * i] = total == 0.0f ? Body::unseen() : sums[i] * Body::kKeptScale / total;
  }
}

}  // namespace rf
