// Rows of images in shared memory, for convolution_strips.cuh: what lies where, and the warpgroups that fill it.
//
// Why scales of rows: where no place of a row is all too dark beside its brightest, one power of two for the row keeps
// every bit that fp32's or TF32's class needs, and the products of several taps can be promoted together. Who finds out:
// each thread has the values of a place, warps compare their largest and least by way of shared memory, and one barrier
// of the warpgroup a row is what it costs. Steps of 2^4 make neighbouring rows mostly have the same.
#pragma once
#include "convolution.cuh"
#include "phases.cuh"
#include "ptx_sm90.cuh"

namespace rf {

struct Joined { static constexpr int kMI = 1; };  // tiles of 64 features; short rows of several images next to each other
struct Paired { static constexpr int kMI = 1; };  // of 64 features; 40 places of each of two phases along the width
template <class Tile> inline constexpr bool is_joined = false;
template <> inline constexpr bool is_joined<Joined> = true;

template <class M, class Tile> struct Strips {
  using Mode = M;
  static constexpr int kPieces = M::kSplit ? 2 : 1;  // hi and lo
  static constexpr int kMI = Tile::kMI, kTileRows = 64 * kMI, kTileCols = 128;
  static constexpr int kThreads = 512, kConsumerWarps = 8;
  static constexpr bool kJoined = is_joined<Tile>, kPaired = std::is_same<Tile, Paired>::value;
};

// refold/convolve.py has it as well (Convolution.slots).
constexpr int kMargin = 3;  // places to the left of a tile, which shifted rows begin with

// refold/convolve.py computes the same (Convolution.slots).
template <class S, class W> struct StripShape {
  using High = AxisPhases<typename W::High, W::kTransposed>;
  using Wide = AxisPhases<typename W::Wide, W::kTransposed>;
  static constexpr int kReach = Wide::kMost - Wide::kLeast;  // places from the first that a place sees to the last
  static constexpr int kPixels = kMargin + 128 + kReach;
  static constexpr int kSpan = High::kMost - High::kLeast + 1;  // rows that a row of places meets
  // A warpgroup has 64 features and 128 elements of a row of the result at a time, of two phases 64 places; or 80 and 40,
  // where more would lie behind the row's end. A strip has the places of both warpgroups, or one's.
  static constexpr int kTogether = Wide::kPhases, kElements = S::kPaired ? 80 : 128, kSums = kElements / 2;
  static constexpr int kTilePlaces = kElements / kTogether, kStripPlaces = kTilePlaces * kTogether;
  static constexpr int kTilesEach = S::kMI == 2 ? kTogether : 1;                 // of each row, one after the other
  static constexpr int kRowStep = S::kMI == 2 || kTogether == 2 ? 1 : 2;  // rows that both warpgroups work on
  static constexpr bool kHasEmpty = High::has_empty() || Wide::has_empty();  // phases, whose sums are zeros
  // Of volumes the taps along the depth are further channels: a row has those of all planes that a place sees.
  static constexpr int kDeep = W::Deep::kKernel, kPlaneTaps = W::kTaps / kDeep, kRowChannels = kDeep * W::kChannels;
  static constexpr int kOctets = (kRowChannels + 15) / 16 * 2;
  static constexpr int kChunkOctets = 4, kChunks = (kOctets + 3) / 4;  // a chunk: 32 channels, which have a scale together
  static constexpr int kWeightPiece = kPlaneTaps * kOctets * S::kTileRows * 16, kRowPiece = kOctets * kPixels * 16;
  static constexpr int kWeightBytes = S::kPieces * kWeightPiece, kRowBytes = S::kPieces * kRowPiece;
  static constexpr int kSlotBytes = kRowBytes + kChunks * (kPixels + 1) * 4 + 16;
  static constexpr int kRoom = 232448 - 512 - kWeightBytes, kEnough = kSpan + 8;
  // Slots beside a Stage of so many places for each of the consumers' warps: of as many places as leave two slots for the
  // rows to come.
  static constexpr int slots_beside(int places) {
    const int room = kRoom - S::kConsumerWarps * 8 * (places + 8) * 4, fit = room < 0 ? 0 : room / kSlotBytes;
    return fit < kEnough ? fit : kEnough;
  }
  static constexpr int kStaged = slots_beside(128) > kSpan + 1 ? 128 : slots_beside(64) > kSpan + 1 ? 64 : 32;
  static constexpr int kSlots = slots_beside(kStaged);
  // Rows that a producer has in registers at a time: as many as have 32 values of a place.
  static constexpr int kBatch = kOctets == 2 ? 2 : 1;
  static constexpr int kValues = kOctets == 2 ? 16 : 32;  // of a place of a row
  // The first of the 128 places that its threads read, one each: where columns of the tile begin, so that addresses of
  // a warp start where a line does.
  static constexpr int kBeyond = kPixels - 128, kBefore = kMargin - Wide::kLeast;
  static constexpr int kMain = kBefore < 0 ? 0 : kBefore < kBeyond ? kBefore : kBeyond;
  static_assert(kSlots > kSpan, "the kernels and a strip's rows do not fit shared memory");
  static_assert(High::kStep == 1 && Wide::kStep == 1, "strips have a stride of 1, or phases");
  static_assert(W::Deep::kStride == 1 && !(W::kTransposed && (kDeep > 1 || S::kJoined)), "no transposed volumes");
  static_assert(kTogether <= 2, "of two phases along the width a lane has four elements next to each other");
  static_assert(!S::kPaired || kTogether == 2, "this tile has two phases");
};

// Where a warp lays a row's values down, eight features at a time. Features lie 8 words of 32 apart, so that neither side
// meets another lane's bank.
template <int Cols> struct Stage {
  static constexpr int kCols = Cols;
  float at[8][Cols + 8];
};

template <class S, class W> struct StripStorage {
  using Shape = StripShape<S, W>;
  alignas(16) unsigned char weights[Shape::kWeightBytes];
  alignas(16) unsigned char rows[Shape::kSlots][Shape::kRowBytes];
  alignas(16) Stage<Shape::kStaged> stage[S::kConsumerWarps];
  float unscale[Shape::kSlots][Shape::kChunks][Shape::kPixels];
  float unscale_row[Shape::kSlots][Shape::kChunks];
  uint2 range[2][2][Shape::kBatch][4];  // of producers, twice
  alignas(8) uint64_t full[Shape::kSlots], empty[Shape::kSlots];
};

constexpr int kAlone = 7;  // of an image's row: it has all 128 places of a tile

struct StripLaunch {
  ConvolutionLaunch of;
  int count;      // of images
  int pitch_log;  // of these 128 >> pitch_log are next to each other in a tile, 1 << pitch_log places each
  int columns;    // blocks of 128 places of a row
  int high;       // rows of places
  int strips;     // of these
  int rows;       // of each strip but the last
  long units;     // strips of all images
  int blocks;     // that share a tile of features
  bool shifts;    // rows of the result that start at no multiple of 16 bytes
};

// The unit-th strip: rows [high0, high0 + rows) of an image's places, at a depth, columns from wide0 on.
template <class S, class W> struct Strip {
  long image;  // the first of those that are joined
  int deep = 0, high0, rows, wide0;
  RF_FN Strip(const StripLaunch& l, long unit) {
    const int strip = static_cast<int>(unit % l.strips);
    long rest = unit / l.strips;
    wide0 = static_cast<int>(rest % l.columns) * StripShape<S, W>::kStripPlaces, rest /= l.columns;
    if constexpr (W::kPlaces > 2) deep = static_cast<int>(rest % l.of.images.made_deep), rest /= l.of.images.made_deep;
    image = S::kJoined ? rest * (128 >> l.pitch_log) : rest;
    high0 = strip * l.rows, rows = min(l.rows, l.high - high0);
  }
};

// A place of a row: its column in its image, which lies so many elements behind the first of those that are joined.
struct Column {
  long image;
  int wide;
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

// The kernels of a tile's features, from packed rows of (tap, channel). A row's channel: of a tap along the depth one.
template <class S, class W>
RF_FN void load_kernels(const ConvolutionLaunch& l, unsigned char* weights, int group, int feature0) {
  using Shape = StripShape<S, W>;
#pragma unroll 1
  for (int i = threadIdx.x; i < S::kPieces * Shape::kPlaneTaps * Shape::kOctets * S::kTileRows; i += S::kThreads) {
    const int octet = i % Shape::kOctets, row = i / Shape::kOctets % S::kTileRows;
    const int tap = i / (Shape::kOctets * S::kTileRows) % Shape::kPlaneTaps;
    const int piece = i / (Shape::kOctets * S::kTileRows * Shape::kPlaneTaps);
    const auto k_of = [&](int channel) {
      return (channel / W::kChannels * Shape::kPlaneTaps + tap) * W::kChannels + channel % W::kChannels;
    };
    uint4 v = make_uint4(0, 0, 0, 0);
    if (feature0 + row < W::kFeatures && 8 * octet < Shape::kRowChannels) {
      const unsigned char* from = l.packed.data + (long(group) * W::kFeatures + feature0 + row) * l.packed.pitch;
      if constexpr (!S::Mode::kSplit && W::kChannels % 8 == 0) {
        v = *reinterpret_cast<const uint4*>(from + 2 * k_of(8 * octet));
      } else {
        uint16_t values[8];
#pragma unroll
        for (int j = 0; j < 8; j++)
          values[j] = 8 * octet + j < Shape::kRowChannels
                          ? *reinterpret_cast<const uint16_t*>(
                                from + packed_at<typename S::Mode>(k_of(8 * octet + j), piece))
                          : uint16_t(0);
        v = make_uint4(values[0] | values[1] << 16, values[2] | values[3] << 16, values[4] | values[5] << 16,
                       values[6] | values[7] << 16);
      }
    }
    const int at = piece * Shape::kWeightPiece + ((tap * Shape::kOctets + octet) * S::kTileRows + row) * 16;
    *reinterpret_cast<uint4*>(weights + at) = v;
  }
}

constexpr int kProducers = 2;        // warpgroups, which alternate in rows and chunks of channels
constexpr int kProducerBarrier = 1;  // and 2: of a producer's 128 threads
constexpr float kAnyScale = -1.0f;   // of a row of zeros

template <class S, class W>
RF_FN void produce_rows(const StripLaunch& launch, StripStorage<S, W>& shared, int group, int first_unit) {
  using Shape = StripShape<S, W>;
  constexpr int kValues = Shape::kValues, kBatch = Shape::kBatch, kSegment = 32 / kBatch;
  constexpr unsigned kRange = S::Mode::kSplit ? 9 : 13;  // by so many powers of two a place may be darker than its row
  constexpr unsigned kInfinity = 0x7f800000u;
  const Images& images = launch.of.images;
  const uint32_t full = shared_address(shared.full), empty = shared_address(shared.empty);
  const int producer = threadIdx.x / kWarpgroupThreads, thread = threadIdx.x % kWarpgroupThreads;
  const int warp = thread / 32, lane = thread % 32, place = Shape::kMain + thread;
  // Of the places beyond the 128 a warp has every fourth; lanes have a channel of it, of one of the rows.
  constexpr int kRuns = (Shape::kBeyond + 3) / 4;
  const int beyond_row = lane / kSegment, channel = lane % kSegment;
  const auto beyond_place = [&](int i) {
    const int at = warp + 4 * i;
    return at < Shape::kMain ? at : at < Shape::kBeyond ? at + 128 : Shape::kPixels;
  };
  int count = 0, chunks = 0, side = 0;  // rows and their chunks so far; which of the two ranges is written next
#pragma unroll 1
  for (long unit = first_unit; unit < launch.units; unit += launch.blocks) {
    const Strip<S, W> strip(launch, unit);
    const float* x = images.x + (strip.image * W::kGroups + group) * W::kChannels * images.channel;
    const int wide0 = strip.wide0 + Shape::Wide::kLeast - kMargin, all = strip.rows + Shape::kSpan - 1;
    const int deep0 = strip.deep - W::Deep::kPadding, plane = images.high * images.wide;
    // Where a place of a row is in the image, or in that of those joined which it belongs to.
    const auto column_of = [&](int p) {
      if constexpr (!S::kJoined) {
        return Column{0, wide0 + p};
      } else {
        if (launch.pitch_log == kAlone) return Column{0, wide0 + p};
        const int along = p - kMargin, joined = along >> launch.pitch_log;
        const bool there = unsigned(along) < 128 && strip.image + joined < launch.count;
        constexpr long kChannels = long(W::kGroups) * W::kChannels;
        return Column{there ? joined * kChannels * images.channel : 0,
                      there ? wide0 + kMargin + (along & ((1 << launch.pitch_log) - 1)) : -1};
      }
    };
    const Column mine = column_of(place);
#pragma unroll 1
    for (int first = 0; first < all; first += kBatch) {
      const int high0 = strip.high0 + Shape::High::kLeast + first, rows = min(kBatch, all - first);
#pragma unroll 1
      for (int chunk = 0; chunk < Shape::kChunks; chunk++, chunks++) {
        if (chunks % kProducers != producer) continue;  // the other's
        constexpr int kAll = Shape::kRowChannels;
        const int left = Shape::kChunks == 1 ? kAll : kAll % 32 == 0 ? 32 : kAll - 32 * chunk;
        const int octets = min(4, Shape::kOctets - 4 * chunk);
        // of volumes a chunk is of one plane, or its channels are of several
        constexpr bool kPlanes = W::kPlaces > 2 && W::kChannels % 32 != 0;
        const float* chunk_x = x;
        bool has_plane = true;
        if constexpr (W::kPlaces < 3) {
          chunk_x += long(32 * chunk) * images.channel;
        } else if constexpr (!kPlanes) {
          const int deep = deep0 + 32 * chunk / W::kChannels * W::Deep::kDilation;
          has_plane = unsigned(deep) < unsigned(images.deep);
          chunk_x += long(plane) * deep + long(32 * chunk % W::kChannels) * images.channel;
        }
        // of the chunk's c-th channel and the batch's b-th row
        const auto value = [&](int c, int b, const Column& at) {
          const float* row = chunk_x + (high0 + b) * images.wide + at.wide;
          if constexpr (S::kJoined) row += at.image;
          if constexpr (kPlanes) {
            const int of_row = 32 * chunk + c, deep = deep0 + of_row / W::kChannels * W::Deep::kDilation;
            row += long(plane) * deep, c = of_row % W::kChannels;
            if (unsigned(deep) >= unsigned(images.deep)) return 0.0f;
          }
          return *reinterpret_cast<const float*>(reinterpret_cast<const char*>(row) + long(images.channel) * (4 * c));
        };
        const auto is_there = [&](int b, const Column& at) {
          return has_plane && b < rows && unsigned(high0 + b) < unsigned(images.high) && unsigned(at.wide) < unsigned(images.wide);
        };
        float v[kBatch][kValues], beyond[kRuns + 1];
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
#pragma unroll
          for (int c = 0; c < kValues; c++) v[b][c] = 0.0f;
          if (!is_there(b, mine)) continue;
          if constexpr (kPlanes) {  // one pointer that moves on: the compiler would hold multiples in registers
            const float* from = chunk_x + (high0 + b) * images.wide + mine.wide + mine.image + long(plane) * deep0;
            const int next = plane * W::Deep::kDilation - (W::kChannels - 1) * images.channel;
            from += chunk == 0 ? 0 : 32L * chunk / W::kChannels * plane * W::Deep::kDilation +
                                         32L * chunk % W::kChannels * images.channel;
            int deep = deep0 + 32 * chunk / W::kChannels * W::Deep::kDilation;
#pragma unroll
            for (int c = 0; c < kValues; c++) {
              if (c < left && unsigned(deep) < unsigned(images.deep)) v[b][c] = *from;
              const bool last = (32 * chunk + c) % W::kChannels == W::kChannels - 1;
              from += last ? next : images.channel;
              deep += last ? W::Deep::kDilation : 0;
            }
          } else {
#pragma unroll
            for (int c = 0; c < kValues; c++)
              if (c < left) v[b][c] = value(c, b, mine);
          }
        }
#pragma unroll
        for (int i = 0; i < kRuns; i++) {
          const int p = beyond_place(i);
          const Column at = column_of(p);
          const bool here = p < Shape::kPixels && is_there(beyond_row, at);
          beyond[i] = here && channel < left ? value(channel, beyond_row, at) : 0.0f;
        }

        // Of each row the largest, and the least that is not zero, less one. A NaN stays what it is, whatever the scale.
        float most[kBatch], most_beyond[kRuns + 1];
        unsigned largest_beyond = 0, least_beyond = ~0u;
#pragma unroll
        for (int i = 0; i < kRuns; i++) {
          float mine = fabsf(beyond[i]);
#pragma unroll
          for (int mask = kSegment / 2; mask; mask /= 2) mine = fmaxf(mine, __shfl_xor_sync(kFullMask, mine, mask));
          most_beyond[i] = mine;
          const unsigned bits = __float_as_uint(mine);
          largest_beyond = max(largest_beyond, bits), least_beyond = min(least_beyond, bits - 1);
        }
        auto& range = shared.range[producer][side];
        side ^= 1;  // a thread may still read the other one, of the rows before
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
          most[b] = 0.0f;
#pragma unroll
          for (int c = 0; c < kValues; c++) most[b] = fmaxf(most[b], fabsf(v[b][c]));
          const unsigned bits = __float_as_uint(most[b]);
          const bool too = beyond_row == b;  // the lane has some of this row beyond, too
          const unsigned largest = __reduce_max_sync(kFullMask, too ? max(bits, largest_beyond) : bits);
          const unsigned least = ~__reduce_max_sync(kFullMask, ~(too ? min(bits - 1, least_beyond) : bits - 1));
          if (lane == 0) range[b][warp] = make_uint2(largest, least);
        }
        named_barrier_sync(kProducerBarrier + producer, kWarpgroupThreads);
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
          if (b >= rows) break;
          const int slot = (count + b) % Shape::kSlots;
          unsigned largest = 0, least = ~0u;
#pragma unroll
          for (int i = 0; i < 4; i++) largest = max(largest, range[b][i].x), least = min(least, range[b][i].y);
          const bool alike = largest < kInfinity && (largest >> 23) - (min(largest, least) >> 23) <= kRange;
          // of a row a multiple of four, so that neighbouring rows mostly have the same: its largest is [2^11, 2^15) then
          const auto exponent = [&](float of) {
            return alike ? exponent_of_bits(largest) & ~3 : exponent_of_bits(__float_as_uint(of));
          };

          mbarrier_wait(empty + kMbarrierBytes * slot, ((count + b) / Shape::kSlots & 1) ^ 1);
          if (thread == 0)
            shared.unscale_row[slot][chunk] = largest == 0 ? kAnyScale : alike ? power_of_two(-exponent(most[b])) : 0.0f;
          if (!alike) shared.unscale[slot][chunk][place] = power_of_two(-exponent(most[b]));
          const float scale = power_of_two(exponent(most[b]));
          unsigned char* to = shared.rows[slot] + 4 * chunk * Shape::kPixels * 16;
#pragma unroll
          for (int o = 0; o < kValues / 8; o++) {
            if (o >= octets) break;
            __half2 hi[4], lo[4];
#pragma unroll
            for (int k = 0; k < 4; k++) {
              const float* of = &v[b][8 * o + 2 * k];
              split_scaled(of[0] * scale, of[1] * scale, hi[k], lo[k]);
            }
            unsigned char* at = to + (o * Shape::kPixels + place) * 16;
            *reinterpret_cast<uint4*>(at) = *reinterpret_cast<const uint4*>(hi);
            if constexpr (S::Mode::kSplit)
              *reinterpret_cast<uint4*>(at + Shape::kRowPiece) = *reinterpret_cast<const uint4*>(lo);
          }
#pragma unroll
          for (int i = 0; i < kRuns; i++) {
            const int p = beyond_place(i);
            if (p >= Shape::kPixels || beyond_row != b) continue;
            const int e = exponent(most_beyond[i]);
            if (!alike && channel == 0) shared.unscale[slot][chunk][p] = power_of_two(-e);
            __half2 hi, lo;
            split_scaled(beyond[i] * power_of_two(e), 0.0f, hi, lo);
            unsigned char* at = to + (channel / 8 * Shape::kPixels + p) * 16 + channel % 8 * 2;
            if (channel / 8 >= octets) continue;
            *reinterpret_cast<uint16_t*>(at) = *reinterpret_cast<const uint16_t*>(&hi);
            if constexpr (S::Mode::kSplit) 
              *reinterpret_cast<uint16_t*>(at + Shape::kRowPiece) = *reinterpret_cast<const uint16_t*>(&lo);
          }
          fence_proxy_async();
          mbarrier_arrive(full + kMbarrierBytes * slot);
        }
      }
      count += rows;
    }
  }
}

}  // namespace rf
