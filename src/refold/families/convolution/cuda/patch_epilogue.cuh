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
  // The i-th element of the warp's run `run` as it is staged.
  static RF_FN int staged(int log, int run, int i) {
    return kJoined > 1 ? i % 2 * 32 + (run << log) + i / 2 : (run << log) + i;
  }

  template <class Body>
  RF_FN void finalize(const Body& body, float (&staging)[16][Shape::kPitch], int feature0, bool finite) const {
    const int channel0 = tile.group * W::kFeatures + feature0, rows = min(16, W::kFeatures - feature0);
    const long row0 = tile.image * kChannels + channel0;
    const int count = 32 >> runs.log;
    constexpr int kStep = kJoined > 1 ? 1 : kWideStride;
    if (!finite) {
#pragma unroll 1
      for (int r = 0; r < rows * count; r++) {
        const int row = r / count, run = r % count;
        const Run at = run_of(run);
        const int i = lane;
#pragma unroll 1
        for (int more = 0; more < kJoined; more++) {
          const int mine = i + 32 * more;
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
    const auto one = [&](int row, int run, const Run& at, int i) {
      const int col = at.start + i * kStep;
      const float v = staging[row][staged(runs.log, run, i)];
      body.store(row0 + row, col, body.value(v, row0 + row, channel0 + row, col));
    };
    if (kStep > 1 || !l.in_fours) {
      const int log = runs.log + (kJoined > 1), run = 0;
#pragma unroll 1
      for (int i = lane; i < 32 * kJoined; i += 32) {
        const Run at = run_of(i >> log);
        const int in = i & ((1 << log) - 1);
        if (in < at.count)
#pragma unroll 4
          for (int row = 0; row < rows; row++) one(row, (i >> log) + run, at, in);
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
        v[p] = body.value(Vec4(sum), row0 + safe, channel0 + safe, col);
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
      if (e < 4 ? e < shift : i < at.count)
#pragma unroll 1
        for (int row = lane / 8; row < rows; row += 4) one(row, run, at, i);
    }
  }
};

}  // namespace rf
