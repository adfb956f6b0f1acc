// Convolution, the host side: rf::convolution<S>(body, ...), and its packed kernels. The schedule S names the kernel:
//   GenericConvolution<Mode, tile>   convolution_sm80.cuh    sm_80 and later
//   Strips<Mode, tile>               convolution_strips.cuh  Hopper, a stride of 1; transposed: also of 2 along the width
// Each has a function of its own: run_convolution(S, body, launch, images, device, stream).
#pragma once
#include "convolution_sm80.cuh"
#include "packed.cuh"
#include "phases.cuh"

namespace rf {

template <class M, class Tile, class Body>
Error run_convolution(GenericConvolution<M, Tile>, const Body& body, const ConvolutionLaunch& l, long,
                      const Device& device, cudaStream_t stream) {
  using S = GenericConvolution<M, Tile>;
  using W = typename Body::Window;
  unsigned grid;
  RF_TRY(grid_of(blocks_of(l.images.pixels, S::kTileCols) * W::kGroups * l.feature_tiles, grid));
  static std::atomic<uint64_t> allowed{0};
  constexpr size_t shared = sizeof(ConvolutionStorage<S>);
  constexpr size_t kMostShared = 99 << 10;  // what a block of sm_86 and sm_89 can have: least of all
  static_assert(shared <= kMostShared, "more shared memory than a block of sm_86 or sm_89 can have");
  auto* kernel = convolution_sm80<S, Body>;
  RF_TRY(allow_shared(kernel, shared, device, allowed));
  return launch(kernel, grid, S::kThreads, shared, stream, LaunchMode::overlapping, "launching the convolution", l,
                body);
}

template <class S, class W>
Error convolution_launch_of(ConvolutionLaunch& l, const float* x, const float* w, void* packed, long count, long deep,
                            long high, long wide, long places, bool aligned) {
  RF_TRY(images_of<W>(l.images, x, count, deep, high, wide, places));
  l.w = w;
  constexpr long kRows = long(W::kGroups) * W::kFeatures, kPadded = (W::kDepth + 31) / 32 * 32;
  constexpr int kBytes = kPadded * (S::Mode::kSplit ? 4 : 2);
  l.packed = {static_cast<const unsigned char*>(packed), kBytes, int(kRows), kBytes};
  l.unscale = packed_unscale<typename S::Mode>(packed, kRows, W::kDepth);
  l.feature_tiles = (W::kFeatures + S::kTileRows - 1) / S::kTileRows;
  l.aligned = aligned;
  l.in_fours = aligned && places % 4 == 0;
  return nullptr;
}

// images [count, channels, deep, high, wide] -> body's outputs, `places` for each of a result's channels. packed: the
// kernels w [features, channels of a group, taps] as rows of (tap, channel), packed for the schedule's mode. aligned:
// whether what is read and written along the places starts at multiples of 16 bytes.
template <class S, class Body>
Error convolution(const Body& body, const float* x, const float* w, void* packed, long count, long deep, long high,
                  long wide, long places, bool aligned, cudaStream_t stream) {
  if (count == 0 || places == 0) return nullptr;
  Device device;
  RF_TRY(current_device(device));
  if (device.major < 8)
    return error("the device has compute capability %d.%d; this kernel is for 8.0 and later", device.major,
                 device.minor);
  ConvolutionLaunch l{};
  RF_TRY((convolution_launch_of<S, typename Body::Window>(l, x, w, packed, count, deep, high, wide, places, aligned)));
  return run_convolution(S{}, body, l, count, device, stream);
}

}  // namespace rf
