// Convolution on Hopper, of stride 1: strips of rows, whose windows are not copied for each tap.
//
// Why: the implicit product (convolution_sm80.cuh) reads and converts each element once for each tap. Here a row of an
// image is converted once, and a tap is another address: a row in shared memory is [channel / 8][place][8 channels] of
// fp16, unswizzled, so that a shift by places is 16 bytes each on wgmma's descriptor, and a shift by rows another slot.
// The features' kernels stay in shared memory.
//
// Of fp32 class both sides are split in two (hi_lo_split.cuh), and three products make one; twice the kernels and rows
// lie in shared memory then, which fits few channels. Scales are found by the producers: for a row and 32 channels the
// power of 2^4 that takes the largest value to [2^11, 2^15). fp16 keeps all its bits of what is 2^25 smaller, so that
// this is enough where no place of the row is all too dark (kRange); else each place has a scale of its own. In TF32 class
// all products of a row of the result are one chain, scaled back at its end, where the rows that it meets have the same
// scale, as neighbours mostly do. Else the products of a row of taps (of fp32 class: of one tap) and 32 channels go to a
// short accumulator and are promoted multiplied by the row's inverse scale; of a row whose places have their own those of
// one tap, by the scales of the places it met.
//
// Roles of the 512 threads:
//   threads    role                                                       setmaxnreg   registers hold
//   0-255      two producers, alternating: load, scale, convert rows      72           32 values of a place
//   256-383    consumer warpgroup 0: wgmma, promotion, epilogue           184          64 sums, 64 of the next row
//   384-511    consumer warpgroup 1                                       184          the same
// Broad: a warpgroup has 64 of 128 features, both the same row of 128 places. Slim: both have the same 64 features, and
// every other row.
//
// Shared memory of a block (dynamic; bytes; of fp32 class weights and rows twice: hi, then lo):
//   weights    taps x channels x features x 2   [tap][channel / 8][feature][8]; channels are padded to 16 by zeros
//   rows       slots x channels x places x 2    slots modulo their number; places: 128 and what the taps reach beyond
//   unscale    slots x (channels / 32) x (places + 1) x 4   of the places; of all of a row, or 0, or kAnyScale
//   range      128 or 256                       the largest and the least value of each producer warp, of two batches
//   full, empty   8 each a slot                 mbarriers: 128 arrivals for each 32 channels; one of each consumer warp
//
// Timeline of a strip (3 x 3, Broad; slots of rows, numbers of rows):
//   producers     0 1 2 3 | wait for 0 to be empty, 4 | 5 ...
//   warpgroup 0      wait for 0 1 2 | wgmma of row 0 | release 0 | wait for 3 | wgmma of row 1, epilogue of 0 | release 1
//   warpgroup 1      the same: while one waits or promotes, the other's wgmmas keep the tensor cores busy
// Blocks stay, each with one tile of features, and take strip after strip: rows of one image and 128 columns.
//
// Where a row of the result does not start at a multiple of 16 bytes, its columns are shifted (StripLaunch::shifts): the
// tile begins up to kMargin places before them, so that all but the ends are stored 16 bytes at a time.
//
// Elements that are not finite are computed again as convolution_sm80.cuh does.
#pragma once
#include "strip_epilogue.cuh"
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

// What scales back the rows that a row of the result meets, where it is the same of all and their channels; else 0.
template <class S, class W> RF_FN float unscale_of_rows(const StripStorage<S, W>& shared, int row) {
  using Shape = StripShape<S, W>;
  float of_all = kAnyScale;
  bool alike = true;
#pragma unroll
  for (int high = 0; high < W::High::kKernel; high++)
#pragma unroll
    for (int chunk = 0; chunk < Shape::kChunks; chunk++) {
      const float of_row = shared.unscale_row[(row + high * W::High::kDilation) % Shape::kSlots][chunk];
      alike = alike && (of_row == kAnyScale || of_all == kAnyScale || of_row == of_all);
      of_all = of_row == kAnyScale ? of_all : of_row;
    }
  return !alike ? 0.0f : of_all == kAnyScale ? 1.0f : of_all;
}

// The products of all taps and channels by one chain of instructions. row: the first that is met; in TF32 class.
template <class S, class W>
RF_FN void multiply_rows(float (&acc)[64], uint32_t weights, uint32_t rows, int row, int shift) {
  using Shape = StripShape<S, W>;
  constexpr int kWide = W::Wide::kKernel;
  wgmma_fence();
#pragma unroll
  for (int high = 0; high < W::High::kKernel; high++) {
    const int slot = (row + high * W::High::kDilation) % Shape::kSlots;
    const uint32_t a_row = weights + high * kWide * Shape::kOctets * S::kTileRows * 16;
    const uint32_t b_row = rows + slot * Shape::kRowBytes + (kMargin - shift) * 16;
#pragma unroll
    for (int tap = 0; tap < kWide; tap++)
#pragma unroll
      for (int octet = 0; octet < Shape::kOctets; octet += 2)
        wgmma_plain(acc,
                    plain_descriptor(a_row + (tap * Shape::kOctets + octet) * S::kTileRows * 16, S::kTileRows * 16),
                    plain_descriptor(b_row + (octet * Shape::kPixels + tap * W::Wide::kDilation) * 16,
                                     Shape::kPixels * 16),
                    high + tap + octet != 0);
  }
  wgmma_commit_group();
}

// The sums of a row of the result, products promoted to them: of a row of taps (of fp32 class: of one tap) and a chunk of
// channels, or of one tap where places have scales of their own.
template <class S, class W>
RF_FN void multiply_and_promote(float (&acc)[64], float (&partial)[64], const StripStorage<S, W>& shared, uint32_t weights,
                                uint32_t rows, int row, int shift, int lane) {
  using Shape = StripShape<S, W>;
  constexpr int kWide = W::Wide::kKernel, kChunk = Shape::kChunkOctets;
  // Taps whose products are promoted together. Of fp32 class each by itself: three taps of 8 channels at a time were
  // measured to err 1.6 times as much as eager, one at a time as much.
  constexpr int kMost = S::Mode::kSplit ? 1 : 5, kAtOnce = kMost < kWide ? kMost : kWide;
#pragma unroll
  for (int i = 0; i < 64; i++) acc[i] = partial[i] = 0.0f;
#pragma unroll 1
  for (int high = 0; high < W::High::kKernel; high++) {
    const int slot = (row + high * W::High::kDilation) % Shape::kSlots;
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
            const int at = kChunk * chunk + octet, tap = tap0 + t, piece_a = term == 0, piece_b = term == 1;
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
    for (int chunk = 0; chunk < Shape::kOctets / kChunk; chunk++) add_chunk(Step<kChunk>{}, chunk);
    if constexpr (Shape::kOctets % kChunk != 0) add_chunk(Step<Shape::kOctets % kChunk>{}, Shape::kOctets / kChunk);
  }
}

template <class S, class Body>
RF_FN void consume_rows(const StripLaunch& launch, const Body& body,
                        StripStorage<S, typename Body::Window>& shared, int group, int feature0, int first_unit) {
  using W = typename Body::Window;
  using Shape = StripShape<S, W>;
  const ConvolutionLaunch& l = launch.of;
  const int warpgroup = __shfl_sync(kFullMask, threadIdx.x / kWarpgroupThreads, 0) - kProducers;  // known to be uniform
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int down = S::kMI == 2 ? 64 * warpgroup : 0;  // of the tile's features
  const uint32_t weights = shared_address(shared.weights) + down * 16, rows = shared_address(shared.rows);
  float unscale[2];  // of the features that this lane holds
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int feature = feature0 + down + 16 * warp + 8 * h + lane / 4;
    unscale[h] = feature < W::kFeatures ? l.unscale[group * W::kFeatures + feature] : 0.0f;
  }
  RowQueue<Shape::kSlots> queue{shared_address(shared.full), shared_address(shared.empty)};
  float sums[64];  // of the row that is stored next
#pragma unroll
  for (int i = 0; i < 64; i++) sums[i] = 0.0f;
#pragma unroll 1
  for (long unit = first_unit; unit < launch.units; unit += launch.blocks) {
    const Strip strip(launch, unit);
    const int all = strip.rows + Shape::kSpan - 1, first = S::kMI == 2 ? 0 : warpgroup;
    const auto place_of = [&](int row) { return (strip.high0 + row) * l.images.made_wide + strip.wide0; };
    const auto shift_of = [&](int row) { return launch.shifts ? place_of(row) % 4 : 0; };
    const auto finalize = [&](int row) {
      const int shift = shift_of(row);
      const int begin = strip.wide0 == 0 ? shift : 0, end = min(128, l.images.made_wide - strip.wide0 + shift);
      const RowOfResult at{strip.image, group, feature0 + down + 16 * warp, place_of(row) - shift, begin, end};
      constexpr bool kWhole = W::kFeatures % S::kTileRows == 0;
      if (__any_sync(kFullMask, !all_finite(sums))) repair_row<W>(l, sums, at, lane);
      if (l.in_fours) finalize_row<true, S::kMI == 1, kWhole>(l, body, sums, at, lane);
      else finalize_row<false, false, kWhole>(l, body, sums, at, lane);
    };
    queue.release(first, lane);
    const auto store_before = [&](int row) {
      if (row > first) finalize(row - S::kRowStep);
    };
    // A row is stored while the tensor cores multiply the next one, where that is one chain. Nothing but that chain may
    // give acc its values on the way: the assembler waits for the tensor cores where ways meet.
#pragma unroll 1
    for (int row = first;; row += S::kRowStep) {
      const bool there = row < strip.rows;
      float alike = 0.0f;
      if (there) {
        queue.wait(row + Shape::kSpan);
        if (!S::Mode::kSplit) alike = unscale_of_rows<S, W>(shared, queue.before + row);
      }
      if (!S::Mode::kSplit && alike != 0.0f) {
        float acc[64];
        multiply_rows<S, W>(acc, weights, rows, queue.before + row, shift_of(row));
        store_before(row);
        wgmma_wait_group<0>();
#pragma unroll
        for (int i = 0; i < 64; i++) sums[i] = acc[i] * (alike * unscale[i / 2 % 2]);
      } else {
        store_before(row);
        if (!there) break;
        float partial[64];
        multiply_and_promote<S, W>(sums, partial, shared, weights, rows, queue.before + row, shift_of(row), lane);
#pragma unroll
        for (int i = 0; i < 64; i++) sums[i] *= unscale[i / 2 % 2];
      }
      queue.release(min(row + S::kRowStep, all), lane);
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
      mbarrier_init(shared_address(&shared.full[i]), Shape::kChunks * kWarpgroupThreads);
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
  if (threadIdx.x < kProducers * kWarpgroupThreads) {
    setmaxnreg_dec<72>();
    produce_rows<S, W>(launch, shared, group, first_unit);
  } else {
    setmaxnreg_inc<184>();
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
