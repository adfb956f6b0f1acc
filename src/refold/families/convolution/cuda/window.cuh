// Window: what a place of a convolution's result sees of an image, and how a thread reads it.
//
// Layout: images [count, groups * channels, deep, high, wide] of fp32, as they lie in memory. An axis that there is not
// has one element. K runs over (tap, channel of the group), channels first: k = tap * channels + channel. All that
// parameters decide is a constant (ConvolutionWindow); sizes of images are not.
#pragma once
#include "sync.cuh"

namespace rf {

// Extra: of a transposed one, how much longer its result is.
template <int Kernel, int Stride, int Padding, int Dilation, int Extra = 0> struct WindowAxis {
  static constexpr int kKernel = Kernel, kStride = Stride, kPadding = Padding, kDilation = Dilation, kExtra = Extra;
  // Places of the result along this axis, of so many of an image.
  static constexpr long places(long size) {
    const long span = size + 2 * Padding - long(Dilation) * (Kernel - 1) - 1;
    return span < 0 ? 0 : span / Stride + 1;
  }
};

// Places: axes along which it moves, the last ones. Channels, Features: of one group, which each of its features sees,
// and which it makes.
template <int Places, class D, class H, class W, int Groups, int Channels, int Features, bool Transposed = false>
struct ConvolutionWindow {
  using Deep = D;
  using High = H;
  using Wide = W;
  static constexpr bool kTransposed = Transposed;
  static constexpr int kPlaces = Places, kGroups = Groups, kChannels = Channels, kFeatures = Features;
  static constexpr int kTaps = D::kKernel * H::kKernel * W::kKernel, kDepth = kTaps * Channels;
};

template <int Places, class D, class H, class W, int Groups, int Channels, int Features>
using TransposedWindow = ConvolutionWindow<Places, D, H, W, Groups, Channels, Features, true>;

// Sizes of a call.
struct Images {
  const float* x;
  int deep, high, wide;                 // of an image
  int made_deep, made_high, made_wide;  // of a result
  int channel, places;                  // elements of a channel of an image, of a result
  long pixels;                          // places of all results
};

// The window of one place of a result. x: of its image the group's first channel. A window of no place lies outside.
template <class W> struct WindowAt {
  const float* x;
  int d, h, w;  // where it begins: outside of the image where that is padded

  RF_FN WindowAt(const Images& images, int group, long pixel) {
    const bool there = pixel < images.pixels;
    const long image = there ? pixel / images.places : 0;
    int place = there ? static_cast<int>(pixel - image * images.places) : 0;
    x = images.x + (image * W::kGroups + group) * W::kChannels * images.channel;
    w = place % images.made_wide * W::Wide::kStride - W::Wide::kPadding;
    place /= images.made_wide;
    d = W::kPlaces < 3 ? 0 : place / images.made_high * W::Deep::kStride - W::Deep::kPadding;
    h = W::kPlaces < 2 ? 0 : place % images.made_high * W::High::kStride - W::High::kPadding;
    if (!there) w = INT32_MIN / 2;  // whatever is added
  }
  // Where a tap lies in a channel; false: outside.
  RF_FN bool at(const Images& images, int tap, int& offset) const {
    constexpr int kHigh = W::High::kKernel, kWide = W::Wide::kKernel;
    const int ww = w + tap % kWide * W::Wide::kDilation;
    bool inside = unsigned(ww) < unsigned(images.wide);
    offset = ww;
    if constexpr (W::kPlaces > 1) {
      const int hh = h + tap / kWide % kHigh * W::High::kDilation;
      inside = inside && unsigned(hh) < unsigned(images.high);
      offset += hh * images.wide;
    }
    if constexpr (W::kPlaces > 2) {
      const int dd = d + tap / (kHigh * kWide) * W::Deep::kDilation;
      inside = inside && unsigned(dd) < unsigned(images.deep);
      offset += dd * images.high * images.wide;
    }
    return inside;
  }
  RF_FN float value(const Images& images, int k) const {
    int offset;
    const bool there = at(images, k / W::kChannels, offset);
    return there && k < W::kDepth ? x[long(k % W::kChannels) * images.channel + offset] : 0.0f;
  }
  // The k0-th, or the k1-th in the second half: of numbers that are constants all but a choice is, too.
  RF_FN float value(const Images& images, int k0, int k1, int half) const {
    constexpr int kHigh = W::High::kKernel, kWide = W::Wide::kKernel;
    const auto of = [half](int a, int b) { return half ? b : a; };
    const int tap0 = k0 / W::kChannels, tap1 = k1 / W::kChannels;
    const int channel = of(k0 % W::kChannels, k1 % W::kChannels);
    const int ww = w + of(tap0 % kWide, tap1 % kWide) * W::Wide::kDilation;
    bool inside = of(k0, k1) < W::kDepth && unsigned(ww) < unsigned(images.wide);
    int offset = ww;
    if constexpr (W::kPlaces > 1) {
      const int hh = h + of(tap0 / kWide % kHigh, tap1 / kWide % kHigh) * W::High::kDilation;
      inside = inside && unsigned(hh) < unsigned(images.high);
      offset += hh * images.wide;
    }
    if constexpr (W::kPlaces > 2) {
      const int dd = d + of(tap0 / (kHigh * kWide), tap1 / (kHigh * kWide)) * W::Deep::kDilation;
      inside = inside && unsigned(dd) < unsigned(images.deep);
      offset += dd * images.high * images.wide;
    }
    return inside ? x[long(channel) * images.channel + offset] : 0.0f;
  }
};

// One element by plain float32 arithmetic, by a whole warp: lanes take every 32nd product. w: the feature's kernel
// [channels, taps]. What is padded is a zero among them, as PyTorch has it.
template <class W>
RF_FN float plain_window(const Images& images, const WindowAt<W>& window, const float* w, int lane) {
  float sum = 0.0f;
#pragma unroll 1  // it is rare
  for (int k = lane; k < W::kDepth; k += 32)
    sum = fmaf(window.value(images, k), w[k % W::kChannels * W::kTaps + k / W::kChannels], sum);
#pragma unroll
  for (int mask = 16; mask; mask /= 2) sum += __shfl_xor_sync(kFullMask, sum, mask);
  return sum;
}

}  // namespace rf
