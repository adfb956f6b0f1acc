// Held channels: passes over the channels of each place of a space [outer, kCount, width] that a block has in registers.
//
// Why: a value is read from memory once, and its exponential is computed once. Each thread has up to 32 channels of a
// place, of more than 256 up to 64, and asks for all of them before it uses the first. A block's groups, as many as
// channels need, each have every kSplit-th channel of the same places, and merge their partials first to last. Results
// are computed some at a time before the first is stored: the compiler lets no load pass a store, so that it would wait.
// Blocks that are neighbours have neighbouring places, and none loops: memory then gets whole sectors soon after each other.
//
// A row of places that begins anywhere would have sectors that two blocks write into, which memory has to read first: of
// 128 channels of 129 x 129 places a copy took half as long again. So blocks overlap by a sector's places there, and
// each stores whole sectors alone.
//
// On an H100, softmax + sigmoid, us, of passes that read anew and held: 16x64x131072 597, 375; 16x19x262144 342, 226;
// 128x128x16641 1947, 798 (without the overlap 970; by 16 channels a thread 904; blocks that loop 1720); 32x512x4096 548,
// 190 (by 32 channels and 512 threads 223). Divided by the sum anew for each element 874 for 798.
//
// A body gives what channels.cuh says, each pass with a monoid of its own; a row, besides what it counts, knows its channel
// (ChannelRow). Operands that several passes read are of type Reused (block.cuh).
//
// Registers (nvcc 13.0, sm_90a; softmax of 19, 64, 128 and 512 channels): 72, 80, 80, 128. Shared memory: four words for
// each thread. Results do not depend on the device: which thread has what follows from kCount alone.
#pragma once
#include "channels_body.cuh"
#include "sum_of_exp.cuh"

namespace rf {

constexpr int kStoredAtOnce = 16;     // of them
constexpr int kMostChannelWords = 2;  // of the partials of a place
constexpr int kSectorPlaces = 8;      // of memory, of 32 bytes

// A channel of some place. Its number in outer * kCount rows is what bodies count by; what is left of it when kCount
// divides it is known.
template <int kCount> struct ChannelRow {
  long row;
  int channel;
  RF_FN operator long() const { return row; }
};
template <int kCount> RF_FN long operator%(ChannelRow<kCount> r, long n) {
  return n == kCount ? long(r.channel) : r.row % n;
}

// Which of its block's places a thread has, and of which it stores results: of all, or of those in the sectors that begin
// in the block's first `step` places, and of those before them in a row's first block.
struct BlockPlace {
  bool all;
  int place, step;
  bool is_first;
  template <class T> RF_FN bool stores(const T* p) const {
    if (all) return true;
    const int before = -int(reinterpret_cast<uintptr_t>(p - place) / sizeof(T)) & (kSectorPlaces - 1);
    return place < before + step && (place >= before || is_first);
  }
};

// Where a body's results go first, one after the other, and from where they are stored: of what a body computes the
// compiler drops what nobody takes.
template <class C> struct PendingAt {
  C at;
  long col;
  BlockPlace in;
  Real* value;
  int* next;
  bool stores;
};
template <class V, class T, class C> RF_FN V full(const T* p, long offset, PendingAt<C> c) {
  return full<V>(p, offset, c.at);
}
template <class V, class T, int I, class C> RF_FN V full(Reused<T, I> a, long offset, PendingAt<C> c) {
  return full<V>(a, offset, c.at);
}
template <class V, class T, class C> RF_FN V column(const T* p, PendingAt<C> c) { return column<V>(p, c.at); }
template <class V, class T, int I, class C> RF_FN V column(Reused<T, I> a, PendingAt<C> c) {
  return column<V>(a, c.at);
}
template <class T, class C> RF_FN void put(T* p, long offset, PendingAt<C> c, Real v) {
  Real& value = c.value[(*c.next)++];
  T* to = p + offset + c.col;
  if (!c.stores) value = v;
  else if (c.in.stores(to)) write_one(to, value);
}

// The roles of a block's threads.
template <int kCount> struct HeldRoles {
  static constexpr int kMost = kCount > 256 ? 64 : 32;  // channels in a thread
  static constexpr int kSplit = int(covering_power_of_two((kCount + kMost - 1) / kMost));
  static constexpr int kThreads = 256;
  static constexpr int kPlaces = kThreads / kSplit, kEach = (kCount + kSplit - 1) / kSplit;
  static constexpr int kBlocks = kEach > 32 ? 2 : 3;      // on a multiprocessor
  static constexpr int kStep = kPlaces - kSectorPlaces;   // of blocks whose places overlap
  int group, place;
  RF_FN HeldRoles() : group(threadIdx.x / kPlaces), place(threadIdx.x % kPlaces) {}
  // Of the thread's k-th channel. What is beyond the last is read like it, and left out.
  RF_FN bool has(int k) const { return (k + 1) * kSplit <= kCount || group + k * kSplit < kCount; }
  RF_FN int channel(int k) const { return has(k) ? group + k * kSplit : kCount - 1; }
};

// The partial of all groups' channels of a place. shared: as many words as M has, for each thread.
template <class M, class Roles>
RF_FN typename M::Partial merge_groups(const typename M::Partial& mine, const Roles& at, Real* shared) {
  if constexpr (Roles::kSplit == 1) return mine;
#pragma unroll
  for (int w = 0; w < M::kWords; w++) shared[w * Roles::kThreads + threadIdx.x] = mine.w[w];
  __syncthreads();
  typename M::Partial all;
#pragma unroll
  for (int g = 0; g < Roles::kSplit; g++) {
    typename M::Partial next;
#pragma unroll
    for (int w = 0; w < M::kWords; w++) next.w[w] = shared[w * Roles::kThreads + g * Roles::kPlaces + at.place];
    if (g == 0) all = next;
    else M::merge(all, next);
  }
  return all;
}

// tiles: of a row, whose blocks' places overlap; 0: blocks have places one after the other, whatever row they are of.
template <class Body, int kCount>
__global__ void __launch_bounds__(HeldRoles<kCount>::kThreads, HeldRoles<kCount>::kBlocks)
    held_channels_kernel(const __grid_constant__ Body body, long places, long width, unsigned tiles) {
  using Roles = HeldRoles<kCount>;
  constexpr int kEach = Roles::kEach;
  __shared__ Real shared[2][kMostChannelWords * Roles::kThreads];  // of this pass, and of the one before
  const Roles at;
  sync_dependent_grids(body);
  const bool is_whole = tiles == 0;
  const unsigned tile = is_whole ? 0 : blockIdx.x % tiles;
  long outer, col;
  bool has;
  if (is_whole) {
    const long mine = long(blockIdx.x) * Roles::kPlaces + at.place, n = mine < places ? mine : places - 1;
    outer = places <= 0xffffffffL ? long(unsigned(n) / unsigned(width)) : n / width;
    col = n - outer * width, has = mine < places;
  } else {
    const long mine = long(tile) * Roles::kStep + at.place;
    outer = blockIdx.x / tiles, has = mine < width;
    col = has ? mine : width - 1;
  }
  const auto row = [&](int k) { return ChannelRow<kCount>{outer * kCount + at.channel(k), at.channel(k)}; };
  RegisterCache<Real, Body::kReused> cache[kEach];
  typename Body::template Reduced<Real> place;
  Real x[kEach];  // of the last pass
  for_monoids<0>(typename Body::Monoids{}, [&](auto pass, auto monoid) {
    using M = decltype(monoid);
    static_assert(M::kWords <= kMostChannelWords, "shared memory has room for the partials");
#pragma unroll
    for (int k = 0; k < kEach; k++) x[k] = body.template term<Real>(pass, place, row(k), cache[k].at(col));
    AccumulatedOf<M, Real> accumulated;
    accumulated.accumulate(x, [&](int k) { return at.has(k); });
    typename M::State state{};
    M::merge(state, merge_groups<M>(accumulated.all(), at, shared[decltype(pass)::index % 2]));
    Real results[M::kResults];
    M::results(state, results);
    if constexpr (M::kResults == 1) body.set(pass, place, results[0]);
    else body.set(pass, place, results);
  });
  if (!has) return;
  if constexpr (Body::kStores) {
    const BlockPlace in{is_whole, at.place, Roles::kStep, tile == 0};
#pragma unroll
    for (int first = 0; first < kEach; first += kStoredAtOnce) {
      Real pending[kStoredAtOnce][Body::kResults];
      const auto store = [&](int k, bool stores) {
        int next = 0;
        const auto here = cache[k].at(col);
        const PendingAt<decltype(here)> there{here, col, in, pending[k - first], &next, stores};
        body.template store<Real>(place, row(k), there, x[k]);
      };
#pragma unroll
      for (int k = first; k < kEach && k < first + kStoredAtOnce; k++) store(k, false);
#pragma unroll
      for (int k = first; k < kEach && k < first + kStoredAtOnce; k++)
        if (at.has(k)) store(k, true);
    }
  }
  if constexpr (Body::kFinalizes)
    if (at.group == 0 && (is_whole || at.place < Roles::kStep)) body.template finalize<Real>(place, outer, col);
}

// The body's results for each place. aligned: whether all that is read and written along the places can be taken 16 bytes
// at a time (see aligned()).
template <int kCount, class Body>
Error held_channels(const Body& body, long outer, long width, bool aligned, cudaStream_t stream) {
  using Roles = HeldRoles<kCount>;
  const long places = outer * width;
  if (places == 0) return nullptr;
  Device device;
  RF_TRY(current_device(device));
  const bool is_whole = (aligned && width % kSectorPlaces == 0) || width < 8 * Roles::kPlaces;
  const long tiles = is_whole ? 0 : blocks_of(width, Roles::kStep);
  unsigned grid;
  RF_TRY(grid_of(is_whole ? blocks_of(places, Roles::kPlaces) : outer * tiles, grid));
  return launch(held_channels_kernel<Body, kCount>, grid, Roles::kThreads, 0, stream, launch_mode_on(device),
                "launching passes over channels", body, places, width, unsigned(tiles));
}

}  // namespace rf
