// Attention on Hopper: out = softmax(q k^T * scale + mask) v of each head, to fp32's accuracy on fp16 tensor cores,
// without the scores ever being in memory.
//
// Why: PyTorch's attention of float32 runs on CUDA cores. Here both products are three of fp16 each, of operands as
// hi and lo (matmul_sm90.cuh says why that is fp32's accuracy):
//   scores   lo*hi + hi*lo + hi*hi of a tile of 64 keys, from shared memory; 64 or 128 features to a sum
//   result   the same of the softmax's numerators, which are split in registers, and the tile's values, into sums of
//            their own. Plain fp32 arithmetic adds these to the sums of all tiles: Hopper's accumulator truncates.
// Numerators are exp2(score - largest + 10), the largest of the keys so far: the next tile scales the sums anew.
//
// Roles of the 128 (Warpgroups + 1) threads of a block, which takes 64 Warpgroups queries of a head:
//   warpgroup w   splits its 64 queries to shared memory, then multiplies them with tile after tile
//   the last one  gives its registers to the others; one thread copies the tiles (attention_tiles.cuh), each once its
//                 stage is empty
// A thread holds of two rows, l / 4 and l / 4 + 8 of its warp's 16, 16 scores of a tile and a quarter of the result.
//
// Shared memory of a block (dynamic; bytes):
//   queries   16384 a warpgroup and panel   hi, then lo, of [panel][query][feature], swizzled
//   stages    32768 each, a panel           tiles; four stages of one panel, or two of two
//   unscale   256 a warpgroup               powers of two that undo the scaling of the queries
//   full, empty                             mbarriers of the stages: the copy's bytes; an arrival of each warp
// While one warpgroup computes numerators, the others' products keep the tensor cores busy.
#pragma once
#include "attention_plain.cuh"
#include "attention_products.cuh"

namespace rf {

template <int Panels, int Warpgroups> struct AttentionShape {
  static constexpr int kPanels = Panels, kWarpgroups = Warpgroups, kQueries = 64 * Warpgroups;
  static constexpr int kStages = Panels == 1 ? 4 : 2;
  static constexpr int kConsumers = Warpgroups * kWarpgroupThreads, kThreads = kConsumers + kWarpgroupThreads;
  // of a thread; 128 or 168 at entry
  static constexpr int kProducerRegisters = Warpgroups == 3 ? 32 : 24, kRegisters = Warpgroups == 3 ? 160 : 240;
};

template <class S> struct alignas(kSwizzleAlignment) AttentionStorage {
  unsigned char queries[S::kWarpgroups][2][S::kPanels][kPanelBytes];
  unsigned char stages[S::kStages][kAttentionTileBytes<S::kPanels>];
  float unscale[S::kQueries];
  uint64_t full[S::kStages], empty[S::kStages];
  unsigned largest[2];  // unscales of the queries and of the keys
};

// Splits a warpgroup's 64 queries from `first` on; those beyond the last are zero. Gives the largest of the
// thread's unscales; NaN where one is not finite.
template <class S>
RF_FN float split_queries(const Attention& a, long batch, int head, int first, unsigned char* hi, float* unscale) {
  constexpr int kLanes = 16 * S::kPanels, kRows = kWarpgroupThreads / kLanes;
  const int thread = threadIdx.x % kWarpgroupThreads, column = 4 * (thread % kLanes);
  float largest = 0.0f;
#pragma unroll 4
  for (int row = thread / kLanes; row < 64; row += kRows) {
    const float4 x = a.four(a.q.at(batch, first + row, head), column, first + row < a.queries);
    unsigned most = larger(0, x);
#pragma unroll
    for (int mask = kLanes / 2; mask; mask /= 2) most = max(most, __shfl_xor_sync(kFullMask, most, mask));
    const int e = scale_exponent(__uint_as_float(most));
    if (column == 0) unscale[row] = power_of_two(-e);
    largest = maximum(largest, unscale_of(most));
    uint2 high, low;
    split_four(x, power_of_two(e), high, low);
    unsigned char* to = hi + column / kPanelFeatures * kPanelBytes + panel_offset(row, column % kPanelFeatures);
    *reinterpret_cast<uint2*>(to) = high;
    *reinterpret_cast<uint2*>(to + S::kPanels * kPanelBytes) = low;
  }
  return largest;
}

// What a warpgroup's thread holds of its queries.
template <class S> struct AttentionRows {
  static constexpr int kPanel = kPanelUnits, kStep = kStepUnits;
  float out[S::kPanels][32], most[2], total[2];
  uint32_t hi[4][4], lo[4][4];  // numerators as wgmma takes them: [16 keys][rows and keys]

  RF_FN AttentionRows() {
#pragma unroll
    for (int p = 0; p < S::kPanels; p++)
#pragma unroll
      for (int i = 0; i < 32; i++) out[p][i] = 0.0f;
    most[0] = most[1] = -infinity(), total[0] = total[1] = 0.0f;
  }

  // scores = queries times keys, as they are scaled; q, k: descriptors of hi, behind which lo lies.
  RF_FN void multiply(float (&scores)[32], uint32_t q, uint32_t k) const {
    wgmma_fence();
    multiply_panels<S::kPanels>(scores, q, k);
    wgmma_commit_group();
    wgmma_wait_group<0>();
    settle(scores);
  }

  // Scores become numerators, and the sums so far are scaled by `again` to go with them.
  // unscale: of the two queries, with that of the keys and a.score_scale, log2(e) included where there is no mask; then
  // `mask` has what is added to each score, in the units of exp.
  // Bounded: some scores do not count, those whose bit of `kept` is not set. drawn: of bodies that drop, which weights
  // values are multiplied by; softmax divides by the sum of all.
  template <class Body, bool Bounded>
  RF_FN void weigh(float (&scores)[32], const float (&unscale)[2], const float (&mask)[32], unsigned kept,
                   unsigned drawn, float (&again)[2]) {
    float now[2] = {-infinity(), -infinity()};
#pragma unroll
    for (int i = 0; i < 32; i++) {
      if constexpr (Body::kFilled) scores[i] = mask[i] == 0.0f ? scores[i] * unscale[i / 2 % 2] : mask[i];
      else if constexpr (Body::kMasked) scores[i] = fmaf(scores[i], unscale[i / 2 % 2], mask[i]);
      if (Bounded && !(kept >> i & 1)) scores[i] = -infinity();
      now[i / 2 % 2] = maximum(now[i / 2 % 2], scores[i]);
    }
    float from[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      now[h] = maximum(now[h], __shfl_xor_sync(kFullMask, now[h], 1));
      now[h] = maximum(now[h], __shfl_xor_sync(kFullMask, now[h], 2));
      if constexpr (!Body::kMasked) now[h] = now[h] == -infinity() ? now[h] : now[h] * unscale[h];
      now[h] = maximum(now[h], most[h]);
      from[h] = now[h] == -infinity() ? 0.0f : now[h];
      again[h] = exp2_approximate(Body::kMasked ? (most[h] - from[h]) * kLog2E : most[h] - from[h]);
      most[h] = now[h];
      total[h] *= again[h];
      if constexpr (!Body::kMasked) from[h] = kNumerators - from[h];
    }
#pragma unroll
    for (int i = 0; i < 32; i++) {
      const int h = i / 2 % 2;
      float x;
      if constexpr (Body::kMasked) x = fmaf(scores[i] - from[h], kLog2E, kNumerators);
      else x = !Bounded || kept >> i & 1 ? fmaf(scores[i], unscale[h], from[h]) : -infinity();
      scores[i] = exp2_approximate(x);
      total[h] += scores[i];
      if (Body::kDropped && !(drawn >> i & 1)) scores[i] = 0.0f;
    }
    split_fragments(scores, hi, lo);
  }

  // Adds the numerators times a tile's values; v: descriptor of hi.
  RF_FN void add(uint32_t v, float unscale, const float (&again)[2]) {
    constexpr int kLow = S::kPanels * kPanel;
#pragma unroll
    for (int p = 0; p < S::kPanels; p++) {
      float sums[32];
#pragma unroll
      for (int i = 0; i < 32; i++) sums[i] = 0.0f;
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < 4; i++) wgmma_rs_half(sums, lo[i], v + p * kPanel + i * kStep, i != 0);
#pragma unroll
      for (int i = 0; i < 4; i++) wgmma_rs_half(sums, hi[i], v + kLow + p * kPanel + i * kStep, true);
#pragma unroll
      for (int i = 0; i < 4; i++) wgmma_rs_half(sums, hi[i], v + p * kPanel + i * kStep, true);
      wgmma_commit_group();
      wgmma_wait_group<0>();
      settle(sums);
#pragma unroll
      for (int i = 0; i < 32; i++) out[p][i] = fmaf(sums[i], unscale, out[p][i] * again[i / 2 % 2]);
    }
#pragma unroll
    for (int i = 0; i < 16; i++) asm volatile("" : "+r"(hi[i / 4][i % 4]), "+r"(lo[i / 4][i % 4]));  // in use until here
  }

  // Writes the rows first + l / 4 and 8 more, those that there are.
  template <class Body> RF_FN void store(const Attention& a, long batch, int head, int first) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < 2; h++) {
      total[h] += __shfl_xor_sync(kFullMask, total[h], 1);
      total[h] += __shfl_xor_sync(kFullMask, total[h], 2);
      const float factor = total[h] == 0.0f ? Body::unseen() : Body::kKeptScale / (total[h] * kUnscaleNumerators);
      const int query = first + lane / 4 + 8 * h;
      if (lane % 4 == 0 && a.sums != nullptr) {
        const float log2_sum = ::log2f(total[h]) - kNumerators;
        const float sum = Body::kMasked ? fmaf(log2_sum, kLn2, most[h]) : (log2_sum + most[h]) * kLn2;
        a.store_sum(batch, head, query, total[h] == 0.0f ? infinity() : sum);
      }
      if (query >= a.queries || a.out == nullptr) continue;
      float* to = a.out + a.query_at(batch, query, head);
      store_features<S::kPanels>(to, out, h, factor, a.width);
    }
  }
};

// Which of a thread's scores of a tile count: bits in their order.
template <class Body> RF_FN unsigned kept_scores(int keys, int row, int first_key) {
  const int column = first_key + 2 * (threadIdx.x % 4);
  unsigned kept = 0;
#pragma unroll
  for (int i = 0; i < 32; i++) {
    const int key = column + 8 * (i / 4) + i % 2, query = row + 8 * (i / 2 % 2);
    if (key < keys && (!Body::kCausal || key <= query)) kept |= 1u << i;
  }
  return kept;
}

template <class S, class Body>
__global__ void __launch_bounds__(S::kThreads, 1)
    attention_sm90(const __grid_constant__ Attention a, const __grid_constant__ Body body) {
  extern __shared__ unsigned char raw_shared[];
  using Shared = AttentionStorage<S>;
  auto& shared = *reinterpret_cast<Shared*>(raw_shared + (-shared_address(raw_shared) & (kSwizzleAlignment - 1)));
  const int blocks = (a.queries + S::kQueries - 1) / S::kQueries;
  const int at = blockIdx.x % blocks, head = blockIdx.x / blocks % a.heads;
  const int block = Body::kCausal ? blocks - 1 - at : at;  // what takes long comes first
  const long batch = blockIdx.x / blocks / a.heads;
  const int warpgroup = __shfl_sync(kFullMask, threadIdx.x / kWarpgroupThreads, 0);
  const int first = block * S::kQueries + 64 * warpgroup;  // the warpgroup's first query
  const int all = a.tiles_of_head();
  const uint32_t full = shared_address(shared.full), empty = shared_address(shared.empty);
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; s++) {
      mbarrier_init(full + kMbarrierBytes * s, 1);
      mbarrier_init(empty + kMbarrierBytes * s, S::kConsumers / 32);
    }
    fence_mbarrier_init();
    shared.largest[0] = shared.largest[1] = 0;
  }
  __syncthreads();
  wait_on_dependent_grids();
  launch_dependent_grids();
  look_in_first_block(body);
  const float2* unscale = a.unscale + (batch * a.heads + head) * all;
  float keys_most = 0.0f;
  for (int t = threadIdx.x; t < all; t += S::kThreads) keys_most = maximum(keys_most, unscale[t].x);
  note_largest(shared.largest + 1, keys_most);
  if (warpgroup < S::kWarpgroups) {
    note_largest(shared.largest, split_queries<S>(a, batch, head, first, shared.queries[warpgroup][0][0],
                                                  shared.unscale + 64 * warpgroup));
    fence_proxy_async();  // wgmma reads what these threads have written
  }
  __syncthreads();
  if (is_exceptional(__uint_as_float(shared.largest[0]), __uint_as_float(shared.largest[1]), a.width * a.score_scale)) {
    const int last = block * S::kQueries + S::kQueries < a.queries ? block * S::kQueries + S::kQueries : a.queries;
    plain_attention<S::kPanels, Body>(a, batch, head, block * S::kQueries + threadIdx.x / 32, last, S::kThreads / 32);
    return;
  }

  // Of causal attention no later key than the block's last query is read.
  const int needed = (block + 1) * S::kQueries / kAttentionKeys, tiles = Body::kCausal && needed < all ? needed : all;
  if (warpgroup == S::kWarpgroups) {
    setmaxnreg_dec<S::kProducerRegisters>();
    if (threadIdx.x != S::kConsumers) return;
    const unsigned char* from = a.tiles + (batch * a.heads + head) * all * kAttentionTileBytes<S::kPanels>;
    for (int t = 0; t < tiles; t++) {
      const int stage = t % S::kStages;
      mbarrier_wait(empty + kMbarrierBytes * stage, t / S::kStages + 1 & 1);  // all stages are empty at first
      mbarrier_arrive_expect_tx(full + kMbarrierBytes * stage, kAttentionTileBytes<S::kPanels>);
      bulk_load(shared_address(shared.stages[stage]), from + long(t) * kAttentionTileBytes<S::kPanels>,
                kAttentionTileBytes<S::kPanels>, full + kMbarrierBytes * stage);
    }
    return;
  }

  setmaxnreg_inc<S::kRegisters>();
  const int lane = threadIdx.x % 32, row = 16 * (threadIdx.x / 32 % 4) + lane / 4;  // and row + 8
  const float own[2] = {shared.unscale[64 * warpgroup + row], shared.unscale[64 * warpgroup + row + 8]};
  const uint32_t queries = descriptor_word(shared_address(shared.queries[warpgroup]));
  const uint32_t stages = descriptor_word(shared_address(shared.stages));
  AttentionRows<S> rows;
  float scores[32];
#pragma unroll
  for (int i = 0; i < 32; i++) scores[i] = 0.0f;
#pragma unroll 1
  for (int t = 0; t < tiles; t++) {
    const int stage = t % S::kStages, first_key = t * kAttentionKeys;
    mbarrier_wait(full + kMbarrierBytes * stage, t / S::kStages & 1);
    if (first < a.queries && (!Body::kCausal || first_key < first + 64)) {
      const uint32_t keys = stages + stage * kDescriptorUnits<kAttentionTileBytes<S::kPanels>>;
      const float2 undo = unscale[t];
      const float factor = undo.x * a.score_scale;
      const float both[2] = {own[0] * factor, own[1] * factor};
      float mask[32], again[2];
      if constexpr (Body::kMasked) {
#pragma unroll
        for (int i = 0; i < 32; i++) {
          const int query = first + row + 8 * (i / 2 % 2), key = first_key + 2 * (lane % 4) + 8 * (i / 4) + i % 2;
          mask[i] = query < a.queries && key < a.keys ? a.mask_row(batch, head, query)[key] : 0.0f;
        }
      }
      unsigned drawn = ~0u;
      if constexpr (Body::kDropped) drawn = kept_of_queries(a, batch, head, first + row, t);
      rows.multiply(scores, queries, keys);
      // all scores count but those of the last keys and of later ones
      if (first_key + kAttentionKeys > a.keys || (Body::kCausal && first_key + kAttentionKeys > first))
        rows.template weigh<Body, true>(scores, both, mask, kept_scores<Body>(a.keys, first + row, first_key), drawn, again);
      else
        rows.template weigh<Body, false>(scores, both, mask, ~0u, drawn, again);
      rows.add(keys + 2 * S::kPanels * AttentionRows<S>::kPanel, undo.y * (kUnscaleNumerators * kRestored), again);
    }
    if (lane == 0) mbarrier_arrive(empty + kMbarrierBytes * stage);
  }
  if (first < a.queries) rows.template store<Body>(a, batch, head, first + row - lane / 4);
}

}  // namespace rf
