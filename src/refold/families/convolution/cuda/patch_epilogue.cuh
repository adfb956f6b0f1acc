// Epilogue of convolution_patches.cuh: what a warp has of a result's box, 16 features by 32 places (or 64, of two joined
// phases) staged in shared memory, from there row after row to the body.
//
// Four elements next to each other at a time where addresses allow 16 bytes, wherever a row begins: what is left at either
// end of a run is stored one by one.
#pragma once
#include "patch.cuh"

namespace rf {

// How a warp's 32 places lie in a result: one run of a row, or some.
struct PatchRuns {
  int log;         // of the places of a run
  int first;       // of the warp's places in the tile's box
  int d, h, w;     // of the box's first place
};

template <class S, class W> struct PatchEpilogue {
  using P = Phases<W>;
  using Shape = PatchShape<S, W>;
  static constexpr int kJoined = Shape::kJoined, kWideStride = P::Wide::kPhases;
  static constexpr int kQuads = 8 * kJoined;       // of a feature
  static constexpr int kStep = kJoined > 1 ? 1 : kWideStride;  // from a staged element of a run to the next
  static constexpr long kChannels = long(W::kGroups) * W::kFeatures;

  const PatchLaunch& l;
  const PatchRuns& runs;
  const PatchTile<S, W>& tile;
  typename P::Phase phase;
  int lane;

  // A run of places as elements of a row of the result: where it begins, and how many of it there are.
  struct Run { int start, count; };
  RF_FN Run run_of(int i) const {
    const Images& m = l.images;
    const int n = runs.first + (i << runs.log), q_w = n & ((1 << l.log_wide) - 1), rest = n >> l.log_wide;
    const int q_h = rest & ((1 << l.log_high) - 1), q_d = rest >> l.log_high;
    const int d = (runs.d + q_d) * P::Deep::kPhases + phase.deep, h = (runs.h + q_h) * P::High::kPhases + phase.high;
    const int w = (runs.w + q_w) * kWideStride + (kJoined > 1 ? 0 : phase.wide);
    const int step = kJoined > 1 ? 1 : kWideStride, left = (m.made_wide - w + step - 1) / step;
    const int all = kJoined << runs.log, count = d >= m.made_deep || h >= m.made_high || left < 0 ? 0 : min(all, left);
    return {(d * m.made_high + h) * m.made_wide + w, count};
  }
  // Where a place of the warp lies in a result, of a joined phase.
  struct PlaceAt { int d, h, w; };
  RF_FN PlaceAt place_of(int joined, int place) const {
    const int n = runs.first + place, q_w = n & ((1 << l.log_wide) - 1), rest = n >> l.log_wide;
    const int q_h = rest & ((1 << l.log_high) - 1), q_d = rest >> l.log_high;
    return {(runs.d + q_d) * P::Deep::kPhases + phase.deep, (runs.h + q_h) * P::High::kPhases + phase.high,
            (runs.w + q_w) * kWideStride + (kJoined > 1 ? joined : phase.wide)};
  }
  RF_FN bool has(int joined, int place) const {
    const PlaceAt at = place_of(joined, place);
    return at.d < l.images.made_deep && at.h < l.images.made_high && at.w < l.images.made_wide;
  }
  // The element of a result; one that there is, where the place lies outside.
  RF_FN long element_of(int joined, int place) const {
    const Images& m = l.images;
    const PlaceAt at = place_of(joined, place);
    const int d = min(at.d, m.made_deep - 1), h = min(at.h, m.made_high - 1);
    return (long(d) * m.made_high + h) * m.made_wide + min(at.w, m.made_wide - 1);
  }
  // The body's values of what a warp's lanes have. feature0: the warp's first, in its group.
  template <class Body>
  RF_FN void values(const Body& body, float (&acc)[kJoined][S::kMI][4][4], int feature0) const {
#pragma unroll
    for (int mi = 0; mi < S::kMI; mi++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int feature = min(feature0 + 16 * mi + 8 * half + lane / 4, W::kFeatures - 1);
        const int channel = tile.group * W::kFeatures + feature;
        const long row = tile.image * kChannels + channel;
#pragma unroll
        for (int j = 0; j < kJoined; j++)
#pragma unroll
          for (int i = 0; i < 8; i++) {
            float& x = acc[j][mi][i / 2][2 * half + i % 2];
            x = body.value(Real(x), row, channel, element_of(j, 8 * (i / 2) + 2 * (lane % 4) + i % 2));
          }
      }
  }
  // The i-th element of the warp's run `run` as it is staged.
  static RF_FN int staged(int log, int run, int i) {
    return kJoined > 1 ? i % 2 * 32 + (run << log) + i / 2 : (run << log) + i;
  }

  // Elements that are not finite once more, in plain fp32.
  RF_FN void repair(float (&staging)[16][Shape::kPitch], int feature0) const {
    const int rows = min(16, W::kFeatures - feature0), count = 32 >> runs.log;
#pragma unroll 1
    for (int r = 0; r < rows * count; r++) {
      const int row = r / count, run = r % count;
      const Run at = run_of(run);
#pragma unroll 1
      for (int more = 0; more < kJoined; more++) {
        const int mine = lane + 32 * more;
        float* to = &staging[row][mine < at.count ? staged(runs.log, run, mine) : 0];
        unsigned todo = __ballot_sync(kFullMask, mine < at.count && !is_finite(*to));
        for (; todo; todo &= todo - 1) {
          const int owner = __ffs(todo) - 1;
          const float again = plain_element<W>(l.images, l.w, tile.image, tile.group, feature0 + row,
                                               at.start + (owner + 32 * more) * kStep, lane);
          if (lane == owner) *to = again;
        }
      }
    }
    __syncwarp();
  }

  // values: what becomes of a staged element (patch_channels.cuh).
  template <class Body, class Values>
  RF_FN void finalize(const Body& body, const Values& values, float (&staging)[16][Shape::kPitch], int feature0) const {
    const int channel0 = tile.group * W::kFeatures + feature0, rows = min(16, W::kFeatures - feature0);
    const long row0 = tile.image * kChannels + channel0;
    const int count = 32 >> runs.log;
    // one element of some rows
    const auto column = [&](int run, const Run& at, int i, int first, int step) {
      const int col = at.start + i * kStep, in = staged(runs.log, run, i);
      const auto known = values.template known<Real>([&](int) { return in; });
#pragma unroll 4
      for (int row = first; row < rows; row += step)
        body.store(row0 + row, col, values.value(known, Real(staging[row][in]), row0 + row, channel0 + row, col));
    };
    if (kStep > 1 || !l.in_fours) {
      const int log = runs.log + (kJoined > 1);
#pragma unroll 1
      for (int i = lane; i < 32 * kJoined; i += 32) {
        const Run at = run_of(i >> log);
        const int in = i & ((1 << log) - 1);
        if (in < at.count) column(i >> log, at, in, 0, 1);
      }
      return;
    }
    // four next to each other, at multiples of 16 bytes
    const int quad = lane % kQuads, log = runs.log + (kJoined > 1) - 2, run = quad >> log;
    const Run at = run_of(run);
    const int shift = -at.start & 3, i = shift + 4 * (quad & ((1 << log) - 1)), first = staged(runs.log, run, i);
    const bool whole = i + 4 <= at.count;
    constexpr int kAcross = 32 / kQuads, kPasses = 16 / kAcross, kAtOnce = 4 / kJoined;
    const Vec4At col{at.start + i};
    const auto known = values.template known<Vec4>([&](int e) { return whole ? staged(runs.log, run, i + e) : 0; });
#pragma unroll 1
    for (int pass = 0; pass < kPasses; pass += kAtOnce) {
      Vec4 v[kAtOnce];
#pragma unroll
      for (int p = 0; p < kAtOnce; p++) {
        const int row = (pass + p) * kAcross + lane / kQuads, safe = row < rows ? row : rows - 1;
        const float* from = &staging[safe][first];
        float4 sum;
        if (!whole) continue;
        if constexpr (kJoined > 1) {
          if (shift % 2 == 0) sum = make_float4(from[0], from[32], from[1], from[33]);
          else sum = make_float4(from[0], from[-31], from[1], from[-30]);
        } else {
          if (shift == 0) sum = *reinterpret_cast<const float4*>(from);
          else sum = make_float4(from[0], from[1], from[2], from[3]);
        }
        v[p] = values.value(known, Vec4(sum), row0 + safe, channel0 + safe, col);
      }
#pragma unroll
      for (int p = 0; p < kAtOnce; p++) {
        const int row = (pass + p) * kAcross + lane / kQuads;
        if (whole && row < rows) body.store(row0 + row, col, v[p]);
      }
    }
    // what is left of a run at either end
#pragma unroll 1
    for (int run = 0; run < count; run++) {
      const Run at = run_of(run);
      const int shift = min(-at.start & 3, at.count), end = shift + (at.count - shift) / 4 * 4;
      if (shift == 0 && end == at.count) continue;
      const int e = lane % 8, i = e < 4 ? e : end + e - 4;
      if (e < 4 ? e < shift : i < at.count) column(run, at, i, lane / 8, 4);
    }
  }
};

}  // namespace rf
