// Matmul on sm_80 and later: the product of matmul_sm90.cuh, by instructions that every tensor core since Ampere has
// (cp.async, ldmatrix, mma.sync).
//
// Why: the same split operands, bodies and epilogues run on A100, RTX 30 and 40, and on Hopper without its own
// instructions. A warp multiplies fragments that it loads from shared memory itself, so there is no producer: every
// thread issues cp.async loads (TileLoader), some stages ahead.
//
// Roles of the 256 threads: two warpgroups, 128 x 64 of the 128 x 128 tile of C each (wider ones would read shared
// memory less, but do not fit the registers); all of them load.
// Registers of a thread, of 255 (202 to 237 are used): 64 accumulators, 16 of the short accumulator, 32 of A's
// fragments, 16 of B's.
// Shared memory, 96 KB, which all of these devices have: 3 stages of 32 KB, rows of 128 bytes (mode.cuh), 16-byte
// pieces swizzled by the row's number modulo 8, so that the eight rows that ldmatrix reads lie in different banks. The
// epilogue begins where the stages are no longer needed.
//
// Timeline (slots of the pipeline are stages modulo 3):
//   cp.async     0 1 | 2        | 3        | 4
//   all threads      | wait 0,  | wait 1,  | wait 2,
//                    | mma 0    | mma 1    | mma 2
// One __syncthreads a stage: it is there for all, and nobody reads the slot that is loaded next.
//
// A stage's products go to a short accumulator for 16 columns at a time, small products first, and from there to the
// accumulator by fp32 additions ("promoted", see matmul_sm90.cuh): after 32 of k (Ieee) or 64.
//
// Split-K (few tiles, deep K): `kSplitK` blocks share a tile, each with its steps of K. Each leaves its partial sums in
// the workspace; the last to arrive adds them, first to last, and does the epilogue. Nobody waits, so the blocks need
// not be resident together.
#pragma once
#include "epilogue.cuh"
#include "mode.cuh"

namespace rf {

template <class M, int SplitK = 1> struct Generic {
  using Mode = M;
  static constexpr int kSplitK = SplitK;  // blocks that share the K of a tile
  static constexpr int kTileRows = 128, kTileCols = 128;
  static constexpr int kStages = 3, kThreads = 256, kRowBytes = 128;
  static constexpr int kABytes = kTileRows * kRowBytes, kStageBytes = kABytes + kTileCols * kRowBytes;
  static constexpr int kMI = 2, kG = 2;  // the fragment of a warpgroup: 128 x 64
};

// One operand in global memory.
struct Rows {
  const unsigned char* data;
  long pitch;  // bytes from row to row
  int rows;
  int bytes;     // of a row that hold something; beyond them are zeros
};

struct GenericLaunch {
  Problem problem;
  Rows a, b;
  int stages;  // that cover K
  int a_stages;  // that cover a row of a, which begins anew for each term of b
  int tile_rows, tile_cols;
  float4* splitk_partials;    // [tile][block of the split][piece of a fragment][thread]
  unsigned* splitk_arrivals;  // one for each tile, zero between launches
};

// Where a piece of 16 bytes of a row of 128 lies.
RF_FN uint32_t swizzled_offset(uint32_t row, uint32_t piece) {
  constexpr uint32_t kRowBytes = 128, kPieces = 8, kPieceBytes = 16;
  return row * kRowBytes + (piece ^ row % kPieces) * kPieceBytes;
}

// What one thread loads of one operand's tile: piece threadIdx.x % 8 of every 32nd row.
struct TileLoader {
  const unsigned char* from;
  long stride;      // bytes from one of its rows to the next
  int rows, bytes;  // of its rows that exist; that are left of a row from its piece on
  uint32_t to;      // from the start of the operand's stage

  RF_FN TileLoader(const Rows& side, int row0) {
    const int piece = threadIdx.x % 8, row = threadIdx.x / 8;
    from = side.data + (row0 + row) * side.pitch + piece * 16;
    stride = 32 * side.pitch;
    rows = (side.rows - row0 - row + 31) / 32;
    bytes = side.bytes - piece * 16;
    to = swizzled_offset(row, piece);
  }
  // The stage-th 128 bytes of Count rows to shared memory. Aligned: data and pitch are, by 16 bytes.
  template <int Count, bool Aligned> RF_FN void copy(uint32_t shared, int stage) const {
    const unsigned char* p = from + stage * 128L;
    const int left = bytes - stage * 128, some = left < 0 ? 0 : left < 16 ? left : 16;
#pragma unroll
    for (int i = 0; i < Count / 32; i++) {
      const int here = i < rows ? some : 0;
      const uint32_t at = shared + to + i * 32 * 128;
      if constexpr (Aligned) {
        cp_async(at, here ? p : from, here);
      } else {  // a 16-bit matrix whose rows start anywhere
        uint32_t two[4] = {};
#pragma unroll
        for (int k = 0; k < 8; k++)
          if (2 * k < here) two[k / 2] |= uint32_t(reinterpret_cast<const uint16_t*>(p)[k]) << 16 * (k % 2);
        store_shared_v4(at, make_uint4(two[0], two[1], two[2], two[3]));
      }
      p += stride;
    }
  }
};

// The products of one stage. a, b: the stage's rows of the warpgroup's operands in shared memory. promote(sum, partial,
// n, i) adds what a thread holds of 16 columns to its sums: `partial` of column 16 n + 8 (i / 4) + 2 (lane % 4) + i % 2.
template <class S, class Promote>
RF_FN void mma_stage(Fragment<S::kMI, S::kG>& acc, uint32_t a, uint32_t b, Promote promote) {
  using T = typename S::Mode::Type;
  const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const uint32_t a_row = 16 * warp + lane % 16, b_row = lane / 16 * 8 + lane % 8;
  // Slices of 16 of k, two pieces each. Split: hi, hi, lo, lo; and which of a meets which of b.
  constexpr int kPairs = S::Mode::kSplit ? 6 : 4;
  constexpr int kOfA[6] = {S::Mode::kSplit ? 2 : 0, S::Mode::kSplit ? 0 : 1, S::Mode::kSplit ? 3 : 2,
                           S::Mode::kSplit ? 1 : 3, 0, 1};
  constexpr int kOfB[6] = {0, S::Mode::kSplit ? 2 : 1, S::Mode::kSplit ? 1 : 2, 3, 0, 1};
  uint32_t of_a[4][S::kMI][4];
#pragma unroll
  for (int q = 0; q < 4; q++)
#pragma unroll
    for (int mi = 0; mi < S::kMI; mi++)
      ldmatrix(of_a[q][mi], a + swizzled_offset(64 * mi + a_row, 2 * q + lane / 16));
#pragma unroll
  for (int n = 0; n < 2 * S::kG; n++) {  // 16 columns
    uint32_t of_b[4][4];
#pragma unroll
    for (int q = 0; q < 4; q++) ldmatrix(of_b[q], b + swizzled_offset(16 * n + b_row, 2 * q + lane / 8 % 2));
    float partial[S::kMI][2][4] = {};
#pragma unroll
    for (int p = 0; p < kPairs; p++)
#pragma unroll
      for (int mi = 0; mi < S::kMI; mi++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          const uint32_t* of = &of_b[kOfB[p]][2 * half];
          mma_sync<T>(partial[mi][half], of_a[kOfA[p]][mi], of[0], of[1]);
        }
#pragma unroll
    for (int mi = 0; mi < S::kMI; mi++)
#pragma unroll
      for (int i = 0; i < 8; i++) promote(acc.x[mi][8 * n + i], partial[mi][i / 4][i % 4], n, i);
  }
}

// The sum of the partial tiles of all blocks that share one, in order, in the last block to arrive; the others get
// false.
template <class S>
RF_FN bool splitk_reduce(const GenericLaunch& l, Fragment<S::kMI, S::kG>& acc, int tile, int k_split,
                         unsigned* arrival) {
  constexpr int kPieces = 4 * S::kMI * S::kG;
  float4* partials = l.splitk_partials + long(tile) * S::kSplitK * kPieces * S::kThreads + threadIdx.x;
#pragma unroll
  for (int q = 0; q < kPieces; q++) {
    const float* x = &acc.x[4 * q / (16 * S::kG)][4 * q % (16 * S::kG)];
    __stcg(partials + (k_split * kPieces + q) * S::kThreads, make_float4(x[0], x[1], x[2], x[3]));
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) *arrival = atomicInc(l.splitk_arrivals + tile, S::kSplitK - 1);  // back to 0 after the last
  __syncthreads();
  if (*arrival != S::kSplitK - 1) return false;
  __threadfence();
#pragma unroll
  for (int i = 0; i < S::kMI * 16 * S::kG; i++) acc.x[i / (16 * S::kG)][i % (16 * S::kG)] = 0.0f;
#pragma unroll 1
  for (int from = 0; from < S::kSplitK; from++, partials += kPieces * S::kThreads)
#pragma unroll
    for (int q = 0; q < kPieces; q++) {
      const float4 y = __ldcg(partials + q * S::kThreads);
      float* x = &acc.x[4 * q / (16 * S::kG)][4 * q % (16 * S::kG)];
      x[0] += y.x, x[1] += y.y, x[2] += y.z, x[3] += y.w;
    }
  return true;
}

// The epilogue begins where the stages are no longer needed.
template <class S, class Body> union GenericSharedStorage {
  unsigned char stages[S::kStages][S::kStageBytes];
  struct {
    EpilogueStorage<Body, S::kG> warpgroup[2];
    unsigned arrival;
  } after;
};

template <class S, bool Aligned, class Body>
__global__ void __launch_bounds__(S::kThreads, 1)
    matmul_sm80(const __grid_constant__ GenericLaunch launch, const __grid_constant__ Body body) {
  extern __shared__ __align__(128) unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<GenericSharedStorage<S, Body>*>(raw_shared);
  const uint32_t stage_base = shared_address(shared.stages);
  const int tile = blockIdx.x / S::kSplitK, k_split = blockIdx.x % S::kSplitK;
  int tile_row, tile_col;
  tile_at(tile, launch.tile_rows, launch.tile_cols, tile_row, tile_col);
  const int begin = static_cast<int>(long(launch.stages) * k_split / S::kSplitK);
  const int end = static_cast<int>(long(launch.stages) * (k_split + 1) / S::kSplitK);
  wait_on_dependent_grids();
  look_in_first_block(body);

  int row0 = tile_row * S::kTileRows, b_row = tile_col * S::kTileCols;
  if constexpr (Body::kBatched) {
    const BatchProblem problem = batch_problem<S::kTileRows>(launch.problem, tile_row);
    row0 = problem.first_row, b_row = problem.b_row(b_row);
  }
  const TileLoader a(launch.a, row0), b(launch.b, b_row);
  auto copy = [&](int stage, int slot) {
    if (stage < end) {
      const uint32_t to = stage_base + slot * S::kStageBytes;
      a.copy<S::kTileRows, Aligned>(to, S::Mode::kTerms == 1 ? stage : stage % launch.a_stages);
      b.copy<S::kTileCols, Aligned>(to + S::kABytes, stage);
    }
    cp_async_commit();  // an empty group too: groups are counted
  };
  Fragment<S::kMI, S::kG> acc;
#pragma unroll
  for (int mi = 0; mi < S::kMI; mi++)
#pragma unroll
    for (int i = 0; i < 16 * S::kG; i++) acc.x[mi][i] = 0.0f;
#pragma unroll
  for (int s = 0; s + 1 < S::kStages; s++) copy(begin + s, s);
  const int warpgroup = threadIdx.x / 128;
  int slot = 0, free = S::kStages - 1;
#pragma unroll 1
  for (int k = begin; k < end; k++) {
    cp_async_wait<S::kStages - 2>();
    __syncthreads();  // stage k is there for all, and nobody reads the slot of stage k - 1 any more
    copy(k + S::kStages - 1, free);
    const uint32_t at = stage_base + slot * S::kStageBytes;
    const uint32_t b_rows = at + S::kABytes + warpgroup * 32 * S::kG * S::kRowBytes;
    mma_stage<S>(acc, at, b_rows, [](float& sum, float partial, int, int) { sum += partial; });
    free = slot;
    if (++slot == S::kStages) slot = 0;
  }
  cp_async_wait<0>();
  __syncthreads();
  launch_dependent_grids();
  if constexpr (S::kSplitK > 1)
    if (!splitk_reduce<S>(launch, acc, tile, k_split, &shared.after.arrival)) return;
  const int col0 = tile_col * S::kTileCols + warpgroup * 32 * S::kG;
  auto& mine = shared.after.warpgroup[warpgroup];
  constexpr bool kScaled = S::Mode::kScaled;
  if constexpr (Body::kBatched) {
    const BatchProblem problem = batch_problem<S::kTileRows>(launch.problem, tile_row);
    epilogue<kScaled, kScaled>(body, problem, acc, row0, col0, mine, 1 + warpgroup);
  } else {
    epilogue<kScaled, kScaled>(body, launch.problem, acc, row0, col0, mine, 1 + warpgroup);
    arrive_and_finalize_rows<S::kMI>(body, launch.problem, row0, col0, mine, 1 + warpgroup);
  }
}

}  // namespace rf
