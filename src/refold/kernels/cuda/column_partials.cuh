// Column partials: what reductions down columns keep of the rows seen so far, and how such partials merge.
//
// Why: both a pass over stored values (columns.cuh) and a product's tiles (finalize.cuh) leave partials of a
// column here and there; they must be merged in an order that depends on the sizes alone.
#pragma once
#include "block.cuh"

namespace rf {

constexpr int kColumnThreads = 256;  // of a block, at most

// A thread's partials of all reductions: a word of each of its lanes, and of how many rows they are.
template <class Monoids, class V> struct ColumnPartials {
  static constexpr int kLanes = LanesOf<V>::count, kWords = Words<Monoids>::column;
  Real words[kWords][kLanes], count = 0.0f;

  template <class D, class S> RF_FN typename D::Partial get(S, int lane) const {
    typename D::Partial p;
#pragma unroll
    for (int w = 0; w < D::kWords; w++) p.w[w] = words[Before<S::index, Monoids>::column + w][lane];
    return p;
  }
  template <class D, class S> RF_FN void set(S, int lane, const typename D::Partial& p) {
#pragma unroll
    for (int w = 0; w < D::kWords; w++) words[Before<S::index, Monoids>::column + w][lane] = p.w[w];
  }
  RF_FN ColumnPartials() {
    for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
      using D = Down<decltype(monoid)>;
      const Real none[1] = {0.0f};
      const bool in[1] = {false};
#pragma unroll
      for (int l = 0; l < kLanes; l++) set<D>(step, l, D::template of<1>(none, in, 0.0f));
    });
  }
  // Takes the partials of rows that come after those it has. One without rows is left alone: its zero
  // weight would make NaN of an infinite mean.
  RF_FN void merge(const ColumnPartials& o) {
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

// Merges the partials of the block's row groups, in pairs, into those of the first.
template <class LanePartials>
RF_FN void merge_row_groups(LanePartials& partials, int lane, int row_group, int slice, int lanes, int row_groups) {
  constexpr int kSlots = kColumnThreads / 2, kLanes = LanePartials::kLanes;
  __shared__ Real words[LanePartials::kWords][kLanes][kSlots], counts[kSlots];
  for (int most = row_groups; most > 1; most = (most + 1) / 2) {
    const int half = (most + 1) / 2, from = row_group >= half ? row_group - half : row_group;
    const int slot = (slice * (most / 2) + from) * lanes + lane;
    if (row_group >= half && row_group < most) {
#pragma unroll
      for (int w = 0; w < LanePartials::kWords; w++)
#pragma unroll
        for (int l = 0; l < kLanes; l++) words[w][l][slot] = partials.words[w][l];
      counts[slot] = partials.count;
    }
    __syncthreads();
    if (row_group + half < most) {
      LanePartials other;
#pragma unroll
      for (int w = 0; w < LanePartials::kWords; w++)
#pragma unroll
        for (int l = 0; l < kLanes; l++) other.words[w][l] = words[w][l][slot];
      other.count = counts[slot];
      partials.merge(other);
    }
    __syncthreads();
  }
}

// Of the chunks that left their partials in a workspace, `first` and every `step`-th after it, merged in
// that order. words: the first chunk's first word of this thread's lanes; words are `width` apart and a
// chunk's words follow one another. A chunk has `chunk_rows` of `count` rows, the last what is left.
template <class LanePartials, class V>
RF_FN LanePartials merge_chunks(const Real* words, long width, long first, long step, long chunks, long chunk_rows,
                         long count) {
  constexpr int kAtOnce = 4;  // these reads come from the L2
  LanePartials partials;
#pragma unroll 1
  for (long c = first; c < chunks; c += kAtOnce * step) {
    LanePartials next[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; k++) {
      const long from = c + k * step, left = count - from * chunk_rows;
      next[k].count = left <= 0 ? 0.0f : Real(left < chunk_rows ? left : chunk_rows);
#pragma unroll
      for (int w = 0; w < LanePartials::kWords; w++) {
        const V word = LanesOf<V>::fresh(words + ((left <= 0 ? c : from) * LanePartials::kWords + w) * width);
#pragma unroll
        for (int l = 0; l < LanePartials::kLanes; l++) next[k].words[w][l] = LanesOf<V>::get(word, l);
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; k++) partials.merge(next[k]);
  }
  return partials;
}

// use(Step<S>, lane, state) for each monoid and lane.
template <class Monoids, class V, class Use>
RF_FN void for_columns(const ColumnPartials<Monoids, V>& partials, Use use) {
  for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
    using D = Down<decltype(monoid)>;
#pragma unroll
    for (int l = 0; l < LanesOf<V>::count; l++) {
      typename D::State state;
      D::merge(state, partials.template get<D>(step, l), partials.count);
      use(step, l, state);
    }
  });
}

}  // namespace rf
