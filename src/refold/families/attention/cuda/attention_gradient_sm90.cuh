// The gradients of attention's queries, keys and values on Hopper, to fp32's accuracy on fp16 tensor cores, without
// anything of the size of the scores ever being in memory. With p the softmax's weights, g the gradient of the result:
//   of values    p^T g            of queries   d k * scale
//   of keys      d^T q * scale    d = p (g v^T - facts), facts: of each query the sum of result times g
//
// Why: as attention_sm90.cuh has it. Each product is three of fp16 each. The weights are computed again from scores
// and the logarithms of their sums, that forward has kept.
//
// One kernel does all, by what its block's rows are: queries (of dq, p's rows) or keys (of dk and dv, p's columns),
// 64 a warpgroup. Tiles of the others go by ("columns"), each of two units: what is multiplied for scores (first:
// queries or keys), and what for the weights' gradient (second: gradient or values). Of a tile a warpgroup computes
//   scores = own first times first^T, weights' gradient = own second times second^T
//   p in registers, split: times second, to values; d, split: times first, to queries or keys
// p and d are scaled by powers of two for each row, so that the largest of a row is near 2^10 or 2^14. Plain fp32
// arithmetic adds what tensor cores have summed over a tile, as there.
//
// Roles of the 384 threads of a block: two warpgroups multiply; one thread of the last one copies tiles.
//
// Shared memory of a block (dynamic; bytes):
//   own     16384 a warpgroup, operand and panel   hi, lo of the block's rows
//   units   16384 each, a panel                    eight of one panel, three of two: as many as there is room for
//   facts   512 a unit                             of queries that go by (gradient_tiles.cuh)
//   full, empty                                    mbarriers of the units: the copy's bytes; an arrival of each warp
#pragma once
#include "attention_gradient_plain.cuh"

namespace rf {

template <int Panels, int What> struct GradientShape {
  static constexpr int kPanels = Panels, kWhat = What, kWarpgroups = 2, kRows = 64 * kWarpgroups;
  static constexpr bool kOfQueries = What == kQueryGradient;
  static constexpr bool kOfValues = (What & kValueGradient) != 0;
  static constexpr bool kOfFirst = What != kValueGradient;  // of queries or keys, which d is for
  static constexpr int kUnits = Panels == 1 ? 8 : 3, kUnitBytes = 2 * Panels * kPanelBytes;
  static constexpr int kConsumers = kWarpgroups * kWarpgroupThreads, kThreads = kConsumers + kWarpgroupThreads;
  static constexpr int kProducerRegisters = 24, kRegisters = 240;  // of a thread; 168 at entry
};

template <class S> struct alignas(kSwizzleAlignment) GradientStorage {
  unsigned char own[S::kWarpgroups][2][S::kUnitBytes];
  unsigned char units[S::kUnits][S::kUnitBytes];
  float2 facts[S::kUnits][kAttentionKeys];
  uint64_t full[S::kUnits], empty[S::kUnits], own_full;
  unsigned largest[2];  // unscales of the columns and of the block's rows
};

// What a warpgroup's thread holds of its rows.
template <class S, class Body> struct GradientRows {
  float of_first[S::kOfFirst ? S::kPanels : 1][32], of_values[S::kOfValues ? S::kPanels : 1][32];
  uint32_t hi[4][4], lo[4][4];

  RF_FN GradientRows() {
#pragma unroll
    for (auto& panel : of_first)
#pragma unroll
      for (float& x : panel) x = 0.0f;
#pragma unroll
    for (auto& panel : of_values)
#pragma unroll
      for (float& x : panel) x = 0.0f;
  }

  // Scores become weights, 2^-shift times as large. factor: what undoes their scaling. facts: of the thread's rows, or
  // where they lie for the tile's columns. kept: as in attention_sm90.cuh. drawn: of bodies that drop, which weights are
  // kept; the others become negative, since all are asked for once more.
  RF_FN void weigh(float (&scores)[32], float factor, const float2 (&rows)[2], uint32_t columns, const float (&mask)[32],
                   unsigned kept, unsigned drawn, float (&shift)[2]) const {
    float most[2] = {-infinity(), -infinity()};
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float4 two = {};
      if constexpr (!S::kOfQueries) two = load_shared_v4(columns + (8 * j + 2 * (threadIdx.x % 4)) * sizeof(float2));
#pragma unroll
      for (int e = 0; e < 4; e++) {  // column e % 2, row e / 2
        const int i = 4 * j + e;
        const float log_sum = S::kOfQueries ? rows[e / 2].x : e % 2 ? two.z : two.x;
        float x;
        if constexpr (Body::kMasked) x = fmaf(scores[i], factor, mask[i]) - log_sum;
        else x = fmaf(scores[i], factor, -log_sum);
        scores[i] = kept >> i & 1 ? x : -infinity();
        most[e / 2] = maximum(most[e / 2], scores[i]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) {
      most[h] = maximum(most[h], __shfl_xor_sync(kFullMask, most[h], 1));
      most[h] = maximum(most[h], __shfl_xor_sync(kFullMask, most[h], 2));
      shift[h] = most[h] == -infinity() ? 0.0f : ::ceilf(most[h] * kLog2E) - kNumerators;
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
      scores[i] = exp2_approximate(fmaf(scores[i], kLog2E, -shift[i / 2 % 2]));
      if (Body::kDropped && !(drawn >> i & 1)) scores[i] = -scores[i];
    }
  }

  // The weights' gradient, with what undoes its scaling, becomes d, 2^e times as large for each row; undo: 2^-e.
  RF_FN void differ(float (&gradient)[32], float factor, const float (&weights)[32], const float2 (&rows)[2],
                    uint32_t columns, float (&undo)[2]) const {
    float most[2] = {0.0f, 0.0f};
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float4 two = {};
      if constexpr (!S::kOfQueries) two = load_shared_v4(columns + (8 * j + 2 * (threadIdx.x % 4)) * sizeof(float2));
#pragma unroll
      for (int e = 0; e < 4; e++) {
        const int i = 4 * j + e;
        const float fact = S::kOfQueries ? rows[e / 2].y : e % 2 ? two.w : two.y;
        if (Body::kDropped && weights[i] < 0.0f) gradient[i] = 0.0f;
        gradient[i] = ::fabsf(weights[i]) * fmaf(gradient[i], factor, -fact);
        most[e / 2] = maximum(most[e / 2], ::fabsf(gradient[i]));
      }
    }
    float scale[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      most[h] = maximum(most[h], __shfl_xor_sync(kFullMask, most[h], 1));
      most[h] = maximum(most[h], __shfl_xor_sync(kFullMask, most[h], 2));
      const unsigned exponent = __float_as_uint(most[h]) >> 23;
      const unsigned scaled = min(268u - exponent, 253u);  // the largest is taken to [2^14, 2^15)
      scale[h] = __uint_as_float(scaled << 23), undo[h] = __uint_as_float(254u - scaled << 23);
    }
#pragma unroll
    for (int i = 0; i < 32; i++) gradient[i] *= scale[i / 2 % 2];
  }

  // Adds what was split last times a unit's rows, each row times `factor`.
  RF_FN void add(float (*to)[32], uint32_t unit, const float (&factor)[2]) {
    constexpr int kLow = S::kPanels * kPanelUnits, kRows16 = kDescriptorUnits<16 * kSwizzleRowBytes>;
#pragma unroll
    for (int p = 0; p < S::kPanels; p++) {
      float sums[32];
#pragma unroll
      for (int i = 0; i < 32; i++) sums[i] = 0.0f;
      const uint32_t panel = unit + p * kPanelUnits;
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < 4; i++) wgmma_rs_half_transposed(sums, lo[i], panel + i * kRows16, i != 0);
#pragma unroll
      for (int i = 0; i < 4; i++) wgmma_rs_half_transposed(sums, hi[i], panel + kLow + i * kRows16, true);
#pragma unroll
      for (int i = 0; i < 4; i++) wgmma_rs_half_transposed(sums, hi[i], panel + i * kRows16, true);
      wgmma_commit_group();
      wgmma_wait_group<0>();
      settle(sums);
#pragma unroll
      for (int i = 0; i < 32; i++) to[p][i] = fmaf(sums[i], factor[i / 2 % 2], to[p][i]);
    }
#pragma unroll
    for (int i = 0; i < 16; i++) asm volatile("" : "+r"(hi[i / 4][i % 4]), "+r"(lo[i / 4][i % 4]));  // in use until here
  }

  // One tile. own: descriptor of the warpgroup's first, hi; first, second: of the units. own_unscale, unscale: of the
  // warpgroup's tile and this one. The units are given back through their mbarriers.
  RF_FN void multiply(uint32_t own, uint32_t first, uint32_t second, float score_scale, float restored_features,
                      float2 own_unscale, float2 unscale, const float2 (&rows)[2], uint32_t columns,
                      const float (&mask)[32], unsigned kept, unsigned drawn,
                      uint32_t second_full, int parity, uint32_t second_empty) {
    float scores[32], gradient[32];
#pragma unroll
    for (int i = 0; i < 32; i++) scores[i] = gradient[i] = 0.0f;
    wgmma_fence();
    multiply_panels<S::kPanels>(scores, own, first);
    wgmma_commit_group();
    mbarrier_wait(second_full, parity);
    if constexpr (S::kOfFirst) {
      wgmma_fence();
      multiply_panels<S::kPanels>(gradient, own + kDescriptorUnits<S::kUnitBytes>, second);
      wgmma_commit_group();
    }
    wgmma_wait_group<S::kOfFirst ? 1 : 0>();
    settle(scores);
    float shift[2], up[2];
    weigh(scores, own_unscale.x * unscale.x * score_scale, rows, columns, mask, kept, drawn, shift);
    up[0] = exp2_approximate(shift[0]), up[1] = exp2_approximate(shift[1]);
    if constexpr (S::kOfValues) {
      if constexpr (Body::kDropped) {
        float dropped[32];
#pragma unroll
        for (int i = 0; i < 32; i++) dropped[i] = maximum(scores[i], 0.0f);
        split_fragments(dropped, hi, lo);
      } else {
        split_fragments(scores, hi, lo);
      }
      const float by = unscale.y * (kRestored * Body::kKeptScale);
      add(of_values, second, {up[0] * by, up[1] * by});
    }
    wgmma_wait_group<0>();
    settle(gradient);
    if (threadIdx.x % 32 == 0) mbarrier_arrive(second_empty);
    if constexpr (S::kOfFirst) {
      float undo[2];
      const float factor = own_unscale.y * unscale.y * restored_features * Body::kKeptScale;
      differ(gradient, factor, scores, rows, columns, undo);
      split_fragments(gradient, hi, lo);
      const float by = unscale.x * kRestored;
      add(of_first, first, {by * up[0] * undo[0], by * up[1] * undo[1]});
    }
  }

  // Writes rows first + l / 4 and 8 more, those that there are, of [batches, rows, heads, width].
  RF_FN static void store(const AttentionGradient& a, const float (*from)[32], float* to, long batch, int head, int first,
                          float factor) {
    const int lane = threadIdx.x % 32, rows = S::kOfQueries ? a.queries : a.keys;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = first + lane / 4 + 8 * h;
      if (to == nullptr || row >= rows) continue;
      float* at = to + (S::kOfQueries ? a.query_at(batch, row, head) : a.key_at(batch, row, head));
      store_features<S::kPanels>(at, from, h, factor, a.width);
    }
  }
};

// Which of a thread's weights count, of its rows row and row + 8 and the columns from first_column on: bits in order.
template <class S, class Body> RF_FN unsigned kept_weights(int keys, int row, int first_column) {
  const int column = first_column + 2 * (threadIdx.x % 4);
  unsigned kept = 0;
#pragma unroll
  for (int i = 0; i < 32; i++) {
    const int at_column = column + 8 * (i / 4) + i % 2, at_row = row + 8 * (i / 2 % 2);
    const int key = S::kOfQueries ? at_column : at_row, query = S::kOfQueries ? at_row : at_column;
    if (key < keys && (!Body::kCausal || key <= query)) kept |= 1u << i;
  }
  return kept;
}

template <class S, class Body>
__global__ void __launch_bounds__(S::kThreads, 1)
    attention_gradient_sm90(const __grid_constant__ AttentionGradient a, const __grid_constant__ Body body) {
  extern __shared__ unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<GradientStorage<S>*>(raw_shared + (-shared_address(raw_shared) & (kSwizzleAlignment - 1)));
  const int rows = S::kOfQueries ? a.queries : a.keys, columns = S::kOfQueries ? a.keys : a.queries;
  const int blocks = (rows + S::kRows - 1) / S::kRows, at = blockIdx.x % blocks, head = blockIdx.x / blocks % a.heads;
  const int block = Body::kCausal && S::kOfQueries ? blocks - 1 - at : at;  // what takes long comes first
  const long batch = blockIdx.x / blocks / a.heads;
  const int warpgroup = __shfl_sync(kFullMask, threadIdx.x / kWarpgroupThreads, 0);
  const int all = (columns + kAttentionKeys - 1) / kAttentionKeys, own_all = (rows + kAttentionKeys - 1) / kAttentionKeys;
  const uint32_t full = shared_address(shared.full), empty = shared_address(shared.empty);
  const uint32_t own_full = shared_address(&shared.own_full);
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kUnits; s++) {
      mbarrier_init(full + kMbarrierBytes * s, 1);
      mbarrier_init(empty + kMbarrierBytes * s, S::kConsumers / 32);
    }
    mbarrier_init(own_full, 1);
    fence_mbarrier_init();
    shared.largest[0] = shared.largest[1] = 0;
  }
  __syncthreads();
  wait_on_dependent_grids();
  launch_dependent_grids();
  look_in_first_block(body);
  const long queries_from = a.first_query_tile(batch, head), keys_from = a.first_key_tile(batch, head);
  const long from = S::kOfQueries ? keys_from : queries_from;
  const long own_from = (S::kOfQueries ? queries_from : keys_from) + block * S::kWarpgroups;
  const int own_tiles = own_all - block * S::kWarpgroups < S::kWarpgroups ? own_all - block * S::kWarpgroups : S::kWarpgroups;
  float columns_most = 0.0f, own_most = 0.0f;
  for (int t = threadIdx.x; t < all; t += S::kThreads) columns_most = maximum(columns_most, a.pair_unscale[from + t].x);
  if (threadIdx.x < own_tiles) own_most = a.pair_unscale[own_from + threadIdx.x].x;
  note_largest(shared.largest, columns_most);
  note_largest(shared.largest + 1, own_most);
  __syncthreads();
  if (is_exceptional(__uint_as_float(shared.largest[0]), __uint_as_float(shared.largest[1]), a.width * a.score_scale)) {
    const int last = block * S::kRows + S::kRows < rows ? block * S::kRows + S::kRows : rows;
    plain_gradient<S::kPanels, S::kWhat, Body>(a, batch, head, block * S::kRows + threadIdx.x / 32, last, S::kThreads / 32);
    return;
  }

  // Of causal attention queries read no later keys.
  int begin = 0, end = all;
  if constexpr (Body::kCausal) {
    const int needed = (block + 1) * S::kRows / kAttentionKeys;
    if (S::kOfQueries) end = needed < all ? needed : all;
    else begin = block * S::kRows / kAttentionKeys;
  }
  constexpr long kTileBytes = kAttentionTileBytes<S::kPanels>;
  if (warpgroup == S::kWarpgroups) {
    setmaxnreg_dec<S::kProducerRegisters>();
    if (threadIdx.x != S::kConsumers) return;
    mbarrier_arrive_expect_tx(own_full, own_tiles * kTileBytes);
    for (int w = 0; w < own_tiles; w++)
      bulk_load(shared_address(shared.own[w]), a.pairs + (own_from + w) * kTileBytes, kTileBytes, own_full);
    for (int u = 0; u < 2 * (end - begin); u++) {
      const int unit = u % S::kUnits, t = begin + u / 2;
      const bool with_facts = !S::kOfQueries && u % 2 == 0;
      const uint32_t barrier = full + kMbarrierBytes * unit;
      constexpr uint32_t kFacts = kAttentionKeys * sizeof(float2);
      mbarrier_wait(empty + kMbarrierBytes * unit, u / S::kUnits + 1 & 1);  // all units are empty at first
      mbarrier_arrive_expect_tx(barrier, S::kUnitBytes + (with_facts ? kFacts : 0));
      bulk_load(shared_address(shared.units[unit]), a.pairs + (from + t) * kTileBytes + u % 2 * S::kUnitBytes, S::kUnitBytes,
                barrier);
      if (with_facts) bulk_load(shared_address(shared.facts[unit]), a.facts_of(batch, head) + t * kAttentionKeys, kFacts, barrier);
    }
    return;
  }

  setmaxnreg_inc<S::kRegisters>();
  const int first = block * S::kRows + 64 * warpgroup;  // the warpgroup's first row
  const int lane = threadIdx.x % 32, row = first + 16 * (threadIdx.x / 32 % 4) + lane / 4;  // and row + 8
  float2 own_unscale = {}, facts[2] = {};
  if (first < rows) {
    own_unscale = a.pair_unscale[own_from + warpgroup];
    if constexpr (S::kOfQueries) facts[0] = a.facts_of(batch, head)[row], facts[1] = a.facts_of(batch, head)[row + 8];
  }
  const uint32_t own = descriptor_word(shared_address(shared.own[warpgroup]));
  const uint32_t units = descriptor_word(shared_address(shared.units));
  GradientRows<S, Body> held;
  mbarrier_wait(own_full, 0);
#pragma unroll 1
  for (int t = begin; t < end; t++) {
    const int u = 2 * (t - begin), unit = u % S::kUnits, next = (u + 1) % S::kUnits, first_column = t * kAttentionKeys;
    mbarrier_wait(full + kMbarrierBytes * unit, u / S::kUnits & 1);
    // of causal attention: the last key that the rows read, or the last query that reads them
    const bool seen = !Body::kCausal || (S::kOfQueries ? first_column < first + 64 : first_column + 63 >= first);
    if (first < rows && seen) {
      float mask[32];
      if constexpr (Body::kMasked) {
#pragma unroll
        for (int i = 0; i < 32; i++) {
          const int at_row = row + 8 * (i / 2 % 2), at_column = first_column + 2 * (lane % 4) + 8 * (i / 4) + i % 2;
          const int query = S::kOfQueries ? at_row : at_column, key = S::kOfQueries ? at_column : at_row;
          mask[i] = query < a.queries && key < a.keys ? a.mask_row(batch, head, query)[key] : 0.0f;
        }
      }
      const bool bounded = (S::kOfQueries && first_column + kAttentionKeys > a.keys) ||
                           (Body::kCausal && (S::kOfQueries ? first_column + 63 > first : first_column < first + 63));
      const unsigned kept = bounded ? kept_weights<S, Body>(a.keys, row, first_column) : ~0u;
      unsigned drawn = ~0u;
      if constexpr (Body::kDropped)
        drawn = S::kOfQueries ? kept_of_queries(a, batch, head, row, t) : kept_of_keys(a, batch, head, row, first_column);
      constexpr int kUnit = kDescriptorUnits<S::kUnitBytes>;
      held.multiply(own, units + unit * kUnit, units + next * kUnit, a.score_scale, a.restored_features,
                    own_unscale, a.pair_unscale[from + t], facts,
                    shared_address(shared.facts[unit]), mask, kept, drawn, full + kMbarrierBytes * next, (u + 1) / S::kUnits & 1,
                    empty + kMbarrierBytes * next);
    } else {
      mbarrier_wait(full + kMbarrierBytes * next, (u + 1) / S::kUnits & 1);  // else it might be given back twice
      if (lane == 0) mbarrier_arrive(empty + kMbarrierBytes * next);
    }
    if (lane == 0) mbarrier_arrive(empty + kMbarrierBytes * unit);
  }
  if (first >= rows) return;
  using Held = GradientRows<S, Body>;
  const int first_of_warp = row - lane / 4;
  if constexpr (S::kOfFirst)
    Held::store(a, held.of_first, S::kOfQueries ? a.dq : a.dk, batch, head, first_of_warp, Body::kScale);
  if constexpr (S::kOfValues) Held::store(a, held.of_values, a.dv, batch, head, first_of_warp, 1.0f);
}

}  // namespace rf
