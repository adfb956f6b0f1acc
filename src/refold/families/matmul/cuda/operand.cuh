// Operand: the host side that all products share: operands, their splitting, the workspace.
//
// An emitter instantiates, for each product of a plan,
//   rf::hi_lo_split<Ieee>(x, rows, depth, ld, out, unscale, stream)        activations each call, weights once
//   rf::matmul<S>(body, a, b, depth, workspace, stream)
// with sizes from rf::split_bytes and rf::workspace_bytes<S, Body>. On Hopper a may come unsplit (data null):
// matmul then splits it in the workspace, some rows at a time. The schedule S names the kernel:
//   Schedule<Mode, tile, split-K>   launch_sm90.cuh        Hopper
//   Generic<Mode, split-K>          launch_sm80.cuh   sm_80 and later
//   Plain                           launch_plain.cuh  fp32 as it is, for what is tiny or odd
// A workspace belongs to one stream at a time; its arrival counters are zeroed once, when they are allocated: every
// launch leaves them zero.
#pragma once
#include "device.cuh"
#include "epilogue.cuh"
#include "mode.cuh"
#include "hi_lo_split.cuh"

namespace rf {

inline long padded_depth(long depth) { return (depth + 31) / 32 * 32; }

// Bytes of a matrix [rows, depth] once split for Mode (aligned by 16 or more).
template <class Mode> size_t split_bytes(long rows, long depth) {
  return static_cast<size_t>(rows) * padded_depth(depth) * (Mode::kSplit ? 4 : 2);
}

template <bool Pairs, bool Aligned>
Error launch_hi_lo_split(const float* x, long rows, long depth, long ld, __half* out, float* unscale,
                         cudaStream_t stream) {
  constexpr const char* doing = "launching the splitting of an operand";
  const int padded = static_cast<int>(padded_depth(depth));
  if (depth <= 1024) {
    const long lanes = depth <= 32 ? 8 : depth <= 64 ? 16 : 32;
    auto* kernel = depth <= 256 ? hi_lo_split_short_rows<Pairs, Aligned, 2> : hi_lo_split_short_rows<Pairs, Aligned, 8>;
    return launch(kernel, static_cast<unsigned>(blocks_of(rows, 256 / lanes)), 256, 0, stream, LaunchMode::overlapping,
                  doing, x, ld, rows, static_cast<int>(depth), padded, static_cast<int>(lanes), out, unscale);
  }
  // as few threads as hold a row
  auto* kernel = hi_lo_split_rows<Pairs, Aligned, 512>;
  unsigned threads = 512;
  if (depth <= 128 * kHeldValues<true, 128>) kernel = hi_lo_split_rows<Pairs, Aligned, 128>, threads = 128;
  else if (depth <= 256 * kHeldValues<true, 256>) kernel = hi_lo_split_rows<Pairs, Aligned, 256>, threads = 256;
  return launch(kernel, static_cast<unsigned>(rows), threads, 0, stream, LaunchMode::overlapping, doing, x, ld,
                static_cast<int>(depth), padded, out, unscale);
}

// x [rows, depth], rows ld apart, fp32 -> out (split_bytes) and unscale [rows].
template <class Mode>
Error hi_lo_split(const float* x, long rows, long depth, long ld, void* out, float* unscale, cudaStream_t stream) {
  static_assert(Mode::kScaled, "native operands are not hi_lo_split");
  if (rows == 0) return nullptr;
  if (depth <= 0 || depth > INT32_MAX / 2 || rows > INT32_MAX)
    return error("an operand [%ld, %ld]: sizes are from 1 to 2^30", rows, depth);
  const bool aligned = depth % 4 == 0 && ld % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0;
  auto* to = static_cast<__half*>(out);
  return aligned ? launch_hi_lo_split<Mode::kSplit, true>(x, rows, depth, ld, to, unscale, stream)
                 : launch_hi_lo_split<Mode::kSplit, false>(x, rows, depth, ld, to, unscale, stream);
}

// One operand of a product: data as the tensor cores read it, and the fp32 rows that it was split from
// (ld and unscale are not used by native modes, whose rows are `pitch` elements apart; Plain uses plain,
// which points to what its schedule says, and ld alone).
struct Operand {
  const void* data;
  long rows;
  long pitch;  // pairs of bytes from row to row; a multiple of 8
  const float* unscale = nullptr;
  const float* plain = nullptr;
  long ld = 0;
  long batches = 1;  // of `b`: how many matrices follow one another, each for as many rows of a
  long step = 1;     // between the elements of a row of plain
};
inline Operand batch_of(Operand b, long batches) {
  b.batches = batches;
  return b;
}
// An operand whose plain matrices are transposed, [depth, rows]: rows, those of one.
inline Operand transposed(Operand side, long rows) {
  side.ld = 1, side.step = rows;
  return side;
}
template <class Mode>
Operand split_operand(const void* data, const float* unscale, const float* plain, long rows, long depth, long ld) {
  return {data, rows, padded_depth(depth) * (Mode::kSplit ? 2 : 1), unscale, plain, ld};
}

// Elements of two bytes in a row of `a` and of `b` as the tensor cores read it.
template <class M> long a_elements(long depth) {
  return M::kScaled ? padded_depth(depth) * (M::kSplit ? 2 : 1) : depth;
}
template <class M> long b_elements(long depth) {
  return M::kTerms == 1 ? a_elements<M>(depth) : M::kTerms * blocks_of(depth, M::kStageDepth) * M::kStageDepth;
}

// An operand [rows, depth] of fp32 as it is, rows ld apart.
inline Operand plain_operand(const float* plain, long rows, long ld) { return {nullptr, rows, 0, nullptr, plain, ld}; }

// The same as operand a of IeeeRS: x is aligned by 16 bytes, ld a multiple of 4.
inline Operand rs_operand(const float* x, long rows, long ld) { return {x, rows, 2 * ld, nullptr, x, ld}; }

inline size_t aligned_bytes(size_t bytes) { return (bytes + 255) / 256 * 256; }

// Defined in finalize.cuh, which only bodies that reduce rows or columns need.
template <class Body> Error finalize_columns(const Body& body, const Problem& p, long block_rows, cudaStream_t stream);
template <class Body> Error finalize_rows(const Body& body, const Problem& p, long blocks, cudaStream_t stream);

// How the epilogue partitions a product, by fragments of fragment_rows x fragment_cols: the workspace's first
// scratch and counters are its, what a kernel needs besides comes after them.
template <class Body> struct Partition {
  long rows, cols, fragment_rows, row_blocks, column_blocks;
  static constexpr int kRowWords = Words<typename Body::RowMonoids>::row;
  static constexpr int kColumnWords = Words<typename Body::ColumnMonoids>::column;
  Partition(long rows, long cols, int fragment_rows, int fragment_cols)
      : rows(rows), cols(cols), fragment_rows(fragment_rows), row_blocks(blocks_of(rows, fragment_rows)),
        column_blocks(blocks_of(cols, fragment_cols)) {}
  size_t row_bytes() const { return aligned_bytes(sizeof(float) * kRowWords * rows * column_blocks); }
  size_t bytes() const { return row_bytes() + aligned_bytes(sizeof(float) * kColumnWords * cols * row_blocks); }
  size_t arrivals() const { return kRowWords ? row_blocks : 0; }
  // Whether a row has so many partials that the last to arrive had better not merge them alone.
  bool rows_apart() const { return kRowWords > 0 && column_blocks > 32; }

  Problem problem(const Operand& a, const Operand& b, long depth, const Workspace& workspace) const {
    Problem p{};
    p.rows = rows, p.cols = cols, p.depth = depth;
    p.a = a.plain, p.b = b.plain, p.lda = a.ld, p.ldb = b.ld, p.a_step = a.step, p.b_step = b.step;
    p.a_unscale = a.unscale, p.b_unscale = b.unscale;
    char* partials = static_cast<char*>(workspace.scratch);
    p.row_partials = reinterpret_cast<float*>(partials);
    p.column_partials = reinterpret_cast<float*>(partials + row_bytes());
    p.row_arrivals = rows_apart() ? nullptr : workspace.arrivals;
    p.batch_rows = static_cast<int>(rows / b.batches);
    p.a_next = a.step == 1 ? rows / b.batches * a.ld : depth * a.step;
    p.b_next = b.step == 1 ? cols * b.ld : depth * b.step;
    return p;
  }

  // What is left to do once the product has been launched.
  Error finalize(const Body& body, const Problem& p, cudaStream_t stream) const {
    if constexpr (kRowWords > 0)
      if (rows_apart()) RF_TRY(finalize_rows(body, p, column_blocks, stream));
    if constexpr (kColumnWords > 0) return finalize_columns(body, p, fragment_rows, stream);
    return nullptr;
  }
};

// The host side of one schedule and body; each launch*.cuh has its schedule's:
//   static Error bytes(rows, cols, unsplit_depth, scratch, arrivals, batches);
//   static Error run(body, a, b, depth, workspace, stream);
template <class S, class Body> struct Product;

// Bytes of a workspace's scratch and counters for a product of `rows` x `cols`, of any depth; unsplit_depth: that
// of a product whose a comes unsplit; batches: Operand's.
template <class S, class Body>
Error workspace_bytes(long rows, long cols, size_t& scratch, size_t& arrivals, long unsplit_depth = 0,
                      long batches = 1) {
  return Product<S, Body>::bytes(rows, cols, unsplit_depth, scratch, arrivals, batches);
}

// body's outputs from the product of a [rows, depth] and b [cols, depth]; of a batch, from those of b.batches
// products [rows / b.batches, depth] and [cols, depth].
template <class S, class Body>
Error matmul(const Body& body, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
             cudaStream_t stream) {
  if (a.rows == 0 || b.rows == 0) return nullptr;
  constexpr long kMost = INT32_MAX - 256;  // the last tile counts on beyond the last row
  if (depth <= 0 || a.rows > kMost || b.rows > kMost || depth > INT32_MAX / 2)
    return error("a product of [%ld, %ld] and [%ld, %ld]: rows are at most 2^31 - 257, the depth from 1 to 2^30",
                 a.rows, depth, b.rows, depth);
  return Product<S, Body>::run(body, a, b, depth, workspace, stream);
}

}  // namespace rf
