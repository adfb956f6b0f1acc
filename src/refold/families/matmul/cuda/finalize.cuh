// Finalize: what a product's columns, and rows of many partial results, are reduced to, from what its fragments left.
//
// Why kernels of their own: a fragment that finalized its columns would wait until what it stored is visible to others
// and for an atomic's answer, while the tensor cores idle. These kernels' start is hidden behind the product's end
// (programmatic dependent launch), and their reads come from L2. And where a row has hundreds of partials, the last
// warpgroup to arrive would merge them alone, while the device waits.
//
//   kernel             threads of a block                                registers   shared memory
//   finalize_columns   32 columns x 8 row groups, each every 8th block   47 to 57    1.5 to 2.5 KB: a word each
//                      of rows, then merged in pairs
//   finalize_rows      32 rows x 16 groups of neighbouring partials,     40 to 64    2 to 14 KB: 16 words a monoid's
//                      then merged first to last                                     word and row
#pragma once
#include "column_partials.cuh"
#include "device.cuh"
#include "epilogue.cuh"

namespace rf {

// Threads: 32 neighbouring columns by kFinalizeRowGroups, each of which takes every kFinalizeRowGroups-th block of
// rows.
constexpr int kFinalizeRowGroups = kColumnThreads / 32;

template <class Body>
__global__ void __launch_bounds__(kColumnThreads, 1)
    finalize_columns_kernel(const __grid_constant__ Body body, const float* partials, long rows, long cols,
                          long block_rows, long blocks) {
  using Mine = ColumnPartials<typename Body::ColumnMonoids, float>;
  const int lane = threadIdx.x % 32, row_group = threadIdx.x / 32;
  const long col = 32L * blockIdx.x + lane;
  sync_dependent_grids();
  Mine mine = merge_chunks<Mine, float>(partials + (col < cols ? col : cols - 1), cols, row_group, kFinalizeRowGroups,
                                        blocks, block_rows, rows);
  merge_row_groups(mine, lane, row_group, 0, 32, kFinalizeRowGroups);
  if (row_group == 0 && col < cols) {
    typename Body::Column column;
    for_columns(mine, [&](auto step, int, const auto& state) { body.set_column(step, column, state); });
    body.finalize_column(column, col);
  }
}

// p: the product's, whose fragments have `block_rows` rows.
template <class Body>
Error finalize_columns(const Body& body, const Problem& p, long block_rows, cudaStream_t stream) {
  return launch(finalize_columns_kernel<Body>, static_cast<unsigned>(blocks_of(p.cols, 32)), kColumnThreads, 0,
                stream, LaunchMode::overlapping, "launching the end of reductions of columns", body,
                static_cast<const float*>(p.column_partials), p.rows, p.cols, block_rows,
                blocks_of(p.rows, block_rows));
}

// Threads: 32 neighbouring rows by kFinalizeColumnGroups, each of which takes as many of a row's partials, next to each
// other.
constexpr int kFinalizeColumnGroups = 16;

template <class Body>
__global__ void __launch_bounds__(32 * kFinalizeColumnGroups, 1)
    finalize_rows_kernel(const __grid_constant__ Body body, const float* partials, long rows, int blocks) {
  using RowMonoids = typename Body::RowMonoids;
  constexpr int kWords = Words<RowMonoids>::row;
  __shared__ float words[kFinalizeColumnGroups][kWords][32];
  const int lane = threadIdx.x % 32, row_group = threadIdx.x / 32;
  const long row = 32L * blockIdx.x + lane, mine = row < rows ? row : rows - 1;
  const int first = static_cast<int>(long(blocks) * row_group / kFinalizeColumnGroups);
  const int count = static_cast<int>(long(blocks) * (row_group + 1) / kFinalizeColumnGroups) - first;
  sync_dependent_grids();
  for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
    using M = decltype(monoid);
    constexpr int at = Before<decltype(s)::index, RowMonoids>::row;
    const auto partial =
        M::partial(merge_partials<M>(partials + (first * rows + mine) * kWords + at, rows * kWords, count));
#pragma unroll
    for (int w = 0; w < M::kWords; w++) words[row_group][at + w][lane] = partial.w[w];
  });
  __syncthreads();
  if (row_group > 0 || row >= rows) return;
  float results[Words<RowMonoids>::results];
  for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
    using M = decltype(monoid);
    using At = Before<decltype(s)::index, RowMonoids>;
    typename M::State state;
#pragma unroll 4
    for (int t = 0; t < kFinalizeColumnGroups; t++) {
      typename M::Partial partial;
#pragma unroll
      for (int w = 0; w < M::kWords; w++) partial.w[w] = words[t][At::row + w][lane];
      M::merge(state, partial);
    }
    M::results(state, results + At::results);
  });
  body.finalize_row(row, results);
}

// p: the product's, whose rows have `blocks` partials each.
template <class Body> Error finalize_rows(const Body& body, const Problem& p, long blocks, cudaStream_t stream) {
  return launch(finalize_rows_kernel<Body>, static_cast<unsigned>(blocks_of(p.rows, 32)), 32 * kFinalizeColumnGroups, 0,
                stream, LaunchMode::overlapping, "launching the end of reductions of rows", body,
                static_cast<const float*>(p.row_partials), p.rows, static_cast<int>(blocks));
}

}  // namespace rf
