// Images as one long row of places, and kernels in the order in which they are used, for convolution_flat.cuh.
//
// Layout of images: fp16, [piece][group][channel / 8][place][8 channels]. Of fp32 class there are two pieces: hi, and what
// hi leaves of an element, times 2^11, so that it has as many bits of a dark element as of a bright one. Places are those of all images one after the other, padded:
// behind each row lie as many zeros as a place sees before its image's first, which are those before the next row, too; so
// do rows of zeros lie between images, and planes of zeros between those of volumes. What a tap sees of a place is then
// the same number of places further on for every place. A place of the result has the number of the first that it sees.
//
// Layout of kernels: fp16, [group][64 features][chunk of channels][tap][piece][channel / 8][feature][8 channels]: a stage after the
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

constexpr int kFlatFeatures = 64;  // of a tile of a warpgroup
constexpr float kOfLow = 2048.0f;  // what lo is multiplied by
constexpr int kConvertThreads = 256, kConvertWarps = kConvertThreads / 32;
constexpr int kConvertPlaces = 32;  // of a block

// Shared: both warpgroups have the same places, of 128 features. Channels: of a window at a time.
template <class M, class Tile, int Channels> struct Flat {
  using Mode = M;
  static constexpr bool kShared = Tile::kMI == 2;
  static constexpr int kPieces = M::kSplit ? 2 : 1;           // hi and lo
  static constexpr int kResults = M::kSplit ? 128 : 256;     // places of the result, of a tile of a warpgroup
  static constexpr int kTileRows = 64 * Tile::kMI, kTileCols = kResults, kThreads = 384;
  static constexpr int kChannels = Channels, kQueues = kShared ? 1 : 2, kWindows = 2, kMostSlots = 8;
};

// One axis: how many places of zeros lie between images, and where a tap of a phase sees them.
template <class A, bool Transposed> struct FlatAxis : AxisPhases<A, Transposed> {
  using Axis = AxisPhases<A, Transposed>;
  static_assert(Transposed || A::kStride == 1, "steps of one, but for transposed ones");
  static_assert(!Axis::has_empty(), "each phase has taps");
  // As many as the last place of a result sees behind its image, which are not fewer than the first sees before it.
  static constexpr int kPad =
      Transposed ? Axis::floor_of(Axis::kReach - A::kPadding + A::kExtra, A::kStride) : int(A::kPadding);
  static constexpr int kReach = Axis::kMost + kPad;  // of all taps of all phases
  static_assert(kPad >= 0 && kPad <= kReach, "refold/flat.py refuses others");
  static constexpr int kMostTaps = (A::kKernel + Axis::kApart - 1) / Axis::kApart;  // of a phase
  static constexpr int kSpan = (kMostTaps - 1) * A::kDilation;  // from the first of a phase's taps to its last
  static RF_FN int tap(int phase, int j) { return Axis::first(phase) + j * Axis::kApart; }
  static RF_FN int shift(int phase, int tap) { return Axis::at(phase, tap) + kPad; }
  static RF_FN int least(int phase) { return Transposed ? shift(phase, tap(phase, Axis::count(phase) - 1)) : 0; }
};

template <class S, class W> struct FlatShape {
  using Deep = FlatAxis<typename W::Deep, W::kTransposed>;
  using High = FlatAxis<typename W::High, W::kTransposed>;
  using Wide = FlatAxis<typename W::Wide, W::kTransposed>;
  static constexpr int kTogether = Wide::kPhases, kPhases = Deep::kPhases * High::kPhases;  // of a tile; of tiles of the same places
  static_assert(kTogether <= 2, "refold/flat.py refuses others");
  static_assert(kTogether == 1 || !S::Mode::kSplit, "refold/flat.py refuses others");
  static constexpr int kPlaces = S::kResults / kTogether;  // of a tile
  static constexpr int kChunks = (W::kChannels + S::kChannels - 1) / S::kChannels, kOctets = kChunks * S::kChannels / 8;
  static constexpr int kFeatureTiles = (W::kFeatures + S::kTileRows - 1) / S::kTileRows;  // of a group
  static constexpr int kHalves = kFeatureTiles * S::kTileRows / kFlatFeatures;             // tiles of 64 of a group
  static constexpr int kPieceBytes = kFlatFeatures * S::kChannels * 2, kStageBytes = S::kPieces * kPieceBytes;
  static constexpr long kKernelBytes = long(W::kGroups) * kHalves * kChunks * W::kTaps * kStageBytes;
};

// Divides by a number that the launch knows: a product and a shift, where a division is some 20 instructions.
struct Divisor {
  unsigned by, factor, shift;
  Divisor() = default;
  explicit Divisor(unsigned by) : by(by), shift(0) {
    while ((1ull << shift) < by) shift++;
    factor = static_cast<unsigned>((((1ull << shift) - by) << 32) / by + 1);
  }
  // n: below 2^31
  RF_FN unsigned of(unsigned n) const { return (static_cast<unsigned>(uint64_t(n) * factor >> 32) + n) >> shift; }
};

struct FlatLaunch {
  ConvolutionLaunch of;
  const unsigned char *images, *kernels;
  const struct ImageRange* ranges;
  int* scaled;              // whether an image has a scale
  int count, blocks;        // images; blocks that convert one of them
  int pitch, slice, image;  // places from a row, a plane, an image to the next
  Divisor by_pitch, by_slice, by_image;
  int window;               // places of a window
  bool all_rows;            // of a phase's taps has a window, or one
  int slots;                // stages of kernels that fit shared memory, of each warpgroup
  long places;              // of a channel, all images, with what the last tile sees
  long tiles;               // of a phase
  int along;                // results of a row next to each other that are stored together: 1, 2 or 4
};

// What a place of the long row is of an image.
struct FlatPlace {
  long image;
  int deep, high, wide;
  RF_FN FlatPlace(const FlatLaunch& l, long image, int of_image) : image(image) {
    deep = static_cast<int>(l.by_slice.of(of_image)), of_image -= deep * l.slice;
    high = static_cast<int>(l.by_pitch.of(of_image)), wide = of_image - high * l.pitch;
  }
};

// Of an image, or some of its places, the largest element's bits, and the complement of those of the darkest place's that is
// not zero.
struct ImageRange {
  unsigned largest, least;
  RF_FN void join(const ImageRange& other) { largest = max(largest, other.largest), least = max(least, other.least); }
  RF_FN ImageRange of_warp() const {
    return {__reduce_max_sync(kFullMask, largest), __reduce_max_sync(kFullMask, least)};
  }
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

// What those leave of them.
RF_FN uint4 what_is_left(const float (&v)[8], float scale, const uint4& high) {
  const __half2* pairs = reinterpret_cast<const __half2*>(&high);
  float left[8];
#pragma unroll
  for (int c = 0; c < 8; c++) {
    const float hi = c % 2 == 0 ? __low2float(pairs[c / 2]) : __high2float(pairs[c / 2]);
    left[c] = v[c] * scale - hi;
  }
  return eight_channels(left, kOfLow);
}

// Their pieces, so far apart.
template <class S> RF_FN void write_eight(uint4* to, long apart, const float (&v)[8], float scale) {
  const uint4 high = eight_channels(v, scale);
  *to = high;
  if constexpr (S::kPieces == 2) to[apart] = what_is_left(v, scale, high);
}

// Where a place of the long row lies in an image, if it does. Last: images lie with their channels last.
template <class S, class W, bool Last> struct FlatSource {
  using Shape = FlatShape<S, W>;
  const FlatLaunch& l;
  bool there;
  const float* from;  // its first channel
  RF_FN FlatSource(const FlatLaunch& l, const FlatPlace& at, int group) : l(l) {
    const Images& images = l.of.images;
    const long image = at.image;
    const int d = at.deep - Shape::Deep::kPad, h = at.high - Shape::High::kPad, w = at.wide - Shape::Wide::kPad;
    there = image < l.count && unsigned(d) < unsigned(images.deep) && unsigned(h) < unsigned(images.high) &&
            unsigned(w) < unsigned(images.wide);
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

// The bits of the largest of some elements that is finite, or of what was larger before.
RF_FN unsigned largest_bits(const float (&v)[8], unsigned most) {
#pragma unroll
  for (int c = 0; c < 8; c++) {
    const unsigned bits = __float_as_uint(v[c]) & 0x7fffffffu;
    most = max(most, bits < 0x7f800000u ? bits : 0u);
  }
  return most;
}

// 32 places of an image, or behind all images, by a block. Each of its warps has all of them and every eighth eight of their
// channels; of channels that lie last eight places, and four lanes next to each other eight channels of a place each.
template <class S, class W, bool Last> RF_FN void convert_places(const FlatLaunch& l, uint4* to, ImageRange* ranges, int block) {
  using Shape = FlatShape<S, W>;
  constexpr int kRows = Last ? 2 : kConvertWarps;
  __shared__ unsigned of_rows[kRows][kConvertPlaces];
  const int group = block % W::kGroups, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int of_all = block / W::kGroups, image = min(of_all / l.blocks, l.count);
  const int of_block = Last ? warp % 4 * 8 + lane / 4 : lane, first_octet = Last ? warp / 4 * 4 + lane % 4 : warp;
  const int of_image = (of_all - image * l.blocks) * kConvertPlaces + of_block;
  const long place = long(image) * l.image + of_image;
  const bool here = image < l.count ? of_image < l.image : place < l.places;
  const FlatSource<S, W, Last> source(l, FlatPlace(l, image, of_image), group);
  unsigned most = 0;
  if (here) {
#pragma unroll 2
    for (int octet = first_octet; octet < Shape::kOctets; octet += kConvertWarps) {
      float v[8];
      source.load(v, octet);
      most = largest_bits(v, most);
      const long apart = long(W::kGroups) * Shape::kOctets * l.places;
      write_eight<S>(to + (long(group) * Shape::kOctets + octet) * l.places + place, apart, v, 1.0f);
    }
  }
  if constexpr (Last) {
    most = max(most, __shfl_xor_sync(kFullMask, most, 1));
    most = max(most, __shfl_xor_sync(kFullMask, most, 2));
  }
  of_rows[Last ? warp / 4 : warp][of_block] = most;
  __syncthreads();
  if (warp != 0 || image == l.count) return;
  most = of_rows[0][lane];
#pragma unroll
  for (int i = 1; i < kRows; i++) most = max(most, of_rows[i][lane]);
  const ImageRange range = ImageRange{most, most == 0 ? 0u : ~most}.of_warp();
  if (lane == 0) ranges[block] = range;
}

// A feature's kernel, by a block, whose threads have eight channels of a tap each, taps next to each other.
template <class S, class W> RF_FN void convert_kernel(const float* w, unsigned char* to, float* unscale, int block) {
  using Shape = FlatShape<S, W>;
  constexpr int kAll = Shape::kHalves * kFlatFeatures, kEights = Shape::kOctets * W::kTaps;
  __shared__ unsigned of_warps[kConvertWarps];
  const int group = block / kAll, feature = block % kAll, thread = threadIdx.x;
  const bool there = feature < W::kFeatures;
  const auto load = [&](float (&v)[8], int i) {
    const int octet = i / W::kTaps, tap = i % W::kTaps;
#pragma unroll
    for (int c = 0; c < 8; c++) {
      const bool has = there && 8 * octet + c < W::kChannels;
      v[c] = has ? w[kernel_at<W>(group, feature, 8 * octet + c, tap)] : 0.0f;
    }
  };
  unsigned most = 0;
#pragma unroll 2
  for (int i = thread; i < kEights; i += kConvertThreads) {
    float v[8];
    load(v, i);
    most = largest_bits(v, most);
  }
  most = __reduce_max_sync(kFullMask, most);
  if (thread % 32 == 0) of_warps[thread / 32] = most;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kConvertWarps; i++) most = max(most, of_warps[i]);
  const int e = exponent_of_bits(most);
  if (thread == 0 && there) unscale[group * W::kFeatures + feature] = power_of_two(-e);
  const long stage0 = (long(group) * Shape::kHalves + feature / kFlatFeatures) * Shape::kChunks;
#pragma unroll 2
  for (int i = thread; i < kEights; i += kConvertThreads) {
    float v[8];
    load(v, i);
    const int octet = i / W::kTaps, tap = i % W::kTaps, chunk = octet / (S::kChannels / 8);
    auto* stage = reinterpret_cast<uint4*>(to + ((stage0 + chunk) * W::kTaps + tap) * Shape::kStageBytes);
    uint4* at = stage + octet % (S::kChannels / 8) * kFlatFeatures + feature % kFlatFeatures;
    write_eight<S>(at, Shape::kPieceBytes / 16, v, power_of_two(e));
  }
}

// Kernels, a block each of all features that tiles have, and images.
template <class S, class W, bool Last>
__global__ void __launch_bounds__(kConvertThreads)
    convert_flat(const __grid_constant__ FlatLaunch l, unsigned char* kernels, float* unscale, uint4* images, ImageRange* ranges) {
  constexpr int kFeatures = W::kGroups * FlatShape<S, W>::kHalves * kFlatFeatures;
  wait_on_dependent_grids();
  launch_dependent_grids();
  if (blockIdx.x == 0 && threadIdx.x == 0) *l.scaled = 0;
  if (blockIdx.x < kFeatures) convert_kernel<S, W>(l.of.w, kernels, unscale, blockIdx.x);
  else convert_places<S, W, Last>(l, images, ranges, blockIdx.x - kFeatures);
}

// The range of each image, of those of its blocks. Images that do not fit as they are once more, of which there are few. A
// block has an eighth of an image at a time.
constexpr int kAgainBlocks = 8;
template <class S, class W, bool Last>
__global__ void __launch_bounds__(kConvertThreads)
    convert_again(const __grid_constant__ FlatLaunch l, uint4* to, const ImageRange* of_blocks, ImageRange* ranges) {
  using Shape = FlatShape<S, W>;
  __shared__ ImageRange of_warps[kConvertWarps];
  const int thread = threadIdx.x, all = l.blocks * W::kGroups;
  wait_on_dependent_grids();
  launch_dependent_grids();
#pragma unroll 1
  for (long item = blockIdx.x; item < long(l.count) * kAgainBlocks; item += gridDim.x) {
    const long image = item / kAgainBlocks;
    ImageRange range{0, 0};
    for (int i = thread; i < all; i += kConvertThreads) range.join(of_blocks[image * all + i]);
    range = range.of_warp();
    __syncthreads();  // nobody reads those of the item before
    if (thread % 32 == 0) of_warps[thread / 32] = range;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kConvertWarps; i++) range.join(of_warps[i]);
    if (thread == 0 && item % kAgainBlocks == 0) ranges[image] = range;
    if (range.fits()) continue;
    if (thread == 0) *l.scaled = 1;
    const float scale = power_of_two(range.exponent());
#pragma unroll 1
    for (int at = item % kAgainBlocks * kConvertThreads + thread; at < l.image; at += kAgainBlocks * kConvertThreads)
#pragma unroll 1
      for (int group = 0; group < W::kGroups; group++) {
        const FlatSource<S, W, Last> source(l, FlatPlace(l, image, at), group);
        if (!source.there) continue;
#pragma unroll 1
        for (int octet = 0; octet < Shape::kOctets; octet++) {
          float v[8];
          source.load(v, octet);
          const long apart = long(W::kGroups) * Shape::kOctets * l.places;
          write_eight<S>(to + (long(group) * Shape::kOctets + octet) * l.places + image * l.image + at, apart, v, scale);
        }
      }
  }
}

}  // namespace rf
