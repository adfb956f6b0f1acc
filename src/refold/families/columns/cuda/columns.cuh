// Columns: for each outer slice of a space [outer, count, width], reductions over `count`.
//
// Why: batch statistics and sums down columns read everything once and write next to nothing, so they
// take as long as reading does. A thread walks down a few rows at a time and keeps a part for each of
// its columns; all reductions of a body are made in the same walk. Fours read the next rows while they
// gather these; single columns do without, which leaves registers for more threads.
//
// A body gives
//   Monoids = List<...>                     one for each reduction
//   term<V>(Step<S>, row, col)              the lanes reduced; row counts over outer * count
//   Column                                  what a column is reduced to
//   set_column(Step<S>, column, state)      takes one result into it
//   finish_column(column, outer, col)       writes results
//
// Layout: a block is `lanes` x `teams` x `slices` threads: neighbours in a row, then rows, then (where
// there are few rows) outer slices. Teams merge in pairs in shared memory. Where blocks are few the
// rows are cut into chunks, whose parts wait in the workspace: [outer][chunk][word][column]; the last
// block to arrive merges them. All cuts follow from the sizes alone and all merges have a fixed order,
// so results depend neither on the run nor on the device.
#pragma once
#include "block.cuh"
#include "column_parts.cuh"
#include "device.cuh"

namespace rf {

// What every body of columns has.
struct ColumnsBody {
  rf_watch::Look look = rf_watch::take_look();  // see look.h
};

constexpr long kColumnsUncut = 256;     // blocks of so many threads are enough
constexpr long kColumnBlocks = 640;     // of half the threads: a launch has about as many, if it can
constexpr long kColumnsBusy = 1 << 17;  // more threads would only have more to merge
template <class V> constexpr int kRowsAtOnce = LanesOf<V>::count == 4 ? 4 : 8;

// How a space is cut.
struct ColumnsCut {
  long units, column_blocks, outer_blocks, chunk_rows, chunks;
  int lanes, teams, slices;  // their product is at most kColumnThreads
  // of_unit: columns of a thread; at_once: rows that it has in flight.
  ColumnsCut(long outer, long count, long width, int of_unit, int at_once) : units(width / of_unit) {
    const long least = 32 / of_unit;  // 128 bytes of a row
    const long narrow = units < least ? units : blocks_of(units, units / least), uncut = units / narrow * outer;
    const bool whole = uncut >= kColumnsUncut && uncut < kColumnBlocks;
    const long most = whole ? kColumnThreads : kColumnThreads / 2;
    const long busy = blocks_of(kColumnsBusy, units * outer), steps_of_one = blocks_of(count, at_once);
    const long needed = steps_of_one < 1 ? 1 : steps_of_one < busy ? steps_of_one : busy;
    teams = int(needed < most / narrow ? needed : most / narrow);
    lanes = int(blocks_of(units, blocks_of(units, most / teams)));  // few are idle in the last block
    slices = int(most / (teams * lanes) < outer ? most / (teams * lanes) : outer);
    column_blocks = blocks_of(units, lanes), outer_blocks = blocks_of(outer, slices);
    const long step = long(teams) * at_once, steps = count > step ? blocks_of(count, step) : 1;
    const long blocks = column_blocks * outer_blocks;
    // slices are independent: only a block of one slice, which has all the teams it can, is cut
    const long most_blocks = of_unit == 1 ? 2 * kColumnBlocks : kColumnBlocks;
    const long wanted = slices > 1 || whole || blocks >= kColumnBlocks ? 1 : most_blocks / blocks;
    chunk_rows = blocks_of(steps, wanted < steps ? wanted : steps) * step;
    chunks = count > chunk_rows ? blocks_of(count, chunk_rows) : 1;
  }
};

template <class V> ColumnsCut columns_cut(long outer, long count, long width) {
  return {outer, count, width, LanesOf<V>::count, kRowsAtOnce<V>};
}

// Terms of kRows rows: row, row + teams, ...; after `last` - 1 it is read again instead.
template <class V, class Body> struct Batch {
  using Mine = ColumnParts<typename Body::Monoids, V>;
  static constexpr int kRows = kRowsAtOnce<V>;
  V x[Body::Monoids::size][kRows];

  RF_FN void read(const Body& body, long base, long row, long last, int teams, long unit) {
    for_monoids<0>(typename Body::Monoids{}, [&](auto step, auto monoid) {
#pragma unroll
      for (int k = 0; k < kRows; k++) {
        const long at = row + k * teams < last ? row + k * teams : last - 1;
        x[decltype(step)::index][k] = body.template term<V>(step, base + at, LanesOf<V>::at(unit));
      }
    });
  }
  // All: whether none of the rows is at `last` or after it.
  template <bool All> RF_FN void gather_into(Mine& parts, long row, long last, int teams) const {
    Mine batch;
    bool in[kRows];
#pragma unroll
    for (int k = 0; k < kRows; k++) {
      in[k] = All || row + k * teams < last;
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
    parts.merge(batch);
  }
};

template <class V, class Body>
__global__ void __launch_bounds__(kColumnThreads, 1)
    columns_kernel(const __grid_constant__ Body body, long outer, long count, long width, ColumnsCut cut,
                   Real* workspace, unsigned* turns) {
  using Monoids = typename Body::Monoids;
  using Mine = ColumnParts<Monoids, V>;
  constexpr int kLanes = Mine::kLanes;
  const unsigned line = threadIdx.x / unsigned(cut.lanes), slice = line / unsigned(cut.teams);
  const int lane = threadIdx.x - line * cut.lanes, team = line - slice * cut.teams;
  const unsigned column_blocks = unsigned(cut.column_blocks), chunks = unsigned(cut.chunks);
  const unsigned column_block = blockIdx.x % column_blocks, rest = blockIdx.x / column_blocks;
  const unsigned chunk = rest % chunks, outer_block = rest / chunks;
  const long my_outer = long(outer_block) * cut.slices + slice, my_unit = long(column_block) * cut.lanes + lane;
  const bool has = my_outer < outer && my_unit < cut.units;
  const long base = (my_outer < outer ? my_outer : outer - 1) * count;
  const long unit = my_unit < cut.units ? my_unit : cut.units - 1;  // reads like one that exists
  const long last = count < (chunk + 1) * cut.chunk_rows ? count : (chunk + 1) * cut.chunk_rows;
  begin_kernel(body);

  Mine parts;
  long row = chunk * cut.chunk_rows + team;
  if (row < last) {
    const int step = cut.teams * kRowsAtOnce<V>;
    Batch<V, Body> batch;
    if constexpr (kLanes == 4) {
      batch.read(body, base, row, last, cut.teams, unit);
#pragma unroll 1
      for (; row + step < last; row += step) {  // the next batch is on its way while this one is gathered
        Batch<V, Body> next;
        next.read(body, base, row + step, last, cut.teams, unit);
        batch.template gather_into<true>(parts, row, last, cut.teams);
        batch = next;
      }
    } else {
#pragma unroll 1
      for (; row + step < last; row += step) {
        batch.read(body, base, row, row + step, cut.teams, unit);
        batch.template gather_into<true>(parts, row, last, cut.teams);
      }
      batch.read(body, base, row, last, cut.teams, unit);
    }
    batch.template gather_into<false>(parts, row, last, cut.teams);
  }
  merge_teams(parts, lane, team, slice, cut.lanes, cut.teams);

  if (chunks > 1) {
    // a chunk's words of this thread's lanes; `slices` is 1 where there are chunks
    const auto words_of = [&](long c, int w) {
      return workspace + ((my_outer * chunks + c) * Mine::kWords + w) * width + unit * kLanes;
    };
    if (team == 0 && has)
#pragma unroll
      for (int w = 0; w < Mine::kWords; w++) {
        const Real* x = parts.words[w];
        if constexpr (kLanes == 4) put(words_of(chunk, w), 0, Quad{0}, Four::each([&](int i) { return x[i]; }));
        else *words_of(chunk, w) = x[0];
      }
    if (!last_block(turns + long(outer_block) * column_blocks + column_block, chunks)) return;
    parts = merge_chunks<Mine, V>(words_of(0, 0), width, team, cut.teams, chunks, cut.chunk_rows, count);
    merge_teams(parts, lane, team, slice, cut.lanes, cut.teams);
  }
  if (team == 0 && has) {
    typename Body::Column columns[kLanes];
    for_columns(parts, [&](auto step, int l, const auto& state) { body.set_column(step, columns[l], state); });
#pragma unroll
    for (int l = 0; l < kLanes; l++) body.finish_column(columns[l], my_outer, unit * kLanes + l);
  }
}

// --- the host's side -----------------------------------------------------------------------------
// What columns() of these sizes needs of its workspace, however its operands are aligned.
template <class Body> Error columns_needs(long outer, long count, long width, Needs& needs) {
  needs = {};
  if (outer == 0 || width == 0) return nullptr;
  for (const bool fours : {false, true}) {
    if (fours && width % 4) continue;
    const ColumnsCut cut = fours ? columns_cut<Four>(outer, count, width) : columns_cut<Real>(outer, count, width);
    if (cut.chunks == 1) continue;
    const size_t parts = sizeof(Real) * Words<typename Body::Monoids>::column * outer * cut.chunks * width;
    const size_t turns = sizeof(unsigned) * cut.outer_blocks * cut.column_blocks;
    needs.parts = parts > needs.parts ? parts : needs.parts;
    needs.turns = turns > needs.turns ? turns : needs.turns;
  }
  return nullptr;
}

template <class V, class Body>
Error run_columns(const Body& body, long outer, long count, long width, const Workspace& workspace,
                  cudaStream_t stream) {
  const ColumnsCut cut = columns_cut<V>(outer, count, width);
  Device device;
  RF_TRY(current_device(device));
  unsigned grid;
  RF_TRY(grid_of(cut.column_blocks * cut.outer_blocks * cut.chunks, grid));
  const unsigned threads = cut.lanes * cut.teams * cut.slices;
  return launch(columns_kernel<V, Body>, grid, threads, 0, stream, start_on(device), "launching reductions of columns",
                body, outer, count, width, cut,
                static_cast<Real*>(workspace.parts), workspace.turns);
}

// The body's results for each outer slice and column. aligned: whether every operand that is read
// along the width can be read 16 bytes at a time (see aligned()).
template <class Body>
Error columns(const Body& body, long outer, long count, long width, bool aligned, const Workspace& workspace,
              cudaStream_t stream) {
  if (outer == 0 || width == 0) return nullptr;
  if (aligned && width % 4 == 0)
    return run_columns<Four>(body, outer, count, width, workspace, stream);
  return run_columns<Real>(body, outer, count, width, workspace, stream);
}

}  // namespace rf
