// Convolution: products of features (rows) and places (columns), with what follows on each element done while a tile is
// in cache.
//
// A body gives
//   Window                              a ConvolutionWindow
//   value(acc, row, channel, col)       lanes of the result from lanes of acc; a row is a channel of an image's result
//   store(row, col, v)                  writes them
//
// A task is a strip of kWide places, which reaches across rows and images, and some features. What its windows see is
// copied into rows of places, one for each step of k = (channel, tap), kDepth steps at a time: runs of an image's row, so
// that padding, strides and dilation are in the copies alone. Kernels lie in panels, as rows of a product do (gemm.h).
#pragma once
#include "gemm.h"
#include "image.h"
#include "planes.h"
#include "rows.h"

namespace rf {

struct ConvolutionBody {
  template <class V, class C> RF_FN V value(V acc, long row, long channel, C col) const { return acc; }
};

constexpr long kSmall = 1L << 18;        // so many products are not worth a second thread
constexpr long kMostFeatures = 512;  // of a task: so many rows of kWide sums are half of L2 or less
constexpr long kShortSum = 32;  // products that are added up before they join a sum: what is large is rounded less often
constexpr long kPitch = kWide + kLine;  // from one row of places to the next: rows lie in all sets of the L1

// One register tile: acc[i][j] (+)= sum over k of a[k][i] * b[k][j], R features by C vectors of places.
template <int R, int C>
void places_tile(bool first, long depth, const Real* __restrict a, const Real* __restrict b, Real* __restrict acc) {
  Vec sum[R][C];
#pragma GCC unroll 16
  for (int i = 0; i < R; i++)
#pragma GCC unroll 2
    for (int j = 0; j < C; j++) sum[i][j] = Vec(0.0f);
#pragma GCC unroll 2
  for (long k = 0; k < depth; k++, a += R, b += kPitch) {
    Vec x[C];
#pragma GCC unroll 2
    for (int j = 0; j < C; j++) x[j] = Vec::loadu(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < R; i++) {
      const Vec w(a[i]);
#pragma GCC unroll 2
      for (int j = 0; j < C; j++) sum[i][j] = fmadd(w, x[j], sum[i][j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < R; i++, acc += kWide)
#pragma GCC unroll 2
    for (int j = 0; j < C; j++) {
      Real* to = acc + j * kLanes;
      (first ? sum[i][j] : Vec::loadu(to) + sum[i][j]).store(to);
    }
}

// Adjoining places of a strip, in one row of one image.
struct Run { long image, d, h, w, count, at; };
// What one tap sees of a run: elements from `from` on in a channel of the image; or, where that is negative, padding.
struct Copy { long from; int count, at; };

template <class Body> class Convolution {
  using W = typename Body::Window;
  using Deep = typename W::Deep;
  using High = typename W::High;
  using Wide = typename W::Wide;
  static constexpr long kFeatures = W::kFeatures, kChannels = W::kChannels, kGroups = W::kGroups;
  static constexpr long kPanelCount = (kFeatures + kMostRows - 1) / kMostRows, kLeast = kFeatures / kPanelCount;
  static constexpr long kStep = W::kTransposed ? 1 : Wide::kStride;

 public:
  Convolution(const Body& body, const Real* x, const Real* w, long count, long deep, long high, long wide)
      : body_(body), x_(x), w_(w), count_(count),
        deep_(axis_of<Deep, W::kTransposed>(W::kOne ? 1 : deep)),
        high_(axis_of<High, W::kTransposed>(W::kOne ? 1 : high)),
        wide_(axis_of<Wide, W::kTransposed>(W::kOne ? deep * high * wide : wide)),
        channel_(deep * high * wide), places_(deep_.made * high_.made * wide_.made),
        end_(x + count * kGroups * kChannels * channel_), panels_(kFeatures), zeros_(kPitch + kLanes) {
    long at = 0;
    for (long pd = 0; pd < deep_.phases; pd++)
      for (long ph = 0; ph < high_.phases; ph++) {
        Rows rows{pd, ph, deep_.count(pd), high_.count(ph), wide_.count(0), 0, {}, {}};
        rows.pixels = count * rows.deep * rows.high * rows.wide;
        for (long pw = 0; pw < wide_.phases; pw++) {
          rows.taps.push_back(taps_of<W>(deep_, pd, high_, ph, wide_, pw));
          rows.packed.push_back(at);
          at += kGroups * kFeatures * kChannels * long(rows.taps.back().size());
        }
        rows_.push_back(std::move(rows));
      }
    packed_ = buffer(at + kLanes);
  }

  void run() {
    if (count_ * places_ <= 0) return;
    const long blocks = pieces(kFeatures, kMostFeatures);
    std::vector<long> starts{0};  // of the strips of each of rows_
    for (const Rows& rows : rows_) starts.push_back(starts.back() + pieces(rows.pixels, kWide));
    const long strips = starts.back(), tasks = strips * blocks * kGroups;
    const long threads =
        kGroups * kFeatures * W::kDepth * count_ * places_ <= kSmall || at::in_parallel_region() ? 1 : at::get_num_threads();
    run_tasks(long(kGroups * kPanelCount), [&](long i) { pack_panel(i / kPanelCount, i % kPanelCount); }, tasks, threads,
              [&] { return Scratch(wide_.phases); },
              [&](long task, Scratch& scratch) {
                const long strip = task % strips, block = task / strips % blocks, group = task / strips / blocks;
                long r = 0;
                while (starts[r + 1] <= strip) r++;
                compute(rows_[r], (strip - starts[r]) * kWide, group, kPanelCount * block / blocks,
                        kPanelCount * (block + 1) / blocks, scratch);
              });
  }

 private:
  // The rows of a result that are of one phase along its depth and its height. taps, packed: of each phase along the
  // width, what it sees, and where its kernels lie.
  struct Rows {
    long pd, ph, deep, high, wide, pixels;
    std::vector<std::vector<Tap>> taps;
    std::vector<long> packed;
  };
  struct Scratch {
    Buffer windows, acc, joined;
    std::vector<Run> runs;
    std::vector<Copy> copies;
    std::vector<long> first;  // of the copies of each tap
    long reach = 0;           // of what they read, in whole vectors
    explicit Scratch(long phases)
        : windows(buffer(kDepth * kPitch + kLanes)),
          acc(buffer(phases * (std::min(kFeatures, kMostFeatures) + kMostRows) * kWide)),
          joined(buffer(phases > 1 ? phases * kWide + 2 * kLanes : 1)) {}
  };

  // The kernels of a panel of features: [phase][group][panel][k][feature].
  void pack_panel(long group, long panel) {
    const long start = panels_.start(panel), rows = panels_.rows(panel);
    for (const Rows& r : rows_)
      for (size_t pw = 0; pw < r.taps.size(); pw++) {
        const std::vector<Tap>& taps = r.taps[pw];
        const long depth = kChannels * long(taps.size());
        Real* to = packed_.get() + r.packed[pw] + (group * kFeatures + start) * depth;
        if constexpr (!W::kTransposed) {
          if (depth > 0) pack(w_ + (group * kFeatures + start) * depth, depth, rows, depth, rows, to);
        } else {
          for (long c = 0; c < kChannels; c++)
            for (const Tap& tap : taps) {
              const Real* from = w_ + ((group * kChannels + c) * kFeatures + start) * W::kTaps + tap.tap;
              for (long i = 0; i < rows; i++) *to++ = from[i * W::kTaps];
            }
        }
      }
  }

  // By itself, as lay_copies is: inlined into what shares work out, its loops have too few registers.
  [[gnu::noinline]] void compute(const Rows& rows, long begin, long group, long first_panel, long last_panel,
                                 Scratch& scratch) {
    const long cols = std::min(kWide, rows.pixels - begin), top = panels_.start(first_panel);
    const long height = panels_.start(last_panel) - top;
    lay_runs(rows, begin, cols, scratch.runs);
    for (size_t pw = 0; pw < rows.taps.size(); pw++) {
      const long depth = kChannels * long(rows.taps[pw].size());
      Real* acc = scratch.acc.get() + pw * height * kWide;
      if (depth == 0) std::fill(acc, acc + height * kWide, Real(0));
      lay_copies(rows.taps[pw], scratch);
      const Real* packed = packed_.get() + rows.packed[pw] + group * kFeatures * depth;
      for (long k = 0; k < depth; k += kDepth) {
        const long steps = std::min(kDepth, depth - k);
        for (long i = 0; i < steps; i++)
          copy(scratch, (k + i) / long(rows.taps[pw].size()), (k + i) % long(rows.taps[pw].size()), group,
               scratch.windows.get() + i * kPitch);
        for (long p = first_panel; p < last_panel; p++) {
          const long start = panels_.start(p), n = panels_.rows(p);
          const Real* a = packed + start * depth + k * n;
          Real* to = acc + (start - top) * kWide;
          for (long j = 0; j < cols; j += kTileCols)
            for (long from = 0; from < steps; from += kShortSum) {
              const long chain = std::min(kShortSum, steps - from);
              const Real *weights = a + from * n, *b = scratch.windows.get() + from * kPitch + j;
              if (n == kLeast) tile<kLeast>(cols - j, k + from == 0, chain, weights, b, to + j);
              else tile<kLeast + 1>(cols - j, k + from == 0, chain, weights, b, to + j);
            }
        }
      }
    }
    for (long f = 0; f < height; f++) complete(rows, scratch, group * kFeatures + top + f, f, height);
  }
  template <long R> static RF_FN void tile(long cols, bool first, long steps, const Real* a, const Real* b, Real* to) {
    if constexpr (R > 0 && R <= kMostRows) {
      if (cols > kLanes) places_tile<R, 2>(first, steps, a, b, to);
      else places_tile<R, 1>(first, steps, a, b, to);
    }
  }

  // The places [begin, begin + cols) of all images, row by row.
  void lay_runs(const Rows& rows, long begin, long cols, std::vector<Run>& runs) const {
    runs.clear();
    long w = begin % rows.wide, h = begin / rows.wide % rows.high, d = begin / (rows.wide * rows.high) % rows.deep;
    long image = begin / (rows.wide * rows.high * rows.deep);
    for (long at = 0; at < cols;) {
      const long n = std::min(rows.wide - w, cols - at);
      runs.push_back({image, d, h, w, n, at});
      at += n;
      w = 0;
      if (++h < rows.high) continue;
      h = 0;
      if (++d < rows.deep) continue;
      d = 0;
      image++;
    }
  }

  // What each tap sees of the runs, padding included, in the order of places.
  [[gnu::noinline]] void lay_copies(const std::vector<Tap>& taps, Scratch& scratch) const {
    scratch.copies.clear();
    scratch.first.assign(1, 0);
    scratch.reach = 0;
    for (const Tap& tap : taps) {
      for (const Run& run : scratch.runs) {
        const long d = run.d * deep_.step + tap.d, h = run.h * high_.step + tap.h;
        const bool outside = d < 0 || d >= deep_.given || h < 0 || h >= high_.given;
        // the places whose elements lie in the row
        const long from = run.w * kStep + tap.w;
        long begin = from < 0 ? std::min((-from + kStep - 1) / kStep, run.count) : 0;
        long end = wide_.given > from ? std::min((wide_.given - from + kStep - 1) / kStep, run.count) : 0;
        if (outside || end <= begin) begin = end = run.count;
        if (begin > 0) scratch.copies.push_back({-1, int(begin), int(run.at)});
        if (end > begin) {
          const long image = run.image * kGroups * kChannels * channel_;
          const long row = (d * high_.given + h) * wide_.given;
          const long start = image + row + from + begin * kStep;
          scratch.copies.push_back({start, int(end - begin), int(run.at + begin)});
          scratch.reach = std::max(scratch.reach, start + round_up(end - begin, kLanes));
        }
        if (end < run.count) scratch.copies.push_back({-1, int(run.count - end), int(run.at + end)});
      }
      scratch.first.push_back(long(scratch.copies.size()));
    }
  }

  // One step of k as a row of places. Whole vectors are written: what comes next overwrites what was too much.
  RF_FN void copy(const Scratch& scratch, long channel, long tap, long group, Real* to) const {
    const Real* plane = x_ + (group * kChannels + channel) * channel_;
    const Copy *c = scratch.copies.data() + scratch.first[tap], *last = scratch.copies.data() + scratch.first[tap + 1];
    if (kStep == 1 && plane + scratch.reach <= end_) {
      for (; c != last; c++) {
        const Real* from = c->from < 0 ? zeros_.data() : plane + c->from;
        Real* at = to + c->at;
        const long n = c->count;  // read once: what is stored might be it
        long j = 0;
        do {
          Vec::loadu(from + j).store(at + j);
        } while ((j += kLanes) < n);
      }
      return;
    }
    for (; c != last; c++) {
      const Real* from = plane + c->from;
      Real* at = to + c->at;
      long j = 0;
      if (c->from < 0) {
        std::fill(at, at + c->count, Real(0));
        continue;
      }
      if constexpr (kStep == 2)
        for (; j < c->count && from + 2 * (j + kLanes) <= end_; j += kLanes)
          deinterleave2(Vec::loadu(from + 2 * j), Vec::loadu(from + 2 * j + kLanes)).first.store(at + j);
      for (; j < c->count; j++) at[j] = from[j * kStep];
    }
  }

  // What follows on the places of a feature, the f-th of `height` of the task.
  RF_FN void complete(const Rows& rows, const Scratch& scratch, long feature, long f, long height) const {
    if constexpr (!W::kTransposed) {
      for (size_t i = 0; i < scratch.runs.size();) {  // all of an image as one
        const Run& run = scratch.runs[i];
        long n = 0;
        while (i < scratch.runs.size() && scratch.runs[i].image == run.image) n += scratch.runs[i++].count;
        const long begin = (run.d * rows.high + run.h) * rows.wide + run.w;
        take(scratch.acc.get() + f * kWide + run.at, run.image, feature, begin, n);
      }
    } else {
      for (const Run& run : scratch.runs) {
        const long row = (run.d * Deep::kStride + rows.pd) * high_.made + run.h * High::kStride + rows.ph;
        const long begin = run.w * Wide::kStride, n = std::min(run.count * Wide::kStride, wide_.made - begin);
        const Real* acc = scratch.acc.get() + f * kWide + run.at;
        if constexpr (Wide::kStride > 1) {
          join(acc, height * kWide, run.count, scratch.joined.get());
          acc = scratch.joined.get();
        }
        take(acc, run.image, feature, row * wide_.made + begin, n);
      }
    }
  }
  // Phases along the width, `apart` from each other, element by element.
  static RF_FN void join(const Real* acc, long apart, long count, Real* to) {
    if constexpr (Wide::kStride == 2) {
      for (long j = 0; j < count; j += kLanes) {
        const auto both = interleave2(Vec::loadu(acc + j), Vec::loadu(acc + apart + j));
        both.first.store(to + 2 * j);
        both.second.store(to + 2 * j + kLanes);
      }
    } else {
      for (long j = 0; j < count; j++)
        for (long p = 0; p < Wide::kStride; p++) to[j * Wide::kStride + p] = acc[p * apart + j];
    }
  }
  RF_FN void take(const Real* acc, long image, long feature, long begin, long count) const {
    const long row = image * kGroups * kFeatures + feature;
    const Body body = body_;  // in registers: what is stored might be what body_ refers to
    for_columns(begin, begin + count, [&](auto col) {
      body.store(row, col, body.template value<Vec>(full<Vec>(acc - begin, 0, col), row, feature, col));
    });
  }

  const Body& body_;
  const Real *x_, *w_;
  const long count_;
  const Axis deep_, high_, wide_;
  const long channel_, places_;  // elements of a channel of an image, of a result
  const Real* const end_;        // of the images
  const Panels panels_;
  const std::vector<Real> zeros_;
  std::vector<Rows> rows_;
  Buffer packed_;
};

constexpr long kFewFeatures = 4, kFewProducts = 1024;  // which are one sum each in a register

template <class Body>
void convolution(const Body& body, const Real* x, const Real* w, long count, long deep, long high, long wide, long) {
  using W = typename Body::Window;
  constexpr bool few = !W::kTransposed && W::kFeatures <= kFewFeatures && W::kDepth <= kFewProducts;
  std::conditional_t<few, PlaneConvolution<Body>, Convolution<Body>>(body, x, w, count, deep, high, wide).run();
}

}  // namespace rf
