// Phases: a convolution, and a transposed one, as what each place of a box sees of a patch of the image.
//
// Along an axis place q of a convolution sees q * stride + tap * dilation - padding. A transposed one is as many
// convolutions by steps of 1 as its stride has phases: elements q * stride + phase of the result see those taps for which
// phase + padding - tap * dilation is a multiple of the stride, at q plus that multiple. Its taps lie stride /
// gcd(stride, dilation) apart.
#pragma once
#include "device.cuh"
#include "window.cuh"

namespace rf {

constexpr int greatest_divisor(int a, int b) { return b == 0 ? a : greatest_divisor(b, a % b); }

template <class A, bool Transposed> struct AxisPhases {
  static constexpr int kPhases = Transposed ? A::kStride : 1;
  static constexpr int kStep = Transposed ? 1 : A::kStride;  // elements of the image from a place to the next
  static constexpr int kApart = Transposed ? A::kStride / greatest_divisor(A::kStride, A::kDilation) : 1;  // of taps
  // The first tap of a phase; kKernel or more: it has none.
  static RF_FN int first(int phase) {
    if constexpr (!Transposed || A::kStride == 1) {
      return 0;
    } else {
      int tap = 0;
#pragma unroll 1
      while (tap < kApart && (phase + A::kPadding - tap * A::kDilation) % A::kStride != 0) tap++;
      return tap < kApart && tap < A::kKernel ? tap : A::kKernel;
    }
  }
  static RF_FN int count(int phase) { return (A::kKernel - first(phase) + kApart - 1) / kApart; }
  // The same two as constants.
  static constexpr int first_of(int phase) {
    if (!Transposed) return 0;
    for (int tap = 0; tap < kApart && tap < A::kKernel; tap++)
      if ((phase + A::kPadding - tap * A::kDilation) % A::kStride == 0) return tap;
    return A::kKernel;
  }
  static constexpr int count_of(int phase) { return (A::kKernel - first_of(phase) + kApart - 1) / kApart; }
  static constexpr bool has_empty() {  // of a kernel shorter than the stride
    for (int phase = 0; phase < kPhases; phase++)
      if (count_of(phase) == 0) return true;
    return false;
  }
  // Where a tap of a phase sees the image, from q * kStep on.
  static RF_FN int at(int phase, int tap) {
    if constexpr (!Transposed) return tap * A::kDilation - A::kPadding;
    else return (phase + A::kPadding - tap * A::kDilation) / A::kStride;
  }
  // The least and the most of these: of all phases, as constants.
  static constexpr int kReach = (A::kKernel - 1) * A::kDilation;
  static constexpr int floor_of(int a, int b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
  static constexpr int kLeast = Transposed ? -floor_of(kReach - A::kPadding, A::kStride) : -A::kPadding;
  static constexpr int kMost = Transposed ? floor_of(A::kStride - 1 + A::kPadding, A::kStride) : kReach - A::kPadding;
  // Places of the result along this axis, of so many elements of an image.
  static long made(long size) {
    if constexpr (!Transposed) return A::places(size);
    else return size < 1 ? 0 : (size - 1) * A::kStride - 2L * A::kPadding + kReach + 1 + A::kExtra;
  }
};

template <class W> struct Phases {
  using Deep = AxisPhases<typename W::Deep, W::kTransposed>;
  using High = AxisPhases<typename W::High, W::kTransposed>;
  using Wide = AxisPhases<typename W::Wide, W::kTransposed>;
  static constexpr int kPhases = Deep::kPhases * High::kPhases * Wide::kPhases;

  // One phase of all axes, the width's changing fastest.
  struct Phase {
    int deep, high, wide;
    RF_FN explicit Phase(int phase)
        : deep(phase / (High::kPhases * Wide::kPhases)), high(phase / Wide::kPhases % High::kPhases),
          wide(phase % Wide::kPhases) {}
    RF_FN int taps() const { return Deep::count(deep) * High::count(high) * Wide::count(wide); }
    // The j-th tap: its place in a kernel, and where it sees the image from q's place on.
    RF_FN int tap(int j, int& d, int& h, int& w) const {
      const int wide_taps = Wide::count(wide), down = High::count(high);
      const int tap_w = Wide::first(wide) + j % wide_taps * Wide::kApart, rest = j / wide_taps;
      const int tap_h = High::first(high) + rest % down * High::kApart;
      const int tap_d = Deep::first(deep) + rest / down * Deep::kApart;
      d = Deep::at(deep, tap_d), h = High::at(high, tap_h), w = Wide::at(wide, tap_w);
      return (tap_d * W::High::kKernel + tap_h) * W::Wide::kKernel + tap_w;
    }
  };
};

// The sizes of a call, whose result has `places` for each of its channels.
template <class W>
Error images_of(Images& images, const float* x, long count, long deep, long high, long wide, long places) {
  using P = Phases<W>;
  const long made_deep = P::Deep::made(deep), made_high = P::High::made(high), made_wide = P::Wide::made(wide);
  if (made_deep * made_high * made_wide != places)
    return error("images of %ld x %ld x %ld: the convolution has %ld places, not %ld", deep, high, wide,
                 made_deep * made_high * made_wide, places);
  if (deep * high * wide > INT32_MAX || places > INT32_MAX)
    return error("images of %ld x %ld x %ld: a channel has more than 2^31 - 1 elements", deep, high, wide);
  images = {x, int(deep), int(high), int(wide), int(made_deep), int(made_high), int(made_wide),
            int(deep * high * wide), int(places), count * places};
  return nullptr;
}

// Where a kernel's value lies: [features, channels of a group, taps], of a transposed one [channels, features of a group,
// taps].
template <class W> RF_FN long kernel_at(int group, int feature, int channel, int tap) {
  if constexpr (W::kTransposed) return ((long(group) * W::kChannels + channel) * W::kFeatures + feature) * W::kTaps + tap;
  else return ((long(group) * W::kFeatures + feature) * W::kChannels + channel) * W::kTaps + tap;
}

// What a tap sees along one axis of the place `made` of a result; false: nothing of the image.
template <class A, bool Transposed> RF_FN bool seen(int made, int tap, int size, int& at) {
  if constexpr (!Transposed) {
    at = made * A::kStride + tap * A::kDilation - A::kPadding;
    return unsigned(at) < unsigned(size);
  } else {
    const int apart = made + A::kPadding - tap * A::kDilation;
    at = apart / A::kStride;
    return apart >= 0 && apart % A::kStride == 0 && at < size;
  }
}

// One element by plain float32 arithmetic, by a whole warp: lanes take every 32nd product. What is padded is a zero
// among them, as PyTorch has it; what a transposed one does not meet is none. Last: images lie with their channels last.
template <class W, bool Last = false>
RF_FN float plain_element(const Images& images, const float* w, long image, int group, int feature, int place, int lane) {
  constexpr bool kTransposed = W::kTransposed;
  constexpr int kHigh = W::High::kKernel, kWide = W::Wide::kKernel;
  const long from = Last ? image * W::kGroups * images.channel + group : (image * W::kGroups + group) * images.channel;
  const float* x = images.x + from * W::kChannels;
  const int made_w = place % images.made_wide, rest = place / images.made_wide;
  const int made_h = rest % images.made_high, made_d = rest / images.made_high;
  float sum = 0.0f;
#pragma unroll 1  // it is rare
  for (int k = lane; k < W::kDepth; k += 32) {
    const int tap = k / W::kChannels, channel = k % W::kChannels;
    int d, h, v;
    const bool deep = seen<typename W::Deep, kTransposed>(made_d, tap / (kHigh * kWide), images.deep, d);
    const bool high = seen<typename W::High, kTransposed>(made_h, tap / kWide % kHigh, images.high, h);
    const bool wide = seen<typename W::Wide, kTransposed>(made_w, tap % kWide, images.wide, v);
    const bool there = deep && high && wide;
    if (kTransposed && !there) continue;
    const long place = (long(d) * images.high + h) * images.wide + v;
    const long at = Last ? place * (W::kGroups * W::kChannels) + channel : long(channel) * images.channel + place;
    sum = fmaf(there ? x[at] : 0.0f, w[kernel_at<W>(group, feature, channel, tap)], sum);
  }
#pragma unroll
  for (int mask = 16; mask; mask /= 2) sum += __shfl_xor_sync(kFullMask, sum, mask);
  return sum;
}

}  // namespace rf
