// Convolution by plain float32 arithmetic, for few features of a group, such as each channel by itself: no tile of tensor
// cores would be full, and memory is what takes time.
//
// Layout: one thread takes a column of kRows rows of a result, of up to four features of a group. Neighbouring threads take
// neighbouring columns, so that what a warp reads and writes lies together; what windows share is read again from the L1.
// A row of the image is met once along the width by all rows of the result that see it. 256 threads a block; no shared
// memory. Kernels are read where they lie.
//
// Products are added within a channel, and channels to one another, so that long sums keep their bits.
#pragma once
#include "convolution.cuh"

namespace rf {

struct PlainSums {};

template <class W> struct DirectShape {
  static constexpr int kThreads = 256, kMostLoads = 160, kMostSums = 16;
  static constexpr int kFeatures = W::kFeatures < 4 ? W::kFeatures : 4;  // of a thread
  static constexpr int kTiles = (W::kFeatures + kFeatures - 1) / kFeatures;
  static constexpr int kSpan = (W::High::kKernel - 1) * W::High::kDilation + 1;  // rows that a row of the result meets
  static constexpr int kMostRows = W::kPlaces < 2 ? 1 : kFeatures == 1 ? 8 : kMostSums / kFeatures;
  static constexpr int loads(int rows) {
    return W::Deep::kKernel * W::Wide::kKernel * ((rows - 1) * W::High::kStride + kSpan);
  }
  static constexpr int kRows = loads(kMostRows) <= kMostLoads ? kMostRows : loads(2) <= kMostLoads && kMostRows > 1 ? 2 : 1;
  static constexpr bool kUnrolled = loads(kRows) <= kMostLoads;
  static constexpr int kReach = (kRows - 1) * W::High::kStride + kSpan;
  static constexpr int kNext = kRows == 1 ? W::High::kDilation : 1;
  // Which tap of row r of the result row `at` of those that the thread reads is; kKernel: none.
  static constexpr RF_FN int tap(int r, int at) {
    const int in = at - r * W::High::kStride;
    return in >= 0 && in < kSpan && in % W::High::kDilation == 0 ? in / W::High::kDilation : W::High::kKernel;
  }
};

// Which image, features, and places a thread has; Index: of 32 bits where they suffice.
struct DirectPlace {
  long image;
  int group, feature, d, h, w;  // the first of each
};
template <class W, class Index> RF_FN DirectPlace direct_place(const Images& m, Index thread) {
  using Shape = DirectShape<W>;
  const Index wide = m.made_wide, high = (m.made_high + Shape::kRows - 1) / Shape::kRows, deep = m.made_deep;
  const Index column = thread / wide, slice = column / high, plane = W::kPlaces < 3 ? slice : slice / deep;
  const Index tile = plane / Shape::kTiles, image = tile / W::kGroups;
  return {long(image), int(tile - image * W::kGroups), int(plane - tile * Shape::kTiles) * Shape::kFeatures,
          W::kPlaces < 3 ? 0 : int(slice - plane * deep), int(column - slice * high) * Shape::kRows,
          int(thread - column * wide)};
}

template <class Body>
__global__ void __launch_bounds__(256)
    convolution_direct(const __grid_constant__ Images images, const float* w, const __grid_constant__ Body body,
                       long threads) {
  using W = typename Body::Window;
  using Shape = DirectShape<W>;
  constexpr int kFeatures = Shape::kFeatures, kRows = Shape::kRows, kHigh = W::High::kKernel, kWide = W::Wide::kKernel;
  constexpr int kUnrollDeep = Shape::kUnrolled ? W::Deep::kKernel : 1, kUnrollHigh = Shape::kUnrolled ? Shape::kReach : 1;
  constexpr int kUnrollWide = Shape::kUnrolled ? kWide : 4;
  const long thread = long(blockIdx.x) * Shape::kThreads + threadIdx.x;
  wait_on_dependent_grids();
  launch_dependent_grids();
  look_in_first_block(body);
  if (thread >= threads) return;
  const DirectPlace at = threads <= 0xffffffffL ? direct_place<W>(images, unsigned(thread))
                                                : direct_place<W>(images, static_cast<unsigned long>(thread));
  const int d0 = at.d * W::Deep::kStride - W::Deep::kPadding, h0 = at.h * W::High::kStride - W::High::kPadding;
  const int w0 = at.w * W::Wide::kStride - W::Wide::kPadding;
  const float* x = images.x + (at.image * W::kGroups + at.group) * W::kChannels * images.channel;
  const float* kernels[kFeatures];  // where there is none, the last one's
#pragma unroll
  for (int f = 0; f < kFeatures; f++)
    kernels[f] = w + (long(at.group) * W::kFeatures + min(at.feature + f, W::kFeatures - 1)) * W::kDepth;
  float sums[kFeatures][kRows] = {};
#pragma unroll 1
  for (int c = 0; c < W::kChannels; c++, x += images.channel) {
    float of_channel[kFeatures][kRows] = {};
#pragma unroll kUnrollDeep
    for (int i = 0; i < W::Deep::kKernel; i++) {
      const int d = d0 + i * W::Deep::kDilation;
      const bool deep = W::kPlaces < 3 || unsigned(d) < unsigned(images.deep);
#pragma unroll kUnrollHigh
      for (int j = 0; j < Shape::kReach; j += Shape::kNext) {
        bool wanted = false;
#pragma unroll
        for (int r = 0; r < kRows; r++) wanted |= Shape::tap(r, j) < kHigh;
        if (!wanted) continue;
        const int h = h0 + j;
        const bool inside = deep && (W::kPlaces < 2 || unsigned(h) < unsigned(images.high));
        const float* row = x + (long(W::kPlaces < 3 ? 0 : d) * images.high + (W::kPlaces < 2 ? 0 : h)) * images.wide;
#pragma unroll kUnrollWide
        for (int k = 0; k < kWide; k++) {
          const int col = w0 + k * W::Wide::kDilation;
          const float v = inside && unsigned(col) < unsigned(images.wide) ? row[col] : 0.0f;
#pragma unroll
          for (int r = 0; r < kRows; r++) {
            const int tap = Shape::tap(r, j);
            if (tap >= kHigh) continue;
#pragma unroll
            for (int f = 0; f < kFeatures; f++)
              of_channel[f][r] = fmaf(v, kernels[f][(c * W::Deep::kKernel + i) * kHigh * kWide + tap * kWide + k], of_channel[f][r]);
          }
        }
      }
    }
#pragma unroll
    for (int f = 0; f < kFeatures; f++)
#pragma unroll
      for (int r = 0; r < kRows; r++) sums[f][r] += of_channel[f][r];
  }
#pragma unroll
  for (int f = 0; f < kFeatures; f++) {
    const int channel = at.group * W::kFeatures + at.feature + f;
    const long row = at.image * W::kGroups * W::kFeatures + channel;
    if (kFeatures > 1 && at.feature + f >= W::kFeatures) break;
    const int col0 = (at.d * images.made_high + at.h) * images.made_wide + at.w;
    float values[kRows];
#pragma unroll
    for (int r = 0; r < kRows; r++)
      if (at.h + r < images.made_high) values[r] = body.value(sums[f][r], row, channel, col0 + r * images.made_wide);
#pragma unroll
    for (int r = 0; r < kRows; r++)
      if (at.h + r < images.made_high) body.store(row, col0 + r * images.made_wide, values[r]);
  }
}

// images [count, channels, deep, high, wide] -> body's outputs, `places` for each of a result's channels. w: the kernels
// as they are.
template <class S, class Body>
Error direct(const Body& body, const float* x, const float* w, long count, long deep, long high, long wide, long places,
             cudaStream_t stream) {
  using W = typename Body::Window;
  using Shape = DirectShape<W>;
  if (count == 0 || places == 0) return nullptr;
  Images images;
  RF_TRY((images_of<W>(images, x, count, deep, high, wide, places)));
  const long rows = blocks_of(images.made_high, Shape::kRows);
  const long threads = count * W::kGroups * Shape::kTiles * images.made_deep * rows * images.made_wide;
  Device device;
  RF_TRY(current_device(device));
  unsigned grid;
  RF_TRY(grid_of(blocks_of(threads, Shape::kThreads), grid));
  return launch(convolution_direct<Body>, grid, Shape::kThreads, 0, stream, LaunchMode::overlapping,
                "launching the convolution", images, w, body, threads);
}

}  // namespace rf
