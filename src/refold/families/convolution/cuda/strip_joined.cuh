// A row of a strip's result where rows are short: those of several images next to each other in a tile, for
// convolution_strips.cuh.
//
// Why: of rows of 62 places half of a tile's 128 columns would be multiplied in vain. What a place sees lies behind it in
// shared memory, so that rows of `pitch` places each, what they see included, are one row for wgmma.
#pragma once
#include "strip_epilogue.cuh"

namespace rf {

struct JoinedImages {
  int pitch_log, left;  // the images that there are from the tile's first on
  RF_FN int image_of(int place) const { return place >> pitch_log; }
  RF_FN int along_of(int place) const { return place & ((1 << pitch_log) - 1); }
  RF_FN bool has(int image) const { return image < left; }
};

// As finalize_row, of results in fours. `at` is the row of the tile's first image; those of the others lie as far from
// where their images begin, so that all are shifted alike.
template <bool kWhole, class Body>
RF_FN void finalize_joined(const ConvolutionLaunch& l, const Body& body, float (&acc)[64], const RowOfResult& at,
                           const JoinedImages& joined, int lane) {
  using W = typename Body::Window;
  constexpr long kChannels = long(W::kGroups) * W::kFeatures;
  const int quad = lane / 4, first = first_place<1>(lane);  // of 16 places, the lane's four
  const bool even = l.images.made_wide % 2 == 0;
  const auto of_feature = [&](int which, int image, auto use) {  // of the warp's 16
    const int feature = at.feature0 + which;
    const bool mine = (kWhole || feature < W::kFeatures) && joined.has(image);
    const int channel = at.group * W::kFeatures + (kWhole || feature < W::kFeatures ? feature : W::kFeatures - 1);
    use((at.image + (joined.has(image) ? image : 0)) * kChannels + channel, channel, mine);
  };
#pragma unroll 1
  for (int h = 0; h < 2; h++) {  // of eight features
    Vec4 v[8];                   // of eight times 16 places, of one feature
#pragma unroll
    for (int p = 0; p < 8; p++) {
      v[p] = in_fours<1>(acc, p, h, false, lane);
      of_feature(8 * h + quad, joined.image_of(16 * p), [&](long row, int channel, bool) {
        // a place that there is: of the last rows of an image, those behind it are not the row's
        const int place = at.place + joined.along_of(16 * p) + first;
        v[p] = body.value(v[p], row, channel, Vec4At{min(place, l.images.places - 4)});
      });
    }
    const auto store_some = [&](int image, int along0) {  // four places, some of which are the row's
      const int from = max(along0, at.begin), until = min(along0 + 4, at.end);
      const int piece = ((image << joined.pitch_log) + along0) / 16;
      float x[4];
#pragma unroll
      for (int e = 0; e < 4; e++) {
        x[e] = v[0].x[e];
#pragma unroll
        for (int p = 1; p < 8; p++) x[e] = one_of(piece == p, v[p].x[e], x[e]);
      }
      of_feature(8 * h + quad, image, [&](long row, int, bool mine) {
        if (!mine || first != along0 % 16) return;
        if (even) {
          const bool late = from != along0;
          const ColumnPair<true> pair{at.place + from, 0, late ? x[3] : x[1]};
          if (from < until) body.store(row, pair, late ? x[2] : x[0]);
        } else {
#pragma unroll
          for (int e = 0; e < 4; e++)
            if (along0 + e >= from && along0 + e < until) body.store(row, at.place + along0 + e, x[e]);
        }
      });
    };
    const int last = at.end & ~3;
#pragma unroll 1
    for (int image = 0; image << joined.pitch_log < 128; image++) {
      if (at.begin != 0) store_some(image, 0);
      if (last != at.end && (last != 0 || at.begin == 0)) store_some(image, last);
    }
    transpose(v, quad);
    const int image = joined.image_of(16 * quad), along = joined.along_of(16 * quad) + first;
#pragma unroll
    for (int i = 0; i < 8; i++)
      of_feature(8 * h + i, image, [&](long row, int, bool mine) {
        if (mine && along >= at.begin && along + 4 <= at.end) body.store(row, Vec4At{at.place + along}, v[i]);
      });
  }
}

}  // namespace rf
