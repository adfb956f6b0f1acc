// Hi/lo split of columns: what hi_lo_split.cuh does to rows, of a transposed matrix.
//
// Why: x @ y wants rows of y's transpose. To copy y so first, and split the copy, takes 16 bytes of memory traffic an
// element where this takes 12, and PyTorch's transposing copy reaches a quarter of the device's rate.
//
// x is `batches` matrices [depth, cols], one after the other; column c of the b-th becomes row b * cols + c of the
// result, which hi_lo_split.cuh describes. A row's scale depends on all of its elements, so x is read twice:
//   kernel                threads                                           shared memory
//   column_maxima         256: 32 columns by Vec4, every 32nd row of a      1 KB: a warp's maxima
//                         chunk, to maxima[chunk][row]
//   hi_lo_split_columns   256: tiles of 64 of k by 64 columns, transposed   17 KB: a tile, its columns' scales
//                         in shared memory, `tiles` of them down a block
// A weight is small, and a layer's gradient is often in the cache: what counts is that all multiprocessors have
// loads in flight at once. So a chunk is as deep as leaves kFillingBlocks, and a tile's loads are on their way while
// the scales are found, or the tile before is written. On Hopper one kernel does it where a cluster of blocks holds a
// column (hi_lo_split_slabs_sm90.cuh).
#pragma once
#include "hi_lo_split_slabs_sm90.cuh"
#include "packed.cuh"

namespace rf {

constexpr int kMaximaColumns = 32, kTransposeTile = 64;
constexpr long kFillingBlocks = 512;  // about four for each multiprocessor of a large GPU

// Rows of a chunk, by powers of two: as many as leave blocks enough.
inline long maxima_chunk(long batches, long depth, long cols) {
  long chunk = 64;
  const long wide = blocks_of(cols, kMaximaColumns) * batches;
  while (chunk < depth && wide * blocks_of(depth, 2 * chunk) >= kFillingBlocks) chunk *= 2;
  return chunk;
}

// Where a block works: blocks of columns come first, then chunks of depth, then matrices.
struct ColumnsPlace {
  long col, depth_chunk, batch;
  RF_FN ColumnsPlace(long wide, long chunks) {
    const long block = blockIdx.x, rest = block / wide;
    col = block - rest * wide, batch = rest / chunks, depth_chunk = rest - batch * chunks;
  }
};

// Four columns from col on of one row of x; zero beyond the last.
template <bool Aligned> RF_FN float4 four_columns(const float* x, long col, long cols) {
  float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if constexpr (Aligned) {
    if (col < cols) v = *reinterpret_cast<const float4*>(x + col);
  } else {
    if (col < cols) v.x = x[col];
    if (col + 1 < cols) v.y = x[col + 1];
    if (col + 2 < cols) v.z = x[col + 2];
    if (col + 3 < cols) v.w = x[col + 3];
  }
  return v;
}

template <bool Aligned>
__global__ void __launch_bounds__(256, 4)
    column_maxima(const float* x, long depth, long cols, long batches, long chunk, unsigned* maxima) {
  __shared__ unsigned most[8][kMaximaColumns];
  const ColumnsPlace at((cols + kMaximaColumns - 1) / kMaximaColumns, (depth + chunk - 1) / chunk);
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const long col = at.col * kMaximaColumns + 4 * (lane % 8), first = at.depth_chunk * chunk,
             end = first + chunk < depth ? first + chunk : depth;
  wait_on_dependent_grids();
  launch_dependent_grids();  // it waits for this one's results itself
  x += at.batch * depth * cols;
  constexpr unsigned kNoSign = 0x7fffffffu;
  unsigned mine[4] = {};
#pragma unroll 1
  for (long k = first + thread / 8; k < end; k += 256) {  // eight loads at once, also of what is less deep
    float4 v[8];
#pragma unroll
    for (int i = 0; i < 8; i++) v[i] = four_columns<Aligned>(x + (k + 32 * i) * cols, k + 32 * i < end ? col : cols, cols);
#pragma unroll
    for (int i = 0; i < 8; i++) {
      mine[0] = max(mine[0], __float_as_uint(v[i].x) & kNoSign), mine[1] = max(mine[1], __float_as_uint(v[i].y) & kNoSign);
      mine[2] = max(mine[2], __float_as_uint(v[i].z) & kNoSign), mine[3] = max(mine[3], __float_as_uint(v[i].w) & kNoSign);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {  // lanes eight apart have the same columns
    mine[i] = max(mine[i], __shfl_xor_sync(kFullMask, mine[i], 8));
    mine[i] = max(mine[i], __shfl_xor_sync(kFullMask, mine[i], 16));
    if (lane < 8) most[warp][4 * lane + i] = mine[i];
  }
  __syncthreads();
  if (thread >= kMaximaColumns || at.col * kMaximaColumns + thread >= cols) return;
  unsigned all = most[0][thread];
#pragma unroll
  for (int w = 1; w < 8; w++) all = max(all, most[w][thread]);
  maxima[at.depth_chunk * batches * cols + at.batch * cols + at.col * kMaximaColumns + thread] = all;
}

// What a thread has of tile t: four columns of every 16th row, zero beyond `depth`.
template <bool Aligned> RF_FN void load_tile(float4 (&v)[4], const float* x, long t, long depth, long col, long cols) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const long k = t * kTransposeTile + 16 * i + threadIdx.x / 16;
    v[i] = four_columns<Aligned>(x + (k < depth ? k : depth - 1) * cols, col, cols);
    if (k >= depth) v[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
}

template <bool Pairs, bool Aligned>
__global__ void __launch_bounds__(256, Aligned ? 4 : 3)
    hi_lo_split_columns(const float* x, long depth, long cols, long batches, int padded, int tiles, long chunks,
                        const unsigned* maxima, __half* out, float* unscale) {
  __shared__ float tile[kTransposeTile][kTransposeTile + 1];  // [k][column]; transposed reads find 32 banks
  __shared__ unsigned most[kTransposeTile];
  __shared__ float scales[kTransposeTile];
  const long steps = (padded + kTransposeTile - 1) / kTransposeTile;
  const ColumnsPlace at((cols + kTransposeTile - 1) / kTransposeTile, (steps + tiles - 1) / tiles);
  const long col0 = at.col * kTransposeTile, row0 = at.batch * cols + col0;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
  const long first = at.depth_chunk * tiles, last = first + tiles < steps ? first + tiles : steps;
  if (thread < kTransposeTile) most[thread] = 0;
  wait_on_dependent_grids();
  launch_dependent_grids();
  x += at.batch * depth * cols;
  float4 v[4];
  load_tile<Aligned>(v, x, first, depth, col0 + 4 * (thread % 16), cols);
  __syncthreads();
  {
    const int c = thread % kTransposeTile;
    unsigned mine = 0;
    if (col0 + c < cols)
#pragma unroll 8
      for (long p = thread / kTransposeTile; p < chunks; p += 256 / kTransposeTile)
        mine = max(mine, maxima[p * batches * cols + row0 + c]);
    atomicMax(&most[c], mine);
  }
  __syncthreads();
  if (thread < kTransposeTile) {
    const int e = scale_exponent(__uint_as_float(most[thread]));
    scales[thread] = power_of_two(e);
    if (at.depth_chunk == 0 && col0 + thread < cols) unscale[row0 + thread] = power_of_two(-e);
  }
#pragma unroll 1
  for (long t = first; t < last; t++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      float* to = &tile[16 * i + thread / 16][4 * (thread % 16)];
      to[0] = v[i].x, to[1] = v[i].y, to[2] = v[i].z, to[3] = v[i].w;
    }
    __syncthreads();  // the tile is there, and so are the scales
    if (t + 1 < last) load_tile<Aligned>(v, x, t + 1, depth, col0 + 4 * (thread % 16), cols);
#pragma unroll
    for (int i = 0; i < 4; i++) {  // eight lanes take 32 of k of a row, a warp four rows
      const int item = warp + 8 * i, c = 4 * (item % 16) + lane / 8, down = 32 * (item / 16) + 4 * (lane % 8);
      const long k = t * kTransposeTile + down;
      if (col0 + c >= cols || k >= padded) continue;  // as one for eight lanes
      const float4 of = make_float4(tile[down][c], tile[down + 1][c], tile[down + 2][c], tile[down + 3][c]);
      put_hi_lo<Pairs>(out + (row0 + c) * (Pairs ? 2 : 1) * padded, static_cast<int>(k), of, scales[c]);
    }
    __syncthreads();  // it has been read
  }
}

// Bytes of `maxima`.
inline size_t columns_bytes(long batches, long depth, long cols) {
  return static_cast<size_t>(blocks_of(depth, maxima_chunk(batches, depth, cols))) * batches * cols * sizeof(unsigned);
}

template <class Mode, bool Aligned>
Error launch_hi_lo_split_columns(const float* x, long batches, long depth, long cols, void* out, float* unscale,
                           unsigned* maxima, cudaStream_t stream) {
  constexpr const char* doing = "launching the splitting of an operand's columns";
  unsigned grid;
  const long chunk = maxima_chunk(batches, depth, cols), chunks = blocks_of(depth, chunk);
  RF_TRY(grid_of(blocks_of(cols, kMaximaColumns) * chunks * batches, grid));
  RF_TRY(launch(column_maxima<Aligned>, grid, 256, 0, stream, LaunchMode::overlapping, doing, x, depth, cols, batches,
                chunk, maxima));
  // as many tiles a block as leave blocks enough: each finds its columns' scales anew
  const long padded = padded_depth(depth), steps = blocks_of(padded, kTransposeTile);
  const long wide = blocks_of(cols, kTransposeTile) * batches;
  long tiles = blocks_of(steps * wide, kFillingBlocks);
  tiles = tiles > 16 ? 16 : tiles;
  RF_TRY(grid_of(wide * blocks_of(steps, tiles), grid));
  return launch(hi_lo_split_columns<Mode::kSplit, Aligned>, grid, 256, 0, stream, LaunchMode::overlapping, doing, x,
                depth, cols, batches, static_cast<int>(padded), static_cast<int>(tiles), chunks,
                static_cast<const unsigned*>(maxima), static_cast<__half*>(out), unscale);
}

// x [batches, depth, cols] without gaps -> out (split_bytes of batches * cols rows) and unscale [batches * cols];
// maxima: columns_bytes of memory.
template <class Mode>
Error hi_lo_split_transposed(const float* x, long batches, long depth, long cols, void* out, float* unscale,
                             unsigned* maxima, cudaStream_t stream) {
  static_assert(Mode::kScaled, "native operands are not hi_lo_split");
  if (batches * cols == 0) return nullptr;
  if (depth <= 0 || depth > INT32_MAX / 2 || batches * cols > INT32_MAX)
    return error("an operand [%ld, %ld, %ld]: sizes are from 1 to 2^30", batches, depth, cols);
  const bool aligned = cols % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  if constexpr (kHoldsSlabs) {
    bool done = false;
    auto* to = static_cast<__half*>(out);
    if (aligned)
      RF_TRY((launch_hi_lo_split_slabs<Mode::kSplit>(x, batches, depth, cols, to, unscale, stream, done)));
    if (done) return nullptr;
  }
  return aligned ? launch_hi_lo_split_columns<Mode, true>(x, batches, depth, cols, out, unscale, maxima, stream)
                 : launch_hi_lo_split_columns<Mode, false>(x, batches, depth, cols, out, unscale, maxima, stream);
}

// The same -> packed (packed.cuh), and behind it what its making works in: transposed_bytes.
template <class Mode> size_t transposed_bytes(long batches, long depth, long cols) {
  return packed_bytes<Mode>(batches * cols, depth) + columns_bytes(batches, depth, cols);
}
template <class Mode>
Error pack_transposed(const float* x, void* packed, long batches, long depth, long cols, cudaStream_t stream) {
  float* unscale = packed_unscale<Mode>(packed, batches * cols, depth);
  auto* maxima = reinterpret_cast<unsigned*>(unscale + batches * cols);
  return hi_lo_split_transposed<Mode>(x, batches, depth, cols, packed, unscale, maxima, stream);
}

}  // namespace rf
