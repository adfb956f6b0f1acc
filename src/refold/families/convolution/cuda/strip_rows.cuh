// Rows of images in shared memory, for convolution_strips.cuh: what lies where, and the warpgroup that fills it.
//
// Why scales of rows: where no place of a row is all too dark beside its brightest, one power of two for the row keeps
// every bit that fp32's or TF32's class needs, and the products of several taps can be promoted together. Who finds out:
// each thread has the values of a place, warps compare their largest and least by way of shared memory, and one barrier
// of the warpgroup a row is what it costs.
#pragma once
#include "convolution.cuh"
#include "ptx_sm90.cuh"

namespace rf {

template <class M, class Tile> struct Strips {
  using Mode = M;
  static constexpr int kPieces = M::kSplit ? 2 : 1;  // hi and lo
  static constexpr int kMI = Tile::kMI, kTileRows = 64 * kMI, kTileCols = 128;
  static constexpr int kThreads = 384, kConsumerWarps = 8;
  static constexpr int kRowStep = kMI == 2 ? 1 : 2;  // rows that both warpgroups work on
};

// refold/convolve.py has these two as well (Convolution.slots).
constexpr int kMargin = 3;         // places to the left of a tile, which shifted rows begin with
constexpr int kStagingPitch = 40;  // of 32 places: features are as far apart as lets a warp store without conflicts

// refold/convolve.py computes the same (Convolution.slots).
template <class S, class W> struct StripShape {
  static constexpr int kPixels = kMargin + 128 + (W::Wide::kKernel - 1) * W::Wide::kDilation;
  static constexpr int kSpan = (W::High::kKernel - 1) * W::High::kDilation + 1;  // rows that a row of the result meets
  static constexpr int kOctets = (W::kChannels + 15) / 16 * 2, kChunks = (kOctets + 7) / 8;
  static constexpr int kWeightPiece = W::kTaps * kOctets * S::kTileRows * 16, kRowPiece = kOctets * kPixels * 16;
  static constexpr int kWeightBytes = S::kPieces * kWeightPiece, kRowBytes = S::kPieces * kRowPiece;
  static constexpr int kStagingBytes = S::kConsumerWarps * 8 * kStagingPitch * 4;
  static constexpr int kSlotBytes = kRowBytes + kChunks * (kPixels + 1) * 4 + 16;
  static constexpr int kRoom = 232448 - 256 - kWeightBytes - kStagingBytes;
  static constexpr int kFit = kRoom < 0 ? 0 : kRoom / kSlotBytes;
  static constexpr int kSlots = kFit < kSpan + 4 ? kFit : kSpan + 4;
  static_assert(kSlots >= kSpan + S::kRowStep, "the kernels and a strip's rows do not fit shared memory");
  static_assert(W::High::kStride == 1 && W::Wide::kStride == 1 && W::kPlaces < 3, "strips have a stride of 1");
};

template <class S, class W> struct StripStorage {
  using Shape = StripShape<S, W>;
  alignas(16) unsigned char weights[Shape::kWeightBytes];
  alignas(16) unsigned char rows[Shape::kSlots][Shape::kRowBytes];
  alignas(16) float staging[S::kConsumerWarps][8][kStagingPitch];
  float unscale[Shape::kSlots][Shape::kChunks][Shape::kPixels];
  float unscale_row[Shape::kSlots][Shape::kChunks];
  uint2 range[2][4];
  alignas(8) uint64_t full[Shape::kSlots], empty[Shape::kSlots];
};

struct StripLaunch {
  ConvolutionLaunch of;
  int columns;    // blocks of 128 places of a row
  int strips;     // of an image's rows
  int rows;       // of a result, of each strip but the last
  long units;     // strips of all images
  int blocks;     // that share a tile of features
  bool shifts;    // rows of the result that start at no multiple of 16 bytes
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

// Where the k-th value of a packed row lies, in bytes: hi_lo_split.cuh.
template <class M> RF_FN int packed_at(int k, int piece) {
  if constexpr (!M::kSplit) return 2 * k;
  return k / 32 * 128 + 64 * piece + 2 * ((k & 4) * 4 + (k & 2) * 4 + k % 32 / 8 * 2 + k % 2);
}

// The kernels of a tile's features, from packed rows of (tap, channel).
template <class S, class W>
RF_FN void load_kernels(const ConvolutionLaunch& l, unsigned char* weights, int group, int feature0) {
  using Shape = StripShape<S, W>;
#pragma unroll 1
  for (int i = threadIdx.x; i < S::kPieces * W::kTaps * Shape::kOctets * S::kTileRows; i += S::kThreads) {
    const int octet = i % Shape::kOctets, row = i / Shape::kOctets % S::kTileRows;
    const int tap = i / (Shape::kOctets * S::kTileRows) % W::kTaps;
    const int piece = i / (Shape::kOctets * S::kTileRows * W::kTaps);
    uint4 v = make_uint4(0, 0, 0, 0);
    if (feature0 + row < W::kFeatures && 8 * octet < W::kChannels) {
      const unsigned char* from = l.packed.data + (long(group) * W::kFeatures + feature0 + row) * l.packed.pitch;
      const int k = tap * W::kChannels + 8 * octet;
      if constexpr (!S::Mode::kSplit && W::kChannels % 8 == 0) {
        v = *reinterpret_cast<const uint4*>(from + 2 * k);
      } else {
        uint16_t values[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
          values[j] = 8 * octet + j < W::kChannels
                          ? *reinterpret_cast<const uint16_t*>(from + packed_at<typename S::Mode>(k + j, piece))
                          : uint16_t(0);
        v = make_uint4(values[0] | values[1] << 16, values[2] | values[3] << 16, values[4] | values[5] << 16,
                       values[6] | values[7] << 16);
      }
    }
    const int at = piece * Shape::kWeightPiece + ((tap * Shape::kOctets + octet) * S::kTileRows + row) * 16;
    *reinterpret_cast<uint4*>(weights + at) = v;
  }
}

constexpr int kProducerBarrier = 1;  // of the producer's 128 threads

// An element of an image, not by way of the L1: the little that the shared memory leaves of it is for the operands of the
// epilogue, which each row reads again.
RF_FN float load_past_l1(const float* p) {
  float v;
  asm volatile("ld.global.L1::no_allocate.f32 %0, [%1];" : "=f"(v) : "l"(p));
  return v;
}

template <class S, class W>
RF_FN void produce_rows(const StripLaunch& launch, StripStorage<S, W>& shared, int group, int first_unit) {
  using Shape = StripShape<S, W>;
  const Images& images = launch.of.images;
  const uint32_t full = shared_address(shared.full), empty = shared_address(shared.empty);
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  constexpr int kValues = Shape::kOctets < 8 ? 8 * Shape::kOctets : 64;  // of a place, at a time
  constexpr int kChunks = Shape::kChunks;
  constexpr unsigned kRange = S::Mode::kSplit ? 12 : 16;  // by so many powers of two a place may be darker than its row
  int count = 0, side = 0;  // rows so far; which of the two ranges is written next
#pragma unroll 1
  for (long unit = first_unit; unit < launch.units; unit += launch.blocks) {
    const Strip strip(launch, unit);
    const float* x = images.x + (strip.image * W::kGroups + group) * W::kChannels * images.channel;
    const int wide0 = strip.wide0 - W::Wide::kPadding - kMargin;
#pragma unroll 1
    for (int i = 0; i < strip.rows + Shape::kSpan - 1; i++, count++) {
      const int slot = count % Shape::kSlots, high = strip.high0 - W::High::kPadding + i;
      const bool inside = unsigned(high) < unsigned(images.high);
      const float* row = x + long(high) * images.wide;  // of the first channel
#pragma unroll 1
      for (int chunk = 0; chunk < Shape::kChunks; chunk++) {
        const int left = kChunks == 1 ? W::kChannels : W::kChannels % 64 == 0 ? 64 : W::kChannels - 64 * chunk;
        const int octets = min(8, Shape::kOctets - 8 * chunk);
        const auto value = [&](int c, int w) {  // of the chunk's c-th channel
          const char* from = reinterpret_cast<const char*>(row + long(64 * chunk) * images.channel + w);
          return load_past_l1(reinterpret_cast<const float*>(from + long(images.channel) * (4 * c)));
        };
        const auto is_there = [&](int w) { return inside && unsigned(w) < unsigned(images.wide); };
        float v[kValues], most = 0.0f;
#pragma unroll
        for (int c = 0; c < kValues; c++) v[c] = 0.0f;
        if (is_there(wide0 + thread)) {
#pragma unroll
          for (int c = 0; c < kValues; c++)
            if (c < left) v[c] = value(c, wide0 + thread);
        }
#pragma unroll
        for (int c = 0; c < kValues; c++) most = fmaxf(most, fabsf(v[c]));  // a NaN stays what it is, whatever the scale
        // what taps reach beyond the 128: a place by a warp, two channels a lane
        constexpr int kBeyond = (Shape::kPixels - 128 + 3) / 4;
        float beyond[kBeyond + 1][2], most_beyond[kBeyond + 1];
        unsigned largest = __float_as_uint(most), least = largest - 1;  // of what is not zero
#pragma unroll
        for (int i = 0; i < kBeyond; i++) {
          const int p = 128 + warp + 4 * i;
          const bool here = p < Shape::kPixels && is_there(wide0 + p);
#pragma unroll
          for (int e = 0; e < 2; e++)
            beyond[i][e] = here && 2 * lane + e < left ? value(2 * lane + e, wide0 + p) : 0.0f;
          const float mine = fmaxf(fabsf(beyond[i][0]), fabsf(beyond[i][1]));
          const unsigned bits = __reduce_max_sync(kFullMask, __float_as_uint(mine));
          most_beyond[i] = __uint_as_float(bits);
          largest = max(largest, bits), least = min(least, bits - 1);
        }
        largest = __reduce_max_sync(kFullMask, largest), least = ~__reduce_max_sync(kFullMask, ~least);
        auto& range = shared.range[side];
        side ^= 1;  // a thread may still read the other one, of the row before
        if (lane == 0) range[warp] = make_uint2(largest, least);
        named_barrier_sync(kProducerBarrier, kWarpgroupThreads);
#pragma unroll
        for (int i = 0; i < 4; i++) largest = max(largest, range[i].x), least = min(least, range[i].y);
        constexpr unsigned kInfinity = 0x7f800000u;
        const bool alike = largest < kInfinity && (largest >> 23) - (min(largest, least) >> 23) <= kRange;
        const auto exponent = [&](float of) { return exponent_of_bits(alike ? largest : __float_as_uint(of)); };

        if (chunk == 0) mbarrier_wait(empty + kMbarrierBytes * slot, (count / Shape::kSlots & 1) ^ 1);
        if (thread == 0) shared.unscale_row[slot][chunk] = alike ? power_of_two(-exponent(most)) : 0.0f;
        if (!alike) shared.unscale[slot][chunk][thread] = power_of_two(-exponent(most));
        const float scale = power_of_two(exponent(most));
        unsigned char* to = shared.rows[slot] + 8 * chunk * Shape::kPixels * 16;
#pragma unroll
        for (int o = 0; o < kValues / 8; o++) {
          if (o >= octets) break;
          __half2 hi[4], lo[4];
#pragma unroll
          for (int k = 0; k < 4; k++) split_scaled(v[8 * o + 2 * k] * scale, v[8 * o + 2 * k + 1] * scale, hi[k], lo[k]);
          unsigned char* at = to + (o * Shape::kPixels + thread) * 16;
          *reinterpret_cast<uint4*>(at) = *reinterpret_cast<const uint4*>(hi);
          if constexpr (S::Mode::kSplit)
            *reinterpret_cast<uint4*>(at + Shape::kRowPiece) = *reinterpret_cast<const uint4*>(lo);
        }
#pragma unroll
        for (int i = 0; i < kBeyond; i++) {
          const int p = 128 + warp + 4 * i;
          if (p >= Shape::kPixels) break;
          const int e = exponent(most_beyond[i]);
          if (!alike && lane == 0) shared.unscale[slot][chunk][p] = power_of_two(-e);
          __half2 hi, lo;
          split_scaled(beyond[i][0] * power_of_two(e), beyond[i][1] * power_of_two(e), hi, lo);
          unsigned char* at = to + (lane / 4 * Shape::kPixels + p) * 16 + lane % 4 * 4;
          if (lane / 4 < octets) *reinterpret_cast<__half2*>(at) = hi;
          if (S::Mode::kSplit && lane / 4 < octets) *reinterpret_cast<__half2*>(at + Shape::kRowPiece) = lo;
        }
      }
      fence_proxy_async();
      mbarrier_arrive(full + kMbarrierBytes * slot);
    }
  }
}

}  // namespace rf
