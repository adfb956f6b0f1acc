// Rows: the host side of the passes over each row (rows_kernels.cuh): which kernel, over which grid.
#pragma once
#include "rows_kernels.cuh"

namespace rf {

template <class Body> constexpr bool kHoldsLong = Body::kRoomy && Body::kMinBlocks > 1;
template <class V, class Body> constexpr RowPartition<V> row_partition(long rows, long width) {
  return {rows, width, Body::Monoids::size + Body::kStores > 1, kHoldsLong<Body>};
}

// What rows() of these sizes needs of its workspace, however its operands are aligned.
template <class Body> Error rows_workspace_size(WorkspaceSize& size, long rows, long width) {
  size = {};
  if constexpr (Body::Monoids::size > 0) {
    const auto partition = row_partition<Real, Body>(rows, width);
    if (partition.strategy == partition.multi_block) {
      constexpr size_t words = Words<typename Body::Monoids>::row;
      size.scratch =
          (rows * sizeof(typename Body::Row) + 255) / 256 * 256 + rows * partition.chunks * words * sizeof(Real);
      size.arrivals = rows * sizeof(unsigned);
    }
  }
  return nullptr;
}

// The kernel that holds rows as line N of the table says.
template <class V, class Body, int N> auto* resident_kernel() {
  constexpr ResidentShape as = ResidentShapes<V>::of[N], shorter = ResidentShapes<V>::of[N ? N - 1 : 0];
  static_assert(as.threads == 0 || (N && as.most == as.threads * as.units && as.most <= 2 * shorter.most),
                "rows of a cache number of threads fill more than half of what these can hold");
  return rows_register_resident<V, as.rows, as.units, as.threads, Body>;
}
template <class V, class Body, int N = 0> auto* resident_kernel(int line) {
  if constexpr (ResidentShapes<V>::of[N].most < (kHoldsLong<Body> ? ResidentShapes<V>::longest : ResidentShapes<V>::cramped))
    if (line > N) return resident_kernel<V, Body, N + 1>(line);
  return resident_kernel<V, Body, N>();
}

// The kernel of a partition that is not multi-block; only one is compiled where the width is known.
template <long W, class V, class Body> auto* kernel_of(const RowPartition<V>& partition) {
  constexpr RowPartition<V> fixed = row_partition<V, Body>(kMultiBlockRows + 1, W);
  if constexpr (W == 0)
    return partition.strategy == partition.register_resident ? resident_kernel<V, Body>(partition.shape)
                                                             : rows_warps_per_row<V, Body>;
  else if constexpr (fixed.strategy == fixed.register_resident) return resident_kernel<V, Body, fixed.shape>();
  else return rows_warps_per_row<V, Body>;
}

template <class V, class Body>
Error run_pointwise(const Body& body, long rows, long width, cudaStream_t stream, LaunchMode start) {
  constexpr int kUnits = kBatch<V>;
  constexpr const char* doing = "launching a pointwise kernel";
  const long units = width / LanesOf<V>::count;
  const bool down = rows >= 2 * kUnits && units > 0;
  // a small space is spread over more blocks
  const int threads = rows * units >= 64 * kUnits * kRowThreads ? kRowThreads : kRowThreads / 4;
  const long tiles = units == 0 ? 1 : blocks_of(units, long(kUnits) * threads);
  unsigned grid;
  RF_TRY(grid_of(down ? blocks_of(blocks_of(rows, kUnits) * units, threads) : rows * tiles, grid));
  auto* kernel = down ? pointwise<V, true, Body> : pointwise<V, false, Body>;
  return launch(kernel, grid, threads, 0, stream, start, doing, body, rows, width, tiles);
}

template <long W, class V, class Body>
Error run_rows(const Body& body, long rows, long width, const Workspace& workspace, cudaStream_t stream,
               LaunchMode start) {
  constexpr const char* doing = "launching passes over rows";
  using Row = typename Body::Row;
  const auto partition = row_partition<V, Body>(rows, width);
  unsigned grid;
  if constexpr (W == 0 || W >= kMultiBlockFrom) {
    if (partition.strategy == partition.multi_block) {
      Row* row_states = static_cast<Row*>(workspace.scratch);
      char* after = static_cast<char*>(workspace.scratch) + (rows * sizeof(Row) + 255) / 256 * 256;
      Real* partials = reinterpret_cast<Real*>(after);
      RF_TRY(grid_of(rows * partition.chunks, grid));
      for (int pass = 0; pass < Body::Monoids::size + Body::kStores; pass++)
        RF_TRY(launch(rows_multi_block<V, Body>, grid, kRowThreads, 0, stream, start, doing, body, width,
                      partition.chunks, partition.chunk_width, pass, row_states, partials, workspace.arrivals));
      return nullptr;
    }
  }
  const int units = static_cast<int>(partition.units);
  const int thread_groups = partition.threads > kRowThreads ? 1 : kRowThreads / partition.threads,
            threads = thread_groups * partition.threads;
  RF_TRY(grid_of(blocks_of(rows, thread_groups * partition.rows_of_thread()), grid));
  auto* kernel = kernel_of<W, V, Body>(partition);
  return launch(kernel, grid, threads, 0, stream, start, doing, body, rows, units, partition.threads);
}

// The body's outputs over rows x width. aligned: whether every operand that is read along the width,
// and every full-size output, can be read 16 bytes at a time (see aligned()); of a pointwise body in
// one row, whether their addresses can, whatever the width. W: the width of all calls, 0 if it varies.
template <long W = 0, class Body>
Error rows(const Body& body, long rows, long width, bool aligned, const Workspace& workspace, cudaStream_t stream) {
  if (rows == 0 || (width == 0 && Body::Monoids::size == 0 && !Body::kFinalizes)) return nullptr;
  Device device;
  RF_TRY(current_device(device));
  const LaunchMode start = launch_mode_on(device);
  if constexpr (Body::Monoids::size == 0) {
    aligned = aligned && (rows == 1 || width % 4 == 0);
    return aligned ? run_pointwise<Vec4>(body, rows, width, stream, start)
                   : run_pointwise<Real>(body, rows, width, stream, start);
  } else {
    if constexpr (W % 4 == 0)
      if (aligned && width % 4 == 0) return run_rows<W, Vec4>(body, rows, width, workspace, stream, start);
    return run_rows<W, Real>(body, rows, width, workspace, stream, start);
  }
}

}  // namespace rf
