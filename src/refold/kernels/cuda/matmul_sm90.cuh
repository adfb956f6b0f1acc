// Matmul on Hopper: C[row, col] = body.value(sum over k of A[row, k] * B[col, k]), to fp32's accuracy
// on fp16 tensor cores.
//
// Why: fp32 products run on CUDA cores at 51 TFLOP/s; fp16 ones on tensor cores at 790. An fp32 value
// is the sum of two scaled fp16 values to 22 bits (split.cuh), and three fp16 products of four,
//   lo*hi + hi*lo + hi*hi,
// carry fp32's accuracy if the accumulator does. Hopper's does not: it truncates toward zero, which
// over K = 8192 costs 6 times cuBLAS's error. So a short accumulator takes 64 of K only, small
// products first, and is then added ("promoted") to a second one by plain fp32 additions.
//
// Layout: one stage of the ring is 48 KB, rows of 128 bytes, four stages deep. A row of a stage is
// 32 of k, hi beside lo (Ieee), or 64 of k (Tf32: one scaled fp16 product, whose operands carry TF32's
// ten bits; and fp16 or bf16 as they are). A tile of C is 256 x 128 (Tall) or 128 x 256. Two teams of
// four warps hold 128 x 128 of it each: 128 registers of sums and 64 of the short accumulator, which
// their two halves of 64 rows use in turn; while one team promotes, the other's products keep the
// tensor cores busy. Four more warps only feed the ring: one thread of theirs issues the copies.
// Blocks stay and take tile after tile, 8 tiles of rows to a band, so that 132 blocks at a time read
// about 8 x 17 tiles and the second-level cache serves the rest.
//
// Pairs: where there are tiles enough, two blocks side by side (a cluster) need the same rows of a. Each
// copies half of them to both, a third less for the second-level cache to give. A stage is then empty when
// the teams of both blocks have left it.
//
// Splits > 1 (few tiles, deep K): `Splits` blocks share a tile, each with its part of K. All leave
// in the workspace what others will add, wait for each other, and each adds up 1/Splits of the tile,
// first part to last, and does that fragment's epilogue. The grid is launched cooperatively: all
// blocks are resident, so waiting is safe.
#pragma once
#include "epilogue.cuh"
#include "mode.cuh"
#include "ptx.cuh"

namespace rf {

template <class M, bool IsTall = true, int InParts = 1> struct Schedule {
  using Mode = M;
  static constexpr bool kTall = IsTall;
  static constexpr int kSplits = InParts;                   // 1, 2, 4 or 8 parts of K
  // stages from promotion to promotion
  static constexpr int kPromote = kSplits > 1 || Mode::kDirect ? 1 : 2;
  static constexpr int kTileRows = kTall ? 256 : 128, kTileCols = kTall ? 128 : 256;
  static constexpr int kStages = 4, kThreads = 384, kRowBytes = 128;
  static constexpr int kABytes = kTileRows * kRowBytes, kBBytes = kTileCols * kRowBytes;
  static constexpr int kStageBytes = kABytes + kBBytes;
  // The fragment of a team's epilogue: 128 x 128, or its share when K is split.
  static constexpr int kMI = kSplits == 1 ? 2 : 1;
  static constexpr int kG = kSplits <= 2 ? 4 : 8 / kSplits;
  static_assert(kTall || !Mode::kDirect, "teams side by side would split the same rows of a twice");
  static_assert(kSplits == 1 || kSplits == 2 || kSplits == 4 || kSplits == 8);
};

struct Launch {
  Problem problem;
  int steps;               // of kPromote stages that cover K
  int a_stages;            // stages that cover a row of a, which begins anew for each part of b
  int tile_rows, tile_cols;  // tiles of C, from its row first_row on, which is a's first; pairs of them if paired
  int paired;              // 1: blocks go in pairs, tiles side by side; else 0
  int first_row;
  float4* split_parts;     // [slot][parity][part][piece of a fragment][thread]
  unsigned* split_turns;   // [slot][parity][arrived, left], zero between launches
};

template <class S, class Body> struct alignas(1024) SharedMemory {
  unsigned char ring[S::kStages][S::kStageBytes];
  uint64_t full[S::kStages], empty[S::kStages];
  TeamShared<Body, S::kG> team[2];
};

// A block's place: rank in its pair, part of K, and which tile of those at work.
template <class S> struct Place {
  int rank, part, slot;
  RF_FN Place(int block, int paired)
      : rank(block & paired), part((block >> paired) % S::kSplits), slot((block >> paired) / S::kSplits) {}
  // Where the t-th tile, or pair of tiles, begins in C's grid of tiles.
  RF_FN void tile(const Launch& l, int t, int& row, int& col) const {
    tile_at(t, l.tile_rows, l.tile_cols, row, col);
    col = (col << l.paired) + rank;
  }
};

// Where a part of K begins, in steps.
template <class S> RF_FN int first_step(const Launch& l, int part) {
  return static_cast<int>(static_cast<long>(l.steps) * part / S::kSplits);
}

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

// This team's sums go to the workspace, but for its block's share, which meets the other parts' there.
template <class S>
RF_FN void share_out(const Launch& l, const Fragment<2, 4>& acc, Fragment<S::kMI, S::kG>& share,
                     int slot, int parity, int part) {
  constexpr int kPieces = 32, kMine = kPieces / S::kSplits;
  const int thread = threadIdx.x;  // of 256
  unsigned* turns = l.split_turns + 2 * (2 * slot + parity);
  float4* parts = l.split_parts + (2L * slot + parity) * S::kSplits * kPieces * 256;
#pragma unroll
  for (int q = 0; q < kPieces; q++) {
    const float* x = &acc.x[q / 16][q % 16 * 4];
    if (q / kMine != part)
      __stcg(parts + (part * kPieces + q) * 256 + thread, make_float4(x[0], x[1], x[2], x[3]));
  }
  group_sync(3, 256);
  if (thread == 0) {
    __threadfence();  // of what the barrier has made known to this thread, too
    atomicAdd(turns, 1u);
    unsigned here;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(here) : "l"(turns) : "memory");
    while (here < S::kSplits);
  }
  group_sync(3, 256);
#pragma unroll
  for (int q = 0; q < kMine; q++) {
    float4 sum;
#pragma unroll
    for (int from = 0; from < S::kSplits; from++) {
      const int own = from * kMine + q;
      const float* held = &acc.x[own / 16][own % 16 * 4];
      float4 x = make_float4(held[0], held[1], held[2], held[3]);
      if (from != part) x = __ldcg(parts + (from * kPieces + part * kMine + q) * 256 + thread);
      if (from == 0) sum = x;
      else sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
    }
    float* x = &share.x[0][4 * q];
    x[0] = sum.x, x[1] = sum.y, x[2] = sum.z, x[3] = sum.w;
  }
  group_sync(3, 256);  // all of this block has read
  if (thread == 0 && atomicInc(turns + 1, S::kSplits - 1) == S::kSplits - 1) atomicExch(turns, 0u);
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
  const int tiles = launch.tile_rows * launch.tile_cols, slots = (gridDim.x >> paired) / S::kSplits;

  if (threadIdx.x >= 256) {
    give_registers<S::Mode::kDirect ? 24 : 40>();
    if (threadIdx.x == 256) {
      int stage = 0;
      uint32_t phase = 1;  // the ring is empty at first
      const Place<S> place(blockIdx.x, paired);
      const int begin = first_step<S>(launch, place.part), end = first_step<S>(launch, place.part + 1);
      for (int t = place.slot; t < tiles; t += slots) {
        int tile_row, tile_col;
        place.tile(launch, t, tile_row, tile_col);
        for (int k = begin * S::kPromote; k < end * S::kPromote; k++) {
          barrier_wait(empty + 8 * stage, phase);
          barrier_expect(full + 8 * stage, S::kStageBytes);
          const uint32_t to = ring + stage * S::kStageBytes;
          const int a_k = S::Mode::kParts == 1 ? k : k % launch.a_stages;
          const int a_row = tile_row * S::kTileRows;
          if (paired)
            copy_tile_to_both(to + place.rank * (S::kABytes / 2), &a_map, a_k * 64,
                              a_row + place.rank * (S::kTileRows / 2), full + 8 * stage);
          else
            copy_tile(to, &a_map, a_k * (S::Mode::kDirect ? 32 : 64), a_row, full + 8 * stage);
          copy_tile(to + S::kABytes, &b_map, k * 64, tile_col * S::kTileCols, full + 8 * stage);
          if (++stage == S::kStages) stage = 0, phase ^= 1;
        }
      }
      let_next_kernel_start();
    }
  } else {
    take_registers<S::Mode::kDirect ? 240 : 232>();
    const int team = __shfl_sync(kAllLanes, threadIdx.x / 128, 0);  // known to be uniform
    const int down = S::kTall ? 128 * team : 0, right = S::kTall ? 0 : 128 * team;
    const uint32_t a = tile_word(ring + down * S::kRowBytes);
    const uint32_t b = tile_word(ring + S::kABytes + right * S::kRowBytes);
    // In a pair the lane `there` of each warp arrives at the other block's barriers, too.
    const uint32_t others_empty = in_block(empty, (blockIdx.x & paired) ^ paired);
    const int there = paired ? 0 : 32;
    float sums[64];
#pragma unroll
    for (int i = 0; i < 64; i++) sums[i] = 0.0f;
    for (int turn = 0; Place<S>(block_here(), paired).slot + turn * slots < tiles; turn++) {
      const int mine_of_k = Place<S>(block_here(), paired).part;
      const int begin = first_step<S>(launch, mine_of_k), end = first_step<S>(launch, mine_of_k + 1);
      // The same in all lanes, which is made known to the compiler once more: behind an epilogue's
      // branches it would keep the stage in each lane's registers and move every descriptor to uniform
      // ones by itself, four moves a product.
      const int first = __shfl_sync(kAllLanes, turn * (end - begin), 0);  // steps of the tiles before
      Fragment<2, 4> acc;
#pragma unroll
      for (int i = 0; i < 64; i++) {
        acc.x[0][i] = acc.x[1][i] = 0.0f;
        if constexpr (!S::Mode::kDirect) sums[i] = 0.0f;  // an epilogue may have their registers
      }
      if constexpr (S::Mode::kDirect) {
        direct_products<S>(acc, sums, ring + down * S::kRowBytes, b, team, first, end - begin, full, empty);
      } else {
#pragma unroll 1
        for (int k = begin; k < end; k++) {
          constexpr int kTurn = S::kStages / S::kPromote;  // steps of one turn of the ring
          const int stage = (first + k - begin) % kTurn * S::kPromote, phase = (first + k - begin) / kTurn & 1;
          step<S>(acc.x[0], sums, a, b, stage, 0, full, phase);
          step<S>(acc.x[1], sums, a, b, stage, 1, full, phase);
#pragma unroll
          for (int p = 0; p < S::kPromote; p++) {
            if (threadIdx.x % 32 == 0) barrier_arrive(empty + 8 * (stage + p));
            if (threadIdx.x % 32 == there) barrier_arrive_there(others_empty + 8 * (stage + p));
          }
        }
      }
      constexpr bool kBScaled = S::Mode::kScaled, kAScaled = kBScaled && !S::Mode::kDirect;
      auto& mine = shared.team[team];
      const Place<S> place(block_here(), paired);
      int tile_row, tile_col;
      place.tile(launch, place.slot + turn * slots, tile_row, tile_col);
      int row0 = launch.first_row + tile_row * S::kTileRows + down;
      int col0 = tile_col * S::kTileCols + right;
      if constexpr (S::kSplits == 1) {
        epilogue<kAScaled, kBScaled>(body, launch.problem, acc, row0, col0, mine, 1 + team);
      } else {
        Fragment<S::kMI, S::kG> share;
        share_out<S>(launch, acc, share, (place.slot << paired) + place.rank, turn % 2, place.part);
        row0 += 64 * (place.part / (S::kSplits / 2));
        col0 += 32 * S::kG * (place.part % (S::kSplits / 2));
        epilogue<kAScaled, kBScaled>(body, launch.problem, share, row0, col0, mine, 1 + team);
      }
      take_turn<S::kMI>(body, launch.problem, row0, col0, mine, 1 + team);
    }
  }
  if (paired) cluster_sync();  // neither may end while the other copies to it or arrives at its barriers
}

}  // namespace rf
