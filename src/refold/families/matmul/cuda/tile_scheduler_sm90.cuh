// Tile scheduler on Hopper: which tiles a block multiplies and over which steps of K, and how blocks that share a tile
// reduce its partial sums. The grid is persistent: a slot takes tile after tile.
//
// A slot is a block, or a 2-CTA cluster with tiles side by side, or the `kSplitK` blocks that share each tile.
//
//   kSplitK == 1   Stream-K (stream_k.cuh): whole tiles first, then the steps of the tiles left over, dealt out evenly.
//                  Whoever does a tile's last steps reduces the others' partial tiles, nearest first, and does the
//                  epilogue (store_partial, reduce_partials).
//   kSplitK > 1    few tiles, deep K: `kSplitK` blocks share each tile, each with its steps of K. All leave in the
//                  workspace what others will add and wait for each other; each of the first kEpilogueBlocks then
//                  reduces its share of the tile, first block to last, and does that fragment's epilogue
//                  (splitk_reduce).
//
// Workspace (zero-filled arrival counters, scratch of any content):
//   Stream-K   splitk_partials [block][16-byte piece of a fragment][thread], splitk_arrivals [block][warpgroup]
//   split-K    splitk_partials [slot][parity][block of the split][piece][thread], splitk_arrivals [slot][parity]
//              [arrived, left]; by parity of the iteration, since some read while others already write
//
// Memory order: partial sums are written past L1 (stcg); a named barrier orders them before thread 0, whose fence makes
// them visible to the device before it counts its arrival. Who waits reads the counter by ld.acquire.gpu, meets its
// warpgroup at a barrier, and then reads the partial sums past L1 (ldcg).
//
// Where blocks wait for each other the grid is launched cooperatively: all are resident, so waiting is safe.
// Floats are added in an order that depends on the sizes and the device alone.
#pragma once
#include "epilogue.cuh"
#include "mode.cuh"
#include "stream_k.cuh"
#include "ptx_sm90.cuh"

namespace rf {

// So much of K may be added up without promotion, where operands are as they are and an element is a single
// product. What the tensor cores cut off grows with it, as cuBLAS's does: of non-negative data 4.8e-5 over 8192 and
// 1.9e-4 over 32768 (cuBLAS TF32: 5.5e-5, 2.2e-4). TF32's operands alone lack 2.9e-4 on randn.
constexpr long kMostUnpromotedDepth = 32768;

// Tiles: the two consumer warpgroups, one above the other or (Wide) side by side, hold half of one each.
struct Tall { static constexpr int kRows = 256, kCols = 128; };
struct Wide { static constexpr int kRows = 128, kCols = 256; };
struct Small { static constexpr int kRows = 128, kCols = 128; };

constexpr int kConsumerWarpgroups = 2, kConsumerThreads = kConsumerWarpgroups * kWarpgroupThreads;
constexpr int kConsumerBarrier = 3, kPingPongBarrier = 4;  // named barriers; 1 and 2 are the warpgroups' own

template <class M, class Tile = Tall, int SplitK = 1> struct Schedule {
  using Mode = M;
  static constexpr int kSplitK = SplitK;  // blocks that share the K of a tile
  // stages from promotion to promotion
  static constexpr int kPromote = kSplitK > 1 || Mode::kRS ? 1 : 2;
  static constexpr int kTileRows = Tile::kRows, kTileCols = Tile::kCols;
  static constexpr bool kStacked = kTileCols == 128;
  static constexpr int kHalves =
      kTileRows * kTileCols / (128 * 128);  // of a warpgroup, 64 x 128 each, one above the other
  static constexpr int kStages = kHalves == 2 ? 4 : 6, kRowBytes = kSwizzleRowBytes;
  static constexpr int kThreads = kConsumerThreads + kWarpgroupThreads;
  // of a thread, once a warpgroup knows its role: multiples of 8, as many as a processor has for all
  static constexpr int kProducerRegisters = Mode::kRS ? 24 : 40, kConsumerRegisters = Mode::kRS ? 240 : 232;
  static constexpr int kABytes = kTileRows * kRowBytes, kBBytes = kTileCols * kRowBytes;
  static constexpr int kStageBytes = kABytes + kBBytes;
  // Whether sums may stay where the tensor cores add them (Launch::promotes). Not where K is split: there cuBLAS
  // splits it, too, and cuts less off.
  static constexpr bool kMayBeUnpromoted = !Mode::kSplit && Mode::kTerms == 1 && kSplitK == 1;
  // Whether slots share the tiles left over.
  static constexpr bool kStreamK = kSplitK == 1 && !Mode::kRS;
  // The fragment of a warpgroup's epilogue: its halves, or its share of them when K is split.
  static constexpr int kEpilogueBlocks = kSplitK < 4 * kHalves ? kSplitK : 4 * kHalves;
  static constexpr int kMI = kSplitK == 1 ? kHalves : 1;
  static constexpr int kG = kSplitK == 1 ? 4 : 4 * kHalves / kEpilogueBlocks;
  static_assert(kStacked || !Mode::kRS, "warpgroups side by side would split the same rows of a twice");
  static_assert(kSplitK <= 32 && (kSplitK & (kSplitK - 1)) == 0);
};

struct Launch {
  Problem problem;
  int a_stages;            // stages that cover a row of a, which begins anew for each term of b (hi, lo)
  int tile_rows, tile_cols;  // tiles of C, from its row first_row on, which is a's first; two at a time if multicast
  int multicast;           // 1: 2-CTA clusters, tiles side by side, A is multicast; else 0
  int promotes;            // whether sums are promoted: Grid::uses_stream_k, is_unpromoted
  StreamK stream_k;        // what a slot does of them
  int first_row;
  float4* splitk_partials;
  unsigned* splitk_arrivals;  // zero between launches
};

// A block's place: its rank in a cluster, which steps of a split K, and which slot.
template <class S> struct TileScheduler {
  int rank, k_split, slot;
  RF_FN TileScheduler(int block, int multicast)
      : rank(block & multicast), k_split((block >> multicast) % S::kSplitK), slot((block >> multicast) / S::kSplitK) {}
  // Where the t-th tile, or two of a cluster, begins in C's grid of tiles.
  RF_FN void tile(const Launch& l, int t, int& row, int& col) const {
    tile_at(t, l.tile_rows, l.tile_cols, row, col);
    col = (col << l.multicast) + rank;
  }
  // What the block does in an iteration, tile t if that is its alone; false: nothing any more.
  RF_FN bool next(const Launch& l, int iteration, int t, WorkTile& w) const {
    if constexpr (S::kStreamK) return l.stream_k.next(slot, iteration, t, w);
    const long steps = l.stream_k.steps;
    w.begin = static_cast<int>(steps * k_split / S::kSplitK),
    w.end = static_cast<int>(steps * (k_split + 1) / S::kSplitK);
    w.tile = t, w.before = iteration * (w.end - w.begin);
    return t < l.stream_k.data_parallel_tiles;
  }
};

// The warpgroup's partial sums of a tile that another slot finishes go to the workspace.
template <class S>
RF_FN void store_partial(const Launch& l, const Fragment<S::kHalves, 4>& acc, int block, int barrier) {
  constexpr int kPieces = 16 * S::kHalves;
  float4* partials = l.splitk_partials + long(kPieces) * kConsumerThreads * block + threadIdx.x;
#pragma unroll
  for (int q = 0; q < kPieces; q++) {
    const float* x = &acc.x[q / 16][q % 16 * 4];
    __stcg(partials + q * kConsumerThreads, make_float4(x[0], x[1], x[2], x[3]));
  }
  named_barrier_sync(barrier, kWarpgroupThreads);
  if (threadIdx.x % kWarpgroupThreads == 0) {
    __threadfence();  // of what the barrier has made known to this thread, too
    atomicExch(l.splitk_arrivals + 2 * block + threadIdx.x / kWarpgroupThreads, 1u);
  }
}

// Adds what other blocks have left of the tile whose steps from `begin` on are this one's.
template <class S>
RF_FN void reduce_partials(const Launch& l, Fragment<S::kHalves, 4>& acc, const TileScheduler<S>& scheduler, int begin,
                           int barrier) {
  constexpr int kPieces = 16 * S::kHalves;
  const unsigned tile = l.stream_k.begin(scheduler.slot) - begin;  // where its steps begin
  int from = scheduler.slot;
  do {
    const int block = (--from << l.multicast) + scheduler.rank;
    if (threadIdx.x % kWarpgroupThreads == 0) {
      unsigned* iteration = l.splitk_arrivals + 2 * block + threadIdx.x / kWarpgroupThreads;
      unsigned here;
      do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(here) : "l"(iteration) : "memory");
      while (here == 0);
      *iteration = 0;
    }
    named_barrier_sync(barrier, kWarpgroupThreads);
    const float4* partials = l.splitk_partials + long(kPieces) * kConsumerThreads * block + threadIdx.x;
#pragma unroll
    for (int q = 0; q < kPieces; q++) {
      const float4 more = __ldcg(partials + q * kConsumerThreads);
      float* x = &acc.x[q / 16][q % 16 * 4];
      x[0] += more.x, x[1] += more.y, x[2] += more.z, x[3] += more.w;
    }
  } while (l.stream_k.begin(from) > tile);
}

// The warpgroup's partial sums go to the workspace, but for its block's share, which meets the others' there. False:
// the block has no share.
template <class S>
RF_FN bool splitk_reduce(const Launch& l, const Fragment<S::kHalves, 4>& acc, Fragment<S::kMI, S::kG>& share,
                     int slot, int parity, int k_split) {
  constexpr int kPieces = 16 * S::kHalves, kMine = kPieces / S::kEpilogueBlocks;
  const int thread = threadIdx.x;  // of 256
  unsigned* arrivals = l.splitk_arrivals + 2 * (2 * slot + parity);
  float4* partials = l.splitk_partials + (2L * slot + parity) * S::kSplitK * kPieces * kConsumerThreads;
#pragma unroll
  for (int q = 0; q < kPieces; q++) {
    const float* x = &acc.x[q / 16][q % 16 * 4];
    if (q / kMine != k_split)
      __stcg(partials + (k_split * kPieces + q) * kConsumerThreads + thread, make_float4(x[0], x[1], x[2], x[3]));
  }
  named_barrier_sync(kConsumerBarrier, kConsumerThreads);
  if (thread == 0) {
    __threadfence();  // of what the barrier has made known to this thread, too
    atomicAdd(arrivals, 1u);
    unsigned here;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(here) : "l"(arrivals) : "memory");
    while (here < S::kSplitK);
  }
  named_barrier_sync(kConsumerBarrier, kConsumerThreads);
  const bool finishes = S::kEpilogueBlocks == S::kSplitK || k_split < S::kEpilogueBlocks;
  if (finishes) {
#pragma unroll
    for (int q = 0; q < kMine; q++) {
      float4 sum;
#pragma unroll
      for (int from = 0; from < S::kSplitK; from++) {
        float4 x;
        if (from < S::kEpilogueBlocks && from == k_split) {
          const int own = from * kMine + q;
          const float* held = &acc.x[own / 16][own % 16 * 4];
          x = make_float4(held[0], held[1], held[2], held[3]);
        } else {
          x = __ldcg(partials + (from * kPieces + k_split * kMine + q) * kConsumerThreads + thread);
        }
        if (from == 0) sum = x;
        else sum = make_float4(sum.x + x.x, sum.y + x.y, sum.z + x.z, sum.w + x.w);
      }
      float* x = &share.x[0][4 * q];
      x[0] = sum.x, x[1] = sum.y, x[2] = sum.z, x[3] = sum.w;
    }
  }
  named_barrier_sync(kConsumerBarrier, kConsumerThreads);  // all of this block has read
  if (thread == 0 && atomicInc(arrivals + 1, S::kSplitK - 1) == S::kSplitK - 1) atomicExch(arrivals, 0u);
  return finishes;
}

}  // namespace rf
