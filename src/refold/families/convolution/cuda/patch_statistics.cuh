// Mean and variance of each channel of an image, of what a block of convolution_patches.cuh computes of it.
//
// Why here: what normalises a result reads it whole for its statistics first, and a global mean is all that is left of it.
// A lane has eight places of 2 kMI features before they are staged, of two joined phases 16. Four lanes have a warp's 32
// places of a feature; what they add up lies in words of shared memory, to which each phase adds, so that the products have
// all registers. Deviations are taken from the warp's first value, so that an origin far from zero does not cancel.
//
// A block ends by adding its warps up, moved to the first one's origin. Of ordinary convolutions of few products that end
// counts: KernelBench's level 2, file 83 on an H100, us of the kernel: 1027 without statistics, 1288 where one thread a
// feature merged warp after warp, 1171 so.
//
// Shared memory: none of its own, as patch_channels.cuh: of a feature an origin, a sum and a sum of squares, and one count.
// Memory to work in: 16 bytes of each channel of an image, box and block that shares its phases.
#pragma once
#include "channel_statistics.cuh"
#include "patch_epilogue.cuh"

namespace rf {

template <class S, class W> struct PatchStatistics {
  using Shape = PatchShape<S, W>;
  static constexpr int kJoined = Shape::kJoined, kFeatures = 16 * S::kMI, kWords = 3 * kFeatures + 1;
  static constexpr bool kOnce = Phases<W>::kPhases == kJoined;  // a block has no phases after each other
  static_assert(kWords <= 16 * 8, "rows of a stage end in as many words");

  float (&stage)[16][Shape::kPitch];  // of the warp
  int lane;

  RF_FN float& word(int i) const { return stage[i / 8][32 * kJoined + i % 8]; }
  RF_FN float& origin(int feature) const { return word(feature); }
  RF_FN float& sum(int feature) const { return word(kFeatures + feature); }
  RF_FN float& squares(int feature) const { return word(2 * kFeatures + feature); }
  RF_FN float& count() const { return word(3 * kFeatures); }

  RF_FN void clear() const {
    if constexpr (kOnce) return;
    for (int i = lane; i < kWords; i += 32) word(i) = 0.0f;
    __syncwarp();
  }

  // A phase's values, or those of two. kSpread: whether their deviations are asked for.
  template <bool kSpread, class Epilogue>
  RF_FN void add(const float (&acc)[kJoined][S::kMI][4][4], const Epilogue& epilogue) const {
    unsigned there[kJoined];  // of the lane's places the i-th is bit 8 (i / 2) + i % 2
    float here = 0.0f;
#pragma unroll
    for (int j = 0; j < kJoined; j++) {
      const unsigned all = __ballot_sync(kFullMask, epilogue.has(j, lane));
      here += static_cast<float>(__popc(all));
      there[j] = all >> 2 * (lane % 4);
    }
    const float before = kOnce ? 0.0f : count();
    const bool begins = kOnce || before == 0.0f;
#pragma unroll
    for (int f = 0; f < 2 * S::kMI; f++) {
      const int feature = 8 * f + lane / 4;
      float from = 0.0f;
      if (kSpread) {
        const float some = __shfl_sync(kFullMask, acc[0][f / 2][0][2 * (f % 2)], lane & ~3);
        from = is_finite(some) ? some : 0.0f;
        if (!begins) from = origin(feature);
      }
      float more = 0.0f, more_squares = 0.0f;
#pragma unroll
      for (int j = 0; j < kJoined; j++)
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const float d = acc[j][f / 2][i / 2][2 * (f % 2) + i % 2] - from;
          if (there[j] >> (8 * (i / 2) + i % 2) & 1) {
            more += d;
            if (kSpread) more_squares = fmaf(d, d, more_squares);
          }
        }
#pragma unroll
      for (int apart = 1; apart < 4; apart *= 2) {
        more += __shfl_xor_sync(kFullMask, more, apart);
        if (kSpread) more_squares += __shfl_xor_sync(kFullMask, more_squares, apart);
      }
      if (lane % 4 == 0) {
        if (begins) origin(feature) = from;
        sum(feature) = kOnce ? more : sum(feature) + more;
        squares(feature) = kOnce ? more_squares : squares(feature) + more_squares;
      }
    }
    __syncwarp();
    if (lane == 0) count() = before + here;
    __syncwarp();
  }
};

// What all warps of a block have of its features, by as many lanes a feature as warps have it. stages: theirs.
template <class S, class W>
RF_FN void store_statistics(const PatchLaunch& l, const PatchTile<S, W>& tile, float (*stages)[16][PatchShape<S, W>::kPitch]) {
  constexpr int kOfWarp = 16 * S::kMI, kSharers = S::kThreads / 32 / S::kWarps;
  static_assert(S::kTileRows * kSharers <= S::kThreads && S::kTileRows * kSharers % 32 == 0, "whole warps");
  const int thread = threadIdx.x, of_tile = thread / kSharers, feature = tile.tile * S::kTileRows + of_tile;
  const long boxes = long(l.boxes_deep) * l.boxes_high * l.boxes_wide * l.splits;
  const long channel = (tile.image * W::kGroups + tile.group) * W::kFeatures + feature;
  float4* to = l.statistics + channel * boxes + tile.box * l.splits + tile.split;
  __syncthreads();
  if (thread >= S::kTileRows * kSharers) return;
  const auto of = [&](int sharer) {
    return PatchStatistics<S, W>{stages[sharer * S::kWarps + of_tile / kOfWarp], 0};
  };
  const PatchStatistics<S, W> mine = of(thread % kSharers);
  const int in_warp = of_tile % kOfWarp;
  const float origin = of(0).origin(in_warp), moved = mine.origin(in_warp) - origin;
  float n = mine.count(), sum = mine.sum(in_warp);
  float squares = mine.squares(in_warp) + moved * (2.0f * sum + moved * n);
  sum += moved * n;
#pragma unroll
  for (int apart = 1; apart < kSharers; apart *= 2) {
    n += __shfl_xor_sync(kFullMask, n, apart);
    sum += __shfl_xor_sync(kFullMask, sum, apart);
    squares += __shfl_xor_sync(kFullMask, squares, apart);
  }
  const float mean = n == 0.0f ? 0.0f : sum / n, m2 = squares - sum * mean;
  if (thread % kSharers == 0 && feature < W::kFeatures) *to = make_float4(n, origin, mean, m2 < 0.0f ? 0.0f : m2);
}

}  // namespace rf
