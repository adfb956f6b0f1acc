// Pooling: means, or largest elements, of windows of an image's planes.
//
// A body gives
//   Pool                          LargestOf, or MeanOf<whether what is padded counts>
//   Depth, Height, Width          a Window each: fixed sizes, so that loops over windows are unrolled
//   term(row, col)                the lanes of the image, row after row of all planes
//   lies_at()                     where the image lies, if term only reads it
//   store(value, row, col)        takes the lanes of the result
// Threads take rows of the result, a block of columns at a time. The rows of the image that a window
// spans meet first, in whole vectors; what is left of them, with padding at its ends, is a row in
// which lanes then meet their neighbours. Rows that are computed are kept while windows may read them.
#pragma once
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "lanes.h"
#include "parallel.h"

namespace rf {

struct PoolingBody {};

template <long Given, long Made, long Size, long Step, long Padding, long Apart> struct Window {
  static constexpr long kGiven = Given, kMade = Made, kSize = Size, kStep = Step, kApart = Apart,
                        kSpan = (Size - 1) * Apart + 1;
  static constexpr bool kInside = Padding == 0 && (Made - 1) * Step + kSpan <= Given;
  // where a window begins, perhaps outside; how many of its elements lie in the image, or in what is
  // padded, too
  static RF_FN long begin(long made) { return made * Step - Padding; }
  static RF_FN Real count(long made, bool padded) {
    const long from = begin(made), end = Given + (padded ? Padding : 0);
    return static_cast<Real>(std::min(from + Size, end) - (padded ? from : std::max(from, 0L)));
  }
};

struct LargestOf {
  static RF_FN Vec identity() { return Vec(-infinity()); }
  static RF_FN Vec of(Vec a, Vec b) { return maximum(a, b); }
};
template <bool CountsPadding> struct MeanOf {
  static constexpr bool kCountsPadding = CountsPadding;
  static RF_FN Vec identity() { return Vec(Real(0)); }
  static RF_FN Vec of(Vec a, Vec b) { return a + b; }
};
template <class Pool> struct TakesMean : std::false_type {};
template <bool B> struct TakesMean<MeanOf<B>> : std::true_type {};

template <class Body, class = void> struct LiesInMemory : std::false_type {};
template <class Body>
struct LiesInMemory<Body, std::void_t<decltype(std::declval<Body>().lies_at())>> : std::true_type {};

// Calls f(col) for the columns [begin, end) by whole vectors, the last of which may take some columns
// again; by a shorter one where there are fewer columns. f only writes what does not change what it reads.
template <class F> RF_FN void for_columns_again(long begin, long end, F f) {
  if (end - begin < kLanes) {
    if (begin < end) f(TailVec{begin, end - begin});
    return;
  }
  long j = begin;
  for (; j + kLanes <= end; j += kLanes) f(FullVec{j});
  if (j < end) f(FullVec{end - kLanes});
}

// Lanes that lie `Step` elements apart.
template <long Step> RF_FN Vec strided_lanes(const Real* p) {
  if constexpr (Step == 1) {
    return Vec::loadu(p);
  } else if constexpr (Step == 2) {
    return deinterleave2(Vec::loadu(p), Vec::loadu(p + kLanes)).first;
  } else if constexpr (Step == 4) {
    return deinterleave2(strided_lanes<2>(p), strided_lanes<2>(p + 2 * kLanes)).first;
  } else {
    Real some[kLanes];
    for (long i = 0; i < kLanes; i++) some[i] = p[i * Step];
    return Vec::loadu(some);
  }
}

// What one thread works with: a block of the result's columns, and rows of the image.
template <class Body> class PoolingRows {
  using Pool = typename Body::Pool;
  using Depth = typename Body::Depth;
  using Height = typename Body::Height;
  using Width = typename Body::Width;

 public:
  static constexpr long kBlock = std::min(Width::kMade, 64 * kLanes);  // columns of the result at a time
  static constexpr long kBlocks = (Width::kMade + kBlock - 1) / kBlock;

  PoolingRows(const Body& body, long planes)
      : body_(body), elements_(planes * Depth::kGiven * Height::kGiven * Width::kGiven), met_(new Real[kMet]()) {
    if constexpr (kKept > 0) {
      kept_.reset(new Real[kKept * Width::kGiven + 4 * kLanes]());
      which_.assign(kKept, -1);
    }
    if constexpr (TakesMean<Pool>::value && !Width::kInside) {
      counts_.resize(Width::kMade + kLanes, 1);
      for (long o = 0; o < Width::kMade; o++) counts_[o] = Width::count(o, Pool::kCountsPadding);
    }
  }

  // The block of columns from `first` of a row of the result.
  void block(long row, long first) {
    const long oh = row % Height::kMade, od = row / Height::kMade % Depth::kMade;
    const long plane = row / (Height::kMade * Depth::kMade);
    const long last = std::min(first + kBlock, Width::kMade);
    const Real* rows[kRows];
    long count = 0, only = 0;
    for (long i = 0; i < Depth::kSize; i++) {
      const long d = Depth::begin(od) + i * Depth::kApart;
      if (d < 0 || d >= Depth::kGiven) continue;
      for (long j = 0; j < Height::kSize; j++) {
        const long h = Height::begin(oh) + j * Height::kApart;
        if (h < 0 || h >= Height::kGiven) continue;
        only = (plane * Depth::kGiven + d) * Height::kGiven + h;
        if constexpr (kKept > 0 || LiesInMemory<Body>::value)
          rows[count] = row_of(only, d % kKeptDepth * kKeptHeight + h % kKeptHeight);
        count++;
      }
    }
    if constexpr (LiesInMemory<Body>::value && Width::kGiven >= 256)
      fetch_next(rows, count, std::max(Width::begin(first), 0L));
    meet(rows, count, only, Width::begin(first), Width::begin(last - 1) + Width::kSpan);
    Real whole = 1;
    if constexpr (TakesMean<Pool>::value)
      whole = Depth::count(od, Pool::kCountsPadding) * Height::count(oh, Pool::kCountsPadding);
    for_columns_again(first, last, [&](auto col) { store(row, first, whole, col); });
  }

 private:
  static constexpr long kRows = Depth::kSize * Height::kSize;
  // Rows that are computed are kept: as many as a window spans, of the planes that windows share whole
  // ones where that is not too much.
  static constexpr bool kComputes = !LiesInMemory<Body>::value && kRows > 1;
  static constexpr long kKeptDepth = std::min(Depth::kSpan, Depth::kGiven);
  static constexpr bool kWholePlanes =
      Depth::kSize > Depth::kStep &&
      kKeptDepth * Height::kGiven * Width::kGiven * long(sizeof(Real)) <= (1 << 19);
  static constexpr long kKeptHeight = kWholePlanes ? Height::kGiven : std::min(Height::kSpan, Height::kGiven);
  static constexpr long kKept = kComputes ? kKeptDepth * kKeptHeight : 0;
  // of the row in which lanes meet their neighbours: what a block's windows span, and whole vectors
  static constexpr long kMet = (kBlock + kLanes - 1) * Width::kStep + Width::kSpan + 5 * kLanes;

  const Real* row_of(long row, long place) {
    if constexpr (LiesInMemory<Body>::value) {
      return body_.lies_at() + row * Width::kGiven;
    } else {
      Real* kept = kept_.get() + place * Width::kGiven;
      if (which_[place] != row) {
        which_[place] = row;
        for_columns_again(0, Width::kGiven,
                          [&](auto col) { put(kept, 0, col, body_.template term<Vec>(row, col)); });
      }
      return kept;
    }
  }

  // What the next row of the result begins with: while lanes meet, memory is at work.
  static RF_FN void fetch_next(const Real* const* rows, long count, long from) {
    for (long r = 0; r < count; r++)
      for (long line = 0; line < 4; line++)
        __builtin_prefetch(rows[r] + Height::kStep * Width::kGiven + from + line * 64 / long(sizeof(Real)));
  }

  // The columns [begin, end) of rows of the image, met; those outside it are what is padded. last: the
  // last of the rows.
  void meet(const Real* const* rows, long count, long last, long begin, long end) {
    const long from = std::max(begin, 0L), to = std::min(end, Width::kGiven);
    Real* const met = met_.get() - begin;
    if constexpr (kKept == 0 && !LiesInMemory<Body>::value) {
      for_columns_again(from, to, [&](auto col) { put(met, 0, col, body_.template term<Vec>(last, col)); });
    } else if (kKept > 0 || (last + 1) * Width::kGiven + 4 * kLanes <= elements_) {
      // what is read beyond the end of a row is in no window
      for (long j = from; j < to; j += 4 * kLanes) meet_four(rows, count, met, j);
    } else {
      long j = from;
      for (; j + 4 * kLanes <= to; j += 4 * kLanes) meet_four(rows, count, met, j);
      for (; j < to; j += kLanes) {
        const TailVec col{j, std::min(kLanes, to - j)};
        Vec a = column<Vec>(rows[0], col);
        for (long r = 1; r < count; r++) a = Pool::of(a, column<Vec>(rows[r], col));
        put(met, 0, col, a);
      }
    }
    if constexpr (!Width::kInside) {
      Real padded[kLanes];
      Pool::identity().store(padded);
      std::fill(met + begin, met + std::max(from, begin), padded[0]);
      std::fill(met + to, met + std::max(end, to), padded[0]);
    }
  }

  static RF_FN void meet_four(const Real* const* rows, long count, Real* met, long j) {
    const Real* p = rows[0] + j;
    Vec a = Vec::loadu(p), b = Vec::loadu(p + kLanes), c = Vec::loadu(p + 2 * kLanes), d = Vec::loadu(p + 3 * kLanes);
    for (long r = 1; r < count; r++) {
      p = rows[r] + j;
      a = Pool::of(a, Vec::loadu(p));
      b = Pool::of(b, Vec::loadu(p + kLanes));
      c = Pool::of(c, Vec::loadu(p + 2 * kLanes));
      d = Pool::of(d, Vec::loadu(p + 3 * kLanes));
    }
    a.store(met + j);
    b.store(met + j + kLanes);
    c.store(met + j + 2 * kLanes);
    d.store(met + j + 3 * kLanes);
  }

  template <class C> RF_FN void store(long row, long first, Real whole, C col) {
    Vec value = met_along(met_.get() + (col.start - first) * Width::kStep);
    if constexpr (TakesMean<Pool>::value) {
      if constexpr (Width::kInside) value = value / Vec(whole * Width::kSize);
      else value = value / (Vec::loadu(counts_.data() + col.start) * Vec(whole));
    }
    body_.template store<Vec>(value, row, col);
  }

  // Windows of lanes; the first elements of those whose step is even meet as pairs.
  static RF_FN Vec met_along(const Real* p) {
    constexpr long S = Width::kStep;
    if constexpr (S == 2 && Width::kApart == 1 && Width::kSize > 1) {
      return rest<2>(p, pair_met(p));
    } else if constexpr (S == 4 && Width::kApart == 1 && Width::kSize >= 4) {
      return rest<4>(p, pair_of(pair_met(p), pair_met(p + 2 * kLanes)));
    } else if constexpr (TakesMean<Pool>::value && S > 4 && Width::kSize > 4) {
      Real sums[kLanes];  // far apart: each by itself
      for (long l = 0; l < kLanes; l++) {
        sums[l] = p[l * S];
#pragma GCC unroll 16
        for (long i = 1; i < Width::kSize; i++) sums[l] += p[l * S + i];
      }
      return Vec::loadu(sums);
    } else {
      return rest<1>(p, strided_lanes<S>(p));
    }
  }
  // Each element of an even place, met with the one behind it.
  static RF_FN Vec pair_met(const Real* p) { return pair_of(Vec::loadu(p), Vec::loadu(p + kLanes)); }
  static RF_FN Vec pair_of(Vec a, Vec b) {
    const auto [even, odd] = deinterleave2(a, b);
    return Pool::of(even, odd);
  }
  template <long I> static RF_FN Vec rest(const Real* p, Vec value) {
#pragma GCC unroll 16
    for (long i = I; i < Width::kSize; i++)
      value = Pool::of(value, strided_lanes<Width::kStep>(p + i * Width::kApart));
    return value;
  }

  const Body& body_;
  const long elements_;  // of the image
  std::unique_ptr<Real[]> met_, kept_;
  std::vector<long> which_;    // the row of the image in each place
  std::vector<Real> counts_;  // elements that a window counts along the width
};

template <class Body> void pooling(const Body& body, long planes) {
  using Rows = PoolingRows<Body>;
  const long rows = planes * Body::Depth::kMade * Body::Height::kMade;
  constexpr long work = Rows::kBlock * Body::Depth::kSize * (Body::Height::kSize + Body::Width::kSize);
  parallel_for(0, rows * Rows::kBlocks, std::max(1L, 32768 / work), [&](long begin, long end) {
    Rows some(body, planes);
    for (long task = begin; task < end; task++)
      some.block(task / Rows::kBlocks, task % Rows::kBlocks * Rows::kBlock);
  });
}

}  // namespace rf
