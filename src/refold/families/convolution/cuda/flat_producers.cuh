// What the blocks of convolution_flat.cuh share, which tiles each has in which order, and the threads that bring kernels and
// windows to shared memory.
//
// Shared memory: FlatStorage, then stages of kernels, then windows (convolution_flat.cuh). A producer is one lane of a warp; it
// waits for a slot that is empty, and TMA says when the slot is full.
#pragma once
#include "flat_epilogue.cuh"

namespace rf {

template <class S> struct FlatStorage {
  FlatTable tables[2][2];  // of a consumer's tile and of the one before
  alignas(16) FlatStage stage[8];
  alignas(8) uint64_t kernels_full[2][S::kMostSlots], kernels_empty[2][S::kMostSlots];
  uint64_t windows_full[S::kQueues][S::kWindows], windows_empty[S::kQueues][S::kWindows];
};
template <class S> constexpr int kFlatFixed = (sizeof(FlatStorage<S>) + 127) / 128 * 128;

// The slot that is next, and which round of all slots that is.
struct SlotCursor {
  int slot = 0;
  uint32_t round = 0;
  RF_FN void next(int slots) {
    if (++slot == slots) slot = 0, round ^= 1;
  }
};

// What a consumer computes at a time: 64 features of 256 places of a result. All that a block has, one after the other.
template <class S, class W> struct FlatItems {
  using Shape = FlatShape<S, W>;
  static constexpr int kOfPlaces = W::kGroups * Shape::kFeatureTiles * Shape::kPhases;
  const FlatLaunch& l;
  int consumer;
  long item;
  RF_FN FlatItems(const FlatLaunch& l, int consumer)
      : l(l), consumer(consumer), item(S::kShared ? blockIdx.x : 2L * blockIdx.x + consumer) {}
  RF_FN bool there() const { return item < l.tiles * kOfPlaces; }
  RF_FN void next() { item += S::kShared ? long(gridDim.x) : 2L * gridDim.x; }
  // Tiles of the same places follow one another, so that their windows are read from a cache.
  RF_FN int of_places() const { return static_cast<int>(item % kOfPlaces); }
  RF_FN int deep() const { return of_places() % Shape::kPhases / Shape::High::kPhases; }  // phases
  RF_FN int high() const { return of_places() % Shape::High::kPhases; }
  RF_FN int tile() const { return of_places() / Shape::kPhases; }
  RF_FN int group() const { return tile() / Shape::kFeatureTiles; }
  RF_FN int half() const {  // of the group's tiles of 64 features
    const int tile_of_group = tile() % Shape::kFeatureTiles;
    return S::kShared ? 2 * tile_of_group + consumer : tile_of_group;
  }
  RF_FN long place0() const { return item / kOfPlaces * Shape::kPlaces; }
  RF_FN int rows() const { return l.all_rows ? Shape::High::count(high()) : 1; }  // of taps, of a window
};

// Windows of an item in the order in which they are used: use(tap along the depth, the first of taps along the height, chunk
// of channels).
template <class S, class W, class Use> RF_FN void for_windows(const FlatItems<S, W>& items, const Use& use) {
  using Shape = FlatShape<S, W>;
  const int deep_phase = items.deep(), high_phase = items.high(), rows = items.rows();
  const int deep_taps = Shape::Deep::count(deep_phase), high_taps = Shape::High::count(high_phase);
#pragma unroll 1
  for (int deep = 0; deep < deep_taps; deep++)
#pragma unroll 1
    for (int high = 0; high < high_taps; high += rows)
#pragma unroll 1
      for (int chunk = 0; chunk < Shape::kChunks; chunk++)
        use(Shape::Deep::tap(deep_phase, deep), Shape::High::tap(high_phase, high), chunk);
}

template <class S, class W> RF_FN void load_stages(const FlatLaunch& l, FlatStorage<S>& shared, uint32_t kernels, int consumer) {
  using Shape = FlatShape<S, W>;
  const uint32_t full = shared_address(shared.kernels_full[consumer]), empty = shared_address(shared.kernels_empty[consumer]);
  SlotCursor cursor;
#pragma unroll 1
  for (FlatItems<S, W> items(l, consumer); items.there(); items.next()) {
    const long tile = (long(items.group()) * Shape::kHalves + items.half()) * Shape::kChunks;
    const int rows = items.rows();
    for_windows(items, [&](int deep, int high, int chunk) {
      const unsigned char* of_chunk = l.kernels + (tile + chunk) * W::kTaps * Shape::kStageBytes;
#pragma unroll 1
      for (int row = 0; row < rows; row++) {
        const int tap0 = (deep * W::High::kKernel + high + row * Shape::High::kApart) * W::Wide::kKernel;
        const unsigned char* from = of_chunk + long(tap0) * Shape::kStageBytes;
#pragma unroll 1
        for (int tap = 0; tap < W::Wide::kKernel; tap++, from += Shape::kStageBytes) {
          const uint32_t barrier = full + kMbarrierBytes * cursor.slot;
          mbarrier_wait(empty + kMbarrierBytes * cursor.slot, cursor.round ^ 1);
          mbarrier_arrive_expect_tx(barrier, Shape::kStageBytes);
          bulk_load(kernels + cursor.slot * Shape::kStageBytes, from, Shape::kStageBytes, barrier);
          cursor.next(l.slots);
        }
      }
    });
  }
}

template <class S, class W> RF_FN void load_windows(const FlatLaunch& l, FlatStorage<S>& shared, uint32_t windows, int consumer) {
  using Shape = FlatShape<S, W>;
  constexpr int kOctets = S::kChannels / 8;
  const uint32_t full = shared_address(shared.windows_full[consumer]), empty = shared_address(shared.windows_empty[consumer]);
  const int octet_bytes = l.window * 16;
  SlotCursor cursor;
#pragma unroll 1
  for (FlatItems<S, W> items(l, consumer); items.there(); items.next()) {
    const long place0 = items.place0();
    const long group0 = long(items.group()) * Shape::kOctets;
    const int deep_phase = items.deep(), high_phase = items.high();
    for_windows(items, [&](int deep, int high, int chunk) {
      const uint32_t barrier = full + kMbarrierBytes * cursor.slot;
      mbarrier_wait(empty + kMbarrierBytes * cursor.slot, cursor.round ^ 1);
      mbarrier_arrive_expect_tx(barrier, S::kPieces * kOctets * octet_bytes);
      // of all rows of taps, where the first of them sees it
      const int high_shift = l.all_rows ? Shape::High::least(high_phase) : Shape::High::shift(high_phase, high);
      const long first = place0 + long(Shape::Deep::shift(deep_phase, deep)) * l.slice + long(high_shift) * l.pitch;
      const unsigned char* from = l.images + ((group0 + chunk * kOctets) * l.places + first) * 16;
      const uint32_t to = windows + cursor.slot * S::kPieces * kOctets * octet_bytes;
#pragma unroll
      for (int piece = 0; piece < S::kPieces; piece++, from += long(W::kGroups) * Shape::kOctets * l.places * 16)
#pragma unroll 1
        for (int o = 0; o < kOctets; o++)
          bulk_load(to + (piece * kOctets + o) * octet_bytes, from + o * l.places * 16, octet_bytes, barrier);
      cursor.next(S::kWindows);
    });
  }
}

}  // namespace rf
