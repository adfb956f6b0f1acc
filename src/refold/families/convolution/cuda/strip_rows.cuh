// Rows of images in shared memory, for convolution_strips.cuh: what lies where.
#pragma once
#include "convolution.cuh"
#include "phases.cuh"
#include "ptx_sm90.cuh"

namespace rf {

struct Joined { static constexpr int kMI = 1; };  // tiles of 64 features; short rows of several images next to each other
struct Paired { static constexpr int kMI = 1; };  // of 64 features; 40 places of each of two phases along the width
template <class Tile> inline constexpr bool is_joined = false;
template <> inline constexpr bool is_joined<Joined> = true;

// Consumers: warpgroups that multiply and store (consumers_of); the others load. Sectors: rows are stored by whole sectors
// (strip_sectors.cuh).
template <class M, class Tile, int Consumers = 2, bool Sectors = false> struct Strips {
  using Mode = M;
  template <int OtherConsumers, bool OtherSectors> using With = Strips<M, Tile, OtherConsumers, OtherSectors>;
  static constexpr bool kSectors = Sectors;
  static constexpr int kPieces = M::kSplit ? 2 : 1;  // hi and lo
  static constexpr int kMI = Tile::kMI, kTileRows = 64 * kMI, kTileCols = 128;
  static constexpr int kThreads = 512, kConsumers = Consumers, kProducers = 4 - Consumers;
  // A tile is stored while the next one is multiplied; of three warpgroups the others multiply meanwhile.
  static constexpr bool kStoresLater = Consumers == 2;
  static constexpr int kProducerRegisters = Consumers == 3 ? 104 : is_joined<Tile> ? 80 : 72;
  static constexpr int kConsumerRegisters = (512 - kProducers * kProducerRegisters) / Consumers;  // of four threads' 512
  static constexpr int kWriters = kMI == 1 ? Consumers : 1;  // warpgroups that have rows of the same features
  static constexpr bool kJoined = is_joined<Tile>, kPaired = std::is_same<Tile, Paired>::value;
};

// refold/convolve.py has it as well (Convolution.slots).
constexpr int kMargin = 3;  // places to the left of a tile, which shifted rows begin with

// refold/convolve.py computes the same (Convolution.slots).
template <class S, class W> struct StripShape {
  using High = AxisPhases<typename W::High, W::kTransposed>;
  using Wide = AxisPhases<typename W::Wide, W::kTransposed>;
  static constexpr int kReach = Wide::kMost - Wide::kLeast;  // places from the first that a place sees to the last
  // Of volumes the taps along the depth are further channels: a row has those of all planes that a place sees.
  static constexpr int kDeep = W::Deep::kKernel, kRowChannels = kDeep * W::kChannels;
  // Of up to eight channels a step of 16 products is of two taps next to each other; an odd tap's neighbour is zeros.
  static constexpr int kStepTaps = kRowChannels <= 8 && W::Wide::kKernel > 1 && !W::kTransposed ? 2 : 1;
  static constexpr int kWideTaps = (W::Wide::kKernel + kStepTaps - 1) / kStepTaps * kStepTaps, kHighTaps = W::High::kKernel;
  static constexpr int kPixels = kMargin + 128 + kReach + (kWideTaps - W::Wide::kKernel) * W::Wide::kDilation;
  static constexpr int kSpan = High::kMost - High::kLeast + 1;  // rows that a row of places meets
  // A warpgroup has 64 features and 128 elements of a row of the result at a time, of two phases 64 places; or 80 and 40,
  // where more would lie behind the row's end. A strip's row has kTilesOfRow of them.
  static constexpr int kTogether = Wide::kPhases, kElements = S::kPaired ? 80 : 128, kSums = kElements / 2;
  static constexpr int kTilePlaces = kElements / kTogether, kStripPlaces = kTilePlaces * kTogether;
  static constexpr int kTilesOfRow = S::kMI * kTogether;
  static constexpr bool kHasEmpty = High::has_empty() || Wide::has_empty();  // phases, whose sums are zeros
  static constexpr int kPlaneTaps = kHighTaps * kWideTaps;
  static constexpr int kOctets = kStepTaps == 2 ? 1 : (kRowChannels + 15) / 16 * 2;
  static constexpr int kChunkOctets = 4, kChunks = (kOctets + 3) / 4;  // a chunk: 32 channels, which have a scale together
  // Behind the taps of two a step are zeros, the neighbour of one whose products are promoted by themselves.
  static constexpr int kTapBytes = kOctets * S::kTileRows * 16, kWeightTaps = kPlaneTaps + (kStepTaps == 2 ? 1 : 0);
  static constexpr int kWeightPiece = kWeightTaps * kTapBytes, kRowPiece = kOctets * kPixels * 16;
  static constexpr int kWeightBytes = S::kPieces * kWeightPiece, kRowBytes = S::kPieces * kRowPiece;
  static constexpr int kSlotBytes = kRowBytes + kChunks * (kPixels + 1) * 4 + 16;
  static constexpr int kRoom = 232448 - 1024 - kWeightBytes, kEnough = kSpan + 8;
  // Slots beside a Stage of so many places for each of the consumers' warps: of as many places as leave two slots for the
  // rows to come.
  static constexpr int slots_beside(int places, int features = 8) {
    const int room = kRoom - 4 * S::kConsumers * features * (places + 8) * 4, fit = room < 0 ? 0 : room / kSlotBytes;
    return fit < kEnough ? fit : kEnough;
  }
  // Rows that three warpgroups meet at the same time; a stage leaves room for two more to come.
  static constexpr int kLeast = kSpan + (kTilesOfRow == 1 ? 2 : 1), kWanted = S::kConsumers == 3 ? kLeast + 2 : kSpan + 2;
  static constexpr int kStagedOfEight = slots_beside(128) >= kWanted ? 128 : slots_beside(64) >= kWanted ? 64 : 32;
  static constexpr int kStaged = S::kSectors ? 128 : kStagedOfEight, kStagedFeatures = S::kSectors ? 16 : 8;
  static constexpr int kSlots = slots_beside(kStaged, kStagedFeatures);
  static constexpr bool kFitsThree = kSlots >= kLeast;
  // Rows that a producer has in registers at a time: as many as have 32 values of a place.
  static constexpr int kBatch = kOctets == 1 ? 4 : kOctets == 2 ? 2 : 1;
  static constexpr int kValues = 32 / kBatch;  // of a place of a row
  // The first of the 128 places that its threads read, one each: where columns of the tile begin, so that addresses of
  // a warp start where a line does.
  static constexpr int kBeyond = kPixels - 128, kBefore = kMargin - Wide::kLeast;
  static constexpr int kMain = kBefore < 0 ? 0 : kBefore < kBeyond ? kBefore : kBeyond;
  static_assert(High::kStep == 1 && Wide::kStep == 1, "strips have a stride of 1, or phases");
  static_assert(W::Deep::kStride == 1 && !(W::kTransposed && (kDeep > 1 || S::kJoined)), "no transposed volumes");
  static_assert(kTogether <= 2, "of two phases along the width a lane has four elements next to each other");
  static_assert(!S::kPaired || kTogether == 2, "this tile has two phases");
};

// Where a warp lays a row's values down, so many features at a time. Features lie 8 words of 32 apart, so that neither side
// meets another lane's bank.
template <int Cols, int Features> struct Stage {
  static constexpr int kCols = Cols;
  alignas(32) float at[Features][Cols + 8];
};

// Three warpgroups multiply and store tiles of 40 places, whose sums leave registers for it, where there is room for the
// rows that they meet at the same time. Of 128 places two were faster (docs/convolution.md).
template <class S, class W> constexpr int consumers_of() {
  if constexpr (S::kPaired) return StripShape<typename S::template With<3, false>, W>::kFitsThree ? 3 : 2;
  return 2;
}

// Whether rows are stored by whole sectors: where a body asks for it, and its stages leave room for the rows to come.
template <class S, class Body> constexpr bool by_sectors() {
  if constexpr (Body::kBySectors && !S::kJoined && !S::kPaired) {
    using Shape = StripShape<typename S::template With<2, true>, typename Body::Window>;
    return Shape::kTogether == 1 && Shape::kSlots >= Shape::kWanted;
  }
  return false;
}

// The strips with as many warpgroups that multiply and store, and such stages, as a convolution has room for.
template <class S, class Body>
using ChosenStrips = typename S::template With<consumers_of<S, typename Body::Window>(), by_sectors<S, Body>()>;

template <class S, class W> struct StripStorage {
  using Shape = StripShape<S, W>;
  static_assert(Shape::kSlots > Shape::kSpan, "the kernels and a strip's rows do not fit shared memory");
  alignas(16) unsigned char weights[Shape::kWeightBytes];
  alignas(16) unsigned char rows[Shape::kSlots][Shape::kRowBytes];
  Stage<Shape::kStaged, Shape::kStagedFeatures> stage[4 * S::kConsumers];
  float unscale[Shape::kSlots][Shape::kChunks][Shape::kPixels];
  float unscale_row[Shape::kSlots][Shape::kChunks];
  uint2 range[2][2][Shape::kBatch][4];  // of producers, twice
  alignas(8) uint64_t full[Shape::kSlots], empty[Shape::kSlots];
};

// refold/convolve.py has both as well (Convolution.has_split_sectors).
constexpr int kSector = 8;     // elements that memory takes together
constexpr int kTilesMore = 6;  // one tile of so many may be computed for their sake
constexpr int kAlone = 7;  // of an image's row: it has all 128 places of a tile

struct StripLaunch {
  ConvolutionLaunch of;
  int count;      // of images
  int pitch_log;  // of these 128 >> pitch_log are next to each other in a tile, 1 << pitch_log places each
  int columns;    // blocks of 128 places of a row
  int step;       // places from the first of one to that of the next
  int high;       // rows of places
  int strips;     // of these
  int rows;       // of each strip but the last
  long units;     // strips of all images
  int blocks;     // that share a tile of features
  long strips_of_image;  // strips of one image
  bool shifts;    // rows of the result that start at no multiple of 16 bytes
};

// The unit-th strip: rows [high0, high0 + rows) of an image's places, at a depth, columns from wide0 on.
template <class S, class W> struct Strip {
  long image;  // the first of those that are joined
  int deep = 0, high0, rows, wide0;
  RF_FN Strip(const StripLaunch& l, long unit) {
    const int strip = static_cast<int>(unit % l.strips);
    long rest = unit / l.strips;
    wide0 = static_cast<int>(rest % l.columns) * l.step, rest /= l.columns;
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

// Core matrices of 8 rows of 16 bytes, one after the other, by wgmma's matrix descriptor. step: bytes from those of 8 of k
// to the next. What is added to an address is added to it: shared addresses have less than 18 bits.
struct CoreMatrices {
  uint32_t word;
  RF_FN CoreMatrices(uint32_t address, uint32_t step) : word((address & kAddressMask) >> 4 | step >> 4 << 16) {}
  RF_FN uint64_t at(int bytes) const { return (word + (bytes >> 4)) | uint64_t(128 >> 4) << 32; }
};

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
  for (int i = threadIdx.x; i < S::kPieces * Shape::kWeightTaps * Shape::kOctets * S::kTileRows; i += S::kThreads) {
    const int octet = i % Shape::kOctets, row = i / Shape::kOctets % S::kTileRows;
    const int tap = i / (Shape::kOctets * S::kTileRows) % Shape::kWeightTaps;
    const int piece = i / (Shape::kOctets * S::kTileRows * Shape::kWeightTaps);
    constexpr int kWide = W::Wide::kKernel;
    const int high = tap / Shape::kWideTaps, wide = tap % Shape::kWideTaps;
    const auto k_of = [&](int channel) {
      const int deep = channel / W::kChannels;
      return ((deep * Shape::kHighTaps + high) * kWide + wide) * W::kChannels + channel % W::kChannels;
    };
    const bool is_tap = Shape::kStepTaps == 1 || (high < Shape::kHighTaps && wide < kWide);
    uint4 v = make_uint4(0, 0, 0, 0);
    if (is_tap && feature0 + row < W::kFeatures && 8 * octet < Shape::kRowChannels) {
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

}  // namespace rf
