// Convolution on Hopper, of stride 1: strips of rows, whose windows are not copied for each tap.
//
// Why: the implicit product (convolution_sm80.cuh) reads and converts each element once for each tap. Here a row of an
// image is converted once, and a tap is another address: a row in shared memory is [channel / 8][place][8 channels] of
// fp16, unswizzled, so that a shift by places is 16 bytes each on wgmma's descriptor, and a shift by rows another slot.
// The features' kernels stay in shared memory.
//
// Of fp32 class both sides are split in two (hi_lo_split.cuh), and three products make one; twice the kernels and rows
// lie in shared memory then, which fits few channels. Scales are found by the producer: for a row and 64 channels the
// power of two that takes the largest value to [2^14, 2^15). fp16 keeps all its bits of what is 2^29 smaller, so that
// this is enough where no place of the row is all too dark (kRange); else each place has a scale of its own. The products
// of a row of taps (of fp32 class: of one tap) and 64 channels go to a short accumulator and are promoted multiplied by
// the row's inverse scale; of a row whose places have their own those of one tap, by the scales of the places it met.
//
// Roles of the 384 threads:
//   threads    role                                                       setmaxnreg   registers hold
//   0-127      producer: loads, scales and converts rows                  120          64 values of a place
//   128-255    consumer warpgroup 0: wgmma, promotion, epilogue           192          64 accumulators, 64 short ones
//   256-383    consumer warpgroup 1                                       192          the same
// Broad: a warpgroup has 64 of 128 features, both the same row of 128 places. Slim: both have the same 64 features, and
// every other row.
//
// Shared memory of a block (dynamic; bytes; of fp32 class weights and rows twice: hi, then lo):
//   weights    taps x channels x features x 2   [tap][channel / 8][feature][8]; channels are padded to 16 by zeros
//   rows       slots x channels x places x 2    slots modulo their number; places: 128 and what the taps reach beyond
//   staging    10240                            of each consumer warp, 8 features by 32 places of a result's tile
//   unscale    slots x (channels / 64) x (places + 1) x 4   of the places; of all of a row, or 0
//   range      64                               the largest and the least value of each producer warp, of two rows
//   full, empty   8 each a slot                 mbarriers: 128 arrivals of producers; one of each consumer warp
//
// Timeline of a strip (3 x 3, Broad; slots of rows, numbers of rows):
//   producer      0 1 2 3 | wait for 0 to be empty, 4 | 5 ...
//   warpgroup 0      wait for 0 1 2 | 9 taps: wgmma, promote | release 0 | epilogue | wait for 3 | 9 taps ...
//   warpgroup 1      the same: while one promotes or stores, the other's wgmmas keep the tensor cores busy
// Blocks stay, each with one tile of features, and take strip after strip: rows of one image and 128 columns.
//
// Where a row of the result does not start at a multiple of 16 bytes, its columns are shifted (StripLaunch::shifts): the
// tile begins up to kMargin places before them, so that all but the ends are stored 16 bytes at a time.
//
// Elements that are not finite are computed again as convolution_sm80.cuh does.
#pragma once
#include "strip_rows.cuh"

namespace rf {

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

// A row of a strip's result, 16 features of a warp: eight of them by 32 places at a time, laid out by the lanes that hold
// them and finished by all. kWhole: no tile has features that there are not. acc: scaled back. place: where the first of
// the 128 lies in a result; those from `begin` to `end` are places of the row.
template <bool InFours, bool kWhole, class Body>
RF_FN void finalize_row(const ConvolutionLaunch& l, const Body& body, float (&acc)[64],
                        float (&staging)[8][kStagingPitch], long image, int group, int feature0, int place, int begin,
                        int end, int lane) {
  using W = typename Body::Window;
  constexpr int kEach = InFours ? 4 : 1, kAcross = 32 / kEach;  // lanes that share 32 places of a feature
  constexpr long kChannels = long(W::kGroups) * W::kFeatures;
  const bool finite = !__any_sync(kFullMask, !all_finite(acc));
#pragma unroll 1
  for (int eighth = 0; eighth < 8; eighth++) {
    const int first = eighth % 4 * 32 + lane % kAcross * kEach;  // of the lane's places
#pragma unroll
    for (int e = 0; e < 8; e++)
      if (e == eighth) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const float* x = &acc[16 * (e % 4) + 4 * j + 2 * (e / 4)];
          *reinterpret_cast<float2*>(&staging[lane / 4][8 * j + 2 * (lane % 4)]) = make_float2(x[0], x[1]);
        }
      }
    __syncwarp();
    if (!finite) {
#pragma unroll 1
      for (int r = 0; r < 8; r++) {
        const int feature = feature0 + 8 * (eighth / 4) + r, at = eighth % 4 * 32 + lane;
        float v[1] = {staging[r][lane]};
        repair<W>(v, l, group, group * W::kFeatures + feature, image * l.images.places + place + at,
                  at >= begin && at < end && feature < W::kFeatures, lane);
        staging[r][lane] = v[0];
      }
      __syncwarp();
    }
    const auto of_step = [&](int step, auto use) {
      const int r = step * kEach + lane / kAcross, feature = feature0 + 8 * (eighth / 4) + r;
      const bool mine = kWhole || feature < W::kFeatures;
      const int channel = group * W::kFeatures + (mine ? feature : W::kFeatures - 1);
      use(step, &staging[r][lane % kAcross * kEach], image * kChannels + channel, channel, mine);
    };
    if (first >= begin && first + kEach <= end) {
      const Position<kEach> at{place + first};
      Values<kEach> v[8 / kEach];
#pragma unroll
      for (int step = 0; step < 8 / kEach; step++)
        of_step(step, [&](int t, const float* from, long row, int channel, bool) {
          v[t] = body.value(at.read(from), row, channel, at.col);
        });
#pragma unroll
      for (int step = 0; step < 8 / kEach; step++)
        of_step(step, [&](int t, const float*, long row, int, bool mine) {
          if (mine) body.store(row, at.col, v[t]);
        });
    } else if (kEach > 1 && first + kEach > begin && first < end) {  // an end of a row
#pragma unroll 1
      for (int step = 0; step < 8 / kEach; step++)
#pragma unroll 1
        for (int e = 0; e < kEach; e++)
          of_step(step, [&](int, const float* from, long row, int channel, bool mine) {
            const int col = place + first + e;
            if (mine && first + e >= begin && first + e < end)
              body.store(row, col, body.value(from[e], row, channel, col));
          });
    }
    __syncwarp();
  }
}

template <class S, class Body>
RF_FN void consume_rows(const StripLaunch& launch, const Body& body,
                        StripStorage<S, typename Body::Window>& shared, int group, int feature0, int first_unit) {
  using W = typename Body::Window;
  using Shape = StripShape<S, W>;
  constexpr int kWide = W::Wide::kKernel;
  // Taps whose products are promoted together. Of fp32 class each by itself: three taps of 8 channels at a time were
  // measured to err 1.6 times as much as eager, one at a time as much.
  constexpr int kMost = S::Mode::kSplit ? 1 : 5, kAtOnce = kMost < kWide ? kMost : kWide;
  const int warpgroup = __shfl_sync(kFullMask, threadIdx.x / kWarpgroupThreads, 0) - 1;  // known to be uniform
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int down = S::kMI == 2 ? 64 * warpgroup : 0;  // of the tile's features
  const uint32_t weights = shared_address(shared.weights) + down * 16, rows = shared_address(shared.rows);
  auto& staging = shared.staging[4 * warpgroup + warp];
  float unscale[2];  // of the features that this lane holds
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int feature = feature0 + down + 16 * warp + 8 * h + lane / 4;
    unscale[h] = feature < W::kFeatures ? launch.of.unscale[group * W::kFeatures + feature] : 0.0f;
  }
  RowQueue<Shape::kSlots> queue{shared_address(shared.full), shared_address(shared.empty)};
#pragma unroll 1
  for (long unit = first_unit; unit < launch.units; unit += launch.blocks) {
    const Strip strip(launch, unit);
    const int all = strip.rows + Shape::kSpan - 1, first = S::kMI == 2 ? 0 : warpgroup;
    queue.release(first, lane);
#pragma unroll 1
    for (int row = first; row < strip.rows; row += S::kRowStep) {
      queue.wait(row + Shape::kSpan);
      const int place0 = (strip.high0 + row) * launch.of.images.made_wide + strip.wide0;
      const int shift = launch.shifts ? place0 % 4 : 0;
      float acc[64], partial[64];
#pragma unroll
      for (int i = 0; i < 64; i++) acc[i] = partial[i] = 0.0f;
#pragma unroll 1
      for (int high = 0; high < W::High::kKernel; high++) {
        const int slot = (queue.before + row + high * W::High::kDilation) % Shape::kSlots;
        const uint32_t a_row = weights + high * kWide * Shape::kOctets * S::kTileRows * 16;
        const uint32_t b_row = rows + slot * Shape::kRowBytes + (kMargin - shift) * 16;
        const auto multiply = [&](int tap0, auto taps, auto octets, int chunk) {  // so many taps, octets of a chunk
          wgmma_fence();
          // the small products first: tensor cores cut what they add off, by the size of the sum so far
#pragma unroll
          for (int term = S::Mode::kSplit ? 0 : 2; term < 3; term++)
#pragma unroll
            for (int t = 0; t < taps.index; t++)
#pragma unroll
              for (int octet = 0; octet < octets.index; octet += 2) {
                const int at = 8 * chunk + octet, tap = tap0 + t, piece_a = term == 0, piece_b = term == 1;
                const bool first = term == (S::Mode::kSplit ? 0 : 2) && t == 0 && octet == 0;
                wgmma_plain(partial,
                            plain_descriptor(a_row + piece_a * Shape::kWeightPiece +
                                                 (tap * Shape::kOctets + at) * S::kTileRows * 16,
                                             S::kTileRows * 16),
                            plain_descriptor(b_row + piece_b * Shape::kRowPiece +
                                                 (at * Shape::kPixels + tap * W::Wide::kDilation) * 16,
                                             Shape::kPixels * 16),
                            !first);
              }
          wgmma_commit_group();
          wgmma_wait_group<0>();
        };
        const auto add_chunk = [&](auto octets, int chunk) {
          const float of_row = shared.unscale_row[slot][chunk];
          const auto promote = [&] {
#pragma unroll
            for (int i = 0; i < 64; i++) acc[i] = fmaf(partial[i], of_row, acc[i]);
          };
          if (of_row != 0.0f) {
#pragma unroll 1
            for (int tap = 0; tap + kAtOnce <= kWide; tap += kAtOnce) {
              multiply(tap, Step<kAtOnce>{}, octets, chunk);
              promote();
            }
            if constexpr (kWide % kAtOnce != 0) {
              multiply(kWide - kWide % kAtOnce, Step<kWide % kAtOnce>{}, octets, chunk);
              promote();
            }
          } else {
#pragma unroll 1
            for (int tap = 0; tap < kWide; tap++) {
              multiply(tap, Step<1>{}, octets, chunk);
              const int first = tap * W::Wide::kDilation + kMargin - shift + 2 * (lane % 4);
              const float* of_place = shared.unscale[slot][chunk] + first;
#pragma unroll
              for (int i = 0; i < 64; i++) acc[i] = fmaf(partial[i], of_place[8 * (i / 4) + i % 2], acc[i]);
            }
          }
        };
#pragma unroll 1
        for (int chunk = 0; chunk < Shape::kOctets / 8; chunk++) add_chunk(Step<8>{}, chunk);
        if constexpr (Shape::kOctets % 8 != 0) add_chunk(Step<Shape::kOctets % 8>{}, Shape::kOctets / 8);
      }
      queue.release(min(row + S::kRowStep, all), lane);

      const ConvolutionLaunch& l = launch.of;
#pragma unroll
      for (int i = 0; i < 64; i++) acc[i] *= unscale[i / 2 % 2];
      const int begin = strip.wide0 == 0 ? shift : 0, end = min(128, l.images.made_wide - strip.wide0 + shift);
      const int first_feature = feature0 + down + 16 * warp, place = place0 - shift;
      constexpr bool kWhole = W::kFeatures % S::kTileRows == 0;
      if (l.in_fours) finalize_row<true, kWhole>(l, body, acc, staging, strip.image, group, first_feature, place, begin, end, lane);
      else finalize_row<false, kWhole>(l, body, acc, staging, strip.image, group, first_feature, place, begin, end, lane);
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
  const int wide = of.images.made_wide, most_shift = wide % 4 == 0 ? 0 : wide % 2 == 0 ? 2 : kMargin;
  l.columns = static_cast<int>(blocks_of(wide, 128));
  l.of.in_fours = of.in_fours && blocks_of(wide + most_shift, 128) == l.columns;
  l.shifts = l.of.in_fours && most_shift != 0;
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
