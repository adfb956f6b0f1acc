// Rows: passes over each row of a space of rows x width; a pass may use what earlier ones reduced.
//
// Why: everything between products is bound by memory. A row is read once from it: the passes that
// follow have it in registers or, of a long one, find it in the first-level cache, which holds the rows
// that a multiprocessor works on.
//
// A body gives
//   Row                                what is known of a row so far
//   Monoids = List<...>                one monoid for each pass (none: a pointwise body)
//   term<V>(Step<S>, row_so_far, row, col)   the lanes that pass S reduces
//   set(Step<S>, row_so_far, row, value)     takes the result of pass S into row_so_far
//   store<V>(row_so_far, row, col)           writes full-size results      (if kStores)
//   read<V>(row, col)                        reads what store does, so that no load waits for a store
//   finish(row_so_far, row)                  writes results of one row     (if kFinishes)
//   kBlocks                                  blocks on a multiprocessor that hold rows of fours
// Lanes are of four columns or, where rows do not start at multiples of 16 bytes, of one. A "unit" is one V.
//
// Layout: which threads take which units follows from the sizes alone, so results do not depend on
// the device. In order of width:
//   pointwise   each thread takes kBatch units: of as many rows (what is known of a column is then
//               read once), or of one row where rows are few
//   held        lanes of a warp, or whole warps, hold a row in registers, kBatch units each: of short rows
//               those of two rows, of wider ones only if more than one pass reads them
//   by team     whole warps take a row, kBatch units at once; small teams share a block
//   by pass     few rows that are very long: many blocks a row, one launch a pass; the last block to
//               arrive merges the parts of the others
//
// The ladder (H200, of the copy rate 4.25 TB/s): a float4 that is assigned became four stores, 0.75; one
// store, 0.96. Whole batches without branches took softmax 16384x4096 from 0.73 to 0.79, x @ v to 1.04; rows
// held in registers, softmax 149 -> 135 us, layer norm 262144x64 45 -> 35. Four batches a thread: rows fall
// out of the first-level cache, 20% slower; blocks that loop over rows: 7% slower.
#pragma once
#include "block.cuh"
#include "device.cuh"

namespace rf {

constexpr int kRowThreads = 256, kMostTeam = 512;
constexpr long kSplitWidth = 8192;  // columns of a block, by pass
constexpr long kSplitFrom = 8 * kSplitWidth, kSplitRows = 64;  // rows as wide, and as few, are split
constexpr long kBusy = 1 << 17;                                // threads that keep memory busy
constexpr int kHeldRows = 2;  // short ones, of a thread
template <class V> constexpr int kBatch = LanesOf<V>::count == 4 ? 4 : 8;  // units in flight in a thread

// Reads the words of a Row as another block left them, not as the first-level cache may know them.
template <class Row> RF_FN Row row_from(const Row* p) {
  Row r{};
#pragma unroll
  for (size_t i = 0; i < sizeof(Row) / sizeof(Real); i++)
    reinterpret_cast<Real*>(&r)[i] = __ldcg(reinterpret_cast<const Real*>(p) + i);
  return r;
}

template <class M> RF_FN Real result_of(const typename M::Part& p) {
  static_assert(M::kResults == 1, "a pass over rows reduces to one value");
  typename M::State state;
  Real value[1];
  M::merge(state, p);
  M::results(state, value);
  return value[0];
}

template <class Body> RF_FN void finish_row(const Body& body, const typename Body::Row& r, long row) {
  if constexpr (Body::kFinishes) body.finish(r, row);
}

// Stores the units at row(k), unit(k), all read first: no load may be moved before a store.
template <class V, class Body, class RowOf, class UnitOf>
RF_FN void store_batch(const Body& body, const typename Body::Row& r, RowOf row, UnitOf unit) {
  Known<V, Body::kAgain> known[kBatch<V>];
#pragma unroll
  for (int k = 0; k < kBatch<V>; k++) body.template read<V>(row(k), known[k].at(unit(k)));
#pragma unroll
  for (int k = 0; k < kBatch<V>; k++) body.template store<V>(r, row(k), known[k].at(unit(k)));
}

// --- pointwise -----------------------------------------------------------------------------------
template <class V, bool kDown, class Body>
__global__ void __launch_bounds__(kRowThreads, 1)
    pointwise(const __grid_constant__ Body body, long rows, long width, long tiles) {
  constexpr int kUnits = kBatch<V>;
  const typename Body::Row r{};
  const long units = width / LanesOf<V>::count, first = long(blockIdx.x) * blockDim.x + threadIdx.x;
  begin_kernel();
  if constexpr (kDown) {  // rows row, row + groups, ...
    const long groups = (rows + kUnits - 1) / kUnits;
    if (first >= groups * units) return;
    // a 64-bit division costs 100 instructions
    const long row = groups * units <= UINT32_MAX ? unsigned(first) / unsigned(units) : first / units;
    const long unit = first - row * units;
    if (row + (kUnits - 1) * groups < rows) {
      store_batch<V>(body, r, [&](int k) { return row + k * groups; }, [&](int) { return unit; });
    } else {
#pragma unroll 1
      for (long i = row; i < rows; i += groups) body.template store<V>(r, i, LanesOf<V>::at(unit));
    }
    if constexpr (Body::kFinishes)
      if (unit == 0)
        for (long i = row; i < rows; i += groups) body.finish(r, i);
  } else {  // units unit, unit + blockDim.x, ... of one row
    const long row = blockIdx.x / tiles, tile = blockIdx.x - row * tiles;
    const long unit = tile * kUnits * blockDim.x + threadIdx.x;
    if (unit + (kUnits - 1) * blockDim.x < units) {
      store_batch<V>(body, r, [&](int) { return row; }, [&](int k) { return unit + k * blockDim.x; });
    } else {
#pragma unroll 1
      for (int k = 0; k < kUnits; k++)
        if (unit + k * blockDim.x < units)
          body.template store<V>(r, row, LanesOf<V>::at(unit + k * blockDim.x));
    }
    if (tile == tiles - 1) {  // of a single row what four does not divide
      const long col = units * LanesOf<V>::count + threadIdx.x;
      if (col < width) body.template store<Real>(r, row, col);
    }
    if constexpr (Body::kFinishes)
      if (unit == 0) body.finish(r, row);
  }
}

// --- held ----------------------------------------------------------------------------------------
// kRows rows of kUnits units a thread: `threads` lanes of a warp hold a row, or whole warps (then one). All
// passes name the same units, so a row is read once and stays in registers, of a softmax its exponentials.
template <class V, int kRows, int kUnits, class Body>
__global__ void __launch_bounds__(kMostTeam, LanesOf<V>::count == 4 ? Body::kBlocks : 1)
    rows_held(const __grid_constant__ Body body, long rows, int units, int threads) {
  __shared__ Real shared[2][kMostTeam / 32][2];  // two passes, warps, words
  const int teams = blockDim.x / threads, team = threadIdx.x / threads, thread = threadIdx.x - team * threads;
  const long first = long(blockIdx.x) * teams * kRows + team;
  if (threads >= 32 && first >= rows) return;  // a whole team; lanes are needed by others of their warp
  // Rows and units after the last are read like it and left out: all loads are in flight together.
  long row[kRows];
  typename Body::Row r[kRows]{};
#pragma unroll
  for (int i = 0; i < kRows; i++) row[i] = first + i * teams < rows ? first + i * teams : rows - 1;
  int unit[kUnits];
#pragma unroll
  for (int k = 0; k < kUnits; k++) unit[k] = thread + k * threads < units ? thread + k * threads : units - 1;
  begin_kernel();
  Known<V, Body::kAgain> known[kRows][kUnits];
  for_monoids<0>(typename Body::Monoids{}, [&](auto step, auto monoid) {
    using M = decltype(monoid);
    static_assert(M::kWords <= 2, "the parts of a team are of two words at most");
    V x[kRows][kUnits];
#pragma unroll
    for (int i = 0; i < kRows; i++)
#pragma unroll
      for (int k = 0; k < kUnits; k++) x[i][k] = body.template term<V>(step, r[i], row[i], known[i][k].at(unit[k]));
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      Parts<M, V> parts;
#pragma unroll
      for (int k = 0; k < kUnits; k++)
        if (thread + k * threads < units) parts.gather(x[i][k]);
      typename M::Part part = parts.all();
      if (kRows > 1 || threads <= 32)
        part = across_lanes<M>(part, threads);
      else
        part = across_team<M>(part, thread, threads, team + 1, shared[decltype(step)::index % 2][team * (threads / 32)]);
      body.set(step, r[i], row[i], result_of<M>(part));
    }
  });
#pragma unroll
  for (int i = 0; i < kRows; i++) {
    if (first + i * teams >= rows) continue;
    if constexpr (Body::kStores) {
#pragma unroll
      for (int k = 0; k < kUnits; k++) body.template read<V>(row[i], known[i][k].at(unit[k]));
#pragma unroll
      for (int k = 0; k < kUnits; k++)
        if (thread + k * threads < units) body.template store<V>(r[i], row[i], known[i][k].at(unit[k]));
    }
    if constexpr (Body::kFinishes)
      if (thread == 0) body.finish(r[i], row[i]);
  }
}

// --- by team -------------------------------------------------------------------------------------
// This thread's part of `units` units from `first` on. In the last batch units after the last are
// read like it and left out: so all loads of a batch are in flight together.
template <class M, int S, class V, class Body>
RF_FN typename M::Part gather_units(const Body& body, const typename Body::Row& r, long row, long first, int units,
                                    int thread, int threads) {
  constexpr int kUnits = kBatch<V>, kChain = 16;  // batches added one by one, then merged
  Parts<M, V> all;
  int j = thread;
#pragma unroll 1
  do {
    Parts<M, V> chain;
#pragma unroll 1
    for (int b = 0; b < kChain && j + (kUnits - 1) * threads < units; b++, j += kUnits * threads) {
      V x[kUnits];
#pragma unroll
      for (int k = 0; k < kUnits; k++)
        x[k] = body.template term<V>(Step<S>{}, r, row, LanesOf<V>::at(first + j + k * threads));
#pragma unroll
      for (int k = 0; k < kUnits; k++) chain.gather(x[k]);
    }
    all.merge(chain);
  } while (j + (kUnits - 1) * threads < units);
  if (j < units) {
    V x[kUnits];
#pragma unroll
    for (int k = 0; k < kUnits; k++) {
      const int unit = j + k * threads < units ? j + k * threads : units - 1;
      x[k] = body.template term<V>(Step<S>{}, r, row, LanesOf<V>::at(first + unit));
    }
    all.gather(x[0]);
#pragma unroll
    for (int k = 1; k < kUnits; k++)
      if (j + k * threads < units) all.gather(x[k]);
  }
  return all.all();
}

template <class V, class Body>
RF_FN void store_units(const Body& body, const typename Body::Row& r, long row, long first, int units, int thread,
                       int threads) {
  constexpr int kUnits = kBatch<V>;
#pragma unroll 1
  for (int j = thread; j < units; j += kUnits * threads) {
    if (j + (kUnits - 1) * threads < units) {
      store_batch<V>(body, r, [&](int) { return row; }, [&](int k) { return first + j + k * threads; });
    } else {
#pragma unroll 1
      for (int i = j; i < units; i += threads) body.template store<V>(r, row, LanesOf<V>::at(first + i));
    }
  }
}

template <class V, class Body>
__global__ void __launch_bounds__(kMostTeam, 1)
    rows_by_team(const __grid_constant__ Body body, long rows, int units, int threads) {
  __shared__ Real shared[2][kMostTeam / 32][2];  // two passes, warps, words
  const int team = threadIdx.x / threads, thread = threadIdx.x - team * threads;
  const long row = long(blockIdx.x) * (blockDim.x / threads) + team;
  begin_kernel();
  if (row >= rows) return;  // a whole team
  typename Body::Row r{};
  for_monoids<0>(typename Body::Monoids{}, [&](auto step, auto monoid) {
    using M = decltype(monoid);
    constexpr int S = decltype(step)::index;
    static_assert(M::kWords <= 2, "the parts of a team are of two words at most");
    const auto part = gather_units<M, S, V>(body, r, row, 0, units, thread, threads);
    Real* parts = shared[S % 2][team * (threads / 32)];
    body.set(step, r, row, result_of<M>(across_team<M>(part, thread, threads, team + 1, parts)));
  });
  if constexpr (Body::kStores) store_units<V>(body, r, row, 0, units, thread, threads);
  if constexpr (Body::kFinishes)
    if (thread == 0) body.finish(r, row);
}

// --- by pass -------------------------------------------------------------------------------------
template <class V, class Body>
__global__ void __launch_bounds__(kRowThreads, 1)
    rows_by_pass(const __grid_constant__ Body body, long width, long chunks, int pass, typename Body::Row* known,
                 Real* parts, unsigned* turns) {
  using Monoids = typename Body::Monoids;
  __shared__ Real shared[2][kRowThreads / 32 * 2];
  const long row = blockIdx.x / chunks, chunk = blockIdx.x - row * chunks;
  constexpr int kChunkUnits = kSplitWidth / LanesOf<V>::count;
  const long first = chunk * kChunkUnits, left = width / LanesOf<V>::count - first;
  const int units = left < kChunkUnits ? int(left) : kChunkUnits, thread = threadIdx.x;
  begin_kernel();
  typename Body::Row r{};
  if (pass > 0) r = row_from(known + row);
  for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
    using M = decltype(monoid);
    constexpr int S = decltype(step)::index;
    if (pass != S) return;
    auto part = gather_units<M, S, V>(body, r, row, first, units, thread, kRowThreads);
    part = across_team<M>(part, thread, kRowThreads, 0, shared[0]);
    if (thread == 0)
#pragma unroll
      for (int w = 0; w < M::kWords; w++) parts[blockIdx.x * M::kWords + w] = part.w[w];
    if (!last_block(turns + row, unsigned(chunks))) return;
    part = M::identity();
    for (long c = thread; c < chunks; c += kRowThreads) {
      typename M::Part next;
#pragma unroll
      for (int w = 0; w < M::kWords; w++) next.w[w] = __ldcg(parts + (row * chunks + c) * M::kWords + w);
      M::merge(part, next);
    }
    body.set(step, r, row, result_of<M>(across_team<M>(part, thread, kRowThreads, 0, shared[1])));
    if (thread == 0) {
      known[row] = r;
      if (S + 1 == Monoids::size) finish_row(body, r, row);
    }
  });
  if constexpr (Body::kStores)
    if (pass == Monoids::size) store_units<V>(body, r, row, first, units, thread, kRowThreads);
}

// --- the host's side -----------------------------------------------------------------------------
// How a space is cut.
struct RowsCut {
  enum Kind { held, by_team, by_pass } kind;
  int held_rows = 1;   // of a thread
  long units, chunks;  // of a row
  int threads;         // of a row: lanes of a warp, or whole warps
  // batch: units that a thread has in flight. again: whether a row is read by more than one pass.
  RowsCut(long rows, long width, int of_unit, int batch, bool again)
      : units(width / of_unit), chunks(blocks_of(width, kSplitWidth)) {
    if ((rows <= kSplitRows && width >= kSplitFrom) || units > INT32_MAX / 2) kind = by_pass, threads = kRowThreads;
    else if (units == 0) kind = by_team, threads = 32;
    else if (units <= 8 * batch || (again && units <= long(kMostTeam) * batch)) hold(batch);
    else kind = by_team, threads = team_of(rows, batch);
  }
  // As few lanes as hold a row, or as few warps.
  void hold(int batch) {
    kind = held;
    if (units <= 2 * batch) held_rows = kHeldRows;
    const long lanes = covering_power_of_two(blocks_of(units, batch / held_rows));
    threads = int(lanes < 32 ? lanes : 32 * blocks_of(units, 32 * batch));
  }
  // Whole batches a thread: two where there are threads enough without a third.
  int team_of(long rows, int batch) const {
    const auto team = [&](long batches) { return 32 * blocks_of(units, 32 * batch * batches); };
    long batches = blocks_of(units, long(kMostTeam) * batch);
    if (batches == 1 && rows * team(2) >= kBusy) batches = 2;
    return int(team(batches) < kMostTeam ? team(batches) : kMostTeam);
  }
};
template <class V, class Body> RowsCut rows_cut(long rows, long width) {
  return {rows, width, LanesOf<V>::count, kBatch<V>, Body::Monoids::size + Body::kStores > 1};
}

// What rows() of these sizes needs of its workspace, however its operands are aligned.
template <class Body> Error rows_needs(long rows, long width, Needs& needs) {
  needs = {};
  if constexpr (Body::Monoids::size > 0) {
    const RowsCut cut = rows_cut<Real, Body>(rows, width);
    if (cut.kind == RowsCut::by_pass) {
      constexpr size_t words = Words<typename Body::Monoids>::row;
      needs.parts = (rows * sizeof(typename Body::Row) + 255) / 256 * 256 + rows * cut.chunks * words * sizeof(Real);
      needs.turns = rows * sizeof(unsigned);
    }
  }
  return nullptr;
}

template <class V, class Body>
Error run_pointwise(const Body& body, long rows, long width, cudaStream_t stream, Start start) {
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

template <class V, class Body>
Error run_rows(const Body& body, const RowsCut& cut, long rows, long width, const Workspace& workspace,
               cudaStream_t stream, Start start) {
  constexpr const char* doing = "launching passes over rows";
  using Row = typename Body::Row;
  unsigned grid;
  if (cut.kind == RowsCut::by_pass) {
    Row* known = static_cast<Row*>(workspace.parts);
    char* after = static_cast<char*>(workspace.parts) + (rows * sizeof(Row) + 255) / 256 * 256;
    Real* parts = reinterpret_cast<Real*>(after);
    RF_TRY(grid_of(rows * cut.chunks, grid));
    for (int pass = 0; pass < Body::Monoids::size + Body::kStores; pass++)
      RF_TRY(launch(rows_by_pass<V, Body>, grid, kRowThreads, 0, stream, start, doing, body, width, cut.chunks, pass,
                    known, parts, workspace.turns));
    return nullptr;
  }
  const int units = static_cast<int>(cut.units);
  const int teams = cut.threads > kRowThreads ? 1 : kRowThreads / cut.threads, threads = teams * cut.threads;
  RF_TRY(grid_of(blocks_of(rows, teams * cut.held_rows), grid));
  auto* kernel = cut.held_rows > 1 ? rows_held<V, kHeldRows, kBatch<V> / kHeldRows, Body>
                 : cut.kind == RowsCut::held ? rows_held<V, 1, kBatch<V>, Body>
                                             : rows_by_team<V, Body>;
  return launch(kernel, grid, threads, 0, stream, start, doing, body, rows, units, cut.threads);
}

// The body's outputs over rows x width. aligned: whether every operand that is read along the width,
// and every full-size output, can be read 16 bytes at a time (see aligned()); of a pointwise body in
// one row, whether their addresses can, whatever the width.
template <class Body>
Error rows(const Body& body, long rows, long width, bool aligned, const Workspace& workspace, cudaStream_t stream) {
  if (rows == 0 || (width == 0 && Body::Monoids::size == 0 && !Body::kFinishes)) return nullptr;
  Device device;
  RF_TRY(current_device(device));
  const Start start = start_on(device);
  if constexpr (Body::Monoids::size == 0) {
    aligned = aligned && (rows == 1 || width % 4 == 0);
    return aligned ? run_pointwise<Four>(body, rows, width, stream, start)
                   : run_pointwise<Real>(body, rows, width, stream, start);
  } else {
    if (aligned && width % 4 == 0)
      return run_rows<Four>(body, rows_cut<Four, Body>(rows, width), rows, width, workspace, stream, start);
    return run_rows<Real>(body, rows_cut<Real, Body>(rows, width), rows, width, workspace, stream, start);
  }
}

}  // namespace rf
