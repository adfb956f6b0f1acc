// A row of a strip's result of which each place's channels are reduced to one number, for convolution_strips.cuh.
//
// Why here: one number a place is stored instead of 64 or 128, which would be written and read for nothing. A tile has all
// channels of its places: a lane has two features of each of its places, eight lanes have a warp's sixteen. Each exchange
// halves the places that a lane has and doubles the features that it has taken, so that 28 exchanges reduce 32 places.
// Warps meet in shared memory, in their order.
//
// Registers of a thread: 64 values of a row, half of which become its sums.
#pragma once
#include "halved_lanes.cuh"
#include "strip_epilogue.cuh"

namespace rf {

constexpr int kReductionBarrier = 3;  // and 4: of the warps whose features are of the same places

template <class Body> inline constexpr bool kReducesChannels = !std::is_void<typename Body::OverChannels>::value;

// stages: of all consumers' warps; side: which half of them is written, the other of which may still be read.
template <class S, class Body, class Stage>
RF_FN void reduce_row(const ConvolutionLaunch& l, const Body& body, float (&acc)[64], const RowOfResult& at, Stage* stages,
                      int side, int warpgroup, int warp, int lane) {
  using W = typename Body::Window;
  using M = typename Body::OverChannels;
  constexpr int kWarps = 4 * S::kMI, kPlaces = 128;  // that have features of the same places
  static_assert(sizeof(Stage) >= 2 * kPlaces * sizeof(float), "two halves of a stage have a number a place each");
  static_assert(W::kGroups == 1 && W::kFeatures <= S::kTileRows, "a tile has all channels");
  values_of_row(l, body, acc, at, lane);
  if constexpr (W::kFeatures < S::kTileRows) {
#pragma unroll
    for (int i = 0; i < 64; i++)
      if (at.feature0 + fragment_feature(i, lane) >= W::kFeatures) acc[i] = M::identity().w[0];
  }
  // The i-th is of the place 8 (i / 2) + 2 (lane % 4) + i % 2, of the lane's two features.
  float of[32];
#pragma unroll
  for (int i = 0; i < 32; i++) of[i] = merged_words<M>(acc[i / 2 * 4 + i % 2], acc[i / 2 * 4 + i % 2 + 2]);
  halve<M, 16>(of, lane), halve<M, 8>(of, lane), halve<M, 4>(of, lane);
  const int first = (lane & 16) + (lane & 8) + (lane & 4);  // of those that the lane is left with
  float* mine = &stages[4 * warpgroup + warp].at[0][0] + kPlaces * side;
#pragma unroll
  for (int i = 0; i < 4; i += 2)
    *reinterpret_cast<float2*>(mine + 4 * (first + i) + 2 * (lane % 4)) = make_float2(of[i], of[i + 1]);
  named_barrier_sync(kReductionBarrier + (S::kMI == 1 ? warpgroup : 0), 32 * kWarps);
  const int place = S::kMI == 1 ? 32 * warp + lane : 64 * warpgroup + 32 * warp + lane;
  if (S::kMI != 1 && warp >= 2) return;
  typename M::State all;
#pragma unroll
  for (int w = 0; w < kWarps; w++) {
    const float* from = &stages[(S::kMI == 1 ? 4 * warpgroup : 0) + w].at[0][0] + kPlaces * side;
    M::merge(all, typename M::Partial{{from[place]}});
  }
  Real result[1];
  M::results(all, result);
  if (place < at.begin || place >= at.end) return;
  body.store(at.image, at.place + place, body.of_channels(result[0], at.image, at.place + place));
}

}  // namespace rf
