// The warpgroups that fill rows in shared memory, for convolution_strips.cuh.
//
// Why scales of rows: where no place of a row is all too dark beside its brightest, one power of two for the row keeps
// every bit that fp32's or TF32's class needs, and the products of several taps can be promoted together. Who finds out:
// each thread has the values of a place, warps compare their largest and least by way of shared memory, and one barrier
// of the warpgroup a row is what it costs. Steps of 2^4 make neighbouring rows mostly have the same.
//
// Registers of a thread: 32 values of a place; of one producer alone 32 more, which are under way while those are converted.
#pragma once
#include "strip_rows.cuh"

namespace rf {

constexpr int kProducerBarrier = 1;  // and 2: of a producer's 128 threads
constexpr float kAnyScale = -1.0f;   // of a row of zeros

// Where a place of a strip's row is in the image, or in that of those joined which it belongs to.
template <class S, class W> RF_FN Column column_of(const StripLaunch& launch, const Strip<S, W>& strip, int place) {
  const int wide0 = strip.wide0 + StripShape<S, W>::Wide::kLeast - kMargin;
  if (!S::kJoined || launch.pitch_log == kAlone) return Column{0, wide0 + place};
  const int along = place - kMargin, joined = along >> launch.pitch_log;
  const bool there = unsigned(along) < 128 && strip.image + joined < launch.count;
  constexpr long kChannels = long(W::kGroups) * W::kChannels;
  return Column{there ? joined * kChannels * launch.of.images.channel : 0,
                there ? wide0 + kMargin + (along & ((1 << launch.pitch_log) - 1)) : -1};
}

// Rows of a strip, as many as a producer has at a time, and 32 of their channels.
template <class S, class W> struct RowCursor {
  using Shape = StripShape<S, W>;
  const StripLaunch& launch;
  int group;
  long unit;
  Strip<S, W> strip;
  const float* x;  // of its image, the group's channels
  Column mine;     // of this thread's place
  int first = 0, chunk = 0;  // of its rows, of their channels
  int before = 0;            // rows of this strip and of earlier ones

  RF_FN RowCursor(const StripLaunch& launch, int group, int first_unit)
      : launch(launch), group(group), unit(first_unit), strip(launch, first_unit) {
    begin();
  }
  RF_FN static int place() { return Shape::kMain + threadIdx.x % kWarpgroupThreads; }
  RF_FN void begin() {
    x = launch.of.images.x + (strip.image * W::kGroups + group) * W::kChannels * launch.of.images.channel;
    mine = column_of(launch, strip, place());
  }
  RF_FN bool there() const { return unit < launch.units; }
  RF_FN int rows() const { return min(Shape::kBatch, strip.rows + Shape::kSpan - 1 - first); }
  RF_FN void advance() {
    if (++chunk < Shape::kChunks) return;
    chunk = 0, before += rows(), first += Shape::kBatch;
    if (rows() > 0) return;
    first = 0, unit += launch.blocks;
    if (there()) strip = Strip<S, W>(launch, unit), begin();
  }
};

// What a thread of a producer has of them: its place, and one channel of some of those beyond the 128.
template <class Shape> struct RowValues {
  static constexpr int kRuns = (Shape::kBeyond + 3) / 4;  // places beyond: a warp has every fourth
  float of_place[Shape::kBatch][Shape::kValues], beyond[kRuns + 1];
};

template <class S, class W> struct Producer {
  using Shape = StripShape<S, W>;
  using Values = RowValues<Shape>;
  using Cursor = RowCursor<S, W>;
  static constexpr int kValues = Shape::kValues, kBatch = Shape::kBatch, kRuns = Values::kRuns;
  static constexpr int kSegment = 32 / kBatch;  // lanes that have the channels of a place beyond, of one of the rows
  const StripLaunch& launch;
  StripStorage<S, W>& shared;
  int producer, side = 0;  // side: which of the two ranges is written next

  RF_FN static int thread() { return threadIdx.x % kWarpgroupThreads; }
  RF_FN static int warp() { return thread() / 32; }
  RF_FN static int lane() { return threadIdx.x % 32; }
  RF_FN static int place() { return Cursor::place(); }
  RF_FN static int beyond_place(int i) {
    const int at = warp() + 4 * i;
    return at < Shape::kMain ? at : at < Shape::kBeyond ? at + 128 : Shape::kPixels;
  }
  RF_FN static int channels_of(int chunk) {
    constexpr int kAll = Shape::kRowChannels;
    return Shape::kChunks == 1 ? kAll : kAll % 32 == 0 ? 32 : kAll - 32 * chunk;
  }

  RF_FN void load(Values& values, const Cursor& cursor) const {
    const Images& images = launch.of.images;
    const auto& strip = cursor.strip;
    const int chunk = cursor.chunk, left = channels_of(chunk), rows = cursor.rows();
    const int high0 = strip.high0 + Shape::High::kLeast + cursor.first;
    const int deep0 = strip.deep - W::Deep::kPadding, plane = images.high * images.wide;
    const Column mine = cursor.mine;
    // of volumes a chunk is of one plane, or its channels are of several
    constexpr bool kPlanes = W::kPlaces > 2 && W::kChannels % 32 != 0;
    const float* chunk_x = cursor.x;
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
    auto& v = values.of_place;
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
    const int beyond_row = lane() / kSegment, channel = lane() % kSegment;
#pragma unroll
    for (int i = 0; i < kRuns; i++) {
      const int p = beyond_place(i);
      const Column at = column_of(launch, strip, p);
      const bool here = p < Shape::kPixels && is_there(beyond_row, at);
      values.beyond[i] = here && channel < left ? value(channel, beyond_row, at) : 0.0f;
    }
  }

  // Scales, converts and lays them down. first: of their rows, of all so far.
  RF_FN void put(const Values& values, int first, int rows, int chunk) {
    constexpr unsigned kRange = S::Mode::kSplit ? 9 : 13;  // by so many powers of two a place may be darker than its row
    constexpr unsigned kInfinity = 0x7f800000u;
    const uint32_t full = shared_address(shared.full), empty = shared_address(shared.empty);
    const int beyond_row = lane() / kSegment, channel = lane() % kSegment;
    const int octets = min(4, Shape::kOctets - 4 * chunk);
    const auto& v = values.of_place;
    const auto& beyond = values.beyond;
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
      if (lane() == 0) range[b][warp()] = make_uint2(largest, least);
    }
    named_barrier_sync(kProducerBarrier + producer, kWarpgroupThreads);
#pragma unroll
    for (int b = 0; b < kBatch; b++) {
      if (b >= rows) break;
      const int slot = (first + b) % Shape::kSlots;
      unsigned largest = 0, least = ~0u;
#pragma unroll
      for (int i = 0; i < 4; i++) largest = max(largest, range[b][i].x), least = min(least, range[b][i].y);
      const bool alike = largest < kInfinity && (largest >> 23) - (min(largest, least) >> 23) <= kRange;
      // of a row a multiple of four, so that neighbouring rows mostly have the same: its largest is [2^11, 2^15) then
      const auto exponent = [&](float of) {
        return alike ? exponent_of_bits(largest) & ~3 : exponent_of_bits(__float_as_uint(of));
      };

      mbarrier_wait(empty + kMbarrierBytes * slot, ((first + b) / Shape::kSlots & 1) ^ 1);
      if (thread() == 0)
        shared.unscale_row[slot][chunk] = largest == 0 ? kAnyScale : alike ? power_of_two(-exponent(most[b])) : 0.0f;
      if (!alike) shared.unscale[slot][chunk][place()] = power_of_two(-exponent(most[b]));
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
        unsigned char* at = to + (o * Shape::kPixels + place()) * 16;
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
};

template <class S, class W>
RF_FN void produce_rows(const StripLaunch& launch, StripStorage<S, W>& shared, int group, int first_unit) {
  using Producer = Producer<S, W>;
  const int producer = threadIdx.x / kWarpgroupThreads;
  Producer p{launch, shared, producer};
  typename Producer::Cursor next(launch, group, first_unit);
  if constexpr (S::kProducers == 2) {
    if (producer == 1) next.advance();
#pragma unroll 1
    while (next.there()) {
      typename Producer::Values values;
      p.load(values, next);
      p.put(values, next.before, next.rows(), next.chunk);
      next.advance(), next.advance();
    }
  } else {  // what comes next is under way while values are converted
    typename Producer::Values one, other;
    const auto convert = [&](typename Producer::Values& here, typename Producer::Values& coming) {
      const int first = next.before, rows = next.rows(), chunk = next.chunk;
      next.advance();
      const bool more = next.there();
      if (more) p.load(coming, next);
      p.put(here, first, rows, chunk);
      return more;
    };
    p.load(one, next);
#pragma unroll 1
    while (convert(one, other) && convert(other, one)) {
    }
  }
}

}  // namespace rf
