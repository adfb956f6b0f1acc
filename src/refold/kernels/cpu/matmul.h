// Matmul: the product of gemm.h with everything that follows done while a tile is in cache.
//
// A body gives
//   value(acc, row, col)                    the epilogue: lanes of the result from lanes of acc
//   store(row, col, v)                      writes them                        (if kStores)
//   RowMonoids = List<...>                  each reduces v along the row
//   finish_row(row, const float* results)   takes what a row was reduced to
//   ColumnMonoids = List<...>               each reduces v down the column
//   finish_column(Step<S>, col, result)     takes what a column was reduced to
// Every tile leaves a partial result; partial results merge in the order of tiles, so the outcome
// does not depend on threads.
#pragma once
#include <ATen/Parallel.h>

#include <atomic>
#include <memory>
#include <vector>

#include "columns.h"
#include "gemm.h"
#include "rows.h"

namespace rf {

struct FreeAligned {
  void operator()(float* p) const { ::operator delete[](p, std::align_val_t(64)); }
};
using Buffer = std::unique_ptr<float[], FreeAligned>;
inline Buffer buffer(long count) {
  return Buffer(static_cast<float*>(
      ::operator new[](static_cast<size_t>(std::max(count, 1L)) * 4, std::align_val_t(64))));
}
inline long round_up(long n, long to) { return (n + to - 1) / to * to; }

template <int S, class F> RF_FN void for_monoids(List<>, F) {}
template <int S, class F, class M, class... Rest> RF_FN void for_monoids(List<M, Rest...>, F f) {
  f(Step<S>{}, M{});
  for_monoids<S + 1>(List<Rest...>{}, f);
}
template <int S> constexpr int index_of(Step<S>) { return S; }

// A tile that holds v, read as the term of a column reduction.
struct TileTerm {
  const float* v;
  template <class V, int S, class C> RF_FN V term(Step<S>, long row, C col) const {
    return full<V>(v, row * kWide, col);
  }
};

template <class Body> struct Matmul {
  using RowMonoids = typename Body::RowMonoids;
  using ColumnMonoids = typename Body::ColumnMonoids;
  static constexpr int kRowResults = RowMonoids::size;
  static constexpr int kColumnResults = ColumnMonoids::size;
  const Body& body;
  long n, m, depth;
  std::vector<float> row_partials;           // [column tile][row][monoid]
  std::vector<MomentsState> column_partials;  // [row tile][monoid][column], count unused but by Moments

  Matmul(const Body& b, long n_, long m_, long k_, long row_tile)
      : body(b), n(n_), m(m_), depth(k_),
        row_partials(kRowResults * n_ * ((m_ + kWide - 1) / kWide)),
        column_partials(kColumnResults * m_ * ((n_ + row_tile - 1) / row_tile)) {}

  // Everything that follows the product, on one tile of acc.
  void epilogue(float* acc, long row0, long rows, long col0, long cols, long row_tile) {
    for (long i = 0; i < rows; i++) {
      float* a = acc + i * kWide - col0;
      const long row = row0 + i;
      Vec gathered[kRowResults + 1];
      for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
        gathered[index_of(s)] = decltype(monoid)::identity();
      });
      for_columns(col0, col0 + cols, [&](auto col) {
        Vec v = body.template value<Vec>(full<Vec>(a, 0, col), row, col);
        if constexpr (Body::kStores) body.store(row, col, v);
        if constexpr (kColumnResults > 0) put(a, 0, col, v);
        for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
          using M = decltype(monoid);
          Vec x = v;
          if constexpr (std::is_same_v<decltype(col), Part>)
            x = Vec::set(M::identity(), v, col.count);
          gathered[index_of(s)] = M::gather(gathered[index_of(s)], x);
        });
      });
      for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
        row_partials[(col0 / kWide * n + row) * kRowResults + index_of(s)] =
            decltype(monoid)::across(gathered[index_of(s)]);
      });
    }
    for_monoids<0>(ColumnMonoids{}, [&](auto s, auto monoid) {
      using M = decltype(monoid);
      constexpr int S = index_of(decltype(s){});
      const TileTerm tile{acc};
      for (long j = 0; j < cols; j += kBlock) {
        typename ColumnState<M>::type part[kBlock];
        column_chunk<M, S>(tile, 0, rows, j, cols, part);
        MomentsState* out =
            column_partials.data() + (row0 / row_tile * kColumnResults + S) * m + col0 + j;
        for (long l = 0; l < std::min(kBlock, cols - j); l++) {
          if constexpr (std::is_same_v<M, Moments>) out[l] = part[l];
          else out[l].mean = part[l].get();
        }
      }
    });
  }

  void merge(long row_tile) {
    if constexpr (kRowResults > 0) {
      const long tiles = (m + kWide - 1) / kWide;
      at::parallel_for(0, n, 256, [&](long begin, long end) {
        for (long row = begin; row < end; row++) {
          float results[kRowResults + 1];
          for_monoids<0>(RowMonoids{}, [&](auto s, auto monoid) {
            using M = decltype(monoid);
            typename M::State state;
            for (long t = 0; t < tiles; t++)
              M::merge(state, row_partials[(t * n + row) * kRowResults + index_of(s)]);
            results[index_of(s)] = state.get();
          });
          body.finish_row(row, results);
        }
      });
    }
    if constexpr (kColumnResults > 0) merge_columns((n + row_tile - 1) / row_tile);
  }

  void merge_columns(long tiles) {
    for_monoids<0>(ColumnMonoids{}, [&](auto s, auto monoid) {
      using M = decltype(monoid);
      at::parallel_for(0, m, 64, [&](long begin, long end) {
        for (long j = begin; j < end; j++) {
          typename ColumnState<M>::type state;
          for (long t = 0; t < tiles; t++) {
            const MomentsState& part =
                column_partials[(t * kColumnResults + index_of(s)) * m + j];
            if constexpr (std::is_same_v<M, Moments>) state.merge(part);
            else M::merge(state, part.mean);
          }
          body.finish_column(s, j, state);
        }
      });
    });
  }
};

template <class Body>
void few(const Body& body, const float* A, const float* W, long n, long m, long depth) {
  Matmul<Body> work(body, n, m, depth, kFewRows);
  at::parallel_for(0, (m + kWide - 1) / kWide, 1, [&](long begin, long end) {
    Buffer acc = buffer(kFewRows * kWide);
    for (long s = begin; s < end; s++) {
      const long col = s * kWide, cols = std::min(kWide, m - col);
      const float* w = W + col * depth;
      if (n == 1) few_rows<1>(cols, depth, A, depth, w, depth, acc.get());
      else if (n == 2) few_rows<2>(cols, depth, A, depth, w, depth, acc.get());
      else if (n == 3) few_rows<3>(cols, depth, A, depth, w, depth, acc.get());
      else few_rows<4>(cols, depth, A, depth, w, depth, acc.get());
      work.epilogue(acc.get(), 0, n, col, cols, kFewRows);
    }
  });
  work.merge(kFewRows);
}

// Runs f(task) for every task; threads take the next one when they are free, so that a thread that
// the machine holds up delays nobody.
template <class F> void take_turns(long tasks, F f) {
  std::atomic<long> next{0};
  at::parallel_for(0, std::min<long>(tasks, at::get_num_threads()), 1, [&](long, long) {
    for (long t = next++; t < tasks; t = next++) f(t);
  });
}

// A [n, depth] and W [m, depth], both dense row by row.
//
// A task is a strip of kWide columns and some of the rows. It packs its strip of W for itself: no
// thread waits for another between packing A and the end. Rows are shared out only where strips are
// too few to keep the threads busy.
template <class Body>
void matmul(const Body& body, const float* A, const float* W, long n, long m, long depth) {
  if (n <= kFewRows) return few(body, A, W, n, m, depth);
  const long r = rows_per_panel(n), tall = r * kPanels;
  const MacroTile tile = macro_tile_for(static_cast<int>(r));
  Matmul<Body> work(body, n, m, depth, tall);
  const long at_once = std::max(tall, kPackedBytes / 4 / std::max(depth, 1L) / tall * tall);
  Buffer a_packed = buffer(round_up(std::min(n, at_once), r) * depth);
  const long strips = (m + kWide - 1) / kWide;
  for (long top = 0; top < n; top += at_once) {
    const long rows = std::min(at_once, n - top), panels = (rows + r - 1) / r;
    take_turns(panels, [&](long p) {
      for (long k = 0; k < depth; k += kDepth)
        pack_panel(A + (top + p * r) * depth + k, depth, std::min(r, rows - p * r),
                   std::min(kDepth, depth - k), r, a_packed.get() + p * r * depth + k * r);
    });
    const long tiles = (rows + tall - 1) / tall;
    const long shares = std::min(tiles, (4L * at::get_num_threads() + strips - 1) / strips);
    const long share = (tiles + shares - 1) / shares;
    take_turns(strips * shares, [&](long task) {
      const long left = task / shares * kWide, cols = std::min(kWide, m - left);
      const long first = task % shares * share, last = std::min(first + share, tiles);
      if (first >= last) return;
      Buffer acc = buffer(tall * kWide);
      Buffer w_packed = buffer(round_up(cols, kTileCols) * depth);
      for (long j = 0; j < cols; j += kTileCols)
        for (long k = 0; k < depth; k += kDepth)
          pack_panel(W + (left + j) * depth + k, depth, std::min(kTileCols, cols - j),
                     std::min(kDepth, depth - k), kTileCols,
                     w_packed.get() + j * depth + k * kTileCols);
      if (depth == 0) std::fill(acc.get(), acc.get() + tall * kWide, 0.0f);
      for (long t = first; t < last; t++) {
        const long row = t * tall, high = std::min(tall, rows - row);
        tile((high + r - 1) / r, cols, depth, a_packed.get() + row * depth, w_packed.get(),
             acc.get());
        work.epilogue(acc.get(), top + row, high, left, cols, tall);
      }
    });
  }
  work.merge(tall);
}

}  // namespace rf
