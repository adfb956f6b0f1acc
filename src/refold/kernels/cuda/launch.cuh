// Launch: the host side of the product on Hopper.
//
// An emitter instantiates, for each product of a plan,
//   rf::split<Ieee>(x, rows, depth, ld, out, unscale, stream)        activations each call, weights once
//   rf::matmul<Schedule<Ieee, tall, splits>>(body, a, b, depth, workspace, stream)
// with sizes from rf::split_bytes, rf::workspace_bytes, rf::turns_bytes. A workspace belongs to one
// stream at a time; its turns are zeroed once, when they are allocated: every launch leaves them zero.
#pragma once
#include "device.cuh"
#include "matmul_sm90.cuh"
#include "split.cuh"

namespace rf {

inline long padded_depth(long depth) { return (depth + 31) / 32 * 32; }

// Bytes of a matrix [rows, depth] once split for Mode (aligned by 16 or more).
template <class Mode> size_t split_bytes(long rows, long depth) {
  return static_cast<size_t>(rows) * padded_depth(depth) * (Mode::kSplit ? 4 : 2);
}

// x [rows, depth], rows ld apart, fp32 -> out (split_bytes) and unscale [rows].
template <class Mode>
Error split(const float* x, long rows, long depth, long ld, void* out, float* unscale, cudaStream_t stream) {
  static_assert(Mode::kScaled, "native operands are not split");
  if (rows == 0) return nullptr;
  const bool aligned = depth % 8 == 0 && ld % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  auto* kernel = aligned ? split_rows<Mode::kSplit, true> : split_rows<Mode::kSplit, false>;
  return launch(kernel, static_cast<unsigned>(rows), kSplitThreads, 0, stream, Start::overlapping,
                "launching the splitting of an operand", x, ld, depth, padded_depth(depth),
                static_cast<__half*>(out), unscale);
}

// One side of a product: data as the tensor cores read it, and the fp32 rows that it was split from
// (plain, ld and unscale are not used by native modes, whose rows are `pitch` elements apart).
struct Side {
  const void* data;
  long rows;
  long pitch;  // elements of two bytes from row to row; a multiple of 8
  const float* unscale = nullptr;
  const float* plain = nullptr;
  long ld = 0;
};
template <class Mode>
Side split_side(const void* data, const float* unscale, const float* plain, long rows, long depth, long ld) {
  return {data, rows, padded_depth(depth) * (Mode::kSplit ? 2 : 1), unscale, plain, ld};
}

// How one product is cut: sizes of grids and of the workspace follow from this alone.
template <class S, class Body> struct Cut {
  long row_blocks, column_blocks, tile_rows, tile_cols, slots;
  static constexpr int kRowWords = Words<typename Body::RowMonoids>::row;
  static constexpr int kColumnWords = Words<typename Body::ColumnMonoids>::column;
  Cut(long rows, long cols, const Device& device)
      : row_blocks(blocks_of(rows, 64 * S::kMI)), column_blocks(blocks_of(cols, 32 * S::kG)),
        tile_rows(blocks_of(rows, S::kTileRows)), tile_cols(blocks_of(cols, S::kTileCols)) {
    const long tiles = tile_rows * tile_cols, fit = device.processors / S::kSplits;
    slots = tiles < fit ? tiles : fit;
  }
  static size_t up(size_t bytes) { return (bytes + 255) / 256 * 256; }
  size_t row_bytes(long rows) const { return up(sizeof(float) * kRowWords * rows * column_blocks); }
  size_t column_bytes(long cols) const { return up(sizeof(float) * kColumnWords * cols * row_blocks); }
  size_t split_parts_bytes() const {
    return S::kSplits == 1 ? 0 : size_t(slots) * 2 * S::kSplits * 128 * 256 * sizeof(float);
  }
  size_t turns() const {
    return (kRowWords ? row_blocks : 0) + (kColumnWords ? column_blocks : 0) + (S::kSplits > 1 ? 4 * slots : 0);
  }
};

template <class S, class Body> Error workspace_bytes(long rows, long cols, size_t& parts, size_t& turns) {
  Device device;
  RF_TRY(current_device(device));
  const Cut<S, Body> cut(rows, cols, device);
  parts = cut.row_bytes(rows) + cut.column_bytes(cols) + cut.split_parts_bytes();
  turns = cut.turns() * sizeof(unsigned);
  return nullptr;
}

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

// body's outputs from the product of a [rows, depth] and b [cols, depth].
template <class S, class Body>
Error matmul(const Body& body, const Side& a, const Side& b, long depth, const Workspace& workspace, cudaStream_t stream) {
  using Mode = typename S::Mode;
  if (a.rows == 0 || b.rows == 0) return nullptr;
  if (depth == 0 || a.rows > INT32_MAX || b.rows > INT32_MAX || depth > INT32_MAX / 2)
    return error("a product of [%ld, %ld] and [%ld, %ld]: sizes are from 1 to 2^30", a.rows, depth, b.rows, depth);
  Device device;
  RF_TRY(current_device(device));
  if (device.major != 9)
    return error("the device has compute capability %d.%d; this kernel is for 9.0", device.major, device.minor);
  const Cut<S, Body> cut(a.rows, b.rows, device);
  CUtensorMap a_map, b_map;
  const long elements = Mode::kScaled ? padded_depth(depth) * (Mode::kSplit ? 2 : 1) : depth;
  RF_TRY(tile_map(a_map, a, elements, S::kTileRows, element_type<typename Mode::Type>()));
  RF_TRY(tile_map(b_map, b, elements, S::kTileCols, element_type<typename Mode::Type>()));

  Launch l{};
  Problem& p = l.problem;
  p.rows = a.rows, p.cols = b.rows, p.depth = depth;
  p.a = a.plain, p.b = b.plain, p.lda = a.ld, p.ldb = b.ld;
  p.a_unscale = a.unscale, p.b_unscale = b.unscale;
  char* parts = static_cast<char*>(workspace.parts);
  p.row_parts = reinterpret_cast<float*>(parts);
  p.column_parts = reinterpret_cast<float*>(parts += cut.row_bytes(a.rows));
  l.split_parts = reinterpret_cast<float4*>(parts += cut.column_bytes(b.rows));
  p.row_turns = workspace.turns;
  p.column_turns = p.row_turns + (Cut<S, Body>::kRowWords ? cut.row_blocks : 0);
  l.split_turns = p.column_turns + (Cut<S, Body>::kColumnWords ? cut.column_blocks : 0);
  l.steps = static_cast<int>(blocks_of(depth, S::kPromote * Mode::kStageDepth));
  l.tile_rows = static_cast<int>(cut.tile_rows), l.tile_cols = static_cast<int>(cut.tile_cols);

  static std::atomic<uint64_t> allowed{0};
  constexpr size_t shared = sizeof(SharedMemory<S, Body>) + 1024;  // its start is aligned by hand
  static_assert(shared <= 232448, "more shared memory than a block can have");
  auto* kernel = matmul_sm90<S, Body>;
  RF_TRY(allow_shared(kernel, shared, device, allowed));
  return launch(kernel, static_cast<unsigned>(cut.slots * S::kSplits), S::kThreads, shared, stream,
                S::kSplits > 1 ? Start::cooperative : Start::overlapping, "launching the product", a_map, b_map, l, body);
}

}  // namespace rf
