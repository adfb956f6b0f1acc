// Matmul: the product of gemm.h with everything that follows done while a tile is in cache.
//
// A body gives
//   value(acc, row, col)                    the epilogue: lanes of the result from lanes of acc
//   store(row, col, v)                      writes them                        (if kStores)
//   RowMonoids = List<...>                  each reduces v along the row
//   finalize_row(row, const float* results)   takes what a row was reduced to
//   ColumnMonoids = List<...>               each reduces v down the column
//   Column                                  what a column is reduced to        (if any)
//   set_column(Step<S>, column, state)      takes one result into it
//   finalize_column(column, col)              writes results
// Every tile leaves a partial result; partial results merge in the order of tiles, so the outcome
// does not depend on threads.
#pragma once
#include <vector>

#include "columns.h"
#include "skinny.h"
#include "rows.h"

namespace rf {

// What a body of a product is unless it says otherwise: one that stores the product.
struct MatmulBody {
  using RowMonoids = List<>;
  using ColumnMonoids = List<>;
  static constexpr bool kStores = true;
  template <class V, class C> RF_FN V value(V acc, long row, C col) const { return acc; }
};

constexpr long kPanels = 4;               // panels of rows in a tile, which leaves partial results
constexpr long kBlockRows = 1120;         // rows of acc in a block: kWide of them fill half of L2
constexpr long kPackedBytes = 64L << 20;  // of A are packed at a time
constexpr long kAlone = 1L << 18;         // so many products are not worth a second thread

template <int S, class F> RF_FN void for_monoids(List<>, F) {}
template <int S, class F, class M, class... Rest> RF_FN void for_monoids(List<M, Rest...>, F f) {
  f(Step<S>{}, M{});
  for_monoids<S + 1>(List<Rest...>{}, f);
}
template <int S> constexpr int index_of(Step<S>) { return S; }

// A tile that holds v, rows ld apart, read as the term of a column reduction.
struct TileTerm {
  const Real* v;
  long ld;
  template <class V, int S, class C> RF_FN V term(Step<S>, long row, C col) const {
    return full<V>(v, row * ld, col);
  }
};

// What follows a product n x m, as those who compute it see it: they are compiled once for all bodies.
struct Epilogue {
  long n, m, tiles = 0, strips = 0;
  Epilogue(long rows, long cols) : n(rows), m(cols) {}
  // tiles: how many there are down a column; strips: along a row.
  virtual void begin(long tiles, long strips) = 0;
  // One tile of acc, rows ld apart: `rows` from row0 on, `cols` columns from col0 on.
  virtual void take(Real* acc, long ld, long tile, long row0, long rows, long strip, long col0, long cols) = 0;
  virtual void merge() = 0;
};

#if !defined(RF_UNIT) || RF_UNIT == 0
// The same of a body, and the merging of what tiles leave.
template <class Body> struct EpilogueReductions final : Epilogue {
  using RowMonoids = typename Body::RowMonoids;
  using ColumnMonoids = typename Body::ColumnMonoids;
  static constexpr int kRowResults = RowMonoids::size;
  static constexpr int kColumnResults = ColumnMonoids::size;
  const Body& body;
  std::vector<Real> row_partials;            // [strip][row][monoid]
  std::vector<MomentsState> column_partials;  // [tile][monoid][column], count unused but by Moments

  EpilogueReductions(const Body& b, long rows, long cols) : Epilogue(rows, cols), body(b) {}

  void begin(long tiles_, long strips_) override {
    tiles = tiles_, strips = strips_;
    if constexpr (kRowResults > 0) row_partials.resize(kRowResults * n * strips);
    if constexpr (kColumnResults > 0) column_partials.resize(kColumnResults * m * tiles);
  }

  void take(Real* acc, long ld, long tile, long row0, long rows, long strip, long col0, long cols) override {
    for (long i = 0; i < rows; i++) {
      Real* a = acc + i * ld - col0;
      const long row = row0 + i;
      Vec accumulated[kRowResults + 1];
      for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
        accumulated[index_of(s)] = decltype(monoid)::identity();
      });
      for_columns(col0, col0 + cols, [&](auto col) {
        Vec v = body.template value<Vec>(full<Vec>(a, 0, col), row, col);
        if constexpr (Body::kStores) body.store(row, col, v);
        if constexpr (kColumnResults > 0) put(a, 0, col, v);
        for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
          using M = decltype(monoid);
          Vec x = v;
          if constexpr (std::is_same_v<decltype(col), TailVec>)
            x = Vec::set(M::identity(), v, col.count);
          accumulated[index_of(s)] = M::accumulate(accumulated[index_of(s)], x);
        });
      });
      for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
        row_partials[(strip * n + row) * kRowResults + index_of(s)] =
            decltype(monoid)::horizontal(accumulated[index_of(s)]);
      });
    }
    for_monoids<0>(ColumnMonoids{}, [&](auto s, auto monoid) {
      using M = decltype(monoid);
      constexpr int S = index_of(decltype(s){});
      const TileTerm term{acc, ld};
      for (long j = 0; j < cols; j += kBlock) {
        typename ColumnState<M>::type partial[kBlock];
        column_chunk<M, S>(term, 0, rows, j, cols, partial);
        MomentsState* out = column_partials.data() + (tile * kColumnResults + S) * m + col0 + j;
        for (long l = 0; l < std::min(kBlock, cols - j); l++) {
          if constexpr (std::is_same_v<M, Moments>) out[l] = partial[l];
          else out[l].mean = partial[l].get();
        }
      }
    });
  }

  void merge() override {
    if constexpr (kRowResults > 0)
      parallel_for(0, n, 256, [&](long begin, long end) {
        for (long row = begin; row < end; row++) {
          Real results[kRowResults + 1];
          for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
            using M = decltype(monoid);
            typename M::State state;
            for (long t = 0; t < strips; t++)
              M::merge(state, row_partials[(t * n + row) * kRowResults + index_of(s)]);
            results[index_of(s)] = state.get();
          });
          body.finalize_row(row, results);
        }
      });
    if constexpr (kColumnResults > 0) merge_columns();
  }

  void merge_columns() {
    parallel_for(0, m, 64, [&](long begin, long end) {
      for (long j = begin; j < end; j++) {
        typename Body::Column column;
        for_monoids<0>(ColumnMonoids{}, [&](auto s, auto monoid) {
          using M = decltype(monoid);
          typename ColumnState<M>::type state;
          for (long t = 0; t < tiles; t++) {
            const MomentsState& partial = column_partials[(t * kColumnResults + index_of(s)) * m + j];
            if constexpr (std::is_same_v<M, Moments>) state.merge(partial);
            else M::merge(state, partial.mean);
          }
          body.set_column(s, column, state);
        });
        body.finalize_column(column, j);
      }
    });
  }
};
#endif

// A [n, depth] and W [m, depth], both dense row by row.
#if defined(RF_UNIT) && RF_UNIT == 0  // the other unit has it
template <class TA, class TW> void product(Epilogue& epilogue, const TA* A, const TW* W, long depth);
#else
inline long threads_for(long n, long m, long depth) {
  return n * m * depth <= kAlone || at::in_parallel_region() ? 1 : at::get_num_threads();
}

// At most kSkinny rows of A: W is streamed. At most kSkinny rows of W: A is.
template <class TA, class TW> void skinny(Epilogue& epilogue, const TA* A, const TW* W, long depth) {
  const long n = epilogue.n, m = epilogue.m;
  const bool rows = n <= kSkinny;
  const long tasks = n * m == 0 ? 0 : pieces(rows ? m : n, kMany);
  epilogue.begin(rows ? std::min(tasks, 1L) : tasks, rows ? tasks : 1);
  auto per_thread = [] { return std::pair(buffer(kMany * kSkinny), std::vector<Vec>(kMany * kSkinny)); };
  run_tasks(tasks, threads_for(n, m, depth), per_thread, [&](long t, auto& scratch) {
    Real* acc = scratch.first.get();
    Vec* sums = scratch.second.data();
    const long first = t * kMany, count = std::min(kMany, (rows ? m : n) - first);
    if (rows) {
      dots_for<TA, TW>(n)(n, count, depth, A, depth, W + first * depth, depth, sums, acc, kMany, 1);
      epilogue.take(acc, kMany, 0, 0, n, t, first, count);
    } else {
      dots_for<TW, TA>(m)(m, count, depth, W, depth, A + first * depth, depth, sums, acc, 1, kSkinny);
      epilogue.take(acc, kSkinny, t, first, count, 0, 0, m);
    }
  });
  epilogue.merge();
}

// A task is a strip of columns and some tiles of rows. It packs its strip of W for itself: no
// thread waits for another. Where there are several strips, all threads pack a block of rows of A
// before; then tiles are shared out only where strips are too few to keep the threads busy.
template <class TA, class TW>
[[gnu::used, gnu::noinline, gnu::noclone]] void product(Epilogue& epilogue, const TA* A, const TW* W, long depth) {
  const long n = epilogue.n, m = epilogue.m;
  if (n <= kSkinny || m <= kSkinny) return skinny(epilogue, A, W, depth);
  const Panels panels(n);
  const Tiles kernels(panels);
  const long tiles = pieces(panels.count, kPanels), threads = threads_for(n, m, depth);
  const long wide = m <= kWide || m > 4 * kWide ? kWide : kWide / 2, strips = pieces(m, wide);
  const long most = std::clamp(kPackedBytes / long(sizeof(Real)) / std::max(depth, 1L), 1L, kBlockRows);
  const long blocks = pieces(tiles, std::max(most / (kMostRows * kPanels), 1L));
  auto first_panel = [&](long tile) { return std::min(tile * kPanels, panels.count); };
  auto first_row = [&](long tile) { return panels.start(first_panel(tile)); };
  epilogue.begin(tiles, strips);

  // the tiles [first, last) of one strip
  auto one_strip = [&](const LhsPanels<TA>& a, long first, long last, long s, auto& per_thread) {
    const long left = s * wide, cols = std::min(wide, m - left);
    const long next = std::min(left + threads * wide, m - cols);
    Real* acc = per_thread.first.get();
    if (depth == 0) std::fill(acc, acc + (first_row(last) - first_row(first)) * kWide, 0.0f);
    multiply(a, kernels, first_panel(first), first_panel(last),
             Strip<TW>{W + left * depth, depth, cols, W + next * depth}, depth, per_thread.second.get(), acc);
    for (long t = first; t < last; t++) {
      const long row = first_row(t), rows = first_row(t + 1) - row;
      epilogue.take(acc + (row - first_row(first)) * kWide, kWide, t, row, rows, s, left, cols);
    }
  };
  auto per_thread = [&] {
    const long rows = pieces(tiles, blocks) * kPanels * kMostRows;
    return std::pair(buffer(std::min(rows, n) * kWide), buffer(kScratch));
  };

  if (strips == 1) {
    const long tasks = std::max({blocks, std::min(tiles, threads), tiles / 2});
    run_tasks(tasks, threads, per_thread, [&](long i, auto& scratch) {
      one_strip(LhsPanels<TA>{panels, A, depth}, tiles * i / tasks, tiles * (i + 1) / tasks, 0, scratch);
    });
    return epilogue.merge();
  }
  Buffer packed = buffer(std::min(pieces(tiles, blocks) * kPanels * kMostRows, n) * depth);
  for (long b = 0; b < blocks; b++) {
    const long begin = tiles * b / blocks, count = tiles * (b + 1) / blocks - begin;
    const long origin = first_panel(begin), top = first_row(begin);
    const LhsPanels<TA> a{panels, A, depth, packed.get(), origin, first_row(begin + count) - top};
    auto pack_panel = [&](long i) {
      const long start = panels.start(origin + i), height = panels.rows(origin + i);
      for (long k = 0; k < depth; k += kDepth) {
        const long steps = std::min(kDepth, depth - k);
        pack(A + start * depth + k, depth, height, steps, height,
             packed.get() + k * a.rows + (start - top) * steps);
      }
    };
    const long shares = threads == 1 ? 1 : std::min(count, pieces(3 * threads, strips));
    auto one_share = [&](long task, auto& scratch) {
      const long i = task % shares;
      one_strip(a, begin + count * i / shares, begin + count * (i + 1) / shares, task / shares, scratch);
    };
    run_tasks(first_panel(begin + count) - origin, pack_panel, strips * shares, threads, per_thread,
               one_share);
  }
  epilogue.merge();
}
#endif

template <class Body, class TA, class TW>
void matmul(const Body& body, const TA* A, const TW* W, long n, long m, long depth) {
#if !defined(RF_UNIT) || RF_UNIT == 0
  EpilogueReductions<Body> epilogue(body, n, m);
  product(epilogue, A, W, depth);
#else  // named, so that there is one of these types
  void (*named)(Epilogue&, const TA*, const TW*, long) = product<TA, TW>;
  (void)named;
#endif
}

}  // namespace rf
