// Launch: the host side of the product on Hopper, rf::matmul<Schedule<Mode, tall, splits>>.
#pragma once
#include "matmul_sm90.cuh"
#include "operand.cuh"

namespace rf {

// The map of a side for the copy engine: boxes of 64 elements (128 bytes, swizzled) by `box` rows.
inline Error tile_map(CUtensorMap& map, const Side& side, long elements, int box, CUtensorMapDataType type) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static std::atomic<void*> found{nullptr};
  void* encode = found.load(std::memory_order_acquire);
  if (encode == nullptr) {
    cudaDriverEntryPointQueryResult result;
    RF_TRY(checked(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &result),
                   "looking for cuTensorMapEncodeTiled in the driver"));
    if (result != cudaDriverEntryPointSuccess || encode == nullptr)
      return error("the driver has no cuTensorMapEncodeTiled: it must be one for CUDA 12.0 or later");
    found.store(encode, std::memory_order_release);
  }
  const cuuint64_t sizes[2] = {cuuint64_t(elements), cuuint64_t(side.rows)}, stride = cuuint64_t(side.pitch) * 2;
  const cuuint32_t boxes[2] = {64, cuuint32_t(box)}, ones[2] = {1, 1};
  const CUresult status = reinterpret_cast<Encode>(encode)(
      &map, type, 2, const_cast<void*>(side.data), sizes, &stride, boxes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    return error("describing an operand [%ld, %ld] at %p to the copy engine failed (CUresult %d): it must be aligned "
                 "by 16 bytes, rows a multiple of 16 bytes apart", side.rows, elements, side.data, int(status));
  return nullptr;
}

template <class T> constexpr CUtensorMapDataType element_type() { return CU_TENSOR_MAP_DATA_TYPE_FLOAT16; }
template <> constexpr CUtensorMapDataType element_type<Bfloat>() { return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16; }

template <class M, bool IsTall, int InParts, class Body> struct Product<Schedule<M, IsTall, InParts>, Body> {
  using S = Schedule<M, IsTall, InParts>;

  // Fragments, tiles, and how many tiles (of kSplits blocks each) are worked on at a time.
  struct Grid : Cut<Body> {
    long tile_rows, tile_cols, slots;
    Grid(long rows, long cols, const Device& device)
        : Cut<Body>(rows, cols, 64 * S::kMI, 32 * S::kG), tile_rows(blocks_of(rows, S::kTileRows)),
          tile_cols(blocks_of(cols, S::kTileCols)) {
      const long tiles = tile_rows * tile_cols, fit = device.processors / S::kSplits;
      slots = tiles < fit ? tiles : fit;
    }
  };

  static Error bytes(long rows, long cols, size_t& parts, size_t& turns) {
    Device device;
    RF_TRY(current_device(device));
    const Grid grid(rows, cols, device);
    parts = grid.bytes() + (S::kSplits > 1 ? size_t(grid.slots) * 2 * S::kSplits * 128 * 256 * sizeof(float) : 0);
    turns = (grid.turns() + (S::kSplits > 1 ? 4 * grid.slots : 0)) * sizeof(unsigned);
    return nullptr;
  }

  static Error run(const Body& body, const Side& a, const Side& b, long depth, const Workspace& workspace,
                   cudaStream_t stream) {
    Device device;
    RF_TRY(current_device(device));
    if (device.major != 9)
      return error("the device has compute capability %d.%d; this kernel is for 9.0", device.major, device.minor);
    CUtensorMap a_map, b_map;
    const long elements = M::kScaled ? padded_depth(depth) * (M::kSplit ? 2 : 1) : depth;
    RF_TRY(tile_map(a_map, a, elements, S::kTileRows, element_type<typename M::Type>()));
    RF_TRY(tile_map(b_map, b, elements, S::kTileCols, element_type<typename M::Type>()));

    const Grid grid(a.rows, b.rows, device);
    Launch l{};
    l.problem = grid.problem(a, b, depth, workspace);
    l.split_parts = reinterpret_cast<float4*>(static_cast<char*>(workspace.parts) + grid.bytes());
    l.split_turns = workspace.turns + grid.turns();
    l.steps = static_cast<int>(blocks_of(depth, S::kPromote * M::kStageDepth));
    l.tile_rows = static_cast<int>(grid.tile_rows), l.tile_cols = static_cast<int>(grid.tile_cols);

    static std::atomic<uint64_t> allowed{0};
    constexpr size_t shared = sizeof(SharedMemory<S, Body>) + 1024;  // its start is aligned by hand
    static_assert(shared <= 232448, "more shared memory than a block can have");
    auto* kernel = matmul_sm90<S, Body>;
    RF_TRY(allow_shared(kernel, shared, device, allowed));
    RF_TRY(launch(kernel, static_cast<unsigned>(grid.slots * S::kSplits), S::kThreads, shared, stream,
                  S::kSplits > 1 ? Start::cooperative : Start::overlapping, "launching the product", a_map, b_map, l,
                  body));
    return grid.finish(body, l.problem, stream);
  }
};

}  // namespace rf
