// Columns: for each outer slice of a space [outer, count, width], reductions over `count`.
//
// Why: batch statistics and sums down columns read everything once and write next to nothing, so they
// take as long as reading does. A thread walks down a few rows at a time and keeps a partial for each
// of its columns; all reductions of a body are made in the same walk. Vec4s read the next rows while they
// accumulate these; single columns do without, which leaves registers for more threads.
//
// A body gives
//   Monoids = List<...>                     one for each reduction
//   term<V>(Step<S>, row, col)              the lanes reduced; row counts over outer * count
//   Column                                  what a column is reduced to
//   set_column(Step<S>, column, state)      takes one result into it
//   finalize_column(column, outer, col)     writes results
//
// Roles: a block is `lanes` x `row_groups` x `slices` threads, at most 256: neighbours in a row, then rows, then (where
// there are few rows) outer slices. Row groups merge in pairs in shared memory. Where blocks are few the rows are cut
// into chunks, whose partials wait in the workspace: [outer][chunk][word][column]; the last block to arrive merges
// them. All partitions follow from the sizes alone and all merges have a fixed order, so results depend neither on the
// run nor on the device.
//
//   lanes by   registers (a thread)   shared memory
//   Vec4       86 to 170              1 KB and 2 KB a word (128 threads' partials, which merge in pairs)
//   one        64 to 82               0.5 KB and 0.5 KB a word
//
// Pipeline of a thread, by Vec4: read batch 0 | read batch 1, accumulate 0 | read batch 2, accumulate 1 | ...
#pragma once
#include "block.cuh"
#include "column_partials.cuh"
#include "device.cuh"

namespace rf {

// What every body of columns has.
struct ColumnsBody {
  rf_watch::Look look = rf_watch::take_look();  // see look.h
};

constexpr long kColumnsUncut = 256;     // blocks of so many threads are enough
constexpr long kColumnBlocks = 640;     // of half the threads: a launch has about as many, if it can
constexpr long kColumnThreadsToSaturate = 1 << 17;  // more threads would only have more to merge
template <class V> constexpr int kRowsAtOnce = LanesOf<V>::count == 4 ? 4 : 8;

// How a space is partitioned.
struct ColumnPartition {
  long units, column_blocks, outer_blocks, chunk_rows, chunks;
  int lanes, row_groups, slices;  // their product is at most kColumnThreads
  // of_unit: columns of a thread; at_once: rows that it has in flight.
  ColumnPartition(long outer, long count, long width, int of_unit, int at_once) : units(width / of_unit) {
    const long least = 32 / of_unit;  // 128 bytes of a row
    const long narrow = units < least ? units : blocks_of(units, units / least), uncut = units / narrow * outer;
    const bool whole = uncut >= kColumnsUncut && uncut < kColumnBlocks;
    const long most = whole ? kColumnThreads : kColumnThreads / 2;
    const long busy = blocks_of(kColumnThreadsToSaturate, units * outer), steps_of_one = blocks_of(count, at_once);
    const long needed = steps_of_one < 1 ? 1 : steps_of_one < busy ? steps_of_one : busy;
    row_groups = int(needed < most / narrow ? needed : most / narrow);
    lanes = int(blocks_of(units, blocks_of(units, most / row_groups)));  // few are idle in the last block
    slices = int(most / (row_groups * lanes) < outer ? most / (row_groups * lanes) : outer);
    column_blocks = blocks_of(units, lanes), outer_blocks = blocks_of(outer, slices);
    const long step = long(row_groups) * at_once, steps = count > step ? blocks_of(count, step) : 1;
    const long blocks = column_blocks * outer_blocks;
    // slices are independent: only a block of one slice, which has all the row groups it can, is cut
    const long most_blocks = of_unit == 1 ? 2 * kColumnBlocks : kColumnBlocks;
    const long wanted = slices > 1 || whole || blocks >= kColumnBlocks ? 1 : most_blocks / blocks;
    chunk_rows = blocks_of(steps, wanted < steps ? wanted : steps) * step;
    chunks = count > chunk_rows ? blocks_of(count, chunk_rows) : 1;
  }
};

template <class V> ColumnPartition column_partition(long outer, long count, long width) {
  return {outer, count, width, LanesOf<V>::count, kRowsAtOnce<V>};
}

// Terms of kRows rows: row, row + row_groups, ...; after `last` - 1 it is read again instead.
template <class V, class Body> struct Batch {
  using Mine = ColumnPartials<typename Body::Monoids, V>;
  static constexpr int kRows = kRowsAtOnce<V>;
  V x[Body::Monoids::size][kRows];

  RF_FN void read(const Body& body, long base, long row, long last, int row_groups, long unit) {
    for_monoids<0>(typename Body::Monoids{}, [&](auto step, auto monoid) {
#pragma unroll
      for (int k = 0; k < kRows; k++) {
        const long at = row + k * row_groups < last ? row + k * row_groups : last - 1;
        x[decltype(step)::index][k] = body.template term<V>(step, base + at, LanesOf<V>::at(unit));
      }
    });
  }
  // All: whether none of the rows is at `last` or after it.
  template <bool All> RF_FN void accumulate_into(Mine& partials, long row, long last, int row_groups) const {
    Mine batch;
    bool in[kRows];
#pragma unroll
    for (int k = 0; k < kRows; k++) {
      in[k] = All || row + k * row_groups < last;
      batch.count += in[k];
    }
    const Real share = 1.0f / batch.count;
    for_monoids<0>(typename Body::Monoids{}, [&](auto step, auto monoid) {
      using D = Down<decltype(monoid)>;
#pragma unroll
      for (int l = 0; l < LanesOf<V>::count; l++) {
        Real y[kRows];
#pragma unroll
        for (int k = 0; k < kRows; k++) y[k] = LanesOf<V>::get(x[decltype(step)::index][k], l);
        batch.template set<D>(step, l, D::template of<kRows>(y, in, share));
      }
    });
    partials.merge(batch);
  }
};

template <class V, class Body>
__global__ void __launch_bounds__(kColumnThreads, 1)
    columns_kernel(const __grid_constant__ Body body, long outer, long count, long width, ColumnPartition partition,
                   Real* workspace, unsigned* arrivals) {
  using Monoids = typename Body::Monoids;
  using Mine = ColumnPartials<Monoids, V>;
  constexpr int kLanes = Mine::kLanes;
  const unsigned line = threadIdx.x / unsigned(partition.lanes), slice = line / unsigned(partition.row_groups);
  const int lane = threadIdx.x - line * partition.lanes, row_group = line - slice * partition.row_groups;
  const unsigned column_blocks = unsigned(partition.column_blocks), chunks = unsigned(partition.chunks);
  const unsigned column_block = blockIdx.x % column_blocks, rest = blockIdx.x / column_blocks;
  const unsigned chunk = rest % chunks, outer_block = rest / chunks;
  const long my_outer = long(outer_block) * partition.slices + slice,
             my_unit = long(column_block) * partition.lanes + lane;
  const bool has = my_outer < outer && my_unit < partition.units;
  const long base = (my_outer < outer ? my_outer : outer - 1) * count;
  const long unit = my_unit < partition.units ? my_unit : partition.units - 1;  // reads like one that exists
  const long last = count < (chunk + 1) * partition.chunk_rows ? count : (chunk + 1) * partition.chunk_rows;
  sync_dependent_grids(body);

  Mine partials;
  long row = chunk * partition.chunk_rows + row_group;
  if (row < last) {
    const int step = partition.row_groups * kRowsAtOnce<V>;
    Batch<V, Body> batch;
    if constexpr (kLanes == 4) {
      batch.read(body, base, row, last, partition.row_groups, unit);
#pragma unroll 1
      for (; row + step < last; row += step) {  // the next batch is on its way while this one is accumulated
        Batch<V, Body> next;
        next.read(body, base, row + step, last, partition.row_groups, unit);
        batch.template accumulate_into<true>(partials, row, last, partition.row_groups);
        batch = next;
      }
    } else {
#pragma unroll 1
      for (; row + step < last; row += step) {
        batch.read(body, base, row, row + step, partition.row_groups, unit);
        batch.template accumulate_into<true>(partials, row, last, partition.row_groups);
      }
      batch.read(body, base, row, last, partition.row_groups, unit);
    }
    batch.template accumulate_into<false>(partials, row, last, partition.row_groups);
  }
  merge_row_groups(partials, lane, row_group, slice, partition.lanes, partition.row_groups);

  if (chunks > 1) {
    // a chunk's words of this thread's lanes; `slices` is 1 where there are chunks
    const auto words_of = [&](long c, int w) {
      return workspace + ((my_outer * chunks + c) * Mine::kWords + w) * width + unit * kLanes;
    };
    if (row_group == 0 && has)
#pragma unroll
      for (int w = 0; w < Mine::kWords; w++) {
        const Real* x = partials.words[w];
        if constexpr (kLanes == 4) put(words_of(chunk, w), 0, Vec4At{0}, Vec4::each([&](int i) { return x[i]; }));
        else *words_of(chunk, w) = x[0];
      }
    if (!last_block(arrivals + long(outer_block) * column_blocks + column_block, chunks)) return;
    partials = merge_chunks<Mine, V>(words_of(0, 0), width, row_group, partition.row_groups, chunks,
                                     partition.chunk_rows, count);
    merge_row_groups(partials, lane, row_group, slice, partition.lanes, partition.row_groups);
  }
  if (row_group == 0 && has) {
    typename Body::Column columns[kLanes];
    for_columns(partials, [&](auto step, int l, const auto& state) { body.set_column(step, columns[l], state); });
#pragma unroll
    for (int l = 0; l < kLanes; l++) body.finalize_column(columns[l], my_outer, unit * kLanes + l);
  }
}

// --- the host's side -----------------------------------------------------------------------------
// What columns() of these sizes needs of its workspace, however its operands are aligned.
template <class Body> Error columns_workspace_size(WorkspaceSize& size, long outer, long count, long width) {
  size = {};
  if (outer == 0 || width == 0) return nullptr;
  for (const bool fours : {false, true}) {
    if (fours && width % 4) continue;
    const ColumnPartition partition =
        fours ? column_partition<Vec4>(outer, count, width) : column_partition<Real>(outer, count, width);
    if (partition.chunks == 1) continue;
    const size_t partials = sizeof(Real) * Words<typename Body::Monoids>::column * outer * partition.chunks * width;
    const size_t arrivals = sizeof(unsigned) * partition.outer_blocks * partition.column_blocks;
    size.scratch = partials > size.scratch ? partials : size.scratch;
    size.arrivals = arrivals > size.arrivals ? arrivals : size.arrivals;
  }
  return nullptr;
}

template <class V, class Body>
Error run_columns(const Body& body, long outer, long count, long width, const Workspace& workspace,
                  cudaStream_t stream) {
  const ColumnPartition partition = column_partition<V>(outer, count, width);
  Device device;
  RF_TRY(current_device(device));
  unsigned grid;
  RF_TRY(grid_of(partition.column_blocks * partition.outer_blocks * partition.chunks, grid));
  const unsigned threads = partition.lanes * partition.row_groups * partition.slices;
  return launch(columns_kernel<V, Body>, grid, threads, 0, stream, launch_mode_on(device),
                "launching reductions of columns", body, outer, count, width, partition,
                static_cast<Real*>(workspace.scratch), workspace.arrivals);
}

// The body's results for each outer slice and column. aligned: whether every operand that is read
// along the width can be read 16 bytes at a time (see aligned()).
template <class Body>
Error columns(const Body& body, long outer, long count, long width, bool aligned, const Workspace& workspace,
              cudaStream_t stream) {
  if (outer == 0 || width == 0) return nullptr;
  if (aligned && width % 4 == 0)
    return run_columns<Vec4>(body, outer, count, width, workspace, stream);
  return run_columns<Real>(body, outer, count, width, workspace, stream);
}

}  // namespace rf
