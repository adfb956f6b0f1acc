// A row of a strip's result, from registers to memory by whole sectors, for convolution_strips.cuh: of wide rows that start
// anywhere.
//
// Why: memory is written in sectors of 32 bytes, and to write some bytes of one costs more than to write all. Of rows of 1022
// places, which begin in the middle of a sector, an H100 took 5700 us, of 1024 places 3800 (level 1's 63 of KernelBench).
// Where a sector begins is another place of each feature's row. So tiles overlap by a sector: a tile has 128 places, and of a
// feature the 120 from its first whole sector on are stored. What is left at the ends of an image's row is stored by elements.
//
// A warp lays its features down in shared memory, each as far behind a sector's begin as it is in memory, and goes on with
// the next products; TMA takes the sectors from there.
//
// Shared memory: Stage (strip_rows.cuh), of 16 features of each warp. Registers of a thread: 64 values of the row.
#pragma once
#include "strip_epilogue.cuh"
#include "strip_rows.cuh"

namespace rf {

// Whether every row, of the result and of what is read with it, begins at a multiple of 8 bytes.
RF_FN bool has_pairs(const ConvolutionLaunch& l) {
  return l.aligned && l.images.places % 2 == 0 && l.images.made_wide % 2 == 0;
}

// Whether a tile is the first, and the last, of its row; of tiles that do not overlap each is both.
struct TileOfRow { bool first, last; };

// A row of a strip's result, 16 features of a warp. kPairs: has_pairs. kWhole: no tile has features that there are not. acc:
// scaled back.
template <bool kPairs, bool kWhole, class Body, class Stage>
RF_FN void store_sectors(const ConvolutionLaunch& l, const Body& body, float (&acc)[64], const RowOfResult& at,
                         const TileOfRow& tile, Stage& stage, int lane) {
  using W = typename Body::Window;
  constexpr long kChannels = long(W::kGroups) * W::kFeatures;
  constexpr int kPlaces = Stage::kCols - kSector;  // of a tile between others, that are stored
  const auto row_of = [&](int which) {  // of the warp's 16 features
    const int feature = at.feature0 + which;
    return at.image * kChannels + at.group * W::kFeatures + (kWhole ? feature : min(feature, W::kFeatures - 1));
  };
  const auto lead_of = [&](long row) {  // elements of its sector before the tile's first
    return static_cast<int>((unsigned(row) * unsigned(l.images.places) + unsigned(at.place)) % kSector);
  };
  const auto next_sector = [](int column) { return (column + kSector - 1) / kSector * kSector; };
  values_of_pairs<kPairs, kWhole>(l, body, acc, at, OneImage{}, lane);
  bulk_wait_read();
  __syncwarp();  // what was laid down before has been read
#pragma unroll
  for (int h = 0; h < 2; h++) {  // of eight features
    const int which = 8 * h + lane / 4;
    float* to = stage.at[which] + lead_of(row_of(which)) + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < 16; j++) {  // of eight places
      const float first = acc[4 * j + 2 * h], second = acc[4 * j + 2 * h + 1];
      if constexpr (kPairs) *reinterpret_cast<float2*>(to + 8 * j) = make_float2(first, second);
      else to[8 * j] = first, to[8 * j + 1] = second;
    }
  }
  fence_proxy_async();
  __syncwarp();
  // A feature a lane: its sectors, and the elements before them; the lane 16 further: the elements behind them.
  const int which = lane % 16;
  const long row = row_of(which);
  const int lead = lead_of(row), whole = next_sector(lead);
  const int begin = tile.first ? lead + at.begin : whole, end = tile.last ? lead + at.end : whole + kPlaces;
  const int from = next_sector(begin), to = end / kSector * kSector;
  const float* staged = stage.at[which];
  float* result = body.row_of_result(row) + (at.place - lead);
  if (kWhole || at.feature0 + which < W::kFeatures) {
    if (lane < 16 && from < to) bulk_store(result + from, shared_address(staged + from), 4 * (to - from));
    const int left = lane < 16 ? begin : max(from, to), right = lane < 16 ? min(from, end) : end;
#pragma unroll
    for (int e = 0; e < kSector - 1; e++)
      if (left + e < right) result[left + e] = staged[left + e];
  }
  bulk_commit();
}

}  // namespace rf
