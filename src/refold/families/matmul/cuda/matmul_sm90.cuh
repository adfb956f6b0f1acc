// Matmul on Hopper: C[row, col] = body.value(sum over k of A[row, k] * B[col, k]), to fp32's accuracy
// on fp16 tensor cores.
//
// Why: fp32 products run on CUDA cores at 51 TFLOP/s; fp16 ones on tensor cores at 790. An fp32 value
// is the sum of two scaled fp16 values to 22 bits (hi_lo_split.cuh), and three fp16 products of four,
//   lo*hi + hi*lo + hi*hi,
// carry fp32's accuracy if the accumulator does. Hopper's does not: it truncates toward zero, which
// over K = 8192 costs 6 times cuBLAS's error. So a short accumulator takes 64 of K only, small
// products first, and is then added ("promoted") to a second one by plain fp32 additions. Where an element
// is a single product (Tf32, 16 bits) and tiles are so many that cuBLAS keeps K whole, it cuts off as much: the tensor
// cores add up the sums themselves, up to kMostUnpromotedDepth of K, and the next stage's products are always under way.
//
// Layout: one stage of the ring is 48 KB, rows of 128 bytes, four stages deep. A row of a stage is
// 32 of k, hi beside lo (Ieee), or 64 of k (Tf32: one scaled fp16 product, whose operands carry TF32's
// ten bits; and fp16 or bf16 as they are). A tile of C is 256 x 128 (Tall) or 128 x 256. Two teams of
// four warps hold 128 x 128 of it each: 128 registers of sums and 64 of the short accumulator, which
// their two halves of 64 rows use in turn; while one team promotes, the other's products keep the
// tensor cores busy. Four more warps only feed the ring: one thread of theirs issues the copies.
// Where C is small, tiles of 128 x 128 keep more processors busy: a team has one half, the ring six stages of 32 KB.
// Blocks stay and take tile after tile, 8 tiles of rows to a band, so that 132 blocks at a time read
// about 8 x 17 tiles and the second-level cache serves the rest.
//
// Pairs: where there are tiles enough, two blocks side by side (a cluster) need the same rows of a. Each
// copies half of them to both, a third less for the second-level cache to give. A stage is then empty when
// the teams of both blocks have left it.
//
// Where tiles do not come out even, or are few and K is deep, blocks share tiles: tile_scheduler_sm90.cuh.
#pragma once
#include "tile_scheduler_sm90.cuh"

namespace rf {

template <class S, class Body> struct alignas(1024) SharedStorage {
  unsigned char stages[S::kStages][S::kStageBytes];
  uint64_t full[S::kStages], empty[S::kStages];
  EpilogueStorage<Body, S::kG> warpgroup[2];
};

// Products of one promotion step (`kPromote` stages from `stage`) on rows 64 mi to 64 mi + 63 of the
// team, the small ones first. a, b: descriptors of the team's rows in the ring's first stage.
template <class S>
RF_FN void promotion_step(float (&accumulator)[64], float (&partial)[64], uint32_t a, uint32_t b, int stage, int mi, uint32_t full,
                uint32_t phase) {
  using T = typename S::Mode::Type;
  constexpr int kNext = S::kStageBytes >> 4, kHalf = 64 * S::kRowBytes >> 4;
  if (mi == 0)
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) mbarrier_wait(full + 8 * (stage + p), phase);
  wgmma_fence();
#pragma unroll
  for (int p = 0; p < S::kPromote; p++) {
    const uint32_t at = a + (stage + p) * kNext + mi * kHalf, bt = b + (stage + p) * kNext;
    if constexpr (S::Mode::kSplit) {
      wgmma<T>(partial, at + 4, bt, p != 0);  // lo hi, two slices of 16
      wgmma<T>(partial, at + 6, bt + 2, true);
      wgmma<T>(partial, at, bt + 4, true);    // hi lo
      wgmma<T>(partial, at + 2, bt + 6, true);
    } else {
#pragma unroll
      for (int k = 0; k < 4; k++) wgmma<T>(partial, at + 2 * k, bt + 2 * k, p + k != 0);
    }
  }
  if constexpr (S::Mode::kSplit) {
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) {
      const uint32_t at = a + (stage + p) * kNext + mi * kHalf, bt = b + (stage + p) * kNext;
      wgmma<T>(partial, at, bt, true);
      wgmma<T>(partial, at + 2, bt + 2, true);
    }
  }
  wgmma_commit_group();
  wgmma_wait_group<0>();
#pragma unroll
  for (int i = 0; i < 64; i++) {
    asm volatile("" : "+f"(partial[i])::"memory");  // not read before the wait
    accumulator[i] += partial[i];
  }
}

// The ring's barriers. A warp leaves a stage by lane 0 at its block's own and, in a pair, by the lane `there` at
// the other block's.
struct Pipeline {
  uint32_t full, empty, others_empty;
  int there;
  RF_FN void release(int stage) const {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + 8 * stage);
    if (threadIdx.x % 32 == there) mbarrier_arrive_cluster(others_empty + 8 * stage);
  }
};

// Products of `steps` promotion steps from `first` on, promoted after each: acc becomes their sum.
template <class S>
RF_FN void mainloop_promoted(Fragment<S::kHalves, 4>& acc, float (&partial)[64], uint32_t a, uint32_t b, int first,
                             int steps, const Pipeline& pipeline) {
#pragma unroll
  for (int i = 0; i < 64; i++) {  // an epilogue may have their registers
    partial[i] = 0.0f;
#pragma unroll
    for (int mi = 0; mi < S::kHalves; mi++) acc.x[mi][i] = 0.0f;
  }
#pragma unroll 1
  for (int k = first; k < first + steps; k++) {
    constexpr int kStepsPerPhase = S::kStages / S::kPromote;  // steps of one turn of the ring
    const int stage = k % kStepsPerPhase * S::kPromote, phase = k / kStepsPerPhase & 1;
#pragma unroll
    for (int mi = 0; mi < S::kHalves; mi++) promotion_step<S>(acc.x[mi], partial, a, b, stage, mi, pipeline.full, phase);
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) pipeline.release(stage + p);
  }
}

// Issues the products of a stage, one of each element; the first ones overwrite the sums.
template <class S, bool IsFirst>
RF_FN void wgmma_stage(Fragment<S::kHalves, 4>& acc, uint32_t a, uint32_t b, int stage) {
  using T = typename S::Mode::Type;
  constexpr int kNext = S::kStageBytes >> 4, kHalf = 64 * S::kRowBytes >> 4;
  const uint32_t at = a + stage * kNext, bt = b + stage * kNext;
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4 * S::kHalves; i++)
    wgmma<T>(acc.x[i / 4], at + i / 4 * kHalf + 2 * (i % 4), bt + 2 * (i % 4), !IsFirst || i % 4 != 0);
  wgmma_commit_group();
}

// The same of one step or more, each element a single product, without promotion.
template <class S>
RF_FN void mainloop_unpromoted(Fragment<S::kHalves, 4>& acc, uint32_t a, uint32_t b, int first, int steps, const Pipeline& pipeline) {
  const int end = (first + steps) * S::kPromote;
  int k = first * S::kPromote;
  mbarrier_wait(pipeline.full + 8 * (k % S::kStages), k / S::kStages & 1);
  wgmma_stage<S, true>(acc, a, b, k % S::kStages);
#pragma unroll 1
  for (k++; k < end; k++) {
    const int stage = k % S::kStages;
    mbarrier_wait(pipeline.full + 8 * stage, k / S::kStages & 1);
    wgmma_stage<S, false>(acc, a, b, stage);
    wgmma_wait_group<1>();
    pipeline.release((k - 1) % S::kStages);
  }
  wgmma_wait_group<0>();
#pragma unroll
  for (int i = 0; i < 64 * S::kHalves; i++)
    asm volatile("" : "+f"(acc.x[i / 64][i % 64])::"memory");  // not read before the wait
  pipeline.release((end - 1) % S::kStages);
}

// Defined in mainloop_rs_sm90.cuh, which only Direct needs.
template <class S>
RF_FN void mainloop_rs(Fragment<2, 4>& acc, float (&partial)[64], uint32_t a, uint32_t b, int warpgroup, int first,
                           int count, uint32_t full, uint32_t empty);

template <class S, class Body>
__global__ void __launch_bounds__(384, 1)
    matmul_sm90(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                const __grid_constant__ Launch launch, const __grid_constant__ Body body) {
  extern __shared__ unsigned char raw_shared[];
  using Shared = SharedStorage<S, Body>;
  auto& shared = *reinterpret_cast<Shared*>(raw_shared + (-shared_address(raw_shared) & 1023));
  // Exchanged, so that the compiler computes it once, and not in every step.
  const uint32_t stage_base = __shfl_sync(kFullMask, shared_address(shared.stages), 0);
  const uint32_t full = stage_base + offsetof(Shared, full), empty = stage_base + offsetof(Shared, empty);
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; s++) {
      mbarrier_init(full + 8 * s, 1);
      mbarrier_init(empty + 8 * s, 8 << launch.multicast);  // one arrival a warp of the teams
    }
    fence_mbarrier_init();
    prefetch_tensormap(&a_map);
    prefetch_tensormap(&b_map);
  }
  cluster_sync();
  wait_on_dependent_grids();

  const int multicast = S::Mode::kRS ? 0 : launch.multicast;
  const int slots = (gridDim.x >> multicast) / S::kSplitK;

  if (threadIdx.x >= 256) {
    setmaxnreg_dec<S::Mode::kRS ? 24 : 40>();
    if (threadIdx.x == 256) {
      int stage = 0;
      uint32_t phase = 1;  // the ring is empty at first
      const TileScheduler<S> scheduler(blockIdx.x, multicast);
      WorkTile now;
      for (int iteration = 0, t = scheduler.slot; scheduler.next(launch, iteration, t, now); iteration++, t += slots) {
        int tile_row, tile_col;
        scheduler.tile(launch, now.tile, tile_row, tile_col);
        int a_row = tile_row * S::kTileRows, b_row = tile_col * S::kTileCols;
        if constexpr (Body::kBatched) {
          const BatchProblem problem = batch_problem<S::kTileRows>(launch.problem, tile_row);
          a_row = problem.first_row, b_row = problem.b_row(b_row);
        }
        for (int k = now.begin * S::kPromote; k < now.end * S::kPromote; k++) {
          mbarrier_wait(empty + 8 * stage, phase);
          mbarrier_arrive_expect_tx(full + 8 * stage, S::kStageBytes);
          const uint32_t to = stage_base + stage * S::kStageBytes;
          const int a_k = S::Mode::kTerms == 1 ? k : k % launch.a_stages;
          if (multicast)
            tma_load_multicast(to + scheduler.rank * (S::kABytes / 2), &a_map, a_k * 64,
                              a_row + scheduler.rank * (S::kTileRows / 2), full + 8 * stage);
          else
            tma_load(to, &a_map, a_k * (S::Mode::kRS ? 32 : 64), a_row, full + 8 * stage);
          tma_load(to + S::kABytes, &b_map, k * 64, b_row, full + 8 * stage);
          if (++stage == S::kStages) stage = 0, phase ^= 1;
        }
      }
      launch_dependent_grids();
    } else if (threadIdx.x >= 288 && blockIdx.x == 0) {  // warps that have nothing else to do
      look_at_words(look_of(body, 0), threadIdx.x - 288, 96);
    }
  } else {
    setmaxnreg_inc<S::Mode::kRS ? 240 : 232>();
    const int warpgroup = __shfl_sync(kFullMask, threadIdx.x / 128, 0);  // known to be uniform
    const int down = S::kStacked ? 64 * S::kHalves * warpgroup : 0, right = S::kStacked ? 0 : 128 * warpgroup;
    const uint32_t a = descriptor_word(stage_base + down * S::kRowBytes);
    const uint32_t b = descriptor_word(stage_base + S::kABytes + right * S::kRowBytes);
    const Pipeline pipeline{full, empty, map_shared_rank(empty, (blockIdx.x & multicast) ^ multicast), multicast ? 0 : 32};
    float partial[64];
#pragma unroll
    for (int i = 0; i < 64; i++) partial[i] = 0.0f;
    WorkTile now;
    for (int iteration = 0;; iteration++) {
      const TileScheduler<S> here(read_ctaid_x(), multicast);
      if (!here.next(launch, iteration, here.slot + iteration * slots, now)) break;
      // The same in all lanes, which is made known to the compiler once more: behind an epilogue's
      // branches it would keep the stage in each lane's registers and move every descriptor to uniform
      // ones by itself, four moves a product.
      const int first = __shfl_sync(kFullMask, now.before, 0);
      const int count = now.end - now.begin, steps = S::Mode::kRS ? count : __shfl_sync(kFullMask, count, 0);
      Fragment<S::kHalves, 4> acc;
      if constexpr (S::Mode::kRS) {
#pragma unroll
        for (int i = 0; i < 64; i++) acc.x[0][i] = acc.x[1][i] = 0.0f;
        mainloop_rs<S>(acc, partial, stage_base + down * S::kRowBytes, b, warpgroup, first, steps, full, empty);
      } else if (!S::kMayBeUnpromoted || launch.promotes) {
        mainloop_promoted<S>(acc, partial, a, b, first, steps, pipeline);
      } else if constexpr (S::kMayBeUnpromoted) {
        mainloop_unpromoted<S>(acc, a, b, first, steps, pipeline);
      }
      constexpr bool kBScaled = S::Mode::kScaled, kAScaled = kBScaled && !S::Mode::kRS;
      auto& mine = shared.warpgroup[warpgroup];
      const TileScheduler<S> scheduler(read_ctaid_x(), multicast);
      scheduler.next(launch, iteration, scheduler.slot + iteration * slots, now);  // once more, for there is no register to keep it in
      if constexpr (S::kStreamK) {
        if (now.end < launch.stream_k.steps) {
          store_partial<S>(launch, acc, read_ctaid_x(), 1 + warpgroup);
          continue;
        }
        if (now.begin > 0) reduce_partials<S>(launch, acc, scheduler, now.begin, 1 + warpgroup);
      }
      int tile_row, tile_col;
      scheduler.tile(launch, now.tile, tile_row, tile_col);
      int row0 = launch.first_row + tile_row * S::kTileRows + down;
      int col0 = tile_col * S::kTileCols + right;
      const auto finalize = [&](auto& fragment) {
        if constexpr (Body::kBatched) {
          const BatchProblem problem = batch_problem<S::kTileRows>(launch.problem, tile_row);
          row0 += problem.first_row - tile_row * S::kTileRows;
          epilogue<kAScaled, kBScaled>(body, problem, fragment, row0, col0, mine, 1 + warpgroup);
        } else {
          epilogue<kAScaled, kBScaled>(body, launch.problem, fragment, row0, col0, mine, 1 + warpgroup);
          arrive_and_finalize_rows<S::kMI>(body, launch.problem, row0, col0, mine, 1 + warpgroup);
        }
      };
      if constexpr (S::kSplitK == 1) {
        finalize(acc);
      } else {
        Fragment<S::kMI, S::kG> share;
        if (!splitk_reduce<S>(launch, acc, share, (scheduler.slot << multicast) + scheduler.rank, iteration % 2, scheduler.k_split)) continue;
        constexpr int kAcross = 4 / S::kG;  // shares side by side
        row0 += 64 * (scheduler.k_split / kAcross);
        col0 += 32 * S::kG * (scheduler.k_split % kAcross);
        finalize(share);
      }
    }
  }
  if (multicast) cluster_sync();  // neither may end while the other copies to it or arrives at its barriers
}

}  // namespace rf
