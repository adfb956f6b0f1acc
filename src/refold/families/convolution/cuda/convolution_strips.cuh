// Convolution on Hopper, of stride 1: strips of rows, whose windows are not copied for each tap.
//
// Why: the implicit product (convolution_sm80.cuh) reads and converts each element once for each tap. Here a row of an
// image is converted once, and a tap is another address: a row in shared memory is [channel / 8][place][8 channels] of
// fp16, unswizzled, so that a shift by places is 16 bytes each on wgmma's descriptor, and a shift by rows another slot.
// The features' kernels stay in shared memory.
//
// TF32 class alone. Scales are found by the producer: for each place and 64 channels the power of two that takes the
// largest value to [2^14, 2^15). The products of one tap and 64 channels go to a short accumulator, and are promoted
// multiplied by the inverse scales of the places that the tap met.
//
// Roles of the 384 threads:
//   threads    role                                                       setmaxnreg   registers hold
//   0-127      producer: loads, scales and converts rows                  120          64 values of a place
//   128-255    consumer warpgroup 0: wgmma, epilogue                      192          64 accumulators, 64 short ones
//   256-383    consumer warpgroup 1                                       192          the same
// Broad: a warpgroup has 64 of 128 features, both the same row of 128 places. Slim: both have the same 64 features, and
// every other row.
//
// Shared memory of a block (dynamic; bytes):
//   weights    taps x channels x features x 2   [tap][channel / 8][feature][8]; channels are padded to 16 by zeros
//   rows       slots x channels x places x 2    slots modulo their number; places: 128 and what the taps reach beyond
//   staging    8704                             two rows of a result's tile of each consumer warp
//   unscale    slots x (channels / 64) x places x 4
//   full, empty   8 each a slot                 mbarriers: 128 arrivals of producers; one of each consumer warp
//
// Timeline of a strip (3 x 3, Broad; slots of rows, numbers of rows):
//   producer      0 1 2 3 | wait for 0 to be empty, 4 | 5 ...
//   warpgroup 0      wait for 0 1 2 | 9 taps: wgmma, promote | release 0 | epilogue | wait for 3 | 9 taps ...
//   warpgroup 1      the same: while one promotes or stores, the other's wgmmas keep the tensor cores busy
// Blocks stay, each with one tile of features, and take strip after strip: rows of one image and 128 columns.
//
// Elements that are not finite are computed again as convolution_sm80.cuh does.
#pragma once
#include "convolution.cuh"
#include "ptx_sm90.cuh"

namespace rf {

template <class M, class Tile> struct Strips {
  using Mode = M;
  static_assert(!M::kSplit, "strips are of TF32 class");
  static constexpr int kMI = Tile::kMI, kTileRows = 64 * kMI, kTileCols = 128;
  static constexpr int kThreads = 384, kConsumerWarps = 8;
  static constexpr int kRowStep = kMI == 2 ? 1 : 2;  // rows that both warpgroups work on
};

// refold/convolve.py computes the same (Convolution.slots).
template <class S, class W> struct StripShape {
  static constexpr int kPixels = 128 + (W::Wide::kKernel - 1) * W::Wide::kDilation;
  static constexpr int kSpan = (W::High::kKernel - 1) * W::High::kDilation + 1;  // rows that a row of the result meets
  static constexpr int kOctets = (W::kChannels + 15) / 16 * 2, kChunks = (kOctets + 7) / 8;
  static constexpr int kWeightBytes = W::kTaps * kOctets * S::kTileRows * 16;
  static constexpr int kRowBytes = kOctets * kPixels * 16;
  static constexpr int kStagingBytes = S::kConsumerWarps * 2 * kResultPitch * 4;
  static constexpr int kSlotBytes = kRowBytes + kChunks * kPixels * 4 + 16;
  static constexpr int kRoom = 232448 - 128 - kWeightBytes - kStagingBytes;
  static constexpr int kFit = kRoom < 0 ? 0 : kRoom / kSlotBytes;
  static constexpr int kSlots = kFit < kSpan + 4 ? kFit : kSpan + 4;
  static_assert(kSlots >= kSpan + S::kRowStep, "the kernels and a strip's rows do not fit shared memory");
  static_assert(W::kChannels % 8 == 0, "rows of packed kernels are copied by eight channels");
  static_assert(W::High::kStride == 1 && W::Wide::kStride == 1 && W::kPlaces < 3, "strips have a stride of 1");
};

template <class S, class W> struct StripStorage {
  using Shape = StripShape<S, W>;
  alignas(16) unsigned char weights[Shape::kWeightBytes];
  alignas(16) unsigned char rows[Shape::kSlots][Shape::kRowBytes];
  alignas(16) float staging[S::kConsumerWarps][2][kResultPitch];
  float unscale[Shape::kSlots][Shape::kChunks][Shape::kPixels];
  alignas(8) uint64_t full[Shape::kSlots], empty[Shape::kSlots];
};

struct StripLaunch {
  ConvolutionLaunch of;
  int columns;    // blocks of 128 places of a row
  int strips;     // of an image's rows
  int rows;       // of a result, of each strip but the last
  long units;     // strips of all images
  int blocks;     // that share a tile of features
};

// The unit-th strip: rows [high0, high0 + rows) of an image's result, columns from wide0 on.
struct Strip {
  long image;
  int high0, rows, wide0;
  RF_FN Strip(const StripLaunch& l, long unit) {
    const int strip = static_cast<int>(unit % l.strips);
    const long rest = unit / l.strips;
    wide0 = static_cast<int>(rest % l.columns) * 128, image = rest / l.columns;
    high0 = strip * l.rows, rows = min(l.rows, l.of.images.made_high - high0);
  }
};

// What the asynchronous proxy (wgmma) reads after this was written before it.
RF_FN void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Core matrices of 8 rows of 16 bytes, one after the other; step: bytes from those of 8 of k to the next.
RF_FN uint64_t plain_descriptor(uint32_t address, uint32_t step) {
  return uint64_t((address & kAddressMask) >> 4) | uint64_t(step >> 4) << 16 | uint64_t(128 >> 4) << 32;
}

// The kernels of a tile's features, from packed rows of (tap, channel).
template <class S, class W>
RF_FN void load_kernels(const ConvolutionLaunch& l, unsigned char* weights, int group, int feature0) {
  using Shape = StripShape<S, W>;
#pragma unroll 1
  for (int i = threadIdx.x; i < W::kTaps * Shape::kOctets * S::kTileRows; i += S::kThreads) {
    const int octet = i % Shape::kOctets, row = i / Shape::kOctets % S::kTileRows;
    const int tap = i / (Shape::kOctets * S::kTileRows);
    uint4 v = make_uint4(0, 0, 0, 0);
    if (feature0 + row < W::kFeatures && octet < W::kChannels / 8) {
      const unsigned char* from = l.packed.data + (long(group) * W::kFeatures + feature0 + row) * l.packed.pitch;
      v = *reinterpret_cast<const uint4*>(from + (tap * W::kChannels + 8 * octet) * 2);
    }
    *reinterpret_cast<uint4*>(weights + ((tap * Shape::kOctets + octet) * S::kTileRows + row) * 16) = v;
  }
}

// The exponent that takes a value of these bits to [2^14, 2^15), within what a power of two can be.
RF_FN int exponent_of_bits(unsigned most) {
  const int e = 141 - static_cast<int>(most >> 23);
  return most >= 0x7f800000u ? 0 : e > 126 ? 126 : e;
}

template <class S, class W>
RF_FN void produce_rows(const StripLaunch& launch, StripStorage<S, W>& shared, int group, int first_unit) {
  using Shape = StripShape<S, W>;
  const Images& images = launch.of.images;
  const uint32_t full = shared_address(shared.full), empty = shared_address(shared.empty);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  int count = 0;  // of rows so far
#pragma unroll 1
  for (long unit = first_unit; unit < launch.units; unit += launch.blocks) {
    const Strip strip(launch, unit);
    const float* x = images.x + (strip.image * W::kGroups + group) * W::kChannels * images.channel;
    const int wide0 = strip.wide0 - W::Wide::kPadding;
#pragma unroll 1
    for (int i = 0; i < strip.rows + Shape::kSpan - 1; i++, count++) {
      const int slot = count % Shape::kSlots, high = strip.high0 - W::High::kPadding + i;
      const bool inside = unsigned(high) < unsigned(images.high);
      const float* row = x + long(high) * images.wide;
#pragma unroll 1
      for (int chunk = 0; chunk < Shape::kChunks; chunk++) {
        const int left = W::kChannels - 64 * chunk, octets = min(8, Shape::kOctets - 8 * chunk);
        int channel = images.channel;
        asm("" : "+r"(channel));  // its multiples need no registers
        const float* from = row + long(64 * chunk) * channel;
        const int w = wide0 + thread;
        const bool there = inside && unsigned(w) < unsigned(images.wide);
        float v[64];
#pragma unroll
        for (int c = 0; c < 64; c++) v[c] = there && c < left ? from[long(c) * channel + w] : 0.0f;
        if (chunk == 0) mbarrier_wait(empty + kMbarrierBytes * slot, (count / Shape::kSlots & 1) ^ 1);
        unsigned most = 0;
#pragma unroll
        for (int c = 0; c < 64; c++) most = max(most, __float_as_uint(v[c]) & 0x7fffffffu);
        const int e = exponent_of_bits(most);
        const float scale = power_of_two(e);
        shared.unscale[slot][chunk][thread] = power_of_two(-e);
        unsigned char* to = shared.rows[slot] + 8 * chunk * Shape::kPixels * 16;
#pragma unroll
        for (int o = 0; o < 8; o++) {
          if (o >= octets) break;
          __half2 pairs[4];
#pragma unroll
          for (int k = 0; k < 4; k++)
            pairs[k] = __floats2half2_rn(v[8 * o + 2 * k] * scale, v[8 * o + 2 * k + 1] * scale);
          *reinterpret_cast<uint4*>(to + (o * Shape::kPixels + thread) * 16) = *reinterpret_cast<const uint4*>(pairs);
        }
        // what taps reach beyond the 128: a place by a warp, two channels a lane
#pragma unroll 1
        for (int p = 128 + warp; p < Shape::kPixels; p += 4) {
          const bool here = inside && unsigned(wide0 + p) < unsigned(images.wide);
          const float* at = from + long(2 * lane) * channel + wide0 + p;
          const float a = here && 2 * lane < left ? at[0] : 0.0f, b = here && 2 * lane + 1 < left ? at[channel] : 0.0f;
          const unsigned mine = max(__float_as_uint(a) & 0x7fffffffu, __float_as_uint(b) & 0x7fffffffu);
          const int e = exponent_of_bits(__reduce_max_sync(kFullMask, mine));
          if (lane == 0) shared.unscale[slot][chunk][p] = power_of_two(-e);
          if (lane / 4 < octets)
            *reinterpret_cast<__half2*>(to + (lane / 4 * Shape::kPixels + p) * 16 + lane % 4 * 4) =
                __floats2half2_rn(a * power_of_two(e), b * power_of_two(e));
        }
      }
      fence_proxy_async();
      mbarrier_arrive(full + kMbarrierBytes * slot);
    }
  }
}

// Rows that a consumer waits for, and releases, in their order.
template <int Slots> struct RowQueue {
  uint32_t full, empty;
  int before = 0, seen = 0, released = 0;  // rows of earlier strips; of this one
  RF_FN void wait(int until) {
    for (; seen < until; seen++)
      mbarrier_wait(full + kMbarrierBytes * ((before + seen) % Slots), (before + seen) / Slots & 1);
  }
  // One that is not there yet is waited for: a slot is released once for each row. All lanes have read its scales.
  RF_FN void release(int until, int lane) {
    wait(until);
    __syncwarp();
    for (; released < until; released++)
      if (lane == 0) mbarrier_arrive(empty + kMbarrierBytes * ((before + released) % Slots));
  }
  RF_FN void next_strip() { before += seen, seen = released = 0; }
};

template <class S, class Body>
RF_FN void consume_rows(const StripLaunch& launch, const Body& body,
                        StripStorage<S, typename Body::Window>& shared, int group, int feature0, int first_unit) {
  using W = typename Body::Window;
  using Shape = StripShape<S, W>;
  const int warpgroup = __shfl_sync(kFullMask, threadIdx.x / kWarpgroupThreads, 0) - 1;  // known to be uniform
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int down = S::kMI == 2 ? 64 * warpgroup : 0;  // of the tile's features
  const uint32_t weights = shared_address(shared.weights) + down * 16, rows = shared_address(shared.rows);
  auto& staging = shared.staging[4 * warpgroup + warp];
  RowQueue<Shape::kSlots> queue{shared_address(shared.full), shared_address(shared.empty)};
#pragma unroll 1
  for (long unit = first_unit; unit < launch.units; unit += launch.blocks) {
    const Strip strip(launch, unit);
    const int all = strip.rows + Shape::kSpan - 1, first = S::kMI == 2 ? 0 : warpgroup;
    queue.release(first, lane);
#pragma unroll 1
    for (int row = first; row < strip.rows; row += S::kRowStep) {
      queue.wait(row + Shape::kSpan);
      float acc[64], partial[64];
#pragma unroll
      for (int i = 0; i < 64; i++) acc[i] = partial[i] = 0.0f;
#pragma unroll 1
      for (int tap = 0; tap < W::kTaps; tap++) {
        const int below = tap / W::Wide::kKernel * W::High::kDilation, shift = tap % W::Wide::kKernel * W::Wide::kDilation;
        const int slot = (queue.before + row + below) % Shape::kSlots;
const uint32_t a = weights + tap * Shape::kOctets * S::kTileRows * 16;
        const uint32_t b = rows + slot * Shape::kRowBytes + shift * 16;
        const auto multiply = [&](auto octets, int chunk) {  // one tap and so many octets of a chunk
          wgmma_fence();
#pragma unroll
          for (int octet = 0; octet < octets.index; octet += 2) {
            const int at = 8 * chunk + octet;
            wgmma_plain(partial, plain_descriptor(a + at * S::kTileRows * 16, S::kTileRows * 16),
                        plain_descriptor(b + at * Shape::kPixels * 16, Shape::kPixels * 16), octet != 0);
          }
          wgmma_commit_group();
          wgmma_wait_group<0>();
          const float* unscale = shared.unscale[slot][chunk] + shift + 2 * (lane % 4);
#pragma unroll
          for (int i = 0; i < 64; i++) acc[i] = fmaf(partial[i], unscale[8 * (i / 4) + i % 2], acc[i]);
        };
#pragma unroll 1
        for (int chunk = 0; chunk < Shape::kOctets / 8; chunk++) multiply(Step<8>{}, chunk);
        if constexpr (Shape::kOctets % 8 != 0) multiply(Step<Shape::kOctets % 8>{}, Shape::kOctets / 8);
      }
      queue.release(min(row + S::kRowStep, all), lane);

      // two features at a time: the eight lanes that hold them lay them out, and all finish them
      const ConvolutionLaunch& l = launch.of;
      const long pixel0 = strip.image * l.images.places + long(strip.high0 + row) * l.images.made_wide + strip.wide0;
      const long pixel_end = pixel0 + min(128, l.images.made_wide - strip.wide0);
#pragma unroll 1
      for (int two = 0; two < 8; two++) {
        const int h = two / 4, q = two % 4, first_feature = feature0 + down + 16 * warp + 8 * h + 2 * q;
        if (lane / 8 == q) {
          const int feature = first_feature + lane / 4 % 2;
          const float by = feature < W::kFeatures ? l.unscale[group * W::kFeatures + feature] : 0.0f;
#pragma unroll
          for (int j = 0; j < 16; j++)
            *reinterpret_cast<float2*>(&staging[lane / 4 % 2][8 * j + 2 * (lane % 4)]) =
                make_float2((h ? acc[4 * j + 2] : acc[4 * j]) * by, (h ? acc[4 * j + 3] : acc[4 * j + 1]) * by);
        }
        __syncwarp();
#pragma unroll 1
        for (int r = 0; r < 2 && first_feature + r < W::kFeatures; r++) {
          const int feature = first_feature + r;
          if (l.in_fours) finalize_places<true>(body, l, staging[r], feature, group, pixel0, pixel_end, lane);
          else finalize_places<false>(body, l, staging[r], feature, group, pixel0, pixel_end, lane);
        }
        __syncwarp();
      }
    }
    queue.release(all, lane);
    queue.next_strip();
  }
}

template <class S, class Body>
__global__ void __launch_bounds__(S::kThreads, 1)
    convolution_strips(const __grid_constant__ StripLaunch launch, const __grid_constant__ Body body) {
  using W = typename Body::Window;
  using Shape = StripShape<S, W>;
  extern __shared__ __align__(128) unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<StripStorage<S, W>*>(raw_shared);
  const int tiles = W::kGroups * launch.of.feature_tiles, tile = blockIdx.x % tiles, first_unit = blockIdx.x / tiles;
  const int group = tile / launch.of.feature_tiles, feature0 = tile % launch.of.feature_tiles * S::kTileRows;
  if (threadIdx.x == 0) {
    for (int i = 0; i < Shape::kSlots; i++) {
      mbarrier_init(shared_address(&shared.full[i]), kWarpgroupThreads);
      mbarrier_init(shared_address(&shared.empty[i]), S::kConsumerWarps);
    }
    fence_mbarrier_init();
  }
  wait_on_dependent_grids();
  look_in_first_block(body);
  load_kernels<S, W>(launch.of, shared.weights, group, feature0);
  fence_proxy_async();
  __syncthreads();
  launch_dependent_grids();
  if (threadIdx.x < kWarpgroupThreads) {
    setmaxnreg_dec<120>();
    produce_rows<S, W>(launch, shared, group, first_unit);
  } else {
    setmaxnreg_inc<192>();
    consume_rows<S>(launch, body, shared, group, feature0, first_unit);
  }
}

template <class M, class Tile, class Body>
Error run_convolution(Strips<M, Tile>, const Body& body, const ConvolutionLaunch& of, long count,
                      const Device& device, cudaStream_t stream) {
  using S = Strips<M, Tile>;
  using W = typename Body::Window;
  if (device.major != 9)
    return error("the device has compute capability %d.%d; this kernel is for 9.0", device.major, device.minor);
  StripLaunch l{};
  l.of = of;
  l.of.in_fours = of.in_fours && of.images.made_wide % 4 == 0;
  l.columns = static_cast<int>(blocks_of(of.images.made_wide, 128));
  const int tiles = W::kGroups * of.feature_tiles, high = of.images.made_high;
  const long share = device.processors / tiles, most = share < 1 ? 1 : share;
  // strips are as long as gives each block four; a strip's first rows are read again by its neighbour
  const long wanted = blocks_of(4 * most, count * l.columns), least = 4 * StripShape<S, W>::kSpan;
  const long rows = blocks_of(high, wanted);
  l.rows = static_cast<int>(rows < least ? (least < high ? least : high) : rows);
  l.strips = static_cast<int>(blocks_of(high, l.rows));
  l.units = count * l.columns * l.strips;
  l.blocks = static_cast<int>(l.units < most ? l.units : most);
  static std::atomic<uint64_t> allowed{0};
  constexpr size_t shared = sizeof(StripStorage<S, W>);
  static_assert(shared <= 232448, "more shared memory than a block of Hopper can have");
  auto* kernel = convolution_strips<S, Body>;
  RF_TRY(allow_shared(kernel, shared, device, allowed));
  return launch(kernel, static_cast<unsigned>(l.blocks) * tiles, S::kThreads, shared, stream, LaunchMode::overlapping,
                "launching the convolution", l, body);
}

}  // namespace rf
