// Convolution on Hopper, of stride 1, or transposed: strips of rows, whose windows are not copied for each tap.
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
//   role                                                     setmaxnreg   registers hold
//   two producers, alternating: load, scale, convert rows    72, 80       32 values of a place
//   two consumer warpgroups: wgmma, promotion, epilogue      184, 176     64 sums, 64 of the next tile
// or, of Paired, where shared memory has room for the rows of three (consumers_of):
//   one producer                                             104          32 values of a place, 32 of the next
//   three consumer warpgroups                                136          40 sums, 40 of a short accumulator
// Warpgroups take tiles of rows round robin: 64 features of 128 places.
// Broad: 128 features, so that a row has two such tiles. Slim: 64. Joined: as Slim, and a tile has rows of two or four images
// next to each other, where they are short. Of two phases along the width it has 64 places of each, Paired: 40.
//
// Volumes: a row of the result meets rows of several planes. Those of one height are one row in shared memory, whose
// channels are (plane, channel); so a strip lies at one depth, and each row is converted once for each plane that meets it.
//
// Shared memory of a block (dynamic; bytes; of fp32 class weights and rows twice: hi, then lo):
//   weights    taps of a plane x channels x features x 2   [tap][channel / 8][feature][8]; channels padded to 16 by zeros.
//              Of up to 8 channels two taps next to each other are 16 products; an odd one's neighbour is zeros.
//   rows       slots x channels x places x 2    slots modulo their number; places: 128 and what the taps reach beyond
//   unscale    slots x (channels / 32) x (places + 1) x 4   of the places; of all of a row, or 0, or kAnyScale
//   range      128 to 512                       the largest and the least value of each producer warp, of two batches
//   stage      8 or 12 warps x 8 features x (32, 64 or 128 places + 8) x 4   by which a row goes from registers to memory
//   full, empty   8 each a slot                 mbarriers: 128 arrivals for each 32 channels; one of each consumer warp
//
// Timeline of a strip (3 x 3, Broad; slots of rows, numbers of rows):
//   producers     0 1 2 3 | wait for 0 to be empty, 4 | 5 ...
//   warpgroup 0      wait for 0 1 2 | wgmma of row 0 | release 0 | wait for 3 | wgmma of row 1, epilogue of 0 | release 1
//   warpgroup 1      the same: while one waits or promotes, the other's wgmmas keep the tensor cores busy
// Three consumers release rows before they store, while the others multiply.
// Blocks stay, each with one tile of features, and take strip after strip: rows of one image and 128 columns.
//
// Pooled (strip_pooled.cuh): a warpgroup has all rows of a window one after the other, and stores windows alone.
// Reduced over channels (strip_channels.cuh): a tile has all features, and stores a number a place.
// Statistics of channels (strip_statistics.cuh): beside what is stored, or alone.
//
// Where a row of the result does not start at a multiple of 16 bytes, its columns are shifted (StripLaunch::shifts): the
// tile begins up to kMargin places before them, so that all but the ends are stored 16 bytes at a time.
//
// Elements that are not finite are computed again as convolution_sm80.cuh does.
#pragma once
#include "strip_channels.cuh"
#include "strip_epilogue.cuh"
#include "strip_launch.cuh"
#include "strip_pooled.cuh"
#include "strip_products.cuh"
#include "strip_sectors.cuh"
#include "strip_statistics.cuh"

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
  // One after the other: of the rows of a window, each as soon as it is there.
  RF_FN void release_each(int until, int lane) {
    while (released < until) release(released + 1, lane);
  }
  RF_FN void next_strip() { before += seen, seen = released = 0; }
};

// What a warpgroup computes at a time: a phase of a row of places, of one of its tiles of places, of 64 of its features.
struct StripTile {
  int row, phase, along, half;
};

template <class S, class Body>
RF_FN void consume_rows(const StripLaunch& launch, const Body& body,
                        StripStorage<S, typename Body::Window>& shared, int group, int feature0, int first_unit) {
  using W = typename Body::Window;
  using Shape = StripShape<S, W>;
  constexpr int kTogether = Shape::kTogether, kPhases = Shape::High::kPhases, kTilesOfRow = Shape::kTilesOfRow;
  constexpr int kSums = Shape::kSums, kElements = Shape::kElements, kStep = S::kConsumers;
  constexpr bool kPooled = Body::kPoolHigh * Body::kPoolWide > 1;
  static_assert(!kPooled || (kPhases * kTogether == 1 && !S::kJoined && W::kPlaces <= 2), "windows of rows as they are");
  static_assert(!S::kSectors || !(kPooled || kReducesChannels<Body> || Body::kStatistics), "rows of the result as they are");
  static_assert(!kReducesChannels<Body> || (kTogether == 1 && !S::kJoined), "places of one row and phase");
  static_assert(!kReducesChannels<Body> || kTilesOfRow == 1 || kStep == 2, "two warpgroups have a row's features");
  static_assert(!Body::kStatistics || (kTogether == 1 && !S::kJoined && kStep == 2 && !kPooled && !kReducesChannels<Body>),
                "statistics of one image's rows as they are");
  const ConvolutionLaunch& l = launch.of;
  const int warpgroup = __shfl_sync(kFullMask, threadIdx.x / kWarpgroupThreads, 0) - S::kProducers;  // known to be uniform
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const uint32_t weights = shared_address(shared.weights), rows = shared_address(shared.rows);
  float unscale[S::kMI][2];  // of the features that this lane has
#pragma unroll
  for (int half = 0; half < S::kMI; half++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int feature = feature0 + 64 * half + 16 * warp + 8 * h + lane / 4;
      unscale[half][h] = feature < W::kFeatures ? l.unscale[group * W::kFeatures + feature] : 0.0f;
    }
  RowQueue<Shape::kSlots> queue{shared_address(shared.full), shared_address(shared.empty)};
  int side = 0;  // of the stages, where channels are reduced
  float sums[kSums];  // of the tile that is stored next
#pragma unroll
  for (int i = 0; i < kSums; i++) sums[i] = 0.0f;
#pragma unroll 1
  for (long unit = first_unit; unit < launch.units; unit += launch.blocks) {
    const Strip<S, W> strip(launch, unit);
    const int all = strip.rows + Shape::kSpan - 1;
    // Tiles of rows, or of rows of windows, that warpgroups take round robin; of a row by halves of its features first.
    const auto tile_of = [&](int item) {
      const int of_row = item % kTilesOfRow;
      return StripTile{item / kTilesOfRow, 0, of_row / S::kMI, of_row % S::kMI};
    };
    const auto high_of = [&](const StripTile& t) { return (strip.high0 + t.row) * kPhases + t.phase; };
    const auto wide_of = [&](const StripTile& t) { return strip.wide0 * kTogether + kElements * t.along; };
    const auto place_of = [&](const StripTile& t) {
      const int down = W::kPlaces > 2 ? strip.deep * l.images.made_high + high_of(t) : high_of(t);
      return down * l.images.made_wide + wide_of(t);
    };
    const auto shift_of = [&](const StripTile& t) { return launch.shifts ? place_of(t) % 4 : 0; };
    const auto is_empty = [&](const StripTile& t) {  // of an image's last places not all phases are there
      if constexpr (kPhases * kTogether == 1) return false;
      return high_of(t) >= l.images.made_high || wide_of(t) - shift_of(t) >= l.images.made_wide;
    };
    const auto row_of = [&](const StripTile& t) {
      const int shift = shift_of(t), begin = wide_of(t) == 0 ? shift : 0;
      const int end = min(kElements, l.images.made_wide - wide_of(t) + shift);
      return RowOfResult{strip.image, group, feature0 + 64 * t.half + 16 * warp, place_of(t) - shift, begin, end};
    };
    const auto joined_of = [&](long image) {
      if constexpr (S::kJoined) return JoinedImages{launch.pitch_log, launch.count - static_cast<int>(image)};
      else return OneImage{};
    };
    // Of two phases before the next products are under way, whose sums are in registers, too (file 2: 1523 us behind them,
    // 1087 before); else, where registers suffice, meanwhile (8 -> 64 channels in fp32: 465 before, 392).
    constexpr bool kRepairsFirst = kTogether == 2 && S::kStoresLater;
    const auto repair = [&](const StripTile& t, bool now) {
      if (now && __any_sync(kFullMask, !all_finite(sums)))
        repair_row<W, kTogether>(l, sums, row_of(t), joined_of(strip.image), lane);
    };
    StripStatistics statistics;
    const auto finalize = [&](const StripTile& t) {
      if (is_empty(t)) return;
      constexpr bool kWhole = W::kFeatures % S::kTileRows == 0;
      if constexpr (!kWhole && !kReducesChannels<Body>)  // whose warps wait for each other
        if (feature0 + 64 * t.half + 16 * warp >= W::kFeatures) return;
      repair(t, !kRepairsFirst);
      auto& stage = shared.stage[4 * warpgroup + warp];
      const RowOfResult at = row_of(t);
      const auto joined = joined_of(strip.image);
      if constexpr (kReducesChannels<Body>) {
        reduce_row<S>(l, body, sums, at, shared.stage, side, warpgroup, warp, lane);
        side ^= 1;
      } else if constexpr (Body::kStatistics) {
        if (l.in_fours) statistics.add_row<true, kWhole>(l, body, sums, at, joined, lane);
        else statistics.add_row<false, kWhole>(l, body, sums, at, joined, lane);
        if constexpr (Body::kStoresValues) {
          const Computed<Body> computed{body};
          if (l.in_fours) finalize_row<true, kWhole>(l, computed, sums, at, joined, stage, lane);
          else finalize_row<false, kWhole>(l, computed, sums, at, joined, stage, lane);
        }
      } else if constexpr (S::kSectors) {
        const bool apart = launch.step == Shape::kStripPlaces;  // tiles that do not overlap
        const TileOfRow tile{apart || wide_of(t) == 0, apart || wide_of(t) + kElements >= l.images.made_wide};
        if (!l.aligned) finalize_row<false, kWhole>(l, body, sums, at, joined, stage, lane);
        else if (has_pairs(l)) store_sectors<true, kWhole>(l, body, sums, at, tile, stage, lane);
        else store_sectors<false, kWhole>(l, body, sums, at, tile, stage, lane);
      } else if constexpr (kTogether == 2) {
        if (l.in_fours) finalize_pairs<true, kWhole>(l, body, sums, at, lane);
        else finalize_pairs<false, kWhole>(l, body, sums, at, lane);
      } else {
        if (l.in_fours) finalize_row<true, kWhole>(l, body, sums, at, joined, stage, lane);
        else finalize_row<false, kWhole>(l, body, sums, at, joined, stage, lane);
      }
    };
    // The sums of a tile. meanwhile: what is done while the tensor cores multiply, where that is one chain. Nothing but that
    // chain may give acc its values on the way: the assembler waits for the tensor cores where ways meet.
    const auto compute = [&](auto phase, const StripTile& t, bool has_row, const auto& meanwhile) {
      const bool there = has_row && !is_empty(t);
      const int place = kMargin - shift_of(t) / kTogether + Shape::kTilePlaces * t.along;
      const uint32_t of_half = weights + (S::kMI == 2 ? 64 * 16 * t.half : 0);
      const auto unscale_of = [&](int h) { return one_of(t.half != 0, unscale[S::kMI - 1][h], unscale[0][h]); };
      float alike = 0.0f;
      if (there && !S::Mode::kSplit) alike = unscale_of_rows<S, W, phase.index>(shared, queue.before + t.row);
      if (!S::Mode::kSplit && alike != 0.0f) {
        float acc[kSums];
        if (Shape::kHasEmpty)
#pragma unroll
          for (int i = 0; i < kSums; i++) acc[i] = 0.0f;
        multiply_rows<S, W, phase.index>(acc, of_half, rows, queue.before + t.row, place);
        meanwhile();
        wgmma_wait_group<0>();
#pragma unroll
        for (int i = 0; i < kSums; i++) sums[i] = acc[i] * (alike * unscale_of(i / 2 % 2));
      } else {
        meanwhile();
        if (!there) return;
        float partial[kSums];
        multiply_and_promote<S, W, phase.index>(sums, partial, shared, of_half, rows, queue.before + t.row, place, lane);
#pragma unroll
        for (int i = 0; i < kSums; i++) sums[i] *= unscale_of(i / 2 % 2);
      }
      repair(t, kRepairsFirst);
    };
    const auto nothing = [] {};
    if constexpr (kPooled) {
      constexpr int kHigh = Body::kPoolHigh;  // rows of a window, one after the other
      PooledRow<Body> pooled;
      queue.release_each(min(tile_of(warpgroup).row * kHigh, all), lane);
#pragma unroll 1
      for (int item = warpgroup; tile_of(item).row * kHigh < strip.rows; item += kStep) {
        const StripTile window = tile_of(item);
        const int row0 = window.row * kHigh, next = tile_of(item + kStep).row * kHigh;
        pooled.clear();
#pragma unroll 1
        for (int row = row0; row < row0 + kHigh; row++) {
          const StripTile t{row, 0, window.along, window.half};
          queue.wait(row + Shape::kSpan);
          compute(Step<0>{}, t, true, nothing);
          queue.release_each(min(row + 1 == row0 + kHigh ? next : min(row + 1, next), all), lane);
          repair(t, true);
          values_of_row(l, body, sums, row_of(t), lane);
          pooled.join(sums);
        }
        constexpr bool kWhole = W::kFeatures % S::kTileRows == 0;
        store_windows<kWhole>(body, pooled, row_of(StripTile{row0, 0, 0, window.half}), (strip.high0 + row0) / kHigh,
                              strip.wide0, shared.stage[4 * warpgroup + warp], lane);
      }
      queue.release_each(all, lane);
      queue.next_strip();
      continue;
    }
    queue.release_each(min(tile_of(warpgroup).row, all), lane);
    StripTile before{};  // the tile whose sums are stored next, if there is one
    bool has_before = false;
#pragma unroll 1
    for (int item = warpgroup;; item += kStep) {
      const StripTile first = tile_of(item);
      const bool there = first.row < strip.rows;
      if (there) queue.wait(first.row + Shape::kSpan);
      else if (!S::kStoresLater) break;
      for_steps<kPhases>([&](auto phase) {
        if (!there && phase.index != 0) return;
        const StripTile t{first.row, phase.index, first.along, first.half};
        if constexpr (S::kStoresLater) {
          compute(phase, t, there, [&] {
            if (has_before) finalize(before);
          });
          before = t, has_before = true;
        } else {
          compute(phase, t, true, nothing);
          if (phase.index == kPhases - 1) queue.release(min(tile_of(item + kStep).row, all), lane);
          finalize(t);
        }
      });
      if (!there) break;
      if (S::kStoresLater) queue.release(min(tile_of(item + kStep).row, all), lane);
    }
    queue.release(all, lane);
    queue.next_strip();
    if constexpr (Body::kStatistics) {
      const long which = unit % launch.strips_of_image * S::kWriters + (S::kMI == 1 ? warpgroup : 0);
      const long pitch = launch.strips_of_image * S::kWriters, channels = long(W::kGroups) * W::kFeatures;
      float4* to = l.statistics + (strip.image * channels + long(group) * W::kFeatures) * pitch + which;
      statistics.template store<W>(to, pitch, feature0 + (S::kMI == 2 ? 64 * warpgroup : 0) + 16 * warp, lane);
    }
  }
  if constexpr (S::kSectors) bulk_wait();
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
      mbarrier_init(shared_address(&shared.empty[i]), 4 * S::kConsumers);
    }
    fence_mbarrier_init();
  }
  wait_on_dependent_grids();
  look_in_first_block(body);
  load_kernels<S, W>(launch.of, shared.weights, group, feature0);
  fence_proxy_async();
  __syncthreads();
  launch_dependent_grids();
  if (threadIdx.x < S::kProducers * kWarpgroupThreads) {
    setmaxnreg_dec<S::kProducerRegisters>();
    produce_rows<S, W>(launch, shared, group, first_unit);
  } else {
    setmaxnreg_inc<S::kConsumerRegisters>();
    consume_rows<S>(launch, body, shared, group, feature0, first_unit);
  }
}

template <class M, class Tile, class Body>
Error run_convolution(Strips<M, Tile> strips, const Body& body, const ConvolutionLaunch& of, long count,
                      const Device& device, cudaStream_t stream) {
  using W = typename Body::Window;
  using S = ChosenStrips<Strips<M, Tile>, Body>;
  if (device.major != 9)
    return error("the device has compute capability %d.%d; this kernel is for 9.0", device.major, device.minor);
  const StripLaunch l = strip_launch_of<Body>(strips, of, count, device);
  static std::atomic<uint64_t> allowed{0};
  constexpr size_t shared = sizeof(StripStorage<S, W>);
  static_assert(shared <= 232448, "more shared memory than a block of Hopper can have");
  auto* kernel = convolution_strips<S, Body>;
  RF_TRY(allow_shared(kernel, shared, device, allowed));
  const int tiles = W::kGroups * of.feature_tiles;
  return launch(kernel, static_cast<unsigned>(l.blocks) * tiles, S::kThreads, shared, stream, LaunchMode::overlapping,
                "launching the convolution", l, body);
}

// As `convolution`; the body is given the statistics of each channel of an image, too.
template <class S, class Body>
Error convolution_statistics(const Body& body, const float* x, const float* w, void* packed, long count, long deep,
                             long high, long wide, long places, bool aligned, const Workspace& work, cudaStream_t stream) {
  using W = typename Body::Window;
  if (count == 0 || places == 0) return nullptr;
  Device device;
  RF_TRY(current_device(device));
  ConvolutionLaunch l{};
  RF_TRY((convolution_launch_of<S, W>(l, x, w, packed, count, deep, high, wide, places, aligned)));
  l.statistics = static_cast<float4*>(work.scratch);
  RF_TRY(run_convolution(S{}, body, l, count, device, stream));
  const long channels = count * W::kGroups * W::kFeatures;
  unsigned grid;
  RF_TRY(grid_of(blocks_of(channels, kStatisticsThreads / 32), grid));
  const long partials = strip_launch_of<Body>(S{}, l, count, device).strips_of_image * S::kWriters;
  return launch(merge_statistics<Body>, grid, kStatisticsThreads, 0, stream, LaunchMode::overlapping,
                "launching the end of statistics", body, static_cast<const float4*>(l.statistics), channels,
                static_cast<int>(partials));
}

template <class S, class Body>
Error statistics_workspace_size(WorkspaceSize& size, long count, long deep, long high, long wide, long places) {
  using W = typename Body::Window;
  if (count == 0 || places == 0) return nullptr;
  Device device;
  RF_TRY(current_device(device));
  for (const bool aligned : {false, true}) {
    ConvolutionLaunch l{};
    RF_TRY((convolution_launch_of<S, W>(l, nullptr, nullptr, nullptr, count, deep, high, wide, places, aligned)));
    const long partials = strip_launch_of<Body>(S{}, l, count, device).strips_of_image * S::kWriters;
    const size_t bytes = sizeof(float4) * static_cast<size_t>(count * W::kGroups * W::kFeatures * partials);
    if (bytes > size.scratch) size.scratch = bytes;
  }
  return nullptr;
}

}  // namespace rf
