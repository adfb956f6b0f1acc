// Convolution on Hopper, of stride 1 or transposed, of many products a sum: an implicit product whose kernels are streamed.
//
// Why: strips (convolution_strips.cuh) hold all kernels of their features in shared memory, which more than some 64 channels
// of 3 x 3 do not fit. Here kernels come stage after stage, and images are read as one long row of places (flat_images.cuh):
// a tap is an address that is so many places further on, in every row and every image, so that tiles of 256 places need no
// row to be long. A pass before converts images, once for all taps and features.
//
// Roles of the 384 threads, each of which counts the slots by itself:
//   thread or warpgroup                                              setmaxnreg
//   warps 0 and 1, a lane: TMA of stages of kernels for a consumer   40
//   warps 2 and 3, a lane: TMA of windows (of Slim, of a consumer)   40
//   two consumer warpgroups: wgmma, epilogue                         232   128 sums a thread
// Broad: both consumers have the same places, each 64 of 128 features. Slim: each has places of its own, the same features.
// Consumers do not wait for each other: while one stores, the other multiplies.
//
// Shared memory of a block (dynamic; bytes):
//   tables     2 consumers x 2 x 256 places x 12    what a place is of an image, and the image's scale
//   stage      8 warps x 16 features x (32 + 8) x 4   by which results go from registers to memory
//   barriers   full and empty of each slot
//   kernels    2 consumers x slots x 64 features x channels of a window x 2
//   windows    1 (Slim: 2) x 2 slots x channels x (256 places and what taps reach beyond) x 2
//
// Timeline of a consumer (3 x 3; a window has 64 channels):
//   window 0 there | tap 0 there: 8 wgmma | tap 1 there: 8 wgmma, tap 0 done, its slot released | ... | epilogue
// All products of a tile are one chain. Where kernels are high and images wide, a window has one row of taps.
//
// Transposed ones by steps: phases along the depth and the height are tiles of their own, of those taps that such a phase
// has. Two phases along the width are one tile of 128 places: each has half of the sums, and taps alternate between them, so
// that a lane has four results next to each other.
//
// fp32 class: hi hi + 2^-11 (hi lo + lo hi), of tiles of 128 places. A thread has 64 sums, 64 of hi hi of one stage, which are
// promoted while the tensor cores multiply the two others, and 64 of these, which are so small that they are one chain.
//
// Elements that are not finite are computed again as convolution_sm80.cuh does; so are all of an image without a scale.
#pragma once
#include "convolution.cuh"
#include "flat_epilogue.cuh"
#include "flat_producers.cuh"

namespace rf {

constexpr int kFlatBarrier = 1;  // and 2: of a consumer's 128 threads
constexpr int kLeastOfRounded = 16;  // a row is made longer by one of as many places at most

template <class S, class Body>
RF_FN void consume_flat(const FlatLaunch& l, const Body& body, FlatStorage<S>& shared, uint32_t kernels, uint32_t windows,
                        int consumer) {
  using W = typename Body::Window;
  using Shape = FlatShape<S, W>;
  constexpr int kTogether = Shape::kTogether;
  const int queue = S::kShared ? 0 : consumer, thread = threadIdx.x % kWarpgroupThreads, warp = thread / 32, lane = thread % 32;
  const uint32_t kernels_full = shared_address(shared.kernels_full[consumer]);
  const uint32_t kernels_empty = shared_address(shared.kernels_empty[consumer]);
  const uint32_t windows_full = shared_address(shared.windows_full[queue]);
  const uint32_t windows_empty = shared_address(shared.windows_empty[queue]);
  const int octet_bytes = l.window * 16;
  const bool scaled = *l.scaled != 0;
  SlotCursor of_kernels, of_windows;
  int which = 0;
#pragma unroll 1
  for (FlatItems<S, W> items(l, consumer); items.there(); items.next(), which ^= 1) {
    FlatTable& table = shared.tables[consumer][which];
    const int group = items.group(), feature0 = kFlatFeatures * items.half() + 16 * warp;
    float of_feature[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int feature = feature0 + 8 * h + lane / 4;
      of_feature[h] = feature < W::kFeatures ? l.of.unscale[group * W::kFeatures + feature] : 0.0f;
    }
    fill_table<S, Shape>(l, table, items.place0(), items.deep(), items.high(), scaled, thread);
    FlatSums<S, S::Mode::kSplit> sums;
    int used_window = -1, used_stage = -1;  // those of the products that are under way
    const int high_phase = items.high(), rows = items.rows();
    const int least = l.all_rows ? Shape::High::least(high_phase) : 0;
    for_windows(items, [&](int, int high, int) {
      mbarrier_wait(windows_full + kMbarrierBytes * of_windows.slot, of_windows.round);
      const uint32_t window = windows + of_windows.slot * S::kPieces * (S::kChannels / 8) * octet_bytes;
      // The products of the next stage, of a tap that sees places so many further on
      const auto multiply = [&](int shift, auto phase) {
        const CoreMatrices a(kernels + of_kernels.slot * Shape::kStageBytes, kFlatFeatures * 16);
        const CoreMatrices b(window + shift * 16, octet_bytes);
        mbarrier_wait(kernels_full + kMbarrierBytes * of_kernels.slot, of_kernels.round);
        sums.template multiply<decltype(phase)::index>(a, b, octet_bytes);
        if (lane == 0) {
          if (used_stage >= 0) mbarrier_arrive(kernels_empty + kMbarrierBytes * used_stage);
          if (used_window >= 0 && used_window != of_windows.slot)
            mbarrier_arrive(windows_empty + kMbarrierBytes * used_window);
        }
        used_stage = of_kernels.slot, used_window = of_windows.slot;
        of_kernels.next(l.slots);
      };
#pragma unroll 1
      for (int row = 0; row < rows; row++) {
        const int tap = high + row * Shape::High::kApart;
        const int high_shift = l.all_rows ? (Shape::High::shift(high_phase, tap) - least) * l.pitch : 0;
        if constexpr (kTogether == 1) {
#pragma unroll 1
          for (int wide = 0; wide < W::Wide::kKernel; wide++)
            multiply(high_shift + Shape::Wide::shift(0, wide), Step<kBothSums>{});
        } else {
          constexpr int kFirst = Shape::Wide::first_of(0) == 0 ? 0 : 1;  // the phase of even taps
          const auto even = [&](int wide) { multiply(high_shift + Shape::Wide::shift(kFirst, wide), Step<kFirst>{}); };
#pragma unroll 1
          for (int wide = 0; wide + 1 < W::Wide::kKernel; wide += 2) {
            even(wide);
            multiply(high_shift + Shape::Wide::shift(1 - kFirst, wide + 1), Step<1 - kFirst>{});
          }
          if constexpr (W::Wide::kKernel % 2 == 1) even(W::Wide::kKernel - 1);
        }
      }
      of_windows.next(S::kWindows);
    });
    sums.settle();
    if (lane == 0) {
      mbarrier_arrive(kernels_empty + kMbarrierBytes * used_stage);
      mbarrier_arrive(windows_empty + kMbarrierBytes * used_window);
    }
    named_barrier_sync(kFlatBarrier + consumer, kWarpgroupThreads);  // the table is there, and nobody reads the one before
    if (feature0 >= W::kFeatures) continue;
#pragma unroll
    for (int half = 0; half < sums.kHalves; half++) {  // all, before the first is stored: what is read behind waits for it
      const HalfOfSums<decltype(sums), kTogether> acc{sums, half};
      float by[2] = {of_feature[0], of_feature[1]};
      const bool finite = !__any_sync(kFullMask, !acc.all_finite());
      if (scaled || !finite) {
        if (scaled) undo_scales<kTogether>(acc, table, 128 * half, lane);
        undo_scales_of_features(acc, of_feature);
        by[0] = by[1] = 1.0f;
        if (__any_sync(kFullMask, !acc.all_finite())) {  // by a copy, so that these stay in registers
          float repaired[64];
#pragma unroll
          for (int i = 0; i < 64; i++) repaired[i] = acc[i];
          repair_flat<W, kTogether, Body::kGivenLast>(l, repaired, table, 128 * half, group, feature0, lane);
#pragma unroll
          for (int i = 0; i < 64; i++) acc[i] = repaired[i];
        }
      }
      if constexpr (Body::kMakesLast) {
        float by_feature[64];
#pragma unroll
        for (int i = 0; i < 64; i++) by_feature[i] = acc[i] * by[i / 2 % 2];
        store_flat_last<kTogether>(l, body, by_feature, table, 128 * half, group, feature0, lane);
      } else {
        values_flat<kTogether>(body, acc, table, 128 * half, group, feature0, lane, l.of.images.places, by);
      }
    }
    if constexpr (!Body::kMakesLast) {
      const auto store = [&](auto along) {
        store_flat<kTogether, along.index>(l, body, sums, table, shared.stage[4 * consumer + warp], group, feature0, lane);
      };
      if (Body::kLong || l.along == 1) store(Step<1>{});
      else if (l.along == 2) store(Step<Body::kLong ? 1 : 2>{});
      else store(Step<Body::kLong ? 1 : 4>{});
    }
  }
}

template <class S, class Body>
__global__ void __launch_bounds__(S::kThreads, 1)
    convolution_flat(const __grid_constant__ FlatLaunch l, const __grid_constant__ Body body) {
  using W = typename Body::Window;
  using Shape = FlatShape<S, W>;
  extern __shared__ __align__(128) unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<FlatStorage<S>*>(raw_shared);
  if (threadIdx.x == 0) {
    for (int c = 0; c < 2; c++)
      for (int i = 0; i < S::kMostSlots; i++) {
        mbarrier_init(shared_address(&shared.kernels_full[c][i]), 1);
        mbarrier_init(shared_address(&shared.kernels_empty[c][i]), 4);
      }
    for (int r = 0; r < S::kQueues; r++)
      for (int i = 0; i < S::kWindows; i++) {
        mbarrier_init(shared_address(&shared.windows_full[r][i]), 1);
        mbarrier_init(shared_address(&shared.windows_empty[r][i]), S::kShared ? 8 : 4);
      }
    fence_mbarrier_init();
  }
  wait_on_dependent_grids();
  look_in_first_block(body);
  __syncthreads();
  launch_dependent_grids();
  const uint32_t kernels = shared_address(raw_shared) + kFlatFixed<S>, windows = kernels + 2 * l.slots * Shape::kStageBytes;
  const auto kernels_of = [&](int c) { return kernels + c * l.slots * Shape::kStageBytes; };
  const auto windows_of = [&](int c) { return windows + (S::kShared ? 0 : c) * S::kWindows * S::kPieces * S::kChannels * 2 * l.window; };
  const int warpgroup = __shfl_sync(kFullMask, threadIdx.x / kWarpgroupThreads, 0);  // known to be uniform
  if (warpgroup == 0) {
    setmaxnreg_dec<40>();
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 != 0) return;
    if (warp < 2) load_stages<S, W>(l, shared, kernels_of(warp), warp);
    else if (warp - 2 < S::kQueues) load_windows<S, W>(l, shared, windows_of(warp - 2), warp - 2);
  } else {
    setmaxnreg_inc<232>();
    consume_flat<S>(l, body, shared, kernels_of(warpgroup - 1), windows_of(warpgroup - 1), warpgroup - 1);
  }
}

// Where what `flat` works with lies in its workspace, in bytes from its begin: kernels, what undoes their scales, whether an
// image has one, ranges of images and of the blocks that convert them, images.
template <class S, class W> struct FlatWork {
  static constexpr size_t aligned_to(size_t bytes) { return (bytes + 255) / 256 * 256; }
  size_t unscale, scaled, ranges, of_blocks, images, bytes;
  FlatWork(const FlatLaunch& l) {
    using Shape = FlatShape<S, W>;
    unscale = aligned_to(Shape::kKernelBytes);
    scaled = unscale + aligned_to(size_t(W::kGroups) * W::kFeatures * sizeof(float));
    ranges = scaled + aligned_to(sizeof(int));
    of_blocks = ranges + aligned_to(size_t(l.count) * sizeof(ImageRange));
    images = of_blocks + aligned_to(size_t(l.count) * l.blocks * W::kGroups * sizeof(ImageRange));
    bytes = images + size_t(S::kPieces) * W::kGroups * Shape::kOctets * l.places * 16;
  }
};

// Last: results lie with their channels last.
template <class S, class W, bool Last>
Error flat_launch_of(FlatLaunch& l, const float* x, const float* w, long count, long deep, long high, long wide, long places) {
  using Shape = FlatShape<S, W>;
  RF_TRY(images_of<W>(l.of.images, x, count, deep, high, wide, places));
  l.of.w = w;
  const Images& m = l.of.images;
  // Results of a row that are stored together: rows are multiples of as many, in memory as in a tile, which may take a few
  // more zeros behind each.
  long pitch = wide + Shape::Wide::kPad;
  l.along = 1;
  for (int along = 4; along > 1 && l.along == 1 && !Last; along /= 2) {
    const int each = along / Shape::kTogether < 1 ? 1 : along / Shape::kTogether;
    const long rounded = (pitch + each - 1) / each * each;
    if (m.made_wide % along == 0 && (rounded - pitch) * kLeastOfRounded <= pitch) l.along = along, pitch = rounded;
  }
  const long slice = (high + Shape::High::kPad) * pitch;
  const long image = (deep + Shape::Deep::kPad) * slice;
  if (image > INT32_MAX - kMostResults || count > INT32_MAX)
    return error("images of %ld x %ld x %ld: more than 2^31 - 1 places with what is padded", deep, high, wide);
  l.pitch = int(pitch), l.slice = int(slice), l.image = int(image), l.count = int(count);
  l.by_pitch = Divisor(l.pitch), l.by_slice = Divisor(l.slice), l.by_image = Divisor(l.image);
  l.blocks = int(blocks_of(image, kConvertPlaces));
  using P = Phases<W>;
  const auto last_of = [](int made, int phases) { return (made - 1L) / phases; };  // place of an axis
  const long last = (count - 1) * image + last_of(m.made_deep, P::Deep::kPhases) * slice +
                    last_of(m.made_high, P::High::kPhases) * pitch + last_of(m.made_wide, P::Wide::kPhases);
  l.tiles = last / Shape::kPlaces + 1;
  const long reach_wide = Shape::Wide::kReach, span_high = Shape::High::kSpan * pitch;
  l.places = l.tiles * Shape::kPlaces + Shape::Deep::kReach * slice + Shape::High::kReach * pitch + reach_wide;
  constexpr long kMost = 232448 - kFlatFixed<S>, kEach = long(S::kQueues) * S::kWindows * S::kPieces * S::kChannels * 2;
  constexpr int kLeastSlots = 3;
  const auto slots = [&](long window) { return (kMost - kEach * window) / (2 * Shape::kStageBytes); };
  l.all_rows = true, l.window = int(Shape::kPlaces + span_high + reach_wide);
  if (span_high > kMost || slots(l.window) < kLeastSlots) l.all_rows = false, l.window = int(Shape::kPlaces + reach_wide);
  l.slots = int(slots(l.window) < S::kMostSlots ? slots(l.window) : S::kMostSlots);
  return l.slots < kLeastSlots ? error("a window of %d channels does not fit shared memory", S::kChannels) : nullptr;
}

template <class S, class Body>
Error flat_workspace_size(WorkspaceSize& size, long count, long deep, long high, long wide, long places) {
  using W = typename Body::Window;
  if (count == 0 || places == 0) return nullptr;
  FlatLaunch l{};
  RF_TRY((flat_launch_of<S, W, Body::kMakesLast>(l, nullptr, nullptr, count, deep, high, wide, places)));
  size.scratch = FlatWork<S, W>(l).bytes;
  return nullptr;
}

// images [count, channels, deep, high, wide] -> body's outputs, `places` for each of a result's channels; either lies with
// its channels last if the body says so. w: the kernels as they are; they and the images are packed into the workspace first.
template <class S, class Body>
Error flat(const Body& body, const float* x, const float* w, long count, long deep, long high, long wide, long places,
           const Workspace& work, cudaStream_t stream) {
  using W = typename Body::Window;
  using Shape = FlatShape<S, W>;
  if (count == 0 || places == 0) return nullptr;
  Device device;
  RF_TRY(current_device(device));
  if (device.major != 9)
    return error("the device has compute capability %d.%d; this kernel is for 9.0", device.major, device.minor);
  FlatLaunch l{};
  RF_TRY((flat_launch_of<S, W, Body::kMakesLast>(l, x, w, count, deep, high, wide, places)));
  const FlatWork<S, W> at(l);
  auto* base = static_cast<unsigned char*>(work.scratch);
  auto* unscale = reinterpret_cast<float*>(base + at.unscale);
  auto* ranges = reinterpret_cast<ImageRange*>(base + at.ranges);
  auto* of_blocks = reinterpret_cast<ImageRange*>(base + at.of_blocks);
  auto* images = reinterpret_cast<uint4*>(base + at.images);
  l.kernels = base, l.images = base + at.images, l.ranges = ranges;
  l.scaled = reinterpret_cast<int*>(base + at.scaled);
  l.of.unscale = unscale;
  l.of.aligned = aligned(x);
  if (!body.is_aligned()) l.along = 1;
  unsigned grid_of_all;
  const long behind = blocks_of(l.places - count * l.image, kConvertPlaces);
  const long features = long(W::kGroups) * Shape::kHalves * kFlatFeatures;
  RF_TRY(grid_of(features + (count * l.blocks + behind) * W::kGroups, grid_of_all));
  const long again = count * kAgainBlocks, most_again = 4L * device.processors;
  const unsigned again_grid = static_cast<unsigned>(again < most_again ? again : most_again);
  constexpr bool kLast = Body::kGivenLast;
  RF_TRY(launch(convert_flat<S, W, kLast>, grid_of_all, kConvertThreads, 0, stream, LaunchMode::overlapping,
                "converting images and kernels", l, base, unscale, images, of_blocks));
  RF_TRY(launch(convert_again<S, W, kLast>, again_grid, kConvertThreads, 0, stream, LaunchMode::overlapping,
                "converting dark or bright images", l, images, static_cast<const ImageRange*>(of_blocks), ranges));
  static std::atomic<uint64_t> allowed{0};
  auto* kernel = convolution_flat<S, Body>;
  RF_TRY(allow_shared(kernel, 232448, device, allowed));
  const size_t shared = kFlatFixed<S> + 2L * l.slots * Shape::kStageBytes + long(S::kQueues) * S::kWindows * S::kPieces * S::kChannels * 2 * l.window;
  const long items = l.tiles * FlatItems<S, W>::kOfPlaces, blocks = S::kShared ? items : blocks_of(items, 2);
  const unsigned grid = static_cast<unsigned>(blocks < device.processors ? blocks : device.processors);
  return launch(kernel, grid, S::kThreads, shared, stream, LaunchMode::overlapping, "launching the convolution", l, body);
}

}  // namespace rf
