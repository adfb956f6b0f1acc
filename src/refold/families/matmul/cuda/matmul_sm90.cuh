// Matmul on Hopper: C[row, col] = body.value(sum over k of A[row, k] * B[col, k]), to fp32's accuracy
// on fp16 tensor cores.
//
// Why: fp32 products run on CUDA cores at 51 TFLOP/s; fp16 ones on tensor cores at 790. An fp32 value
// is the sum of two scaled fp16 values to 22 bits (split.cuh), and three fp16 products of four,
//   lo*hi + hi*lo + hi*hi,
// carry fp32's accuracy if the accumulator does. Hopper's does not: it truncates toward zero, which
// over K = 8192 costs 6 times cuBLAS's error. So a short accumulator takes 64 of K only, small
// products first, and is then added ("promoted") to a second one by plain fp32 additions. Where an element
// is a single product (Tf32, 16 bits) and tiles are so many that cuBLAS keeps K whole, it cuts off as much: the tensor
// cores add up the sums themselves, up to kUnpromoted of K, and the next stage's products are always under way.
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
// Where tiles do not come out even, or are few and K is deep, blocks share tiles: work_sm90.cuh.
#pragma once
#include "work_sm90.cuh"

namespace rf {

template <class S, class Body> struct alignas(1024) SharedMemory {
  unsigned char ring[S::kStages][S::kStageBytes];
  uint64_t full[S::kStages], empty[S::kStages];
  TeamShared<Body, S::kG> team[2];
};

// Products of one promotion step (`kPromote` stages from `stage`) on rows 64 mi to 64 mi + 63 of the
// team, the small ones first. a, b: descriptors of the team's rows in the ring's first stage.
template <class S>
RF_FN void step(float (&sum)[64], float (&sums)[64], uint32_t a, uint32_t b, int stage, int mi, uint32_t full,
                uint32_t phase) {
  using T = typename S::Mode::Type;
  constexpr int kNext = S::kStageBytes >> 4, kHalf = 64 * S::kRowBytes >> 4;
  if (mi == 0)
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) barrier_wait(full + 8 * (stage + p), phase);
  product_fence();
#pragma unroll
  for (int p = 0; p < S::kPromote; p++) {
    const uint32_t at = a + (stage + p) * kNext + mi * kHalf, bt = b + (stage + p) * kNext;
    if constexpr (S::Mode::kSplit) {
      product<T>(sums, at + 4, bt, p != 0);  // lo hi, two slices of 16
      product<T>(sums, at + 6, bt + 2, true);
      product<T>(sums, at, bt + 4, true);    // hi lo
      product<T>(sums, at + 2, bt + 6, true);
    } else {
#pragma unroll
      for (int k = 0; k < 4; k++) product<T>(sums, at + 2 * k, bt + 2 * k, p + k != 0);
    }
  }
  if constexpr (S::Mode::kSplit) {
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) {
      const uint32_t at = a + (stage + p) * kNext + mi * kHalf, bt = b + (stage + p) * kNext;
      product<T>(sums, at, bt, true);
      product<T>(sums, at + 2, bt + 2, true);
    }
  }
  product_commit();
  product_wait<0>();
#pragma unroll
  for (int i = 0; i < 64; i++) {
    asm volatile("" : "+f"(sums[i])::"memory");  // not read before the wait
    sum[i] += sums[i];
  }
}

// The ring's barriers. A warp leaves a stage by lane 0 at its block's own and, in a pair, by the lane `there` at
// the other block's.
struct Ring {
  uint32_t full, empty, others_empty;
  int there;
  RF_FN void leave(int stage) const {
    if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * stage);
    if (threadIdx.x % 32 == there) barrier_arrive_there(others_empty + 8 * stage);
  }
};

// Products of `steps` promotion steps from `first` on, promoted after each: acc becomes their sum.
template <class S>
RF_FN void promoted_products(Fragment<S::kHalves, 4>& acc, float (&sums)[64], uint32_t a, uint32_t b, int first,
                             int steps, const Ring& ring) {
#pragma unroll
  for (int i = 0; i < 64; i++) {  // an epilogue may have their registers
    sums[i] = 0.0f;
#pragma unroll
    for (int mi = 0; mi < S::kHalves; mi++) acc.x[mi][i] = 0.0f;
  }
#pragma unroll 1
  for (int k = first; k < first + steps; k++) {
    constexpr int kTurn = S::kStages / S::kPromote;  // steps of one turn of the ring
    const int stage = k % kTurn * S::kPromote, phase = k / kTurn & 1;
#pragma unroll
    for (int mi = 0; mi < S::kHalves; mi++) step<S>(acc.x[mi], sums, a, b, stage, mi, ring.full, phase);
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) ring.leave(stage + p);
  }
}

// Issues the products of a stage, one of each element; the first ones overwrite the sums.
template <class S, bool IsFirst>
RF_FN void stage_products(Fragment<S::kHalves, 4>& acc, uint32_t a, uint32_t b, int stage) {
  using T = typename S::Mode::Type;
  constexpr int kNext = S::kStageBytes >> 4, kHalf = 64 * S::kRowBytes >> 4;
  const uint32_t at = a + stage * kNext, bt = b + stage * kNext;
  product_fence();
#pragma unroll
  for (int i = 0; i < 4 * S::kHalves; i++)
    product<T>(acc.x[i / 4], at + i / 4 * kHalf + 2 * (i % 4), bt + 2 * (i % 4), !IsFirst || i % 4 != 0);
  product_commit();
}

// The same of one step or more, each element a single product, without promotion.
template <class S>
RF_FN void long_products(Fragment<S::kHalves, 4>& acc, uint32_t a, uint32_t b, int first, int steps, const Ring& ring) {
  const int end = (first + steps) * S::kPromote;
  int k = first * S::kPromote;
  barrier_wait(ring.full + 8 * (k % S::kStages), k / S::kStages & 1);
  stage_products<S, true>(acc, a, b, k % S::kStages);
#pragma unroll 1
  for (k++; k < end; k++) {
    const int stage = k % S::kStages;
    barrier_wait(ring.full + 8 * stage, k / S::kStages & 1);
    stage_products<S, false>(acc, a, b, stage);
    product_wait<1>();
    ring.leave((k - 1) % S::kStages);
  }
  product_wait<0>();
#pragma unroll
  for (int i = 0; i < 64 * S::kHalves; i++)
    asm volatile("" : "+f"(acc.x[i / 64][i % 64])::"memory");  // not read before the wait
  ring.leave((end - 1) % S::kStages);
}

// Defined in direct_sm90.cuh, which only Direct needs.
template <class S>
RF_FN void direct_products(Fragment<2, 4>& acc, float (&sums)[64], uint32_t a, uint32_t b, int team, int first,
                           int count, uint32_t full, uint32_t empty);

template <class S, class Body>
__global__ void __launch_bounds__(384, 1)
    matmul_sm90(const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                const __grid_constant__ Launch launch, const __grid_constant__ Body body) {
  extern __shared__ unsigned char raw_shared[];
  using Shared = SharedMemory<S, Body>;
  auto& shared = *reinterpret_cast<Shared*>(raw_shared + (-shared_address(raw_shared) & 1023));
  // Exchanged, so that the compiler computes it once, and not in every step.
  const uint32_t ring = __shfl_sync(kAllLanes, shared_address(shared.ring), 0);
  const uint32_t full = ring + offsetof(Shared, full), empty = ring + offsetof(Shared, empty);
  if (threadIdx.x == 0) {
    for (int s = 0; s < S::kStages; s++) {
      barrier_init(full + 8 * s, 1);
      barrier_init(empty + 8 * s, 8 << launch.paired);  // one arrival a warp of the teams
    }
    barrier_init_fence();
    prefetch_map(&a_map);
    prefetch_map(&b_map);
  }
  cluster_sync();
  wait_for_previous_kernel();

  const int paired = S::Mode::kDirect ? 0 : launch.paired;
  const int slots = (gridDim.x >> paired) / S::kSplits;

  if (threadIdx.x >= 256) {
    give_registers<S::Mode::kDirect ? 24 : 40>();
    if (threadIdx.x == 256) {
      int stage = 0;
      uint32_t phase = 1;  // the ring is empty at first
      const Place<S> place(blockIdx.x, paired);
      Work now;
      for (int turn = 0, t = place.slot; place.work(launch, turn, t, now); turn++, t += slots) {
        int tile_row, tile_col;
        place.tile(launch, now.tile, tile_row, tile_col);
        int a_row = tile_row * S::kTileRows, b_row = tile_col * S::kTileCols;
        if constexpr (Body::kBatched) {
          const InBatch problem = in_batch<S::kTileRows>(launch.problem, tile_row);
          a_row = problem.first_row, b_row = problem.b_row(b_row);
        }
        for (int k = now.begin * S::kPromote; k < now.end * S::kPromote; k++) {
          barrier_wait(empty + 8 * stage, phase);
          barrier_expect(full + 8 * stage, S::kStageBytes);
          const uint32_t to = ring + stage * S::kStageBytes;
          const int a_k = S::Mode::kParts == 1 ? k : k % launch.a_stages;
          if (paired)
            copy_tile_to_both(to + place.rank * (S::kABytes / 2), &a_map, a_k * 64,
                              a_row + place.rank * (S::kTileRows / 2), full + 8 * stage);
          else
            copy_tile(to, &a_map, a_k * (S::Mode::kDirect ? 32 : 64), a_row, full + 8 * stage);
          copy_tile(to + S::kABytes, &b_map, k * 64, b_row, full + 8 * stage);
          if (++stage == S::kStages) stage = 0, phase ^= 1;
        }
      }
      let_next_kernel_start();
    } else if (threadIdx.x >= 288 && blockIdx.x == 0) {  // warps that have nothing else to do
      look_at_words(look_of(body, 0), threadIdx.x - 288, 96);
    }
  } else {
    take_registers<S::Mode::kDirect ? 240 : 232>();
    const int team = __shfl_sync(kAllLanes, threadIdx.x / 128, 0);  // known to be uniform
    const int down = S::kStacked ? 64 * S::kHalves * team : 0, right = S::kStacked ? 0 : 128 * team;
    const uint32_t a = tile_word(ring + down * S::kRowBytes);
    const uint32_t b = tile_word(ring + S::kABytes + right * S::kRowBytes);
    const Ring stages{full, empty, in_block(empty, (blockIdx.x & paired) ^ paired), paired ? 0 : 32};
    float sums[64];
#pragma unroll
    for (int i = 0; i < 64; i++) sums[i] = 0.0f;
    Work now;
    for (int turn = 0;; turn++) {
      const Place<S> here(block_here(), paired);
      if (!here.work(launch, turn, here.slot + turn * slots, now)) break;
      // The same in all lanes, which is made known to the compiler once more: behind an epilogue's
      // branches it would keep the stage in each lane's registers and move every descriptor to uniform
      // ones by itself, four moves a product.
      const int first = __shfl_sync(kAllLanes, now.before, 0);
      const int count = now.end - now.begin, steps = S::Mode::kDirect ? count : __shfl_sync(kAllLanes, count, 0);
      Fragment<S::kHalves, 4> acc;
      if constexpr (S::Mode::kDirect) {
#pragma unroll
        for (int i = 0; i < 64; i++) acc.x[0][i] = acc.x[1][i] = 0.0f;
        direct_products<S>(acc, sums, ring + down * S::kRowBytes, b, team, first, steps, full, empty);
      } else if (!S::kMayBeLong || launch.promotes) {
        promoted_products<S>(acc, sums, a, b, first, steps, stages);
      } else if constexpr (S::kMayBeLong) {
        long_products<S>(acc, a, b, first, steps, stages);
      }
      constexpr bool kBScaled = S::Mode::kScaled, kAScaled = kBScaled && !S::Mode::kDirect;
      auto& mine = shared.team[team];
      const Place<S> place(block_here(), paired);
      place.work(launch, turn, place.slot + turn * slots, now);  // once more, for there is no register to keep it in
      if constexpr (S::kShares) {
        if (now.end < launch.portions.steps) {
          leave_part<S>(launch, acc, block_here(), 1 + team);
          continue;
        }
        if (now.begin > 0) join_parts<S>(launch, acc, place, now.begin, 1 + team);
      }
      int tile_row, tile_col;
      place.tile(launch, now.tile, tile_row, tile_col);
      int row0 = launch.first_row + tile_row * S::kTileRows + down;
      int col0 = tile_col * S::kTileCols + right;
      const auto finish = [&](auto& sums) {
        if constexpr (Body::kBatched) {
          const InBatch problem = in_batch<S::kTileRows>(launch.problem, tile_row);
          row0 += problem.first_row - tile_row * S::kTileRows;
          epilogue<kAScaled, kBScaled>(body, problem, sums, row0, col0, mine, 1 + team);
        } else {
          epilogue<kAScaled, kBScaled>(body, launch.problem, sums, row0, col0, mine, 1 + team);
          take_turn<S::kMI>(body, launch.problem, row0, col0, mine, 1 + team);
        }
      };
      if constexpr (S::kSplits == 1) {
        finish(acc);
      } else {
        Fragment<S::kMI, S::kG> share;
        if (!share_out<S>(launch, acc, share, (place.slot << paired) + place.rank, turn % 2, place.part)) continue;
        constexpr int kAcross = 4 / S::kG;  // shares side by side
        row0 += 64 * (place.part / kAcross);
        col0 += 32 * S::kG * (place.part % kAcross);
        finish(share);
      }
    }
  }
  if (paired) cluster_sync();  // neither may end while the other copies to it or arrives at its barriers
}

}  // namespace rf
