// Columns: for each outer slice of a space [outer, count, width], a reduction over `count`.
//
// A body gives
//   Monoids = List<...>                     one for each reduction
//   term<V>(Step<S>, row, col)              the lanes reduced; row counts over outer * count
//   Column                                  what a column is reduced to
//   set_column(Step<S>, column, state)      takes one result into it
//   finalize_column(column, outer, col)       writes results
// A task is one block of columns of one slice, cut into chunks of rows of a fixed length, so results
// do not depend on the number of threads. Where columns are few, threads take chunks of rows.
#pragma once
#include <vector>

#include "monoid.h"
#include "parallel.h"

namespace rf {

// What every body of columns has: nothing here.
struct ColumnsBody {};

constexpr long kRows = 256;           // rows accumulated before they merge
constexpr long kBlock = 16 * kLanes;  // columns of a task: a whole number of cache lines

struct Moments {};

template <class M> struct ColumnState { using type = typename M::State; };
template <> struct ColumnState<Moments> { using type = MomentsState; };

template <class F> RF_FN void for_chains(long first, long last, F f) {
  for (long i = first; i < last; i += kChain) f(i, std::min(i + kChain, last));
}

template <class M, int S, class Body>
void column_chunk(const Body& body, long first, long last, long column, long width,
                  typename ColumnState<M>::type* out) {
  const long end = std::min(column + kBlock, width);
  const Real count = static_cast<Real>(last - first);
  auto one = [&](auto col) {
    long lanes = kLanes;
    if constexpr (std::is_same_v<decltype(col), TailVec>) lanes = col.count;
    Real x[kLanes], y[kLanes];
    if constexpr (std::is_same_v<M, Moments>) {
      Vec sum(0.0f), squares(0.0f);
      for_chains(first, last, [&](long i, long stop) {
        Vec some(0.0f);
        for (; i < stop; i++) some = some + body.template term<Vec>(Step<S>{}, i, col);
        sum = sum + some;
      });
      Vec mean = sum / Vec(count), left(0.0f);
      for (long i = first; i < last; i++) {
        const Vec d = body.template term<Vec>(Step<S>{}, i, col) - mean;
        left = left + d;
        squares = fmadd(d, d, squares);
      }
      // what the mean's rounding leaves: of equal values the mean is exact, and no deviation is left
      const Vec share = left / Vec(count), more = left * share, known = more < Vec(infinity());
      mean = Vec::blendv(mean, mean + share, known);
      squares = Vec::blendv(squares, squares - more, known);
      mean.store(x);
      squares.store(y);
      for (long l = 0; l < lanes; l++) out[col.start - column + l] = {count, x[l], y[l]};
    } else {
      Vec a = M::identity();
      for_chains(first, last, [&](long i, long stop) {
        Vec some = M::identity();
        for (; i < stop; i++) some = M::accumulate(some, body.template term<Vec>(Step<S>{}, i, col));
        a = M::accumulate(a, some);
      });
      a.store(x);
      for (long l = 0; l < lanes; l++) M::merge(out[col.start - column + l], x[l]);
    }
  };
  long j = column;
  for (; j + kLanes <= end; j += kLanes) one(FullVec{j});
  if (j < end) one(TailVec{j, end - j});
}

template <class M, class State> void merge_states(State& into, const State& from) {
  if constexpr (std::is_same_v<M, Moments>) into.merge(from);
  else M::merge(into, from.get());
}

// The reduction S, into results[outer][width].
template <class M, int S, class Body>
void reduce_columns(const Body& body, long outer, long count, long width, typename Body::Column* results) {
  using State = typename ColumnState<M>::type;
  const long blocks = (width + kBlock - 1) / kBlock, chunks = (count + kRows - 1) / kRows;
  auto finalize = [&](long o, long column, const State* s) {
    for (long j = column; j < std::min(column + kBlock, width); j++)
      body.set_column(Step<S>{}, results[o * width + j], s[j - column]);
  };
  const bool by_column = outer * blocks >= at::get_num_threads();
  std::vector<State> partial(by_column ? 0 : chunks * kBlock);
  for (long task = 0; task < (by_column ? 1 : outer * blocks); task++) {
    if (by_column) {
      parallel_for(0, outer * blocks, 1, [&](long begin, long end) {
        for (long t = begin; t < end; t++) {
          const long o = t / blocks, column = t % blocks * kBlock;
          State total[kBlock];
          for (long c = 0; c < chunks; c++) {
            State partial_state[kBlock];
            column_chunk<M, S>(body, o * count + c * kRows,
                               o * count + std::min((c + 1) * kRows, count), column, width, partial_state);
            for (long l = 0; l < kBlock; l++) merge_states<M>(total[l], partial_state[l]);
          }
          finalize(o, column, total);
        }
      });
    } else {
      const long o = task / blocks, column = task % blocks * kBlock;
      std::fill(partial.begin(), partial.end(), State{});
      parallel_for(0, chunks, 1, [&](long begin, long end) {
        for (long c = begin; c < end; c++)
          column_chunk<M, S>(body, o * count + c * kRows,
                             o * count + std::min((c + 1) * kRows, count), column, width,
                             partial.data() + c * kBlock);
      });
      State total[kBlock];
      for (long c = 0; c < chunks; c++)
        for (long l = 0; l < kBlock; l++) merge_states<M>(total[l], partial[c * kBlock + l]);
      finalize(o, column, total);
    }
  }
}

template <int S, class Body, class Column> void each_reduction(const Body&, long, long, long, Column*, List<>) {}
template <int S, class Body, class Column, class M, class... Rest>
void each_reduction(const Body& body, long outer, long count, long width, Column* results, List<M, Rest...>) {
  reduce_columns<M, S>(body, outer, count, width, results);
  each_reduction<S + 1>(body, outer, count, width, results, List<Rest...>{});
}

template <class Body> void columns(const Body& body, long outer, long count, long width) {
  std::vector<typename Body::Column> results(outer * width);
  each_reduction<0>(body, outer, count, width, results.data(), typename Body::Monoids{});
  parallel_for(0, outer * width, 512, [&](long begin, long end) {
    for (long i = begin; i < end; i++) body.finalize_column(results[i], i / width, i % width);
  });
}

}  // namespace rf
