// Matmul on Hopper: C[row, col] = body.value(sum over k of A[row, k] * B[col, k]), to fp32's accuracy on fp16 tensor
// cores. A persistent, warp-specialized kernel: one thread issues TMA loads, two consumer warpgroups issue wgmma and do
// the epilogue of the tile that they hold in registers.
//
// Why: fp32 products run on CUDA cores at 51 TFLOP/s; fp16 ones on tensor cores at 790. An fp32 value is the sum of two
// scaled fp16 values to 22 bits (hi_lo_split.cuh), and three fp16 products of four,
//   lo*hi + hi*lo + hi*hi,
// carry fp32's accuracy if the accumulator does. Hopper's does not: it truncates toward zero, which over K = 8192 costs
// 6 times cuBLAS's error. So a short accumulator takes 64 of K only, small products first, and is then added
// ("promoted") to a second one by plain fp32 additions. Where an element is a single product (Tf32, 16 bits) and tiles
// are so many that cuBLAS keeps K whole, it cuts off as much: the tensor cores keep the accumulator, for up to
// kMostUnpromotedDepth of K, and the next stage's wgmmas are always in flight.
//
// Roles of the 384 threads of a block:
//   threads    role                                          setmaxnreg   registers hold
//   0-127      consumer warpgroup 0: wgmma, epilogue         232 (RS 240) 128 accumulators, 64 of the short one
//   128-255    consumer warpgroup 1: the other half's        232 (RS 240) the same (small tiles: 64 and 64)
//   256        producer: issues every TMA load               40 (RS 24)
//   288-383    look at the parameters once (look.cuh)        40 (RS 24)
// ptxas gives 168 at entry: 384 * 168 = 64512 of 65536 registers; setmaxnreg deals them out anew, 128 * 40 + 256 * 232.
//
// Shared memory of a block (dynamic; bytes):
//   stages     196608   4 stages of 48 KB (256 x 128 and 128 x 256 tiles) or 6 of 32 KB (128 x 128): rows of A, then of
//                       B, each 128 bytes in TMA's 128-byte swizzle: 32 of k, hi beside lo (Ieee, IeeeRS: B alone,
//                       A is 32 of k in fp32); 64 of k (Tf32, 16 bits)
//   full       8 each   mbarrier of a stage: the producer's arrival, and its bytes by TMA
//   empty      8 each   mbarrier of a stage: one arrival of each consumer warp (of both blocks of a cluster)
//   epilogue   2 x      a warpgroup's (EpilogueStorage, by the body's reductions)
//   alignment  1024     the swizzle repeats every 1024 bytes
//
// Named barriers: 1 and 2, a warpgroup's own in its epilogue; 3, both, when K is split; 4 and 5, ping-pong (IeeeRS).
//
// Timeline, 4 stages, 2 to a promotion step; a warpgroup's halves of 64 rows alternate in the short accumulator:
//   producer     load 0 1 2 3 | wait empty 0 1, load them again | 2 3 | ...
//   warpgroup 0  wait full 0 1 | wgmma half 0 | promote | wgmma half 1 | promote, release 0 1 | full 2 3 | wgmma ...
//   warpgroup 1     wait full 0 1 | wgmma half 0 | promote | wgmma half 1 | promote, release 0 1 | ...
// While one warpgroup promotes, the other's wgmmas keep the tensor cores busy.
//
// Tiles: a tile of C is 256 x 128 (Tall) or 128 x 256 (Wide); a warpgroup holds 128 x 128 of it. Where C is small,
// tiles of 128 x 128 keep more processors busy. Blocks stay and take tile after tile (TileScheduler), 8 tiles of rows
// to a band, so that 132 blocks at a time read about 8 x 17 tiles and L2 serves the rest.
//
// Clusters: where there are tiles enough, two blocks side by side (a 2-CTA cluster) need the same rows of A. Each loads
// half of them and multicasts it to both, a third less for L2 to give. A stage is then empty when the consumers of both
// blocks have released it.
//
// Where tiles do not come out even, or are few and K is deep: Stream-K and split-K, tile_scheduler_sm90.cuh.
#pragma once
#include "mainloop_sm90.cuh"

namespace rf {

template <class S, class Body> struct alignas(kSwizzleAlignment) SharedStorage {
  unsigned char stages[S::kStages][S::kStageBytes];
  uint64_t full[S::kStages], empty[S::kStages];
  EpilogueStorage<Body, S::kG> epilogue[kConsumerWarpgroups];
};

template <class S, class Body>
__global__ void __launch_bounds__(S::kThreads, 1)
    matmul_sm90(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                const __grid_constant__ Launch launch, const __grid_constant__ Body body) {
  extern __shared__ unsigned char raw_shared[];
  using Shared = SharedStorage<S, Body>;
  auto& shared = *reinterpret_cast<Shared*>(raw_shared + (-shared_address(raw_shared) & (kSwizzleAlignment - 1)));
  // Exchanged, so that the compiler computes it once, and not in every step.
  const uint32_t stage_base = __shfl_sync(kFullMask, shared_address(shared.stages), 0);
  const uint32_t full = stage_base + offsetof(Shared, full), empty = stage_base + offsetof(Shared, empty);
  if (threadIdx.x == 0) {
    constexpr int kConsumerWarps = kConsumerThreads / 32;
    for (int s = 0; s < S::kStages; s++) {
      mbarrier_init(full + kMbarrierBytes * s, 1);
      mbarrier_init(empty + kMbarrierBytes * s, kConsumerWarps << launch.multicast);
    }
    fence_mbarrier_init();
    prefetch_tensormap(&a_map);
    prefetch_tensormap(&b_map);
  }
  cluster_sync();
  wait_on_dependent_grids();

  const int multicast = S::Mode::kRS ? 0 : launch.multicast;
  const int slots = (gridDim.x >> multicast) / S::kSplitK;

  // --- producer --------------------------------------------------------------------------------
  if (threadIdx.x >= kConsumerThreads) {
    constexpr int kProducer = kConsumerThreads, kFirstIdle = kProducer + 32;
    setmaxnreg_dec<S::kProducerRegisters>();
    if (threadIdx.x == kProducer) {
      // The producer: loads the stages of all of the block's tiles, each once it is empty.
      constexpr int kDepth = kSwizzleRowBytes / 2, kRSDepth = kSwizzleRowBytes / 4;  // of k in a row: 16 bits; fp32
      int stage = 0;
      uint32_t phase = 1;  // all stages are empty at first
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
          mbarrier_wait(empty + kMbarrierBytes * stage, phase);
          mbarrier_arrive_expect_tx(full + kMbarrierBytes * stage, S::kStageBytes);
          const uint32_t to = stage_base + stage * S::kStageBytes;
          const int a_k = S::Mode::kTerms == 1 ? k : k % launch.a_stages;
          if (multicast)
            tma_load_multicast(to + scheduler.rank * (S::kABytes / 2), &a_map, a_k * kDepth,
                               a_row + scheduler.rank * (S::kTileRows / 2), full + kMbarrierBytes * stage);
          else
            tma_load(to, &a_map, a_k * (S::Mode::kRS ? kRSDepth : kDepth), a_row, full + kMbarrierBytes * stage);
          tma_load(to + S::kABytes, &b_map, k * kDepth, b_row, full + kMbarrierBytes * stage);
          if (++stage == S::kStages) stage = 0, phase ^= 1;
        }
      }
      launch_dependent_grids();
    } else if (threadIdx.x >= kFirstIdle && blockIdx.x == 0) {  // warps that have nothing else to do
      look_at_words(look_of(body, 0), threadIdx.x - kFirstIdle, S::kThreads - kFirstIdle);
    }
    // --- consumers -------------------------------------------------------------------------------
  } else {
    setmaxnreg_inc<S::kConsumerRegisters>();
    const int warpgroup = __shfl_sync(kFullMask, threadIdx.x / kWarpgroupThreads, 0);  // known to be uniform
    const int barrier = 1 + warpgroup;
    const int down = S::kStacked ? 64 * S::kHalves * warpgroup : 0, right = S::kStacked ? 0 : 128 * warpgroup;
    const uint32_t a = descriptor_word(stage_base + down * S::kRowBytes);
    const uint32_t b = descriptor_word(stage_base + S::kABytes + right * S::kRowBytes);
    constexpr int kNoLane = 32;
    const uint32_t remote_empty = map_shared_rank(empty, (blockIdx.x & multicast) ^ multicast);
    const Pipeline pipeline{full, empty, remote_empty, multicast ? 0 : kNoLane};
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
      auto& mine = shared.epilogue[warpgroup];
      const TileScheduler<S> scheduler(read_ctaid_x(), multicast);
      // once more, for there is no register to keep it in
      scheduler.next(launch, iteration, scheduler.slot + iteration * slots, now);
      if constexpr (S::kStreamK) {
        if (now.end < launch.stream_k.steps) {
          store_partial<S>(launch, acc, read_ctaid_x(), barrier);
          continue;
        }
        if (now.begin > 0) reduce_partials<S>(launch, acc, scheduler, now.begin, barrier);
      }
      int tile_row, tile_col;
      scheduler.tile(launch, now.tile, tile_row, tile_col);
      int row0 = launch.first_row + tile_row * S::kTileRows + down;
      int col0 = tile_col * S::kTileCols + right;
      const auto finalize = [&](auto& fragment) {
        if constexpr (Body::kBatched) {
          const BatchProblem problem = batch_problem<S::kTileRows>(launch.problem, tile_row);
          row0 += problem.first_row - tile_row * S::kTileRows;
          epilogue<kAScaled, kBScaled>(body, problem, fragment, row0, col0, mine, barrier);
        } else {
          epilogue<kAScaled, kBScaled>(body, launch.problem, fragment, row0, col0, mine, barrier);
          arrive_and_finalize_rows<S::kMI>(body, launch.problem, row0, col0, mine, barrier);
        }
      };
      if constexpr (S::kSplitK == 1) {
        finalize(acc);
      } else {
        Fragment<S::kMI, S::kG> share;
        const int tile_slot = (scheduler.slot << multicast) + scheduler.rank;
        if (!splitk_reduce<S>(launch, acc, share, tile_slot, iteration % 2, scheduler.k_split)) continue;
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
