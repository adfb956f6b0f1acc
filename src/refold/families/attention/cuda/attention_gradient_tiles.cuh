// Tiles of attention's gradient: 64 queries of a head with what its result's gradient has for them, or 64 keys with
// their values, as hi and lo, scaled fp16 each, the way wgmma reads them.
//
// Why: each of these is multiplied with all of the others, and as both sides of a product: along its features, and
// along its rows. wgmma reads one layout either way.
//
// Layout of a tile, Panels of 64 features (8192 bytes each, rows of 128 bytes in TMA's 128-byte swizzle):
//   first hi, first lo      [panel][row][feature]   of queries or keys
//   second hi, second lo    [panel][row][feature]   of the result's gradient or of values
// What is beyond the last row or feature is zero. unscale[tile]: as attention_tiles.cuh has it, of first (x) and
// second (y); both are NaN where one is not finite. Tiles of queries come before those of keys, of all heads.
// row_facts[query]: x the logarithm of its softmax's sum; infinity for a query that sees no key or is
// beyond the last; y the sum over features of the result times its gradient.
//
//   kernel                 threads          registers (a thread)    shared memory
//   split_gradient_tiles   256, one tile    see docs/attention.md   64 bytes
#pragma once
#include "attention_products.cuh"

namespace rf {

// Attention, of which gradients are asked: result and its gradient like q, sums as forward gave them; dq, dk and dv
// without gaps, each perhaps null.
struct AttentionGradient : Attention {
  Tokens result, gradient;
  const float* given_sums;
  float *dq, *dk, *dv;
  unsigned char* pairs;  // tiles of queries, then of keys
  float2* pair_unscale;
  float2* row_facts;
  float restored_features;  // what sums over features are multiplied by
  RF_FN int query_tiles() const { return (queries + kAttentionKeys - 1) / kAttentionKeys; }
  RF_FN long heads_of_all() const { return batches * heads; }
  RF_FN long first_query_tile(long batch, int head) const { return (batch * heads + head) * query_tiles(); }
  RF_FN long first_key_tile(long batch, int head) const {
    return heads_of_all() * query_tiles() + (batch * heads + head) * tiles_of_head();
  }
  RF_FN float2* facts_of(long batch, int head) const { return row_facts + first_query_tile(batch, head) * kAttentionKeys; }
};

RF_FN float dot_four(float4 a, float4 b) { return fmaf(a.x, b.x, fmaf(a.y, b.y, fmaf(a.z, b.z, a.w * b.w))); }

template <class Body, int Panels>
__global__ void __launch_bounds__(256) split_gradient_tiles(const __grid_constant__ AttentionGradient a) {
  constexpr int kLanes = 16 * Panels, kRows = 256 / kLanes, kHeld = kAttentionKeys / kRows;
  __shared__ unsigned of_warp[8][2];
  const int of_queries = a.query_tiles(), of_both = of_queries + a.tiles_of_head();
  const int at = blockIdx.x % of_both, head = blockIdx.x / of_both % a.heads;
  const long batch = blockIdx.x / of_both / a.heads;
  const bool is_keys = at >= of_queries;
  const int first = kAttentionKeys * (is_keys ? at - of_queries : at), rows = is_keys ? a.keys : a.queries;
  const long tile = is_keys ? a.first_key_tile(batch, head) + at - of_queries : a.first_query_tile(batch, head) + at;
  const int thread = threadIdx.x, down = thread / kLanes, column = 4 * (thread % kLanes);
  wait_on_dependent_grids();
  launch_dependent_grids();  // it waits for this one's results itself
  float4 x[kHeld], y[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int row = first + down + i * kRows;
    x[i] = a.four((is_keys ? a.k : a.q).at(batch, row, head), column, row < rows);
    y[i] = a.four((is_keys ? a.v : a.gradient).at(batch, row, head), column, row < rows);
  }
  if (!is_keys) {
#pragma unroll
    for (int i = 0; i < kHeld; i++) {
      const int row = first + down + i * kRows;
      const bool there = row < rows;
      float sum = dot_four(y[i], a.four(a.result.at(batch, row, head), column, there));
#pragma unroll
      for (int mask = kLanes / 2; mask; mask /= 2) sum += __shfl_xor_sync(kFullMask, sum, mask);
      if (column != 0) continue;
      float log_sum = infinity();
      if (there) log_sum = a.given_sums[(batch * a.heads + head) * a.places + row];
      if (log_sum == -infinity()) log_sum = infinity();
      a.facts_of(batch, head)[row] = make_float2(log_sum, sum);
    }
  }
  unsigned most_x = 0, most_y = 0;
#pragma unroll
  for (int i = 0; i < kHeld; i++) most_x = larger(most_x, x[i]), most_y = larger(most_y, y[i]);
  most_x = __reduce_max_sync(kFullMask, most_x), most_y = __reduce_max_sync(kFullMask, most_y);
  if (thread % 32 == 0) of_warp[thread / 32][0] = most_x, of_warp[thread / 32][1] = most_y;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 8; i++) most_x = max(most_x, of_warp[i][0]), most_y = max(most_y, of_warp[i][1]);
  const int e_x = scale_exponent(__uint_as_float(most_x)), e_y = scale_exponent(__uint_as_float(most_y));
  if (thread == 0) a.pair_unscale[tile] = unscales_of(most_x, most_y);
  unsigned char* to = a.pairs + tile * kAttentionTileBytes<Panels>;
  uint2 hi, lo;
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    unsigned char* row = to + column / kPanelFeatures * kPanelBytes + panel_offset(down + i * kRows, column % kPanelFeatures);
    split_four(x[i], power_of_two(e_x), hi, lo);
    *reinterpret_cast<uint2*>(row) = hi;
    *reinterpret_cast<uint2*>(row + Panels * kPanelBytes) = lo;
    split_four(y[i], power_of_two(e_y), hi, lo);
    *reinterpret_cast<uint2*>(row + 2 * Panels * kPanelBytes) = hi;
    *reinterpret_cast<uint2*>(row + 3 * Panels * kPanelBytes) = lo;
  }
}

}  // namespace rf
