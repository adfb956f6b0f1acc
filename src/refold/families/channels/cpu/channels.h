// Channels: passes over the channels of each place of a space [outer, count, width].
//
// A body gives
//   Reduced<V>                     what is known of places so far
//   Monoids = List<...>          one monoid for each pass
//   term(Step<S>, places_so_far, row, col)   the lanes that pass S reduces; row counts over outer * count
//   set(Step<S>, places_so_far, value)       takes the result of pass S into places_so_far, or its two
//   store(places_so_far, row, col, kept)     writes full-size results      (if kStores)
//   kKept                        the pass whose term `store` needs once more (if any)
//   finalize(places_so_far, outer, col)      writes results of places      (if kFinalizes)
// Lanes are places next to each other. A task is one block of them, which all passes find in the cache: a few vectors, so
// that what is read of a channel is some whole cache lines. Values are added in an order that depends on `count` alone.
#pragma once
#include "monoid.h"
#include "parallel.h"

namespace rf {

// What a body of channels is unless it says otherwise.
struct ChannelsBody {
  static constexpr bool kStores = true, kFinalizes = false;
  static constexpr int kKept = -1;
};

constexpr long kVectors = 4;      // of a task: their partials stay in registers
constexpr long kMostKept = 64;    // channels whose terms are kept, in the nearest cache

template <int S, class Body, class P> RF_FN void set_lanes(const Body& body, P& place, Vec value) {
  body.set(Step<S>{}, place, value);
}
template <int S, class Body, class P>
RF_FN void set_lanes(const Body& body, P& place, const SumAndSquares::Lanes& lanes) {
  const Vec values[2] = {lanes.sum, lanes.squares};
  body.set(Step<S>{}, place, values);
}

// The passes of N vectors of places at `cols`. Sums are taken of some, of some of these, and of all: each is short.
// keep: where the terms of a pass are kept, if they are.
template <int S, long N, class Body, class P, class C>
RF_FN void channel_passes(const Body&, P (&)[N], long, long, const C (&)[N], Vec (*)[N], List<>) {}
template <int S, long N, class Body, class P, class C, class M, class... Rest>
RF_FN void channel_passes(const Body& body, P (&places)[N], long row0, long count, const C (&cols)[N],
                          Vec (*keep)[N], List<M, Rest...>) {
  using Lanes = decltype(M::identity());
  Lanes all[N], more[N], some[N];
  const auto clear = [](Lanes(&lanes)[N]) {
    for (long i = 0; i < N; i++) lanes[i] = M::identity();
  };
  const auto add = [](Lanes(&into)[N], const Lanes(&lanes)[N]) {
    for (long i = 0; i < N; i++) into[i] = M::accumulate(into[i], lanes[i]);
  };
  clear(all);
  for (long c = 0; c < count;) {
    clear(more);
    for (const long end = std::min(count, c + kChain * kChain); c < end;) {
      clear(some);
      for (const long stop = std::min(end, c + kChain); c < stop; c++)
        for (long i = 0; i < N; i++) {
          const Vec x = body.template term<Vec>(Step<S>{}, places[i], row0 + c, cols[i]);
          some[i] = M::accumulate(some[i], x);
          if (S == Body::kKept && keep != nullptr) keep[c][i] = x;
        }
      add(more, some);
    }
    add(all, more);
  }
  for (long i = 0; i < N; i++) set_lanes<S>(body, places[i], all[i]);
  channel_passes<S + 1, N>(body, places, row0, count, cols, keep, List<Rest...>{});
}

template <long N, class Body, class C>
RF_FN void channels_at(const Body& body, long outer, long count, const C (&cols)[N]) {
  typename Body::template Reduced<Vec> places[N];
  const long row0 = outer * count;
  const auto all = [&](auto kept, Vec(*keep)[N]) {
    channel_passes<0, N>(body, places, row0, count, cols, keep, typename Body::Monoids{});
    if constexpr (Body::kStores)
      for (long c = 0; c < count; c++)
        for (long i = 0; i < N; i++) body.template store<Vec>(places[i], row0 + c, cols[i], kept(c, i));
  };
  if constexpr (Body::kKept < 0) {
    all([](long, long) { return Vec(0.0f); }, nullptr);
  } else if (count <= kMostKept) {
    Vec keep[kMostKept][N];
    all([&](long c, long i) { return keep[c][i]; }, keep);
  } else {
    all([&](long c, long i) { return body.template term<Vec>(Step<Body::kKept>{}, places[i], row0 + c, cols[i]); },
        nullptr);
  }
  if constexpr (Body::kFinalizes)
    for (long i = 0; i < N; i++) body.template finalize<Vec>(places[i], outer, cols[i]);
}

template <class Body> void channels(const Body& body, long outer, long count, long width) {
  constexpr long kWide = kVectors * kLanes;
  const long blocks = (width + kWide - 1) / kWide;
  const long grain = std::max(1L, 8192 / std::max(count * kWide, 1L));
  parallel_for(0, outer * blocks, grain, [&](long begin, long end) {
    for (long task = begin; task < end; task++) {
      const long slice = task / blocks, last = std::min(width, (task % blocks + 1) * kWide);
      long j = task % blocks * kWide;
      if (j + kWide <= last) {
        FullVec cols[kVectors];
        for (long i = 0; i < kVectors; i++) cols[i] = {j + i * kLanes};
        channels_at<kVectors>(body, slice, count, cols);
        continue;
      }
      for (; j + kLanes <= last; j += kLanes) channels_at<1, Body, FullVec>(body, slice, count, {{j}});
      if (j < last) channels_at<1, Body, TailVec>(body, slice, count, {{j, last - j}});
    }
  });
}

}  // namespace rf
