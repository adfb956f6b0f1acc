// Image: windows of a convolution's places, as loops over places see them.
//
// Layout: images [count, groups * channels, deep, high, wide], as they lie in memory; an axis that there is not has one
// element. A place of the result is a row of windows' taps: of a convolution place q sees q * stride + tap * dilation -
// padding. A transposed one is as many convolutions by steps of 1 as it has phases along each axis: the elements
// q * stride + phase of the result see the taps for which phase + padding - tap * dilation is a multiple of the stride,
// at q plus that multiple.
#pragma once
#include <vector>

#include "lanes.h"

namespace rf {

// Extra: of a transposed one, how much longer its result is.
template <int Kernel, int Stride, int Padding, int Dilation, int Extra = 0> struct WindowAxis {
  static constexpr long kKernel = Kernel, kStride = Stride, kPadding = Padding, kDilation = Dilation, kExtra = Extra,
                        kSpan = long(Dilation) * (Kernel - 1) + 1;
};

// Channels, Features: of one group, which each of its features sees, and which it makes.
template <int Places, class D, class H, class W, int Groups, int Channels, int Features, bool Transposed = false>
struct ConvolutionWindow {
  using Deep = D;
  using High = H;
  using Wide = W;
  static constexpr bool kTransposed = Transposed;
  static constexpr long kGroups = Groups, kChannels = Channels, kFeatures = Features,
                        kTaps = D::kKernel * H::kKernel * W::kKernel, kDepth = kTaps * Channels;
  // A convolution whose places are those of the image, one by one.
  template <class A> static constexpr bool is_one = A::kKernel == 1 && A::kStride == 1 && A::kPadding == 0;
  static constexpr bool kOne = !Transposed && is_one<D> && is_one<H> && is_one<W>;
};
template <int Places, class D, class H, class W, int Groups, int Channels, int Features>
using TransposedWindow = ConvolutionWindow<Places, D, H, W, Groups, Channels, Features, true>;

// What a place along one axis sees of it: a tap of the kernel, and where, from q * step on.
struct AxisTap { long tap, at; };

// One axis of a call. given, made: elements of the image, of the result. phases: of a transposed one.
struct Axis {
  long given, made, phases, step;
  std::vector<std::vector<AxisTap>> taps;  // of each phase
  long count(long phase) const { return (made - phase + phases - 1) / phases; }
};
template <class A, bool Transposed> Axis axis_of(long given) {
  Axis axis{given, 0, Transposed ? A::kStride : 1, Transposed ? 1 : A::kStride, {}};
  if (Transposed) axis.made = (given - 1) * A::kStride - 2 * A::kPadding + A::kSpan + A::kExtra;
  else axis.made = (given + 2 * A::kPadding - A::kSpan) / A::kStride + 1;
  axis.taps.resize(axis.phases);
  for (long phase = 0; phase < axis.phases; phase++)
    for (long tap = 0; tap < A::kKernel; tap++) {
      const long apart = Transposed ? phase + A::kPadding - tap * A::kDilation : tap * A::kDilation - A::kPadding;
      if (!Transposed) axis.taps[phase].push_back({tap, apart});
      else if (apart % A::kStride == 0) axis.taps[phase].push_back({tap, apart / A::kStride});
    }
  return axis;
}

// The taps of a phase of all axes. tap: its place in a kernel.
struct Tap { long tap, d, h, w; };
template <class W> std::vector<Tap> taps_of(const Axis& deep, long pd, const Axis& high, long ph, const Axis& wide, long pw) {
  std::vector<Tap> taps;
  for (const AxisTap& d : deep.taps[pd])
    for (const AxisTap& h : high.taps[ph])
      for (const AxisTap& w : wide.taps[pw])
        taps.push_back({(d.tap * W::High::kKernel + h.tap) * W::Wide::kKernel + w.tap, d.at, h.at, w.at});
  return taps;
}

}  // namespace rf
