// Column parts: what reductions down columns keep of the rows seen so far, and how such parts merge.
//
// Why: both a pass over stored values (columns.cuh) and a product's tiles (finish.cuh) leave parts of a
// column here and there; they must be merged in an order that depends on the sizes alone.
#pragma once
#include "block.cuh"

namespace rf {

constexpr int kColumnThreads = 256;  // of a block, at most

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

// Merges the parts of the block's teams, in pairs, into those of the first.
template <class Parts>
RF_FN void merge_teams(Parts& parts, int lane, int team, int slice, int lanes, int teams) {
  constexpr int kSlots = kColumnThreads / 2, kLanes = Parts::kLanes;
  __shared__ float words[Parts::kWords][kLanes][kSlots], counts[kSlots];
  for (int most = teams; most > 1; most = (most + 1) / 2) {
    const int half = (most + 1) / 2, from = team >= half ? team - half : team;
    const int slot = (slice * (most / 2) + from) * lanes + lane;
    if (team >= half && team < most) {
#pragma unroll
      for (int w = 0; w < Parts::kWords; w++)
#pragma unroll
        for (int l = 0; l < kLanes; l++) words[w][l][slot] = parts.words[w][l];
      counts[slot] = parts.count;
    }
    __syncthreads();
    if (team + half < most) {
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

// Of the chunks that left their parts in a workspace, `first` and every `step`-th after it, merged in
// that order. words: the first chunk's first word of this thread's lanes; words are `width` apart and a
// chunk's words follow one another. A chunk has `chunk_rows` of `count` rows, the last what is left.
template <class Parts, class V>
RF_FN Parts merge_chunks(const float* words, long width, long first, long step, long chunks, long chunk_rows,
                         long count) {
  constexpr int kAtOnce = 4;  // these reads come from the second-level cache
  Parts parts;
#pragma unroll 1
  for (long c = first; c < chunks; c += kAtOnce * step) {
    Parts next[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; k++) {
      const long from = c + k * step, left = count - from * chunk_rows;
      next[k].count = left <= 0 ? 0.0f : float(left < chunk_rows ? left : chunk_rows);
#pragma unroll
      for (int w = 0; w < Parts::kWords; w++) {
        const V word = LanesOf<V>::fresh(words + ((left <= 0 ? c : from) * Parts::kWords + w) * width);
#pragma unroll
        for (int l = 0; l < Parts::kLanes; l++) next[k].words[w][l] = LanesOf<V>::get(word, l);
      }
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; k++) parts.merge(next[k]);
  }
  return parts;
}

// use(Step<S>, lane, state) for each monoid and lane.
template <class Monoids, class V, class Use> RF_FN void for_columns(const ColumnParts<Monoids, V>& parts, Use use) {
  for_monoids<0>(Monoids{}, [&](auto step, auto monoid) {
    using D = Down<decltype(monoid)>;
#pragma unroll
    for (int l = 0; l < LanesOf<V>::count; l++) {
      typename D::State state;
      D::merge(state, parts.template get<D>(step, l), parts.count);
      use(step, l, state);
    }
  });
}

}  // namespace rf
