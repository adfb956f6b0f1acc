// Mean and variance of each channel of an image, of a strip's result, for convolution_strips.cuh.
//
// Why here: what normalises a result reads it whole for its statistics first, and a global mean is all that is left of it.
// Here a lane has 32 places of two features of a row in registers before they are stored, or are not stored at all.
//
// Deviations are taken from the mean of the strip's first row, so that an origin far from zero does not cancel. Strips are
// merged by Chan's formula, always in the same order (merge_statistics).
//
// Memory to work in: what is known (PlaceStatistics) of each channel of an image, of each strip and warpgroup that has
// the channel: 16 bytes. Registers of a thread: 7.
#pragma once
#include "channel_statistics.cuh"
#include "strip_epilogue.cuh"

namespace rf {

// Of a strip's values of a feature what a lane has: a fourth of the places of rows.
struct FeatureSums {
  float origin = 0.0f, sum = 0.0f, squares = 0.0f;  // deviations from the origin
};

struct StripStatistics {
  FeatureSums of[2];  // the features 8 h + lane / 4 of the warp's 16
  int count = 0;      // places of each

  // A row's values, by as many as a piece has; what follows on each is computed first.
  template <bool InFours, bool kWhole, class Body, class Joined>
  RF_FN void add_row(const ConvolutionLaunch& l, const Body& body, float (&acc)[64], const RowOfResult& at,
                     const Joined& joined, int lane) {
    // Of long bodies a few at a time: the instructions of 64 do not fit their cache. Values move on in their registers.
    constexpr int kPiece = Body::kLong ? 16 : 64, kPlaces = 2 * kPiece;
#pragma unroll 1
    for (int first = 0; first < 128; first += kPlaces) {
      if (first < at.end) {
        values_of_pairs<InFours, kWhole, kPiece>(l, body, acc, at, joined, lane, first);
        add<kPiece, Body::kSpread>(acc, at, lane, first);
      }
      if constexpr (kPiece < 64) rotate_by<kPiece>(acc);
    }
    count += at.end - at.begin;
  }

 private:
  template <int Values, bool kSpread> RF_FN void add(const float (&acc)[64], const RowOfResult& at, int lane, int first) {
    const auto has = [&](int i) {
      const int place = first + fragment_place<1>(i, lane);
      return place >= at.begin && place < at.end;
    };
    if (kSpread && count == 0 && first == 0) {  // the origin: a mean, of equal values exactly theirs
#pragma unroll
      for (int h = 0; h < 2; h++) {
        const float mine = one_of(at.begin % 2 != 0, acc[2 * h + 1], acc[2 * h]);  // at.begin < 4
        const float some = __shfl_sync(kFullMask, mine, (lane & ~3) | at.begin / 2);
        float sum = 0.0f;
#pragma unroll
        for (int i = 2 * h; i < Values; i += 4)
#pragma unroll
          for (int e = 0; e < 2; e++)
            if (has(i + e)) sum += acc[i + e] - some;
        sum += __shfl_xor_sync(kFullMask, sum, 1);
        sum += __shfl_xor_sync(kFullMask, sum, 2);
        const float origin = some + sum / static_cast<float>(min(at.end, 2 * Values) - at.begin);
        of[h].origin = is_finite(origin) ? origin : 0.0f;
      }
    }
    float sum[2] = {0.0f, 0.0f}, squares[2] = {0.0f, 0.0f};  // of rows by themselves: fewer additions behind each other
#pragma unroll
    for (int i = 0; i < Values; i++) {
      const int h = i / 2 % 2;
      const float d = kSpread ? acc[i] - of[h].origin : acc[i];
      if (has(i)) {
        sum[h] += d;
        if (kSpread) squares[h] = fmaf(d, d, squares[h]);
      }
    }
#pragma unroll
    for (int h = 0; h < 2; h++) of[h].sum += sum[h], of[h].squares += squares[h];
  }

 public:
  // to: of the image's first channel of the group, what this warpgroup has of the strip; pitch: from a channel to the next.
  template <class W> RF_FN void store(float4* to, long pitch, int feature0, int lane) const {
#pragma unroll
    for (int h = 0; h < 2; h++) {
      float sum = of[h].sum, squares = of[h].squares;
#pragma unroll
      for (int apart = 1; apart < 4; apart *= 2) {
        sum += __shfl_xor_sync(kFullMask, sum, apart);
        squares += __shfl_xor_sync(kFullMask, squares, apart);
      }
      const float n = static_cast<float>(count), mean = count == 0 ? 0.0f : sum / n;
      const float m2 = squares - sum * mean;
      const int feature = feature0 + 8 * h + lane / 4;
      if (lane % 4 == 0 && feature < W::kFeatures)
        to[feature * pitch] = make_float4(n, of[h].origin, mean, m2 < 0.0f ? 0.0f : m2);
    }
  }
};

}  // namespace rf
