// Images as one long row of places, and kernels in the order in which they are used, for convolution_flat.cuh.
//
// Layout of images: fp16, [group][channel / 8][place][8 channels]. Places are those of all images one after the other, padded:
// behind each row lie as many zeros as a place sees before its image's first, which are those before the next row, too; so
// do rows of zeros lie between images, and planes of zeros between those of volumes. What a tap sees of a place is then
// the same number of places further on for every place. A place of the result has the number of the first that it sees.
//
// Layout of kernels: fp16, [group][64 features][chunk of channels][tap][channel / 8][feature][8 channels]: a stage after the
// other of what a warpgroup multiplies by. Features and channels that there are not are zeros.
//
// Scales: an image is converted as it is where its elements are smaller than 2^15 and no place of it (but for zeros) has less
// than 2^-9 as its largest element: fp16 keeps half an ulp of TF32 of that many times over. Else another pass converts it
// anew, by the power of two that takes its largest element to [2^14, 2^15); where a place is too dark then, too, the image has
// a scale of NaN: its results are computed again in plain fp32. Elements that are not finite do not count. So images are
// read once, mostly, and what becomes of one hangs on nothing but itself.
#pragma once
#include "convolution_sm80.cuh"
#include "phases.cuh"
#include "ptx_sm90.cuh"

namespace rf {

constexpr int kFlatFeatures = 64, kFlatPlaces = 256;  // of a tile of a warpgroup
constexpr int kFlattenThreads = 256, kAgainThreads = 256, kPackThreads = 512;

// Shared: both warpgroups have the same places, of 128 features. Channels: of a window at a time.
template <class M, class Tile, int Channels> struct Flat {
  using Mode = M;
  static_assert(!M::kSplit, "sums of one product each");
  static constexpr bool kShared = Tile::kMI == 2;
  static constexpr int kTileRows = 64 * Tile::kMI, kTileCols = kFlatPlaces, kThreads = 384;
  static constexpr int kChannels = Channels, kQueues = kShared ? 1 : 2, kWindows = 2, kMostSlots = 8;
};

// One axis: how many places of zeros lie between images, and where a tap sees them.
template <class A, bool Transposed> struct FlatAxis {
  using Axis = AxisPhases<A, Transposed>;
  static_assert(A::kStride == 1, "steps of one");
  static constexpr int kPad = -Axis::kLeast, kReach = Axis::kMost - Axis::kLeast;
  static_assert(kPad >= 0 && kPad <= kReach, "refold/flat.py refuses others");
  static RF_FN int shift(int tap) { return Axis::at(0, tap) + kPad; }
};

template <class S, class W> struct FlatShape {
  using Deep = FlatAxis<typename W::Deep, W::kTransposed>;
  using High = FlatAxis<typename W::High, W::kTransposed>;
  using Wide = FlatAxis<typename W::Wide, W::kTransposed>;
  static constexpr int kChunks = (W::kChannels + S::kChannels - 1) / S::kChannels, kOctets = kChunks * S::kChannels / 8;
  static constexpr int kFeatureTiles = (W::kFeatures + S::kTileRows - 1) / S::kTileRows;  // of a group
  static constexpr int kHalves = kFeatureTiles * S::kTileRows / kFlatFeatures;             // tiles of 64 of a group
  static constexpr int kStageBytes = kFlatFeatures * S::kChannels * 2;
  static constexpr long kKernelBytes = long(W::kGroups) * kHalves * kChunks * W::kTaps * kStageBytes;
};

struct FlatLaunch {
  ConvolutionLaunch of;
  const unsigned char *images, *kernels;
  const struct ImageRange* ranges;
  int pitch, slice, image;  // places from a row, a plane, an image to the next
  int window;               // places of a window
  int rows_at_once;         // of kernels: 1, or all
  int slots;                // stages of kernels that fit shared memory, of each warpgroup
  long places;              // of a channel, all images, with what the last tile sees
  long tiles;               // of kFlatPlaces places
};

// What a place of the long row is of an image.
struct FlatPlace {
  long image;
  int deep, high, wide;
  RF_FN FlatPlace(const FlatLaunch& l, long place) {
    image = place / l.image;
    int rest = static_cast<int>(place - image * l.image);
    deep = rest / l.slice, rest -= deep * l.slice;
    high = rest / l.pitch, wide = rest - high * l.pitch;
  }
};

// Of each image the largest element's bits, and the complement of those of its darkest place's that is not zero.
struct ImageRange {
  unsigned largest, least;
  static constexpr unsigned kBright = 142u << 23, kDark = 118u << 23;  // 2^15 and 2^-9
  RF_FN bool fits() const { return largest == 0 || (largest < kBright && ~least >= kDark); }
  RF_FN int exponent() const { return fits() ? 0 : exponent_of_bits(largest); }
  RF_FN float unscale() const {
    const bool dark = !fits() && int(~least >> 23) + exponent() < int(kDark >> 23);
    return dark ? __uint_as_float(0x7fffffffu) : power_of_two(-exponent());
  }
};

// Eight channels of a place, scaled, as they lie in the long row.
RF_FN uint4 eight_channels(const float (&v)[8], float scale) {
  __half2 pairs[4];
#pragma unroll
  for (int c = 0; c < 4; c++) pairs[c] = __floats2half2_rn(v[2 * c] * scale, v[2 * c + 1] * scale);
  return *reinterpret_cast<const uint4*>(pairs);
}

// Where a place of the long row lies in an image, if it does. Last: images lie with their channels last.
template <class S, class W, bool Last> struct FlatSource {
  using Shape = FlatShape<S, W>;
  const FlatLaunch& l;
  long image;
  bool there;
  const float* from;  // its first channel
  RF_FN FlatSource(const FlatLaunch& l, long place, int group) : l(l) {
    const Images& images = l.of.images;
    const FlatPlace at(l, place);
    const int d = at.deep - Shape::Deep::kPad, h = at.high - Shape::High::kPad, w = at.wide - Shape::Wide::kPad;
    image = at.image;
    there = place < l.places && image < images.pixels / images.places && unsigned(d) < unsigned(images.deep) &&
            unsigned(h) < unsigned(images.high) && unsigned(w) < unsigned(images.wide);
    const long in_image = (long(d) * images.high + h) * images.wide + w;
    if constexpr (Last) from = images.x + ((image * images.channel + in_image) * W::kGroups + group) * W::kChannels;
    else from = images.x + (image * W::kGroups + group) * W::kChannels * images.channel + in_image;
  }
  RF_FN void load(float (&v)[8], int octet) const {
    if constexpr (Last && W::kChannels % 4 == 0) {
      if (l.of.aligned) {
#pragma unroll
        for (int c = 0; c < 8; c += 4) {
          const bool has = there && 8 * octet + c < W::kChannels;
          const float4 four = has ? *reinterpret_cast<const float4*>(from + 8 * octet + c) : make_float4(0, 0, 0, 0);
          v[c] = four.x, v[c + 1] = four.y, v[c + 2] = four.z, v[c + 3] = four.w;
        }
        return;
      }
    }
    const long step = Last ? 1 : l.of.images.channel;
#pragma unroll
    for (int c = 0; c < 8; c++) {
      const bool has = there && 8 * octet + c < W::kChannels;
      v[c] = has ? from[(8L * octet + c) * step] : 0.0f;
    }
  }
};

// A block has 32 places. Each of its warps has all of them and every eighth eight of their channels; of channels that lie
// last eight places, and four lanes next to each other eight channels of a place each.
template <class S, class W, bool Last>
__global__ void __launch_bounds__(kFlattenThreads)
    flatten_images(const __grid_constant__ FlatLaunch l, uint4* to, ImageRange* ranges) {
  using Shape = FlatShape<S, W>;
  constexpr int kWarps = kFlattenThreads / 32, kRows = Last ? 2 : kWarps;
  __shared__ unsigned of_rows[kRows][32];
  const int group = blockIdx.x % W::kGroups, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const long place0 = blockIdx.x / W::kGroups * 32L;
  const int of_block = Last ? warp % 4 * 8 + lane / 4 : lane, first_octet = Last ? warp / 4 * 4 + lane % 4 : warp;
  const long place = place0 + of_block;
  wait_on_dependent_grids();
  launch_dependent_grids();
  const FlatSource<S, W, Last> source(l, place, group);
  unsigned most = 0;
#pragma unroll 2
  for (int octet = first_octet; octet < Shape::kOctets; octet += kWarps) {
    float v[8];
    source.load(v, octet);
#pragma unroll
    for (int c = 0; c < 8; c++) {
      const unsigned bits = __float_as_uint(v[c]) & 0x7fffffffu;
      most = max(most, bits < 0x7f800000u ? bits : 0u);
    }
    if (place < l.places) to[(long(group) * Shape::kOctets + octet) * l.places + place] = eight_channels(v, 1.0f);
  }
  if constexpr (Last) {
    most = max(most, __shfl_xor_sync(kFullMask, most, 1));
    most = max(most, __shfl_xor_sync(kFullMask, most, 2));
  }
  of_rows[Last ? warp / 4 : warp][of_block] = most;
  __syncthreads();
  if (warp != 0) return;
  most = of_rows[0][lane];
#pragma unroll
  for (int i = 1; i < kRows; i++) most = max(most, of_rows[i][lane]);
  if (!__any_sync(kFullMask, most != 0)) return;
  const long image_of_lane = Last ? FlatPlace(l, place0 + lane).image : source.image;
  const int image = static_cast<int>(image_of_lane), first = __shfl_sync(kFullMask, image, 0);
  const auto note = [&](unsigned largest, unsigned least) {
    atomicMax(&ranges[image].largest, largest);
    atomicMax(&ranges[image].least, least);
  };
  if (!__any_sync(kFullMask, image != first)) {
    const unsigned largest = __reduce_max_sync(kFullMask, most);
    const unsigned least = __reduce_max_sync(kFullMask, most == 0 ? 0u : ~most);
    if (lane == 0) note(largest, least);
  } else if (most != 0) {
    note(most, ~most);
  }
}

// Images that do not fit as they are, once more, of which there are few. A block has an eighth of an image at a time.
constexpr int kAgainBlocks = 8;
template <class S, class W, bool Last>
__global__ void __launch_bounds__(kAgainThreads)
    flatten_again(const __grid_constant__ FlatLaunch l, uint4* to, const ImageRange* ranges) {
  using Shape = FlatShape<S, W>;
  const long count = l.of.images.pixels / l.of.images.places;
  wait_on_dependent_grids();
  launch_dependent_grids();
#pragma unroll 1
  for (long item = blockIdx.x; item < count * kAgainBlocks; item += gridDim.x) {
    const long image = item / kAgainBlocks;
    const ImageRange range = ranges[image];
    if (range.fits()) continue;
    const float scale = power_of_two(range.exponent());
#pragma unroll 1
    for (int at = item % kAgainBlocks * kAgainThreads + threadIdx.x; at < l.image; at += kAgainBlocks * kAgainThreads)
#pragma unroll 1
      for (int group = 0; group < W::kGroups; group++) {
        const long place = image * l.image + at;
        const FlatSource<S, W, Last> source(l, place, group);
        if (!source.there) continue;
#pragma unroll 1
        for (int octet = 0; octet < Shape::kOctets; octet++) {
          float v[8];
          source.load(v, octet);
          to[(long(group) * Shape::kOctets + octet) * l.places + place] = eight_channels(v, scale);
        }
      }
  }
}

// A block has a feature. Ranges of images become those of none.
template <class S, class W>
__global__ void __launch_bounds__(kPackThreads) pack_flat_kernels(const float* w, unsigned char* to, float* unscale, ImageRange* ranges,
                                                                  long count) {
  using Shape = FlatShape<S, W>;
  constexpr int kAll = Shape::kHalves * kFlatFeatures, kPadded = Shape::kOctets * 8;
  __shared__ unsigned of_warps[kPackThreads / 32];
  const int group = blockIdx.x / kAll, feature = blockIdx.x % kAll, thread = threadIdx.x;
  const bool there = feature < W::kFeatures;
  wait_on_dependent_grids();
  launch_dependent_grids();
  for (long i = blockIdx.x * long(kPackThreads) + thread; i < count; i += gridDim.x * long(kPackThreads))
    ranges[i] = ImageRange{0, 0};
  // A thread has eight channels of a tap, taps next to each other.
  constexpr int kEights = kPadded / 8 * W::kTaps;
  const auto load = [&](float (&v)[8], int i) {
    const int octet = i / W::kTaps, tap = i % W::kTaps;
#pragma unroll
    for (int c = 0; c < 8; c++) {
      const bool has = there && 8 * octet + c < W::kChannels;
      v[c] = has ? w[kernel_at<W>(group, feature, 8 * octet + c, tap)] : 0.0f;
    }
  };
  unsigned most = 0;
  for (int i = thread; i < kEights; i += kPackThreads) {
    float v[8];
    load(v, i);
#pragma unroll
    for (int c = 0; c < 8; c++) {
      const unsigned bits = __float_as_uint(v[c]) & 0x7fffffffu;
      most = max(most, bits < 0x7f800000u ? bits : 0u);
    }
  }
  most = __reduce_max_sync(kFullMask, most);
  if (thread % 32 == 0) of_warps[thread / 32] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kPackThreads / 32; i++) most = max(most, of_warps[i]);
  const int e = exponent_of_bits(most);
  if (thread == 0 && there) unscale[group * W::kFeatures + feature] = power_of_two(-e);
  const long stage0 = (long(group) * Shape::kHalves + feature / kFlatFeatures) * Shape::kChunks;
  for (int i = thread; i < kEights; i += kPackThreads) {
    float v[8];
    load(v, i);
    const int octet = i / W::kTaps, tap = i % W::kTaps, chunk = octet / (S::kChannels / 8);
    auto* stage = reinterpret_cast<uint4*>(to + ((stage0 + chunk) * W::kTaps + tap) * Shape::kStageBytes);
    stage[octet % (S::kChannels / 8) * kFlatFeatures + feature % kFlatFeatures] = eight_channels(v, power_of_two(e));
  }
}

}  // namespace rf
