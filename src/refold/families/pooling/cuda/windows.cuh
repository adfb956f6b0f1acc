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
  // padded, too. I: of 64 bits, or of 32 where that suffices
  template <class I> static RF_FN I begin(I made) { return made * I(Step) - I(Padding); }
  static constexpr bool kInside = Padding == 0 && (Made - 1) * Step + kSpan <= Given;
  // whether so many places from one on lie in the image
  template <class I> static RF_FN bool has(I first, long places) {
    return kInside || (first >= 0 && first + I(places) <= I(Given));
  }
  // whether a place lies in the image, and the nearest one that does; Within: it is known to
  template <bool Within, class I> static RF_FN bool holds(I place) { return Within || has(place, 1); }
  template <bool Within, class I> static RF_FN I nearest(I place) {
    if constexpr (kInside || Within) return place;
    else return place < 0 ? 0 : place < I(Given) ? place : I(Given - 1);
  }
  template <bool Within, class I> static RF_FN int count(I made, bool padded) {
    if constexpr (Within) return int(Size);
    const I from = begin(made), most = I(Given + (padded ? Padding : 0)), end = from + I(Size);
    return int((end < most ? end : most) - (padded || from > 0 ? from : 0));
  }
};

struct LargestOf {
  static RF_FN Real identity() { return -infinity(); }
  static RF_FN Real of(Real a, Real b) { return maximum(a, b); }
  template <class Body, bool Within, class I> static RF_FN Real whole(Real value, I, I, I) { return value; }
};
template <bool CountsPadding> struct MeanOf {
  static RF_FN Real identity() { return 0; }
  static RF_FN Real of(Real a, Real b) { return a + b; }
  template <class Body, bool Within, class I> static RF_FN Real whole(Real value, I od, I oh, I ow) {
    const int planes = Body::Depth::template count<Within>(od, CountsPadding);
    const int rows = Body::Height::template count<Within>(oh, CountsPadding);
    return value / Real(planes * rows * Body::Width::template count<Within>(ow, CountsPadding));
  }
};

}  // namespace rf
