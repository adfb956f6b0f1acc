// Rows: passes over each row of a space of rows x width; a pass may use what earlier ones reduced.
//
// A body gives
//   Row                          what is known of a row so far
//   Monoids = List<...>          one monoid for each pass
//   term(Step<S>, row_so_far, row, col)      the lanes that pass S reduces
//   set(Step<S>, row_so_far, row, value)     takes the result of pass S into row_so_far, or its two
//   store(row_so_far, row, col)              writes full-size results      (if kStores)
//   finish(row_so_far, row)                  writes results of one row     (if kFinalizes)
// The first pass brings a row into cache, later ones read it there. Threads take whole rows; where
// there are fewer rows than threads they take chunks of one row.
#pragma once
#include <vector>

#include "monoid.h"
#include "parallel.h"

namespace rf {

// What a body of rows is unless it says otherwise: pointwise.
struct RowsBody {
  struct Row {};
  using Monoids = List<>;
  static constexpr bool kStores = true, kFinalizes = false;
};

// Calls f(col) for the columns [begin, end) by whole vectors, then by the tail.
template <class F> RF_FN void for_columns(long begin, long end, F f) {
  long j = begin;
  for (; j + kLanes <= end; j += kLanes) f(FullVec{j});
  if (j < end) f(TailVec{j, end - j});
}

template <class M, class Body, int S>
RF_FN auto accumulate_chunk(const Body& body, const typename Body::Row& r, long row, long begin,
                         long end) {
  const auto at = [&](long j) { return body.template term<Vec>(Step<S>{}, r, row, FullVec{j}); };
  // four independent accumulators hide the latency of the additions
  auto all = M::identity();
  long j = begin;
  while (j + 4 * kLanes <= end) {
    auto a0 = M::identity(), a1 = a0, a2 = a0, a3 = a0;
    const long stop = std::min(end, j + 4 * kLanes * kChain);
    for (; j + 4 * kLanes <= stop; j += 4 * kLanes) {
      a0 = M::accumulate(a0, at(j));
      a1 = M::accumulate(a1, at(j + kLanes));
      a2 = M::accumulate(a2, at(j + 2 * kLanes));
      a3 = M::accumulate(a3, at(j + 3 * kLanes));
    }
    all = M::accumulate(all, M::accumulate(M::accumulate(a0, a1), M::accumulate(a2, a3)));
  }
  for (; j + kLanes <= end; j += kLanes) all = M::accumulate(all, at(j));
  if (j < end) {
    const Vec tail = body.template term<Vec>(Step<S>{}, r, row, TailVec{j, end - j});
    all = M::accumulate(all, Vec::set(M::nothing(), tail, end - j));
  }
  return M::horizontal(all);
}

// Tells the body what pass S has reduced a row to: a number, or two.
template <int S, class Body, class State>
RF_FN void set_result(const Body& body, typename Body::Row& r, long row, const State& state) {
  if constexpr (std::is_same_v<State, SumAndSquares::State>) {
    Real values[2];
    state.get(values);
    body.set(Step<S>{}, r, row, values);
  } else {
    body.set(Step<S>{}, r, row, state.get());
  }
}

template <int S, class Body> RF_FN void passes(const Body&, typename Body::Row&, long, long, List<>) {}
template <int S, class Body, class M, class... Rest>
RF_FN void passes(const Body& body, typename Body::Row& r, long row, long width, List<M, Rest...>) {
  typename M::State state;
  for (long j = 0; j < width; j += kChunk)
    M::merge(state, accumulate_chunk<M, Body, S>(body, r, row, j, std::min(j + kChunk, width)));
  set_result<S>(body, r, row, state);
  passes<S + 1>(body, r, row, width, List<Rest...>{});
}

// The same for one long row: threads take chunks, which merge in the same order as above.
template <int S, class Body> void split_passes(const Body&, typename Body::Row&, long, long, List<>) {}
template <int S, class Body, class M, class... Rest>
void split_passes(const Body& body, typename Body::Row& r, long row, long width,
                  List<M, Rest...>) {
  const long chunks = (width + kChunk - 1) / kChunk;
  std::vector<decltype(M::horizontal(M::identity()))> partial(chunks);
  parallel_for(0, chunks, 4, [&](long b, long e) {
    for (long c = b; c < e; c++)
      partial[c] = accumulate_chunk<M, Body, S>(body, r, row, c * kChunk,
                                            std::min((c + 1) * kChunk, width));
  });
  typename M::State state;
  for (const auto& p : partial) M::merge(state, p);
  set_result<S>(body, r, row, state);
  split_passes<S + 1>(body, r, row, width, List<Rest...>{});
}

template <class Body> void rows(const Body& body, long count, long width) {
  using Monoids = typename Body::Monoids;
  if (count < at::get_num_threads() && width >= 4 * kChunk) {
    for (long row = 0; row < count; row++) {
      typename Body::Row r;
      split_passes<0>(body, r, row, width, Monoids{});
      if constexpr (Body::kStores)
        parallel_for(0, (width + kChunk - 1) / kChunk, 2, [&](long b, long e) {
          for_columns(b * kChunk, std::min(e * kChunk, width),
                      [&](auto col) { body.template store<Vec>(r, row, col); });
        });
      if constexpr (Body::kFinalizes) body.finalize(r, row);
    }
    return;
  }
  const long grain = std::max(1L, 8192 / std::max(width, 1L));
  parallel_for(0, count, grain, [&](long begin, long end) {
    for (long row = begin; row < end; row++) {
      typename Body::Row r;
      passes<0>(body, r, row, width, Monoids{});
      if constexpr (Body::kStores)
        for_columns(0, width, [&](auto col) { body.template store<Vec>(r, row, col); });
      if constexpr (Body::kFinalizes) body.finalize(r, row);
    }
  });
}

}  // namespace rf
