// Matmul in plain fp32 arithmetic, by CUDA cores: for what is tiny or odd, and for weights that are read once.
//
// Why: splitting and the tensor cores' tiles of 128 pay only where they are filled. With a batch of 1 to 16 a product
// is one reading of the weights and nothing else may cost more than that; with K < 32 or a handful of rows and columns
// it is a launch. Operands are rows of fp32 or 16 bits as they are, at any address.
//
//   kernel          threads, and what they hold            registers    shared memory
//   matmul_tiled    128: one warpgroup, 128 x 64 of C in   224 to 254   12.5 KB: 16 of k of both operands, [k][row],
//                   the epilogue's layout                               and the epilogue's
//   matmul_skinny   256: eight warps, eight rows of the    128 (R 4),   R KB / 4: the sums of each warp's k, and the
//                   long operand each, against R of the    to 255       epilogue's
//                   short one
//
// Skinny GEMM: one operand (the short one) has at most R rows. Every lane takes four of k at a time of the long one,
// read once, past L1; the short one is read from L1. Lanes' sums are added by halving, as columns are in the epilogue,
// and warps that split K first to last: always in one order.
//
// Sums are fp32, cut into runs of 64 of k that are added to longer ones (Tiled), or into 32 or 64 that the lanes hold
// (Skinny): their rounding does not grow with K as one chain's would.
#pragma once
#include <type_traits>

#include "epilogue.cuh"

namespace rf {

// A, B: elements of the operands.
template <class A = float, class B = float> struct PlainOf {
  using Mode = void;  // operands are not split
};
using Plain = PlainOf<>;

struct Tiled {
  static constexpr int kMI = 2, kG = 2, kThreads = 128;
  static constexpr int kTileRows = 64 * kMI, kTileCols = 32 * kG;
  static constexpr int kChunk = 16, kPromoteChunks = 4;  // of k; chunks from promotion to promotion
};

// R: at most so many rows of the short operand, which is a; or b if kAcross.
template <int R, bool IsAcross> struct Skinny {
  static constexpr int kRows = R;
  static constexpr bool kAcross = IsAcross;
  static constexpr int kMI = 1, kG = 1, kThreads = 256, kWarpRows = 8;
  static constexpr int kRowWarps = kAcross ? 8 : 4;     // warps that take different rows of the long operand
  static constexpr int kSplitK = 8 / kRowWarps;         // warps that share rows, each with its steps of K
  static constexpr int kLong = kRowWarps * kWarpRows;  // rows of the long operand of a block: of its fragment
  static constexpr int kTileRows = 64, kTileCols = 32;
  static_assert(kLong == (kAcross ? kTileRows : kTileCols) && R <= 32, "a block fills one fragment");
};

// One chunk of `Rows` rows of an operand: each thread's values of it, then to shared memory as [k][row].
template <int Rows> struct Chunk {
  static constexpr int kStride = Rows + 2, kEach = Rows * Tiled::kChunk / Tiled::kThreads;
  float value[kEach];
  template <class T> RF_FN void load(const T* side, long ld, long row0, long rows, long k0, long depth) {
    const long k = k0 + threadIdx.x % Tiled::kChunk;
#pragma unroll
    for (int i = 0; i < kEach; i++) {
      const long row = row0 + threadIdx.x / Tiled::kChunk + i * (Tiled::kThreads / Tiled::kChunk);
      value[i] = k < depth && row < rows ? read_one(side + row * ld + k) : 0.0f;
    }
  }
  RF_FN void store(float* shared) const {
#pragma unroll
    for (int i = 0; i < kEach; i++)
      shared[threadIdx.x % Tiled::kChunk * kStride + threadIdx.x / Tiled::kChunk +
             i * (Tiled::kThreads / Tiled::kChunk)] = value[i];
  }
};

template <class ElementA, class ElementB, class Body>
__global__ void __launch_bounds__(Tiled::kThreads)
    matmul_tiled(const __grid_constant__ Problem p, const __grid_constant__ Body body) {
  constexpr int kMI = Tiled::kMI, kG = Tiled::kG, kRows = 2 * kMI;
  using A = Chunk<Tiled::kTileRows>;
  using B = Chunk<Tiled::kTileCols>;
  __shared__ __align__(16) float a_chunk[Tiled::kChunk * A::kStride], b_chunk[Tiled::kChunk * B::kStride];
  __shared__ EpilogueStorage<Body, kG> storage;
  const long tile_cols = (p.cols + Tiled::kTileCols - 1) / Tiled::kTileCols;
  const long row0 = blockIdx.x / tile_cols * Tiled::kTileRows, col0 = blockIdx.x % tile_cols * Tiled::kTileCols;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  wait_on_dependent_grids();
  look_in_first_block(body);

  Fragment<kMI, kG> acc, partial;
#pragma unroll
  for (int i = 0; i < kMI * 16 * kG; i++) acc.x[0][i] = partial.x[0][i] = 0.0f;
  const auto* const a_rows = reinterpret_cast<const ElementA*>(p.a);
  const auto* const b_rows = reinterpret_cast<const ElementB*>(p.b);
  A a;
  B b;
  a.load(a_rows, p.lda, row0, p.rows, 0, p.depth);
  b.load(b_rows, p.ldb, col0, p.cols, 0, p.depth);
  int chunks = 0;
#pragma unroll 1
  for (long k0 = 0; k0 < p.depth; k0 += Tiled::kChunk) {
    a.store(a_chunk);
    b.store(b_chunk);
    __syncthreads();
    a.load(a_rows, p.lda, row0, p.rows, k0 + Tiled::kChunk, p.depth);
    b.load(b_rows, p.ldb, col0, p.cols, k0 + Tiled::kChunk, p.depth);
#pragma unroll
    for (int k = 0; k < Tiled::kChunk; k++) {
      float x[kRows];
#pragma unroll
      for (int r = 0; r < kRows; r++)
        x[r] = a_chunk[k * A::kStride + 64 * (r / 2) + 16 * warp + 8 * (r % 2) + lane / 4];
#pragma unroll
      for (int j = 0; j < 4 * kG; j++) {
        const float2 y = *reinterpret_cast<const float2*>(&b_chunk[k * B::kStride + 8 * j + 2 * (lane % 4)]);
#pragma unroll
        for (int r = 0; r < kRows; r++) {
          float* sum = &partial.x[r / 2][4 * j + 2 * (r % 2)];
          sum[0] = fma(x[r], y.x, sum[0]);
          sum[1] = fma(x[r], y.y, sum[1]);
        }
      }
    }
    if (++chunks % Tiled::kPromoteChunks == 0 || k0 + Tiled::kChunk >= p.depth)
#pragma unroll
      for (int i = 0; i < kMI * 16 * kG; i++) {
        acc.x[0][i] += partial.x[0][i];
        partial.x[0][i] = 0.0f;
      }
    __syncthreads();
  }
  launch_dependent_grids();
  epilogue<false, false>(body, p, acc, static_cast<int>(row0), static_cast<int>(col0), storage, 1);
  arrive_and_finalize_rows<kMI>(body, p, static_cast<int>(row0), static_cast<int>(col0), storage, 1);
}

RF_FN float4 load_vec4(const float* p) { return *reinterpret_cast<const float4*>(p); }
RF_FN float4 load_once(const float* p) {  // what no other block reads
  float4 v;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p));
  return v;
}

RF_FN float add_four(float sum, float4 x, float4 y) {
  return fma(x.w, y.w, fma(x.z, y.z, fma(x.y, y.y, fma(x.x, y.x, sum))));
}

// Adds `sum` across the lanes of a warp: each exchange halves the sums that a lane keeps and doubles the
// lanes that they cover. The first Half / Mask sums are left, those from `mine` on.
template <int Half, int Mask, int N> RF_FN void halve(float (&sum)[N], int lane, int& mine) {
  const bool upper = lane & Mask;
#pragma unroll
  for (int i = 0; i < Half; i++) {
    const float send = upper ? sum[i] : sum[i + Half], keep = upper ? sum[i + Half] : sum[i];
    sum[i] = keep + __shfl_xor_sync(kFullMask, send, Mask);
  }
  if (upper) mine += Half;
  if constexpr (Mask > 1) halve<Half / 2, Mask / 2>(sum, lane, mine);
}

template <class T, class ElementA, class ElementB, class Body>
__global__ void __launch_bounds__(T::kThreads, T::kRows <= 4 ? 2 : 1)
    matmul_skinny(const __grid_constant__ Problem p, const __grid_constant__ Body body, bool aligned) {
  constexpr int kEach = T::kWarpRows, R = T::kRows;
  constexpr bool kAcross = T::kAcross;
  __shared__ float partials[T::kSplitK][R][T::kLong];
  __shared__ EpilogueStorage<Body, T::kG> storage;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int row_warp = warp % T::kRowWarps, k_split = warp / T::kRowWarps;
  using LongElement = std::conditional_t<kAcross, ElementA, ElementB>;
  using ShortElement = std::conditional_t<kAcross, ElementB, ElementA>;
  const auto* const long_side = reinterpret_cast<const LongElement*>(kAcross ? p.a : p.b);
  const auto* const short_side = reinterpret_cast<const ShortElement*>(kAcross ? p.b : p.a);
  const long long_ld = kAcross ? p.lda : p.ldb, short_ld = kAcross ? p.ldb : p.lda;
  const int long_rows = static_cast<int>(kAcross ? p.rows : p.cols),
            short_rows = static_cast<int>(kAcross ? p.cols : p.rows);
  const int first = blockIdx.x * T::kLong + row_warp * kEach;
  wait_on_dependent_grids();
  look_in_first_block(body);

  const LongElement* const rows = long_side + min(first, long_rows - 1) * long_ld;
  unsigned row[kEach];  // from `rows` on; beyond the last, that again
#pragma unroll
  for (int c = 0; c < kEach; c++)
    row[c] = static_cast<unsigned>(min(c, max(long_rows - 1 - first, 0))) * static_cast<unsigned>(long_ld);
  const auto short_row = [&](int r) {
    return static_cast<unsigned>(min(r, short_rows - 1)) * static_cast<unsigned>(short_ld);
  };
  float sum[R * kEach];
#pragma unroll
  for (int i = 0; i < R * kEach; i++) sum[i] = 0.0f;
  constexpr int kStep = 128 * T::kSplitK;
  const int depth = static_cast<int>(p.depth), whole = aligned ? depth / kStep * kStep : 0;
  int k = 128 * k_split + 4 * lane;
  // Many sums leave room for few warps: then the next step's reads are under way during this one's sums.
  constexpr bool kAhead = R > 4;
  float4 next[kEach];
  if (kAhead && k < whole)
#pragma unroll
    for (int c = 0; c < kEach; c++) next[c] = load_once(rows + (row[c] + k));
#pragma unroll 1
  for (; k < whole; k += kStep) {
    float4 y[kEach];
    const int ahead = kAhead && k + kStep < whole ? k + kStep : k;
#pragma unroll
    for (int c = 0; c < kEach; c++) {
      if (kAhead) y[c] = next[c];
      (kAhead ? next : y)[c] = load_once(rows + (row[c] + ahead));
    }
#pragma unroll
    for (int r = 0; r < R; r++) {
      const float4 x = load_vec4(short_side + (short_row(r) + k));
#pragma unroll
      for (int c = 0; c < kEach; c++) sum[r * kEach + c] = add_four(sum[r * kEach + c], x, y[c]);
    }
  }
#pragma unroll 1
  for (k = whole + 32 * k_split + lane; k < depth; k += 32 * T::kSplitK) {
#pragma unroll
    for (int r = 0; r < R; r++) {
      const float x = read_one(short_side + (short_row(r) + k));
#pragma unroll
      for (int c = 0; c < kEach; c++) sum[r * kEach + c] = fma(x, read_one(rows + (row[c] + k)), sum[r * kEach + c]);
    }
  }

  int mine = 0;
  halve<R * kEach / 2, 16>(sum, lane, mine);
  constexpr int kLeft = R * kEach / 32;
#pragma unroll
  for (int i = 0; i < kLeft; i++)
    partials[k_split][(mine + i) / kEach][row_warp * kEach + (mine + i) % kEach] = sum[i];
  __syncthreads();
  launch_dependent_grids();
  if (threadIdx.x >= 128) return;

  Fragment<1, 1> acc;
#pragma unroll
  for (int i = 0; i < 16; i++) {
    const int down = 16 * warp + 8 * (i / 2 % 2) + lane / 4, right = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
    const int r = kAcross ? right : down, c = kAcross ? down : right;
    acc.x[0][i] = 0.0f;
    if (r < short_rows && r < R)
#pragma unroll
      for (int from = 0; from < T::kSplitK; from++) acc.x[0][i] += partials[from][r][c];
  }
  const int row0 = kAcross ? blockIdx.x * T::kLong : 0, col0 = kAcross ? 0 : blockIdx.x * T::kLong;
  epilogue<false, false>(body, p, acc, row0, col0, storage, 1);
  arrive_and_finalize_rows<T::kMI>(body, p, row0, col0, storage, 1);
}

}  // namespace rf
