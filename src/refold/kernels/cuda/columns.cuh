// Columns: for each outer slice of a space [outer, count, width], reductions over `count`.
//
// Why: batch statistics and sums down columns read everything once and write next to nothing, so they
// take as long as reading does. A thread walks down kRowsAtOnce rows at a time and keeps a part for
// each of its columns; all reductions of a body are made in the same walk.
//
// A body gives
//   Monoids = List<...>                     one for each reduction
//   term<V>(Step<S>, row, col)              the lanes reduced; row counts over outer * count
//   finish(Step<S>, outer, col, state)      takes the result of one column
//
// Layout: a block is `lanes` x `teams` x `slices` threads: neighbours in a row, then rows, then (where
// there are few rows) outer slices. Teams merge in pairs in shared memory. Where blocks are few the
// rows are cut into chunks, whose parts wait in the workspace: [outer][chunk][word][column]; the last
// block to arrive merges them. All cuts follow from the sizes alone and all merges have a fixed order,
// so results depend neither on the run nor on the device.
#pragma once
#include "block.cuh"
#include "device.cuh"

namespace rf {

constexpr int kColumnThreads = 256, kRowsAtOnce = 8;
constexpr long kColumnBlocks = 1024;  // a launch has about as many, if it can

// How a space is cut.
struct ColumnsCut {
  long units, column_blocks, outer_blocks, chunk_rows, chunks;
  int lanes, teams, slices;  // powers of two; their product is kColumnThreads
  ColumnsCut(long outer, long count, long width, int of_unit) : units(width / of_unit) {
    const long least = 32 / of_unit;  // 128 bytes of a row
    const long row = power_of_two(units), needed = power_of_two(blocks_of(count, kRowsAtOnce));
    const long narrow = row < least ? row : least;
    teams = int(needed < kColumnThreads / narrow ? needed : kColumnThreads / narrow);
    lanes = int(row < kColumnThreads / teams ? row : kColumnThreads / teams);
    slices = kColumnThreads / (teams * lanes);
    column_blocks = blocks_of(units, lanes), outer_blocks = blocks_of(outer, slices);
    const long step = long(teams) * kRowsAtOnce, steps = blocks_of(count, step);
    const long wanted = blocks_of(kColumnBlocks, column_blocks * outer_blocks > 0 ? column_blocks * outer_blocks : 1);
    chunk_rows = blocks_of(steps, wanted < steps ? wanted : (steps > 0 ? steps : 1)) * step;
    chunks = count > chunk_rows ? blocks_of(count, chunk_rows) : 1;
  }
};

// A thread's parts of all reductions: a word of each of its lanes, and of how many rows they are.
template <class Monoids, class V> struct ColumnParts {
  static constexpr int kLanes = LanesOf<V>::count, kWords = Words<Monoids>::column;
  float words[kWords][kLanes], count = 0.0f;

  template <class D, class S> RF_FN typename D::Part get(S, int lane) const {
    typename D::Part p;
#pragma unroll
    for (int w = 0; w < D::kWords; w++) p.w[w] = words[Before<S::index, Monoids>::column + w][lane];
    return p;
  }
  template <class D, class S> RF_FN void set(S, int lane, const typename D::Part& p) {
#pragma unroll
    for (int w = 0; w < D::kWords; w++) words[Before<S::index, Monoids>::column + w][lane] = p.w[w];
  }
  RF_FN ColumnParts() {
    for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
      using D = Down<decltype(monoid)>;
      const float none[1] = {0.0f};
      const bool in[1] = {false};
#pragma unroll
      for (int l = 0; l < kLanes; l++) set<D>(step, l, D::template of<1>(none, in, 0.0f));
    });
  }
  // Takes the parts of rows that come after those it has. One without rows is left alone: its zero
  // weight would turn an infinite mean into NaN.
  RF_FN void merge(const ColumnParts& o) {
    if (o.count == 0.0f) return;
    const Weight weight(count, o.count);
    for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
      using D = Down<decltype(monoid)>;
#pragma unroll
      for (int l = 0; l < kLanes; l++)
        set<D>(step, l, D::merge(get<D>(step, l), o.template get<D>(step, l), weight));
    });
    count += o.count;
  }
};

// Takes up to kRowsAtOnce rows: row, row + teams, ... before `last`. All: whether there are as many.
template <bool All, class V, class Body>
RF_FN void gather_rows(const Body& body, ColumnParts<typename Body::Monoids, V>& parts, long base, long row, long last,
                       int teams, long unit) {
  constexpr int kRows = kRowsAtOnce;
  ColumnParts<typename Body::Monoids, V> batch;
  bool in[kRows];
#pragma unroll
  for (int k = 0; k < kRows; k++) {
    in[k] = All || row + k * teams < last;
    batch.count += in[k];
  }
  const float share = 1.0f / batch.count;
  for_monoids<0>(typename Body::Monoids{}, [&](auto step, auto monoid) {
    using D = Down<decltype(monoid)>;
    V x[kRows];
#pragma unroll
    for (int k = 0; k < kRows; k++)
      x[k] = body.template term<V>(step, base + (in[k] ? row + k * teams : last - 1), LanesOf<V>::at(unit));
#pragma unroll
    for (int l = 0; l < LanesOf<V>::count; l++) {
      float y[kRows];
#pragma unroll
      for (int k = 0; k < kRows; k++) y[k] = LanesOf<V>::get(x[k], l);
      batch.template set<D>(step, l, D::template of<kRows>(y, in, share));
    }
  });
  parts.merge(batch);
}

// Merges the parts of the block's teams, in pairs, into those of the first.
template <class Parts>
RF_FN void merge_teams(Parts& parts, int lane, int team, int slice, int lanes, int teams) {
  constexpr int kSlots = kColumnThreads / 2, kLanes = Parts::kLanes;
  __shared__ float words[Parts::kWords][kLanes][kSlots], counts[kSlots];
  for (int half = teams / 2; half; half /= 2) {
    const int slot = (slice * half + (team & (half - 1))) * lanes + lane;
    if (team >= half && team < 2 * half) {
#pragma unroll
      for (int w = 0; w < Parts::kWords; w++)
#pragma unroll
        for (int l = 0; l < kLanes; l++) words[w][l][slot] = parts.words[w][l];
      counts[slot] = parts.count;
    }
    __syncthreads();
    if (team < half) {
      Parts other;
#pragma unroll
      for (int w = 0; w < Parts::kWords; w++)
#pragma unroll
        for (int l = 0; l < kLanes; l++) other.words[w][l] = words[w][l][slot];
      other.count = counts[slot];
      parts.merge(other);
    }
    __syncthreads();
  }
}

template <class V, class Body>
__global__ void __launch_bounds__(kColumnThreads, 1)
    columns_kernel(const __grid_constant__ Body body, long outer, long count, long width, ColumnsCut cut,
                   float* workspace, unsigned* turns) {
  using Monoids = typename Body::Monoids;
  using Mine = ColumnParts<Monoids, V>;
  constexpr int kLanes = Mine::kLanes;
  const int lane = threadIdx.x & (cut.lanes - 1), team = threadIdx.x / cut.lanes & (cut.teams - 1);
  const int slice = threadIdx.x / (cut.lanes * cut.teams);
  const unsigned column_blocks = unsigned(cut.column_blocks), chunks = unsigned(cut.chunks);
  const unsigned column_block = blockIdx.x % column_blocks, rest = blockIdx.x / column_blocks;
  const unsigned chunk = rest % chunks, outer_block = rest / chunks;
  const long my_outer = long(outer_block) * cut.slices + slice, my_unit = long(column_block) * cut.lanes + lane;
  const bool has = my_outer < outer && my_unit < cut.units;
  const long base = (my_outer < outer ? my_outer : outer - 1) * count;
  const long unit = my_unit < cut.units ? my_unit : cut.units - 1;  // reads like one that exists
  const long last = count < (chunk + 1) * cut.chunk_rows ? count : (chunk + 1) * cut.chunk_rows;
  begin_kernel();

  Mine parts;
  long row = chunk * cut.chunk_rows + team;
  const int step = cut.teams * kRowsAtOnce;
#pragma unroll 1
  for (; row + step - cut.teams < last; row += step) gather_rows<true, V>(body, parts, base, row, last, cut.teams, unit);
  if (row < last) gather_rows<false, V>(body, parts, base, row, last, cut.teams, unit);
  merge_teams(parts, lane, team, slice, cut.lanes, cut.teams);

  if (chunks > 1) {
    // a chunk's words of this thread's lanes; `slices` is 1 where there are chunks
    const auto words_of = [&](long c, int w) {
      return workspace + ((my_outer * chunks + c) * Mine::kWords + w) * width + unit * kLanes;
    };
    if (team == 0 && has)
#pragma unroll
      for (int w = 0; w < Mine::kWords; w++)
#pragma unroll
        for (int l = 0; l < kLanes; l++) words_of(chunk, w)[l] = parts.words[w][l];
    if (!last_block(turns + long(outer_block) * column_blocks + column_block, chunks)) return;
    constexpr int kAtOnce = 4;  // these reads come from the second-level cache
    parts = Mine();
#pragma unroll 1
    for (long c = team; c < chunks; c += kAtOnce * cut.teams) {
      Mine next[kAtOnce];
#pragma unroll
      for (int k = 0; k < kAtOnce; k++) {
        const long from = c + k * cut.teams, left = count - from * cut.chunk_rows;
        next[k].count = left <= 0 ? 0.0f : float(left < cut.chunk_rows ? left : cut.chunk_rows);
#pragma unroll
        for (int w = 0; w < Mine::kWords; w++)
#pragma unroll
          for (int l = 0; l < kLanes; l++) next[k].words[w][l] = __ldcg(words_of(left <= 0 ? c : from, w) + l);
      }
#pragma unroll
      for (int k = 0; k < kAtOnce; k++) parts.merge(next[k]);
    }
    merge_teams(parts, lane, team, slice, cut.lanes, cut.teams);
  }
  if (team == 0 && has)
    for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
      using D = Down<decltype(monoid)>;
#pragma unroll
      for (int l = 0; l < kLanes; l++) {
        typename D::State state;
        D::merge(state, parts.template get<D>(step, l), parts.count);
        body.finish(step, my_outer, unit * kLanes + l, state);
      }
    });
}

// --- the host's side -----------------------------------------------------------------------------
// What columns() of these sizes needs of its workspace, however its operands are aligned.
template <class Body> Error columns_needs(long outer, long count, long width, Needs& needs) {
  needs = {};
  for (const int of_unit : {1, 4}) {
    const ColumnsCut cut(outer, count, width, of_unit);
    if (cut.chunks == 1) continue;
    const size_t parts = sizeof(float) * Words<typename Body::Monoids>::column * outer * cut.chunks * width;
    const size_t turns = sizeof(unsigned) * cut.outer_blocks * cut.column_blocks;
    needs.parts = parts > needs.parts ? parts : needs.parts;
    needs.turns = turns > needs.turns ? turns : needs.turns;
  }
  return nullptr;
}

template <class V, class Body>
Error run_columns(const Body& body, const ColumnsCut& cut, long outer, long count, long width,
                  const Workspace& workspace, cudaStream_t stream) {
  Device device;
  RF_TRY(current_device(device));
  unsigned grid;
  RF_TRY(grid_of(cut.column_blocks * cut.outer_blocks * cut.chunks, grid));
  return launch(columns_kernel<V, Body>, grid, kColumnThreads, 0, stream, start_on(device),
                "launching reductions of columns", body, outer, count, width, cut,
                static_cast<float*>(workspace.parts), workspace.turns);
}

// The body's results for each outer slice and column. aligned: whether every operand that is read
// along the width can be read 16 bytes at a time (see aligned()).
template <class Body>
Error columns(const Body& body, long outer, long count, long width, bool aligned, const Workspace& workspace,
              cudaStream_t stream) {
  if (outer == 0 || width == 0) return nullptr;
  if (aligned && width % 4 == 0)
    return run_columns<Four>(body, ColumnsCut(outer, count, width, 4), outer, count, width, workspace, stream);
  return run_columns<float>(body, ColumnsCut(outer, count, width, 1), outer, count, width, workspace, stream);
}

}  // namespace rf
