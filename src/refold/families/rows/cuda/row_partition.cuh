// Row partition: which threads hold, or pass over, which units of a row; from the sizes alone.
//
// Why: a load of a warp should touch few lines of the L1. Eight lanes of four columns fill a
// line; of lanes of one, in rows that start anywhere, it takes a whole warp. So these go along the row first,
// and a thread has several units, or several rows, only so that enough loads are in flight.
#pragma once
#include "device.cuh"
#include "lanes.cuh"

namespace rf {

constexpr int kRowThreads = 256, kMostThreadsPerRow = 512, kMostThreadsPerHeldRow = 1024;
constexpr long kMultiBlockWidth = 8192, kMultiBlockBlocks = 1 << 14;  // by pass: of a block at least; blocks about
constexpr long kMultiBlockFrom = 8 * kMultiBlockWidth, kMultiBlockRows = 2048;  // rows as wide, and as few, are split
constexpr long kThreadsToSaturate = 1 << 17;                                // threads that keep memory busy
template <class V> constexpr int kBatch = LanesOf<V>::count == 4 ? 4 : 8;  // units in flight in a thread

// How rows of up to `most` units are held: so many units of each of so many rows in a thread, and so many
// threads a row. 0: as few as suffice. A number is known to the compiler: addresses then differ by constants,
// shuffles need no loop, and no division finds a thread's row.
struct ResidentShape {
  int rows, units, threads;
  long most;
};
// The shorter rows first. longest: that is held at all; cramped: by threads that read or keep more than a value of an
// element; once: if one pass alone reads it; block: its threads.
template <class V> struct ResidentShapes;
template <> struct ResidentShapes<Vec4> {
  static constexpr ResidentShape of[] = {
      {2, 2, 0, 8}, {1, 4, 0, kMostThreadsPerRow * 4}, {1, 8, 0, kMostThreadsPerHeldRow * 8}};
  static constexpr long longest = kMostThreadsPerHeldRow * 8, cramped = kMostThreadsPerRow * 4, once = 32;
  static constexpr int block = kMostThreadsPerHeldRow;
};
// A row fills more than half of what its threads can hold, so the first half of each one's units need no test.
template <> struct ResidentShapes<Real> {
  static constexpr ResidentShape of[] = {
      {4, 2, 0, 8},    {4, 2, 8, 16},   {4, 2, 16, 32},    {4, 2, 32, 64}, {2, 4, 32, 128},
      {1, 8, 32, 256}, {1, 8, 64, 512}, {1, 8, 128, 1024}, {1, 16, 0, kRowThreads * 16},
  };
  static constexpr long longest = kRowThreads * 16, cramped = longest, once = 1024;
  static constexpr int block = kRowThreads;
};

// How a space is partitioned.
template <class V> struct RowPartition {
  enum Strategy { register_resident, warps_per_row, multi_block } strategy;
  int shape = 0;        // of Holds<V>
  long units, chunks;  // of a row
  long chunk_width;    // a chunk's columns
  int threads = 0;     // of a row: lanes of a warp, or whole warps
  // again: whether a row is read by more than one pass. roomy: whether threads read and keep one value of an element.
  constexpr RowPartition(long rows, long width, bool again, bool roomy)
      : strategy(register_resident), units(width / LanesOf<V>::count), chunks(0),
        chunk_width(kMultiBlockWidth * blocks_of(blocks_of(width, kMultiBlockWidth) * rows + 1, kMultiBlockBlocks)) {
    chunks = blocks_of(width, chunk_width);
    if ((rows <= kMultiBlockRows && width >= kMultiBlockFrom) || units > INT32_MAX / 2)
      strategy = multi_block, threads = kRowThreads;
    else if (units == 0) strategy = warps_per_row, threads = 32;
    else if (units <= (!again ? ResidentShapes<V>::once : roomy ? ResidentShapes<V>::longest : ResidentShapes<V>::cramped))
      strategy = register_resident, threads = threads_if_resident();
    else strategy = warps_per_row, threads = threads_per_row(rows);
  }
  constexpr int rows_of_thread() const { return strategy == register_resident ? ResidentShapes<V>::of[shape].rows : 1; }
  // As few lanes as hold a row, or as few warps.
  constexpr int threads_if_resident() {
    while (units > ResidentShapes<V>::of[shape].most) shape++;
    const int each = ResidentShapes<V>::of[shape].units, known = ResidentShapes<V>::of[shape].threads;
    if (known) return known;
    const long lanes = covering_power_of_two(blocks_of(units, each));
    return int(lanes < 32 ? lanes : 32 * blocks_of(units, 32 * each));
  }
  // Whole batches a thread: two where there are threads enough without a third.
  constexpr int threads_per_row(long rows) const {
    constexpr int batch = kBatch<V>;
    const auto threads_of = [&](long batches) { return 32 * blocks_of(units, 32 * batch * batches); };
    long batches = blocks_of(units, long(kMostThreadsPerRow) * batch);
    if (batches == 1 && rows * threads_of(2) >= kThreadsToSaturate) batches = 2;
    return int(threads_of(batches) < kMostThreadsPerRow ? threads_of(batches) : kMostThreadsPerRow);
  }
};

}  // namespace rf
