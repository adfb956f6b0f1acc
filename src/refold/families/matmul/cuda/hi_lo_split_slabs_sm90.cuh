// Hi/lo split of columns on Hopper: what hi_lo_split_columns.cuh does in two kernels, by one that reads x once.
//
// Why: the scale of a column depends on all of its elements, and a matrix of activations does not fit into the L2: who
// looks for the largest first reads it twice from memory. Here the blocks of a cluster hold a slab of 32 columns, all
// of its depth, in shared memory, and tell each other the largest of what they hold.
//
//   cluster    1 to 16 blocks, one slab of one matrix; block r has rows r * `rows` to (r + 1) * `rows` of it
//   threads    256: a warp copies four rows of 128 bytes at a time, 16 bytes a thread
//   shared     rows * 128 bytes: the slab; 1 KB: maxima of warps; 2 KB: those of blocks; 128 bytes: scales
//   registers  32 a thread
//
//   copies of the slab     all are asked for at once ... | they come
//   largest of a column    -                             | of a thread's own copies, of warps, of the block -> all blocks
//   scaled, transposed     -                             | -                                    a cluster_sync | 32 x 4
//
// Row k's 16 bytes u lie at piece u ^ (k / 4 % 8): a warp that writes k to k + 31 of four columns finds 32 banks.
#pragma once
#include "cluster_sm90.cuh"
#include "operand.cuh"

namespace rf {

constexpr int kSlabColumns = 32, kMostOfCluster = 16, kPortableCluster = 8;
constexpr int kSlabRowBytes = 4 * kSlabColumns;
constexpr long kMostSlabRows = 1536, kMostSlabBytes = kMostSlabRows * kSlabRowBytes;  // 192 KB
// Clusters begin with Hopper, and from sm_120 on a block has 99 KB.
constexpr bool kHoldsSlabs = kCompiledFor[0] >= 900 && kCompiledFor[0] < 1200;
constexpr long kSlabRows = 512;    // 64 KB: three blocks on a multiprocessor load, search and store beside each other
constexpr long kSlabBlocks = 256;  // about two for each multiprocessor

struct Slabs {
  long depth, cols;
  int padded, rows, blocks;  // of a cluster
};

// Where 16 bytes of the slab are.
RF_FN uint32_t slab_piece(uint32_t slab, int row, int piece) {
  return slab + row * kSlabRowBytes + 16 * (piece ^ (row / 4 % 8));
}

template <bool Pairs>
__global__ void __launch_bounds__(256) hi_lo_split_slabs(const float* x, Slabs of, __half* out, float* unscale) {
  extern __shared__ __align__(128) unsigned char raw_shared[];
  __shared__ unsigned of_warp[8][kSlabColumns], of_block[kMostOfCluster][kSlabColumns];
  __shared__ float scales[kSlabColumns];
  float* const slab = reinterpret_cast<float*>(raw_shared);
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, piece = thread % 8;
  const unsigned rank = blockIdx.x % of.blocks;
  const long at = blockIdx.x / of.blocks, wide = (of.cols + kSlabColumns - 1) / kSlabColumns, batch = at / wide;
  const long col0 = (at - batch * wide) * kSlabColumns, col = col0 + 4 * piece, row0 = batch * of.cols + col0;
  const long k0 = long(rank) * of.rows;
  const uint32_t here = shared_address(slab);
  wait_on_dependent_grids();
  launch_dependent_grids();  // it waits for this one's results itself
  x += batch * of.depth * of.cols;
#pragma unroll 8
  for (int r = thread / 8; r < of.rows; r += 32) {
    const bool inside = k0 + r < of.depth && col < of.cols;
    cp_async(slab_piece(here, r, piece), inside ? x + (k0 + r) * of.cols + col : x, inside ? 16 : 0);
  }
  cp_async_commit();
  cluster_sync();  // all blocks have begun: their memory can be written to
  cp_async_wait<0>();
  constexpr unsigned kNoSign = 0x7fffffffu;
  unsigned mine[4] = {};
#pragma unroll 8
  for (int r = thread / 8; r < of.rows; r += 32) {
    const float4 v = *reinterpret_cast<const float4*>(slab + r * kSlabColumns + 4 * (piece ^ (r / 4 % 8)));
    mine[0] = max(mine[0], __float_as_uint(v.x) & kNoSign), mine[1] = max(mine[1], __float_as_uint(v.y) & kNoSign);
    mine[2] = max(mine[2], __float_as_uint(v.z) & kNoSign), mine[3] = max(mine[3], __float_as_uint(v.w) & kNoSign);
  }
#pragma unroll
  for (int i = 0; i < 4; i++) {  // lanes eight apart have the same columns
    mine[i] = max(mine[i], __shfl_xor_sync(kFullMask, mine[i], 8));
    mine[i] = max(mine[i], __shfl_xor_sync(kFullMask, mine[i], 16));
    if (lane < 8) of_warp[warp][4 * lane + i] = mine[i];
  }
  __syncthreads();
  unsigned all = of_warp[0][lane];
#pragma unroll
  for (int w = 1; w < 8; w++) all = max(all, of_warp[w][lane]);
  for (int other = warp; other < of.blocks; other += 8)  // a warp tells one block or two
    store_shared_cluster(map_shared_rank(shared_address(&of_block[rank][lane]), other), all);
  cluster_sync();
  if (thread < kSlabColumns) {
    all = 0;
    for (int b = 0; b < of.blocks; b++) all = max(all, of_block[b][thread]);
    const int e = scale_exponent(__uint_as_float(all));
    scales[thread] = power_of_two(e);
    if (rank == 0 && col0 + thread < of.cols) unscale[row0 + thread] = power_of_two(-e);
  }
  __syncthreads();
  const int quarter = lane % 8, column = lane / 8;  // eight lanes take 32 of k of a column, a warp four columns
#pragma unroll 2
  for (int item = warp; item < 8 * of.rows / 32; item += 8) {
    const int group = item % (of.rows / 32), of_piece = item / (of.rows / 32);
    const int c = 4 * of_piece + column, down = 32 * group + 4 * quarter;
    if (col0 + c >= of.cols || k0 + down >= of.padded) continue;  // as one for eight lanes
    const float* from = slab + down * kSlabColumns + 4 * (of_piece ^ quarter) + column;
    const float4 v = make_float4(from[0], from[kSlabColumns], from[2 * kSlabColumns], from[3 * kSlabColumns]);
    put_hi_lo<Pairs>(out + (row0 + c) * (Pairs ? 2 : 1) * of.padded, static_cast<int>(k0) + down, v, scales[c]);
  }
}

// The cut of a depth into blocks: as many as leave three of them on a multiprocessor, and blocks for all of those.
// False where a cluster of `most` blocks cannot hold it.
inline bool slabs_of(long batches, long depth, long cols, long most, Slabs& made) {
  const long padded = padded_depth(depth), slabs = blocks_of(cols, kSlabColumns) * batches;
  if (padded > most * kMostSlabRows) return false;
  long blocks = 1;
  while (blocks < most && (padded > kSlabRows * blocks || (slabs * blocks < kSlabBlocks && padded >= 128 * blocks)))
    blocks *= 2;
  made = {depth, cols, static_cast<int>(padded), static_cast<int>(32 * blocks_of(padded, 32 * blocks)),
          static_cast<int>(blocks)};
  return true;
}

// How many blocks a cluster may have here: 16 where there are so many multiprocessors side by side, as on an H100 or
// H200; 8 everywhere.
template <bool Pairs> Error most_of_cluster(const Device& device, long& most) {
  static std::atomic<uint64_t> asked{0}, portable{0};
  const uint64_t bit = uint64_t(1) << device.ordinal;
  if (!(asked.load(std::memory_order_acquire) & bit)) {
    auto* kernel = hi_lo_split_slabs<Pairs>;
    RF_TRY(find(kernel, device));
    const void* address = reinterpret_cast<const void*>(kernel);
    RF_TRY(checked(cudaFuncSetAttribute(address, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                   "asking for large clusters"));
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = kMostOfCluster, attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(kMostOfCluster), config.blockDim = dim3(256), config.dynamicSmemBytes = kMostSlabBytes;
    config.attrs = &attribute, config.numAttrs = 1;
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, address, &config) != cudaSuccess) cudaGetLastError(), clusters = 0;
    if (clusters == 0) portable.fetch_or(bit, std::memory_order_relaxed);
    asked.fetch_or(bit, std::memory_order_release);
  }
  most = portable.load(std::memory_order_relaxed) & bit ? kPortableCluster : kMostOfCluster;
  return nullptr;
}

// x [batches, depth, cols], aligned by 16 bytes as its rows are. done: whether it is under way; else nothing is.
template <bool Pairs>
Error launch_hi_lo_split_slabs(const float* x, long batches, long depth, long cols, __half* out, float* unscale,
                               cudaStream_t stream, bool& done) {
  static std::atomic<uint64_t> allowed{0};
  Device device;
  Slabs of;
  long most;
  unsigned grid;
  auto* kernel = hi_lo_split_slabs<Pairs>;
  done = false;
  RF_TRY(current_device(device));
  if (device.major < 9 || device.major >= 12) return nullptr;
  RF_TRY(allow_shared(kernel, kMostSlabBytes, device, allowed));
  RF_TRY(most_of_cluster<Pairs>(device, most));
  if (!slabs_of(batches, depth, cols, most, of)) return nullptr;
  RF_TRY(grid_of(blocks_of(cols, kSlabColumns) * batches * of.blocks, grid));
  done = true;
  return launch(kernel, Blocks(grid, of.blocks), 256, size_t(of.rows) * kSlabRowBytes, stream,
                LaunchMode::overlapping, "launching the splitting of an operand's columns", x, of, out, unscale);
}

}  // namespace rf
