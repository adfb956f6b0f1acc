// Kernels of rows: passes over each row of a space of rows x width; a pass may use what earlier ones reduced.
//
// Why: everything between products is bound by memory. A row is read once from it: the passes that
// follow have it in registers or, of a long one, find it in the L1, which holds the rows
// that a multiprocessor works on.
//
// A body gives
//   Row                                what is known of a row so far
//   Monoids = List<...>                one monoid for each pass (none: a pointwise body)
//   term<V>(Step<S>, row_so_far, row, col)   the lanes that pass S reduces
//   set(Step<S>, row_so_far, row, value)     takes the result of pass S into row_so_far, or its results
//   store<V>(row_so_far, row, col)           writes full-size results      (if kStores)
//   read<V>(row, col)                        reads what store does, so that no load waits for a store
//   finalize(row_so_far, row)                writes results of one row     (if kFinalizes)
//   kReused                                  how many operands several passes read (those of type Reused)
//   kMinBlocks                               blocks on a multiprocessor (launch bounds) that hold rows by Vec4
//   kRoomy                                   whether threads of two have room for eight units; statistics of one pass,
//                                            planned for longer rows, have not
// Lanes are of four columns or, where rows do not start at multiples of 16 bytes, of one. A "unit" is one V.
//
// Layout: which threads take which units follows from the sizes alone, so results do not depend on
// the device. In order of width:
//   kernel                   who takes what                                            registers   shared memory
//   pointwise                each thread kBatch units: of as many rows (what is known    by the body   none
//                            of a column is then read once), or of one row where rows
//                            are few
//   rows_register_resident   lanes of a warp, or whole warps, hold a row in registers,   31 to 64      384 bytes: a
//                            of short rows those of several, as the table of                         partial a warp,
//                            row_partition.cuh says; those of 129 to 8192 columns only               for two passes
//                            if more than one pass reads them
//   rows_warps_per_row       whole warps take a row, kBatch units at once; small groups  39 to 56      384 bytes
//                            share a block
//   rows_multi_block         few rows that are very long: many blocks a row, one launch  40 to 56      196 bytes
//                            a pass; the last block to arrive merges the others' partials
// (registers of a thread for a softmax, a layer norm and their like; of a block: 256 threads, or up to 512)
//
// The ladder (H200, of the copy rate 4.25 TB/s): a float4 that is assigned became four stores, 0.75; one
// store, 0.96. Whole batches without branches took softmax 16384x4096 from 0.73 to 0.79, x @ v to 1.04; rows
// held in registers, softmax 149 -> 135 us, layer norm 262144x64 45 -> 35. Four batches a thread: rows fall
// out of the L1, 20% slower; blocks that loop over rows: 7% slower. Single columns by whole warps, by
// constants where the width is known: softmax 16384x1023 54 -> 45, 1000000x50 170 -> 143, layer norm 16384x1023 50 ->
// 42 (16 or 32 units a thread instead of 8: 58 and 66). Statistics in one pass: softmax 4096x393216 6131 -> 4691.
// On an H100 (copy rate 2.95): eight units of four columns, so that up to 32768 are held: norms 8192x15876 372 -> 351 us,
// 4096x11008 139 -> 124, 2048x32000 258 -> 182, softmax 4096x11008 134 -> 125, 4096x20000 263 -> 229, 2048x32000 257 ->
// 184, mean and variance alone 8192x15876 205 -> 169 (4096x20000 129 -> 122, 2048x32000 91 -> 93: not taken). Longer rows
// are read at 3.0: a batch read ahead, or its lines fetched into the L2, gave nothing, and cost where rows are odd.
#pragma once
#include "block.cuh"
#include "row_partition.cuh"

namespace rf {

// What a body of rows is unless it says otherwise: pointwise.
struct RowsBody {
  struct Row {};
  using Monoids = List<>;
  static constexpr bool kStores = true, kFinalizes = false;
  static constexpr int kReused = 0, kMinBlocks = 2;
  static constexpr bool kRoomy = true;
  rf_watch::Look look = rf_watch::take_look();  // see look.h
};

// Reads the words of a Row as another block left them, not as the L1 may know them.
template <class Row> RF_FN Row row_from(const Row* p) {
  Row r{};
#pragma unroll
  for (size_t i = 0; i < sizeof(Row) / sizeof(Real); i++)
    reinterpret_cast<Real*>(&r)[i] = __ldcg(reinterpret_cast<const Real*>(p) + i);
  return r;
}

// Tells the body what pass `step` has reduced a row to.
template <class M, class Body, class Step>
RF_FN void set_results(const Body& body, Step step, typename Body::Row& r, long row, const typename M::Partial& p) {
  typename M::State state{};
  Real values[M::kResults];
  M::merge(state, p);
  M::results(state, values);
  if constexpr (M::kResults == 1) body.set(step, r, row, values[0]);
  else body.set(step, r, row, values);
}
constexpr int kMostPartialWords = 3;  // of the partials of a group

template <class Body> RF_FN void finalize_row(const Body& body, const typename Body::Row& r, long row) {
  if constexpr (Body::kFinalizes) body.finalize(r, row);
}

// Stores the units at row(k), unit(k), all read first: no load may be moved before a store.
template <class V, class Body, class RowOf, class UnitOf>
RF_FN void store_batch(const Body& body, const typename Body::Row& r, RowOf row, UnitOf unit) {
  RegisterCache<V, Body::kReused> cache[kBatch<V>];
#pragma unroll
  for (int k = 0; k < kBatch<V>; k++) body.template read<V>(row(k), cache[k].at(LanesOf<V>::at(unit(k))));
#pragma unroll
  for (int k = 0; k < kBatch<V>; k++) body.template store<V>(r, row(k), cache[k].at(LanesOf<V>::at(unit(k))));
}

// --- pointwise -----------------------------------------------------------------------------------
template <class V, bool kDown, class Body>
__global__ void __launch_bounds__(kRowThreads, 1)
    pointwise(const __grid_constant__ Body body, long rows, long width, long tiles) {
  constexpr int kUnits = kBatch<V>;
  const typename Body::Row r{};
  const long units = width / LanesOf<V>::count, first = long(blockIdx.x) * blockDim.x + threadIdx.x;
  sync_dependent_grids(body);
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
    if constexpr (Body::kFinalizes)
      if (unit == 0)
        for (long i = row; i < rows; i += groups) body.finalize(r, i);
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
    if constexpr (Body::kFinalizes)
      if (unit == 0) body.finalize(r, row);
  }
}

// --- register-resident -------------------------------------------------------------------------------
template <class V, int kUnits, class Body> struct HeldBounds {
  static constexpr bool is_long = LanesOf<V>::count == 4 && kUnits > 4;
  static constexpr int threads = LanesOf<V>::count == 1 ? kRowThreads : is_long ? kMostThreadsPerHeldRow : kMostThreadsPerRow;
  static constexpr int blocks = LanesOf<V>::count == 1 || is_long ? 1 : Body::kMinBlocks;
};

// kRows rows of kUnits units a thread: `threads` lanes of a warp hold a row, or whole warps (then one). All
// passes name the same units, so a row is read once and stays in registers, of a softmax its exponentials.
template <class V, int kRows, int kUnits, int kThreads, class Body>
__global__ void __launch_bounds__(HeldBounds<V, kUnits, Body>::threads, HeldBounds<V, kUnits, Body>::blocks)
    rows_register_resident(const __grid_constant__ Body body, long rows, int units, int row_threads) {
  constexpr int kMostWarps = HeldBounds<V, kUnits, Body>::threads / 32;
  __shared__ Real shared[2][kMostWarps][kMostPartialWords];  // two passes
  constexpr bool kSingle = LanesOf<V>::count == 1;
  constexpr int kInside = kSingle ? kUnits / 2 : 0;  // units of every thread that are in the row: see Holds
  sync_dependent_grids(body);  // before any thread returns: all of the first block look
  const int threads = kThreads ? kThreads : row_threads;
  const int thread_groups = blockDim.x / threads, thread_group = threadIdx.x / threads,
            thread = threadIdx.x - thread_group * threads;
  const long first = long(blockIdx.x) * thread_groups * kRows + thread_group;
  if (threads >= 32 && first >= rows) return;  // a whole group; lanes are needed by others of their warp
  // Rows and units after the last are read like it and left out: all loads are in flight together. Single columns
  // are computed, too, and not stored: what a branch guards is computed one after another.
  long row[kRows];
  typename Body::Row r[kRows]{};
#pragma unroll
  for (int i = 0; i < kRows; i++) row[i] = first + i * thread_groups < rows ? first + i * thread_groups : rows - 1;
  const auto in = [&](int k) { return k < kInside || thread + k * threads < units; };
  int unit[kUnits];
#pragma unroll
  for (int k = 0; k < kUnits; k++) unit[k] = in(k) ? thread + k * threads : units - 1;
  const auto at = [&](int k) {
    if constexpr (kSingle) return MaskedColumn{unit[k], in(k)};
    else return LanesOf<V>::at(unit[k]);
  };
  RegisterCache<V, Body::kReused> cache[kRows][kUnits];
  for_monoids<0>(typename Body::Monoids{}, [&](auto step, auto monoid) {
    using M = decltype(monoid);
    V x[kRows][kUnits];
#pragma unroll
    for (int i = 0; i < kRows; i++)
#pragma unroll
      for (int k = 0; k < kUnits; k++) x[i][k] = body.template term<V>(step, r[i], row[i], cache[i][k].at(at(k)));
#pragma unroll
    for (int i = 0; i < kRows; i++) {
      AccumulatedOf<M, V> accumulated;
      accumulated.accumulate(x[i], in);
      typename M::Partial partial = accumulated.all();
      if (kRows > 1 || threads <= 32)
        partial = warp_reduce<M>(partial, threads);
      else
        partial = group_reduce<M>(partial, thread, threads, thread_group + 1,
                                  shared[decltype(step)::index % 2][thread_group * (threads / 32)]);
      set_results<M>(body, step, r[i], row[i], partial);
    }
  });
#pragma unroll
  for (int i = 0; i < kRows; i++) {
    if (first + i * thread_groups >= rows) continue;
    if constexpr (Body::kStores) {
      constexpr int kAtOnce = kSingle || kUnits <= 4 ? kUnits : 1;  // what else is read must fit beside the row
#pragma unroll
      for (int first = 0; first < kUnits; first += kAtOnce) {
#pragma unroll
        for (int k = first; k < first + kAtOnce; k++) body.template read<V>(row[i], cache[i][k].at(at(k)));
#pragma unroll
        for (int k = first; k < first + kAtOnce; k++)
          if (kSingle || in(k)) body.template store<V>(r[i], row[i], cache[i][k].at(at(k)));
      }
    }
    if constexpr (Body::kFinalizes)
      if (thread == 0) body.finalize(r[i], row[i]);
  }
}

// --- warps per row ----------------------------------------------------------------------------------
// This thread's partial of `units` units from `first` on. In the last batch units after the last are
// read like it and left out: so all loads of a batch are in flight together.
template <class M, int S, class V, class Body>
RF_FN typename M::Partial accumulate_units(const Body& body, const typename Body::Row& r, long row, long first,
                                           int units, int thread, int threads) {
  constexpr int kUnits = kBatch<V>, kChain = 16;  // batches added one by one, then merged
  AccumulatedOf<M, V> all;
  int j = thread;
#pragma unroll 1
  do {
    AccumulatedOf<M, V> chain;
#pragma unroll 1
    for (int b = 0; b < kChain && j + (kUnits - 1) * threads < units; b++, j += kUnits * threads) {
      V x[kUnits];
#pragma unroll
      for (int k = 0; k < kUnits; k++)
        x[k] = body.template term<V>(Step<S>{}, r, row, LanesOf<V>::at(first + j + k * threads));
      chain.accumulate(x, [](int) { return true; });
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
    all.accumulate(x, [&](int k) { return k == 0 || j + k * threads < units; });
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
__global__ void __launch_bounds__(kMostThreadsPerRow, 1)
    rows_warps_per_row(const __grid_constant__ Body body, long rows, int units, int threads) {
  __shared__ Real shared[2][kMostThreadsPerRow / 32][kMostPartialWords];  // two passes
  const int thread_group = threadIdx.x / threads, thread = threadIdx.x - thread_group * threads;
  const long row = long(blockIdx.x) * (blockDim.x / threads) + thread_group;
  sync_dependent_grids(body);
  if (row >= rows) return;  // a whole group
  typename Body::Row r{};
  for_monoids<0>(typename Body::Monoids{}, [&](auto step, auto monoid) {
    using M = decltype(monoid);
    constexpr int S = decltype(step)::index;
    const auto partial = accumulate_units<M, S, V>(body, r, row, 0, units, thread, threads);
    Real* partials = shared[S % 2][thread_group * (threads / 32)];
    set_results<M>(body, step, r, row, group_reduce<M>(partial, thread, threads, thread_group + 1, partials));
  });
  if constexpr (Body::kStores) store_units<V>(body, r, row, 0, units, thread, threads);
  if constexpr (Body::kFinalizes)
    if (thread == 0) body.finalize(r, row);
}

// --- multi-block ----------------------------------------------------------------------------------
template <class V, class Body>
__global__ void __launch_bounds__(kRowThreads, 1)
    rows_multi_block(const __grid_constant__ Body body, long width, long chunks, long chunk_width, int pass,
                 typename Body::Row* row_states, Real* partials, unsigned* arrivals) {
  using Monoids = typename Body::Monoids;
  __shared__ Real shared[2][kRowThreads / 32 * kMostPartialWords];
  const long row = blockIdx.x / chunks, chunk = blockIdx.x - row * chunks;
  const long chunk_units = chunk_width / LanesOf<V>::count;
  const long first = chunk * chunk_units, left = width / LanesOf<V>::count - first;
  const int units = int(left < chunk_units ? left : chunk_units), thread = threadIdx.x;
  sync_dependent_grids(body);
  typename Body::Row r{};
  if (pass > 0) r = row_from(row_states + row);
  for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
    using M = decltype(monoid);
    constexpr int S = decltype(step)::index;
    if (pass != S) return;
    auto partial = accumulate_units<M, S, V>(body, r, row, first, units, thread, kRowThreads);
    partial = group_reduce<M>(partial, thread, kRowThreads, 0, shared[0]);
    if (thread == 0)
#pragma unroll
      for (int w = 0; w < M::kWords; w++) partials[blockIdx.x * M::kWords + w] = partial.w[w];
    if (!last_block(arrivals + row, unsigned(chunks))) return;
    partial = M::identity();
    for (long c = thread; c < chunks; c += kRowThreads) {
      typename M::Partial next;
#pragma unroll
      for (int w = 0; w < M::kWords; w++) next.w[w] = __ldcg(partials + (row * chunks + c) * M::kWords + w);
      M::merge(partial, next);
    }
    set_results<M>(body, step, r, row, group_reduce<M>(partial, thread, kRowThreads, 0, shared[1]));
    if (thread == 0) {
      row_states[row] = r;
      if (S + 1 == Monoids::size) finalize_row(body, r, row);
    }
  });
  if constexpr (Body::kStores)
    if (pass == Monoids::size) store_units<V>(body, r, row, first, units, thread, kRowThreads);
}

}  // namespace rf
