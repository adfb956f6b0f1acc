// Launch: the host side of the product on Hopper, rf::matmul<Schedule<Mode, tile, split-K>>.
//
// An unsplit `a` of many rows is split and multiplied some rows at a time, over and over in the same memory: no
// batch is so large that its copy does not fit. Partials of columns are numbered over all rows and merged at the
// end. As few rows as the L2 holds are no faster (docs/kernels.md).
#pragma once
#include "matmul_sm90.cuh"
#include "operand.cuh"

namespace rf {

#ifndef __CUDACC_RTC__
// The tensor map of an operand for TMA: boxes of 128 bytes (swizzled) by `box` rows.
inline Error tile_map(CUtensorMap& map, const Operand& side, long elements, int box, CUtensorMapDataType type) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static std::atomic<void*> known{nullptr};
  void* encode = known.load(std::memory_order_acquire);
  if (encode == nullptr) {
    cudaDriverEntryPointQueryResult result;
    RF_TRY(
        checked(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &result),
                "looking for cuTensorMapEncodeTiled in the driver"));
    if (result != cudaDriverEntryPointSuccess || encode == nullptr)
      return error("the driver has no cuTensorMapEncodeTiled: it must be one for CUDA 12.0 or later");
    known.store(encode, std::memory_order_release);
  }
  const cuuint64_t sizes[2] = {cuuint64_t(elements), cuuint64_t(side.rows)}, stride = cuuint64_t(side.pitch) * 2;
  const cuuint32_t boxes[2] = {type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 32u : 64u, cuuint32_t(box)}, ones[2] = {1, 1};
  const CUresult status = reinterpret_cast<Encode>(encode)(
      &map, type, 2, const_cast<void*>(side.data), sizes, &stride, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    return error("describing an operand [%ld, %ld] at %p to TMA failed (CUresult %d): it must be aligned "
                 "by 16 bytes, rows a multiple of 16 bytes apart", side.rows, elements, side.data, int(status));
  return nullptr;
}
#endif

template <class T> constexpr CUtensorMapDataType element_type() { return CU_TENSOR_MAP_DATA_TYPE_FLOAT16; }
template <> constexpr CUtensorMapDataType element_type<Bfloat>() { return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16; }

template <class M, class Tile, int SplitK, class Body> struct Product<Schedule<M, Tile, SplitK>, Body> {
  using S = Schedule<M, Tile, SplitK>;

  // Fragments, tiles, whether blocks form 2-CTA clusters (tile_cols is even then, the last may be empty), and how many
  // tiles (of kSplitK blocks each) are worked on at a time.
  struct Grid : Partition<Body> {
    long tile_rows, tile_cols, fit;
    int multicast = 0;
    Grid(long rows, long cols, long batches, const Device& device)
        : Partition<Body>(rows, cols, 64 * S::kMI, 32 * S::kG),
          tile_rows(batches * blocks_of(rows / batches, S::kTileRows)),
          tile_cols(blocks_of(cols, S::kTileCols)),
          fit(device.processors / S::kSplitK) {
      if (M::kRS) return;
      Grid clusters = *this;
      clusters.tile_cols += tile_cols % 2, clusters.fit -= fit % 2, clusters.multicast = 1;
      const bool empty = tile_cols % 2 == 1;
      if (clusters.fit > 0 && !(empty && tile_cols < 9) && clusters.waves(tile_rows) <= waves(tile_rows))
        *this = clusters;
    }

    long waves(long high) const { return blocks_of(high * tile_cols, fit); }
    // along: K as the warpgroups go along it.
    static long steps(long along) { return blocks_of(along, S::kPromote * M::kStageDepth); }
    // A shared tile's sums are cut where others' are not. Equal rows must stay equal, for batch norm magnifies what
    // they differ by: so where tiles are shared all sums are promoted, which is dear, in all calls alike.
    bool uses_stream_k(long high, long along) const {
      const bool dear = is_unpromoted(along);
      return S::kStreamK && (high == tile_rows || !dear) && StreamK::pays(high * tile_cols, fit, steps(along), dear);
    }
    // Whether sums are not promoted but where tiles are shared. Of fewer tiles cuBLAS splits K, and cuts less off; of
    // as many small ones it does where K is deep.
    bool is_unpromoted(long along) const {
      const long tiles = tile_rows * tile_cols;
      const long most = 2 * S::kHalves * tiles >= 3 * fit ? kMostUnpromotedDepth : kMostUnpromotedDepth / 4;
      return S::kMayBeUnpromoted && 4 * tiles >= 3 * fit && along <= most;
    }
    // Tiles that are worked on at a time.
    long slots(long high, long along) const {
      const long tiles = high * tile_cols;
      return tiles < fit && !uses_stream_k(high, along) ? tiles : fit;
    }

    // Rows of tiles at a time: a quarter of all, but copies of 64 to 256 MB, if that takes hardly more waves than all
    // at once. Each time costs about 17 us (H200): with 64 MB at a time large products were 2 to 3.6% slower.
    long tiles_at_a_time(long depth) const {
      constexpr long kLittle = 64 << 20, kMuch = 256 << 20;  // bytes
      const long quarter = split_bytes<M>(this->rows, depth) / 4;
      const long kept = quarter < kLittle ? kLittle : quarter < kMuch ? quarter : kMuch;
      const long most = kept / (split_bytes<M>(1, depth) * S::kTileRows);
      for (long high = most; high < tile_rows && 2 * high > most; high--)
        if (50 * (tile_rows / high * waves(high) + waves(tile_rows % high)) <= 51 * waves(tile_rows)) return high;
      return tile_rows;
    }

    // Where in the workspace's scratch each thing begins: partial tiles, split rows of a, and the end.
    static constexpr size_t kTileBytes = S::kTileRows * S::kTileCols * sizeof(float);
    size_t tile_partials() const { return this->bytes(); }
    size_t split_begin() const {
      if (S::kSplitK > 1) return tile_partials() + slots(tile_rows, 0) * 2 * S::kSplitK * kTileBytes;
      const bool may_stream_k = S::kStreamK && 4 * tile_rows * tile_cols >= fit;  // fewer tiles never do
      return tile_partials() + (may_stream_k ? fit * kTileBytes : 0);
    }
    long rows_at_a_time(long depth) const {
      if (Body::kBatched) return this->rows;  // tiles do not reach across products
      const long most = tiles_at_a_time(depth) * S::kTileRows;
      return most < this->rows ? most : this->rows;
    }
    size_t end(long depth) const {
      const long rows = depth && !M::kRS ? rows_at_a_time(depth) : 0;
      return split_begin() + aligned_bytes(split_bytes<M>(rows, depth)) + rows * sizeof(float);
    }
  };

  static Error bytes(long rows, long cols, long unsplit_depth, size_t& scratch, size_t& arrivals, long batches) {
    Device device;
    RF_TRY(current_device(device));
    const Grid grid(rows, cols, batches, device);
    scratch = grid.end(unsplit_depth);
    arrivals =
        (grid.arrivals() + (S::kSplitK > 1 ? 4 * grid.slots(grid.tile_rows, 0) : 2 * grid.fit)) * sizeof(unsigned);
    return nullptr;
  }

  static Error run(const Body& body, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
                   cudaStream_t stream) {
    Device device;
    RF_TRY(current_device(device));
    if (device.major != 9)
      return error("the device has compute capability %d.%d; this kernel is for 9.0", device.major, device.minor);
    const Grid grid(a.rows, b.rows / b.batches, b.batches, device);
    if (workspace.scratch == nullptr && grid.end(a.data == nullptr ? depth : 0) > 0)
      return error("a product of %ld x %ld has no memory to work in", a.rows, b.rows);
    if constexpr (M::kRS) {
      RF_TRY(multiply(body, grid, 0, rs_operand(a.plain, a.rows, a.ld), b, depth, device, workspace, stream));
      return finalize(body, grid, a, b, depth, workspace, stream);
    } else if constexpr (M::kScaled) {
      if (a.data == nullptr) {
        char* data = static_cast<char*>(workspace.scratch) + grid.split_begin();
        const long most = grid.rows_at_a_time(depth);
        auto* unscale = reinterpret_cast<float*>(data + aligned_bytes(split_bytes<M>(most, depth)));
        for (long first = 0; first < a.rows; first += most) {
          const float* plain = a.plain + first * a.ld;
          const Operand some =
              split_operand<M>(data, unscale, plain, a.rows - first < most ? a.rows - first : most, depth, a.ld);
          RF_TRY(hi_lo_split<M>(plain, some.rows, depth, a.ld, data, unscale, stream));
          RF_TRY(multiply(body, grid, first, some, b, depth, device, workspace, stream));
        }
        return finalize(body, grid, a, b, depth, workspace, stream);
      }
    }
    RF_TRY(multiply(body, grid, 0, a, b, depth, device, workspace, stream));
    return finalize(body, grid, a, b, depth, workspace, stream);
  }

 private:
  // The rows of the result from `first` on, which is a multiple of a tile's, as many as a has.
  static Error multiply(const Body& body, const Grid& grid, long first, const Operand& a, const Operand& b, long depth,
                        const Device& device, const Workspace& workspace, cudaStream_t stream) {
    CUtensorMap a_map, b_map;
    constexpr auto type = element_type<typename M::Type>();
    constexpr auto a_type = M::kRS ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : type;
    RF_TRY(tile_map(a_map, a, M::kRS ? depth : a_elements<M>(depth), S::kTileRows >> grid.multicast, a_type));
    RF_TRY(tile_map(b_map, b, b_elements<M>(depth), S::kTileCols, type));

    Launch l{};
    Operand all = a;  // as if it began at the result's first row
    all.plain -= first * a.ld;
    if (all.unscale != nullptr) all.unscale -= first;
    l.problem = grid.problem(all, b, depth, workspace);
    l.first_row = static_cast<int>(first);
    l.splitk_partials = reinterpret_cast<float4*>(static_cast<char*>(workspace.scratch) + grid.tile_partials());
    l.splitk_arrivals = workspace.arrivals + grid.arrivals();
    const long along = M::kTerms == 1 ? depth : b_elements<M>(depth);
    l.a_stages = static_cast<int>(blocks_of(depth, M::kStageDepth));
    const long high = Body::kBatched ? grid.tile_rows : blocks_of(a.rows, S::kTileRows);
    l.problem.batch_tiles = static_cast<int>(grid.tile_rows / b.batches);
    l.tile_rows = static_cast<int>(high), l.tile_cols = static_cast<int>(grid.tile_cols >> grid.multicast);
    l.multicast = grid.multicast;
    const long slots = grid.slots(high, along);
    const bool uses_stream_k = grid.uses_stream_k(high, along);
    l.promotes = uses_stream_k || !grid.is_unpromoted(along);
    l.stream_k =
        StreamK(high * grid.tile_cols >> grid.multicast, slots >> grid.multicast, grid.steps(along), uses_stream_k);

    static std::atomic<uint64_t> allowed{0};
    constexpr size_t shared = sizeof(SharedStorage<S, Body>) + kSwizzleAlignment;  // its start is aligned by hand
    constexpr size_t kMostShared = 227 << 10;
    static_assert(shared <= kMostShared, "more shared memory than a block can have");
    auto* kernel = matmul_sm90<S, Body>;
    RF_TRY(allow_shared(kernel, shared, device, allowed));
    const LaunchMode start =
        S::kSplitK > 1 || uses_stream_k ? LaunchMode::cooperative : LaunchMode::overlapping;  // blocks may wait
    return launch(kernel, {static_cast<unsigned>(slots * S::kSplitK), 1u << grid.multicast}, S::kThreads, shared,
                  stream, start, "launching the product", a_map, b_map, l, body);
  }

  static Error finalize(const Body& body, const Grid& grid, const Operand& a, const Operand& b, long depth,
                      const Workspace& workspace, cudaStream_t stream) {
    return grid.finalize(body, grid.problem(a, b, depth, workspace), stream);
  }
};

}  // namespace rf
