// Windows: where the windows of a pooling lie, and how its elements meet.
#pragma once
#include "block.cuh"
#include "device.cuh"
#include "lanes.cuh"

namespace rf {

constexpr int kPoolingThreads = 256, kUnrolledTaps = 128;

template <long Given, long Made, long Size, long Step, long Padding, long Apart> struct Window {
  static constexpr long kGiven = Given, kMade = Made, kSize = Size, kStep = Step, kApart = Apart,
                        kSpan = (Size - 1) * Apart + 1;
  // where a window begins, perhaps outside; how many of its elements lie in the image, or in what is
  // padded, too
  static RF_FN long begin(long made) { return made * Step - Padding; }
  static constexpr bool kInside = Padding == 0 && (Made - 1) * Step + kSpan <= Given;
  // whether so many places from one on lie in the image
  static RF_FN bool has(long first, long places) { return kInside || (first >= 0 && first + places <= Given); }
  // whether a place lies in the image, and the nearest one that does; Within: it is known to
  template <bool Within> static RF_FN bool holds(long place) { return Within || has(place, 1); }
  template <bool Within> static RF_FN long nearest(long place) {
    if constexpr (kInside || Within) return place;
    else return place < 0 ? 0 : place < Given ? place : Given - 1;
  }
  template <bool Within> static RF_FN int count(long made, bool padded) {
    if constexpr (Within) return int(Size);
    const long from = begin(made), most = Given + (padded ? Padding : 0), end = from + Size;
    return int((end < most ? end : most) - (padded || from > 0 ? from : 0));
  }
};

struct LargestOf {
  static RF_FN Real identity() { return -infinity(); }
  static RF_FN Real of(Real a, Real b) { return maximum(a, b); }
  template <class Body, bool Within> static RF_FN Real whole(Real value, long, long, long) { return value; }
};
template <bool CountsPadding> struct MeanOf {
  static RF_FN Real identity() { return 0; }
  static RF_FN Real of(Real a, Real b) { return a + b; }
  template <class Body, bool Within> static RF_FN Real whole(Real value, long od, long oh, long ow) {
    const int planes = Body::Depth::template count<Within>(od, CountsPadding);
    const int rows = Body::Height::template count<Within>(oh, CountsPadding);
    return value / Real(planes * rows * Body::Width::template count<Within>(ow, CountsPadding));
  }
};

}  // namespace rf
