// Finish: a product's column results, from the parts that its fragments left.
//
// Why a kernel of its own: a fragment that took its turn at its columns would wait until what it stored
// is visible to others and for an atomic's answer, while the tensor cores idle. This kernel's start is
// hidden behind the product's end, and its reads come from the second-level cache.
#pragma once
#include "column_parts.cuh"
#include "device.cuh"
#include "epilogue.cuh"

namespace rf {

// Threads: 32 neighbouring columns by kTeams, each of which takes every kTeams-th block of rows.
constexpr int kFinishTeams = kColumnThreads / 32;

template <class Body>
__global__ void __launch_bounds__(kColumnThreads, 1)
    finish_columns_kernel(const __grid_constant__ Body body, const float* parts, long rows, long cols,
                          long block_rows, long blocks) {
  using Mine = ColumnParts<typename Body::ColumnMonoids, float>;
  const int lane = threadIdx.x % 32, team = threadIdx.x / 32;
  const long col = 32L * blockIdx.x + lane;
  begin_kernel();
  Mine mine = merge_chunks<Mine, float>(parts + (col < cols ? col : cols - 1), cols, team, kFinishTeams, blocks,
                                        block_rows, rows);
  merge_teams(mine, lane, team, 0, 32, kFinishTeams);
  if (team == 0 && col < cols) {
    typename Body::Column column;
    for_columns(mine, [&](auto step, int, const auto& state) { body.set_column(step, column, state); });
    body.finish_column(column, col);
  }
}

// p: the product's, whose fragments have `block_rows` rows.
template <class Body>
Error finish_columns(const Body& body, const Problem& p, long block_rows, cudaStream_t stream) {
  return launch(finish_columns_kernel<Body>, static_cast<unsigned>(blocks_of(p.cols, 32)), kColumnThreads, 0,
                stream, Start::overlapping, "launching the end of reductions of columns", body,
                static_cast<const float*>(p.column_parts), p.rows, p.cols, block_rows,
                blocks_of(p.rows, block_rows));
}

}  // namespace rf
