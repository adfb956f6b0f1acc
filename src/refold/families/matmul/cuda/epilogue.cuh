// Epilogue: what happens to a tile of the product while it is still in registers.
//
// A body gives
//   value(acc, row, col)                    the epilogue: the result from the product's element
//   kLight                                  whether that is a few instructions
//   kBatched                                whether it is of a batch of products (BatchProblem): they reduce nothing
//   store(row, col, v)                      writes it                          (if kStores)
//   kReads, in_pairs()                      how many values of rows value() reads; whether two columns of them, and of
//                                           what is stored, can be taken by one access
//   RowMonoids = List<...>                  each reduces v along the row
//   finalize_row(row, const float* results)   takes what a row was reduced to
//   ColumnMonoids = List<...>               each reduces v down the column
//   Column                                  what a column is reduced to        (if any)
//   set_column(Step<S>, column, state)      takes one result into it
//   finalize_column(column, col)              writes results
//   kQuantized                              the column monoid that is the moments of v (if it may be stored quantized:
//                                           as Quantizing<Body>, quantized_store.cuh)
//
// Layout: the fragment's (fragment.cuh). Rows are reduced in registers and across the four lanes that
// share them; columns across the eight lanes that share them, then across warps through shared memory.
// Each warpgroup leaves one partial result for a row or column of its fragment in the workspace. Where a row has few
// the last warpgroup to arrive at a block of rows merges its rows' first to last (arrivals are counted by integer
// atomics; floats are only ever merged in order); more of them, and columns, are left to finalize.cuh.
//
// Shared memory: EpilogueStorage, one for each warpgroup: column partials of its four warps (512 bytes a word and 32
// columns), scales of its columns, counts. Registers: the fragment's 32 G MI / 2, in place, and what the body takes.
//
// A whole fragment's columns are read and stored in pairs, where operands and results are aligned so. (Results alone
// that are not are stored one by one; with operands it is taken like a fragment that is cut.) Its groups of 32
// columns are taken by an unrolled loop where the body is light, else by one that rotates the registers: an unrolled
// body is 4 times the instructions to compile and to fetch, the rotation costs 4 moves an element.
#pragma once
#include "fragment.cuh"
#include "column_reduce.cuh"
#include "look.cuh"
#include "row_reduce.cuh"

namespace rf {

// What a body of a product is unless it says otherwise: one that stores the product.
struct MatmulBody {
  using RowMonoids = List<>;
  using ColumnMonoids = List<>;
  static constexpr bool kStores = true, kLight = true, kBatched = false;
  static constexpr int kReads = 0;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const { return acc; }
  RF_FN bool in_pairs() const { return true; }
  rf_watch::Look look = rf_watch::take_look();  // see look.h
};

// What a warpgroup's epilogue has in shared memory.
template <class Body, int G> struct EpilogueStorage {
  static constexpr int kWords = Words<typename Body::ColumnMonoids>::column;
  float columns[4][kWords > 0 ? kWords : 1][32 * G];
  alignas(8) float unscale[32 * G];
  float counts[4];
  bool agree[4];
  unsigned arrival;
};

// A body whose value is stored quantized. A type of its own: one kernel of both ways would have registers for both.
template <class Body> struct Quantizing;
template <class Body> constexpr bool kQuantizes = false;
template <class Body> constexpr bool kQuantizes<Quantizing<Body>> = true;
// Whether column monoid S is the moments of what is quantized: they are taken with it.
template <class Body, class S> constexpr bool kTakenLater = false;
template <class Body, class S>
constexpr bool kTakenLater<Quantizing<Body>, S> = S::index == Body::kQuantized;

// Whether a power of two is far from the ends of float32's range.
RF_FN bool is_ordinary(float unscale) { return unscale > 0x1p-60f && unscale < 0x1p60f; }

// Whether this warpgroup is the last of `warpgroups` to come here; what the others wrote before is visible.
RF_FN bool last_to_arrive(unsigned* arrivals, unsigned warpgroups, unsigned* shared, int barrier,
                          int thread) {
  __threadfence();
  named_barrier_sync(barrier, kWarpgroupThreads);
  if (thread == 0) *shared = atomicInc(arrivals, warpgroups - 1);  // back to 0 after the last
  named_barrier_sync(barrier, kWarpgroupThreads);
  const bool last = *shared == warpgroups - 1;
  named_barrier_sync(barrier, kWarpgroupThreads);  // `shared` may be written again
  if (last) __threadfence();
  return last;
}

// Whether `mine` holds for all threads of the warpgroup, which meet here.
template <class Shared> RF_FN bool all_agree(Shared& shared, bool mine, int barrier) {
  const bool warp = !__any_sync(kFullMask, !mine);
  if (read_tid_x() % 32 == 0) shared.agree[read_tid_x() / 32 % 4] = warp;
  named_barrier_sync(barrier, kWarpgroupThreads);
  return shared.agree[0] && shared.agree[1] && shared.agree[2] && shared.agree[3];
}

// The rows of a fragment that a thread holds elements of: 8 (r % 2) + 64 (r / 2) below its first.
template <int MI, bool AScaled> struct FragmentRows {
  static constexpr int kRows = 2 * MI;
  int row[kRows];      // one beyond the result's last is read like that, never counted
  bool in[kRows];
  float unscale[kRows], count = 0.0f;  // what undoes their scaling; how many count
  template <class P> RF_FN FragmentRows(const P& p, int row0, int lane, int warp) {
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      row[r] = row0 + 64 * (r / 2) + 16 * warp + 8 * (r % 2) + lane / 4;
      in[r] = row[r] < p.row_end();
      if (!in[r]) row[r] = static_cast<int>(p.row_end()) - 1;
      count += in[r];
      unscale[r] = AScaled ? p.a_unscale[row[r]] : 1.0f;
    }
  }
};

// Group g of a fragment's columns, which stands `at` in its rows: values, stores, partials of its columns. Whole: no
// edge of the result cuts the fragment, its scales are ordinary, and what the body reads of rows it reads in pairs.
// unscaled: b's scaling has been undone. in_pairs: whether the body stores in pairs; it does if it reads so.
template <bool Whole, bool AScaled, bool BScaled, int MI, int G, class Body, class P>
RF_FN void column_group(const Body& body, const P& p, Fragment<MI, G>& acc, const FragmentRows<MI, AScaled>& rows,
                 const ColumnWeights<2 * MI, Whole>& weights, int col0, int g, int at, bool unscaled, bool in_pairs,
                 EpilogueStorage<Body, G>& shared) {
  constexpr int kRows = 2 * MI;
  constexpr bool kStores = Body::kStores && !kQuantizes<Body>;  // what is quantized is stored at the end
  const int lane = read_tid_x() % 32, warp = read_tid_x() / 32 % 4;
  const int first = col0 + 2 * (lane % 4), last = static_cast<int>(p.cols) - 1;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const int pair = first + 32 * g + 8 * j;
    const int col[2] = {Whole ? pair : min(pair, last), Whole ? pair + 1 : min(pair + 1, last)};
    float2 unscale = make_float2(1.0f, 1.0f);
    if constexpr (AScaled && BScaled)
      unscale = *reinterpret_cast<const float2*>(&shared.unscale[32 * g + 8 * j + 2 * (lane % 4)]);
    else if constexpr (BScaled)
      if (!unscaled) unscale = make_float2(p.b_unscale[p.b_row(col[0])], p.b_unscale[p.b_row(col[1])]);
    const float column_unscale[2] = {unscale.x, unscale.y};
#pragma unroll
    for (int r = 0; r < kRows; r++) {
      float* x = &acc.x[r / 2][at + 4 * j + 2 * (r % 2)];
      const long row = rows.row[r];
      Real pair_cache[Body::kReads > 0 ? Body::kReads : 1];
#pragma unroll
      for (int e = 0; e < 2; e++) {
        // ordinary factors, or the smaller one first: no step leaves float32's range unless the result does
        if constexpr (AScaled && Whole)
          x[e] = x[e] * rows.unscale[r] * column_unscale[e];
        else if constexpr (AScaled)
          x[e] = x[e] * fminf(rows.unscale[r], column_unscale[e]) * fmaxf(rows.unscale[r], column_unscale[e]);
        else if constexpr (BScaled)
          x[e] = x[e] * column_unscale[e];
        int next = 0;
        if constexpr (Whole)
          x[e] = body.template value<float>(x[e], row, ColumnOfPair{pair, e == 1, pair_cache, &next});
        else x[e] = body.template value<float>(x[e], row, col[e]);
      }
    }
    if constexpr (kStores && !Whole) {  // no load has to wait for a store
#pragma unroll
      for (int r = 0; r < kRows; r++) {
        const float* x = &acc.x[r / 2][at + 4 * j + 2 * (r % 2)];
        const long row = rows.row[r];
        if (rows.in[r] && pair < last && in_pairs) body.store(row, ColumnPair<true>{pair, 0, x[1]}, x[0]);
        else if (rows.in[r] && pair < last) body.store(row, ColumnPair<false>{pair, 0, x[1]}, x[0]);
        else if (rows.in[r] && pair == last) body.store(row, pair, x[0]);
      }
    }
  }
  if constexpr (kStores && Whole) {
    // what is known of g where the loop over groups is unrolled: the rest is added to the row's address once
    const int known = Body::kLight ? 32 * g : 0, column = first + 32 * g - known;
    const auto store = [&](auto pairs) {
#pragma unroll
      for (int r = 0; r < kRows; r++)
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
          const float* x = &acc.x[r / 2][at + 4 * j + 2 * (r % 2)];
          const long row = rows.row[r];
          if constexpr (decltype(pairs)::index != 0) {
            body.store(row, TwoColumnPairs{column, known + 8 * j, {x[1], x[4], x[5]}}, x[0]);
          } else {
            body.store(row, ColumnPair<false>{column, known + 8 * j, x[1]}, x[0]);
            body.store(row, ColumnPair<false>{column, known + 8 * j + 8, x[5]}, x[4]);
          }
        }
    };
    if (Body::kReads > 0 || in_pairs) store(Step<1>{});
    else store(Step<0>{});
  }
  for_monoids<0>(typename Body::ColumnMonoids{}, [&](auto s, auto monoid) {
    if constexpr (kTakenLater<Body, decltype(s)>) return;
    using D = Down<decltype(monoid)>;
    constexpr int word = Before<decltype(s)::index, typename Body::ColumnMonoids>::column;
    typename D::Partial partial[8];
#pragma unroll
    for (int i = 0; i < 8; i++) {
      float x[kRows];
      bool in[kRows];
#pragma unroll
      for (int r = 0; r < kRows; r++)
        x[r] = acc.x[r / 2][at + 4 * (i / 2) + 2 * (r % 2) + i % 2], in[r] = Whole || rows.in[r];
      partial[i] = D::template of<kRows>(x, in, weights.share);
    }
    const int mine = reduce_columns_across_lanes<D>(partial, weights, lane);
    const int at_column = 32 * g + 8 * (mine / 2) + 2 * (lane % 4) + mine % 2;
#pragma unroll
    for (int w = 0; w < D::kWords; w++) shared.columns[warp][word + w][at_column] = partial[0].w[w];
    if (lane == 0) shared.counts[warp] = weights.warp_count;
  });
}

// The epilogue of one warpgroup's fragment, whose first element is (row0, col0), but for its arrival.
// AScaled, BScaled: whose rows were scaled; where halves were, elements that are not finite are computed
// again. barrier: a number of the warpgroup's own, from 1. Every thread of the warpgroup comes here.
template <bool AScaled, bool BScaled, int MI, int G, class Body, class P>
RF_FN void epilogue(const Body& body, const P& p, Fragment<MI, G>& acc, int row0, int col0,
                    EpilogueStorage<Body, G>& shared, int barrier) {
  using RowMonoids = typename Body::RowMonoids;
  using ColumnMonoids = typename Body::ColumnMonoids;
  constexpr int kRowWords = Words<RowMonoids>::row, kColumnWords = Words<ColumnMonoids>::column;
  static_assert(!Body::kBatched || kRowWords + kColumnWords == 0, "a batch of products reduces nothing");
  if (row0 >= p.row_end() || col0 >= p.cols) return;
  bool unscaled = false;
  if constexpr (BScaled) unscaled = acc.template repair<AScaled>(p, row0, col0);

  const int thread = read_tid_x() % kWarpgroupThreads, lane = thread % 32, warp = thread / 32;
  bool ordinary = true;  // whether all of the warp's factors are far from the ends of float32's range
  if constexpr (AScaled && BScaled) {  // one load of a thread, where each group of columns would wait for its own
    const float unscale = p.b_unscale[p.b_row(min(col0 + thread % (32 * G), static_cast<int>(p.cols) - 1))];
    named_barrier_sync(barrier, kWarpgroupThreads);  // the last tile's have been read
    if (thread < 32 * G) shared.unscale[thread] = unscale;
    ordinary = all_agree(shared, is_ordinary(unscale), barrier);
  }
  const FragmentRows<MI, AScaled> rows(p, row0, lane, warp);
  if constexpr (AScaled && BScaled) {
#pragma unroll
    for (int r = 0; r < 2 * MI; r++) ordinary &= is_ordinary(rows.unscale[r]);
    ordinary = !__any_sync(kFullMask, !ordinary);
  }
  const bool in_pairs = body.in_pairs(), inside = row0 + 64 * MI <= p.row_end() && col0 + 32 * G <= p.cols;
  // IeeeRS's registers are full: it has none for addresses that several groups share.
  if (AScaled == BScaled && inside && ordinary && (in_pairs || Body::kReads == 0)) {  // as most are
    const ColumnWeights<2 * MI, true> weights(rows.count, lane);
    if constexpr (Body::kLight) {
#pragma unroll
      for (int g = 0; g < G; g++) {
        column_group<true, AScaled, BScaled>(body, p, acc, rows, weights, col0, g, 16 * g, unscaled, in_pairs, shared);
        // Loads stay behind stores; without any, those of all groups would come first, more than registers hold.
        if constexpr (!Body::kStores) __syncwarp();
      }
    } else {
#pragma unroll 1
      for (int g = 0; g < G; g++) {
        column_group<true, AScaled, BScaled>(body, p, acc, rows, weights, col0, g, 0, unscaled, in_pairs, shared);
        acc.rotate(false);
      }
    }
  } else {
    const ColumnWeights<2 * MI, false> weights(rows.count, lane);
#pragma unroll 1
    for (int g = 0; g < G; g++) {
      column_group<false, AScaled, BScaled>(body, p, acc, rows, weights, col0, g, 0, unscaled, in_pairs, shared);
      acc.rotate(false);
    }
  }

  if constexpr (kRowWords > 0)
    for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
      reduce_rows<decltype(monoid)>(acc, p, row0, col0, thread, kRowWords,
                                    p.row_partials + col0 / (32 * G) * p.rows * kRowWords +
                                        Before<decltype(s)::index, RowMonoids>::row);
    });

  const long block = row0 / (64 * MI), mine = col0 + thread;
  if constexpr (kColumnWords > (kQuantizes<Body> ? Down<Moments>::kWords : 0)) {
    named_barrier_sync(barrier, kWarpgroupThreads);
    if (thread < 32 * G && mine < p.cols)
      for_monoids<0>(ColumnMonoids{}, [&](auto s, auto monoid) {
        if constexpr (kTakenLater<Body, decltype(s)>) return;
        using D = Down<decltype(monoid)>;
        constexpr int at = Before<decltype(s)::index, ColumnMonoids>::column;
        typename D::Partial partial, next;
        float n = shared.counts[0];
#pragma unroll
        for (int w = 0; w < D::kWords; w++) partial.w[w] = shared.columns[0][at + w][thread];
#pragma unroll
        for (int i = 1; i < 4; i++) {
#pragma unroll
          for (int w = 0; w < D::kWords; w++) next.w[w] = shared.columns[i][at + w][thread];
          partial = D::merge(partial, next, Weight(n, shared.counts[i]));
          n += shared.counts[i];
        }
#pragma unroll
        for (int w = 0; w < D::kWords; w++)
          p.column_partials[(block * kColumnWords + at + w) * p.cols + mine] = partial.w[w];
      });
    named_barrier_sync(barrier, kWarpgroupThreads);  // `shared` may be written again
  }
  if constexpr (kQuantizes<Body>) {
    constexpr int at = Before<Body::kQuantized, ColumnMonoids>::column;
    float* moments = p.column_partials + (block * kColumnWords + at) * p.cols;
    if (inside && in_pairs) store_quantized(Step<1>{}, body, p, acc, rows, row0, col0, moments, shared, barrier);
    else store_quantized(Step<0>{}, body, p, acc, rows, row0, col0, moments, shared, barrier);
  }
}

// Counts the arrival of the fragment at (row0, col0), whose epilogue has been done; whoever comes last to a
// block of rows finalizes it, unless a kernel of its own will.
template <int MI, int G, class Body>
RF_FN void arrive_and_finalize_rows(const Body& body, const Problem& p, int row0, int col0,
                     EpilogueStorage<Body, G>& shared, int barrier) {
  using RowMonoids = typename Body::RowMonoids;
  constexpr int kRowWords = Words<RowMonoids>::row;
  if (row0 >= p.rows || col0 >= p.cols) return;

  if constexpr (kRowWords > 0) {
    if (p.row_arrivals == nullptr) return;
    const int thread = read_tid_x() % kWarpgroupThreads;
    const int blocks = (static_cast<int>(p.cols) + 32 * G - 1) / (32 * G);
    const long mine = row0 + thread;
    if (last_to_arrive(p.row_arrivals + row0 / (64 * MI), blocks, &shared.arrival, barrier, thread) &&
        thread < 64 * MI && mine < p.rows) {
      float results[Words<RowMonoids>::results];
      for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
        using M = decltype(monoid);
        using At = Before<decltype(s)::index, RowMonoids>;
        M::results(merge_partials<M>(p.row_partials + mine * kRowWords + At::row, p.rows * kRowWords, blocks),
                   results + At::results);
      });
      body.finalize_row(mine, results);
    }
  }
}

}  // namespace rf
