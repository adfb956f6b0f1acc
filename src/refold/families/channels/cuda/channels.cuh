// Channels: passes over the channels of each place of a space [outer, count, width].
//
// Why: a softmax over channels, a norm of them, or their largest are bound by memory. A thread has a place, and walks over
// its channels, once for each pass; neighbours have neighbouring places, so that a warp reads 128 bytes of a channel. The
// passes that follow find in the L1 what the first has read: no more blocks are at work than whose places fit there.
//
// A body gives
//   Reduced<V>                                 what is known of a place so far
//   Monoids = List<...>                      one monoid for each pass
//   term<V>(Step<S>, place_so_far, row, col)   the value that pass S reduces; row counts over outer * count
//   set(Step<S>, place_so_far, value)        takes the result of pass S into place_so_far, or its results
//   store<V>(place_so_far, row, col, kept)   writes full-size results      (if kStores)
//   kKept                                    the pass whose term `store` needs once more (if any)
//   finalize<V>(place_so_far, outer, col)    writes results of a place     (if kFinalizes)
//
// Roles of a block's 256 threads: `kSplit` groups, each with some of the channels of 256 / kSplit places. One group where
// places are many; 8 where they are too few to fill the device. Groups merge their partials first to last.
//
//   kSplit   registers (softmax, norm)   shared memory
//   1        38 to 48                    none
//   8        40 to 48                    1 KB a word of a partial
//
// Results do not depend on the device: kSplit follows from the sizes alone.
#pragma once
#include "block.cuh"
#include "device.cuh"
#include "monoid.cuh"

namespace rf {

// What a body of channels is unless it says otherwise.
struct ChannelsBody {
  static constexpr bool kStores = true, kFinalizes = false;
  static constexpr int kKept = -1;
  rf_watch::Look look = rf_watch::take_look();  // see look.h
};

constexpr int kChannelThreads = 256, kChannelBatch = 8;  // channels that a thread has in flight
constexpr long kChannelPlaces = 1 << 17;                 // so many fill a device
constexpr long kChannelBytes = 160 << 10;                // of the L1, for what several passes read

template <int kSplit> struct ChannelGroups {
  static constexpr int kPlaces = kChannelThreads / kSplit;
  int group, place;  // the thread's
  RF_FN ChannelGroups() : group(threadIdx.x / kPlaces), place(threadIdx.x % kPlaces) {}
};

// What a place's channels are reduced to: of all groups' states, the same for each of them.
template <class M, int kSplit>
RF_FN typename M::State merged(const typename M::State& mine, const ChannelGroups<kSplit>& at) {
  if constexpr (kSplit == 1) return mine;
  __shared__ Real words[M::kWords][kSplit][ChannelGroups<kSplit>::kPlaces];
  const typename M::Partial partial = M::partial(mine);
  __syncthreads();  // the last pass's have been read
#pragma unroll
  for (int w = 0; w < M::kWords; w++) words[w][at.group][at.place] = partial.w[w];
  __syncthreads();
  typename M::State all;
#pragma unroll
  for (int g = 0; g < kSplit; g++) {
    typename M::Partial next;
#pragma unroll
    for (int w = 0; w < M::kWords; w++) next.w[w] = words[w][g][at.place];
    M::merge(all, next);
  }
  return all;
}

// Pass S of a place, over its channels from `first` on, `step` apart.
template <int S, class M, int kSplit, class Body, class P>
RF_FN void channel_pass(const Body& body, P& place, long row0, long count, long col, const ChannelGroups<kSplit>& at) {
  typename M::State state;
  long c = at.group;
  constexpr int kStep = kChannelBatch * kSplit;
#pragma unroll 1
  for (; c + (kChannelBatch - 1) * kSplit < count; c += kStep) {
    Real x[kChannelBatch];
#pragma unroll
    for (int k = 0; k < kChannelBatch; k++)
      x[k] = body.template term<Real>(Step<S>{}, place, row0 + c + k * kSplit, col);
    typename M::Partial some = M::identity();
#pragma unroll
    for (int k = 0; k < kChannelBatch; k++) M::accumulate(some, x[k]);
    M::merge(state, some);
  }
  typename M::Partial some = M::identity();
#pragma unroll 1
  for (; c < count; c += kSplit) M::accumulate(some, body.template term<Real>(Step<S>{}, place, row0 + c, col));
  M::merge(state, some);
  Real results[M::kResults];
  M::results(merged<M>(state, at), results);
  if constexpr (M::kResults == 1) body.set(Step<S>{}, place, results[0]);
  else body.set(Step<S>{}, place, results);
}

template <class Body, int kSplit>
__global__ void __launch_bounds__(kChannelThreads)
    channels_kernel(const __grid_constant__ Body body, long places, long count, long width) {
  const ChannelGroups<kSplit> at;
  sync_dependent_grids(body);
  const long step = long(gridDim.x) * at.kPlaces;
#pragma unroll 1
  for (long first = long(blockIdx.x) * at.kPlaces; first < places; first += step) {
    const long mine = first + at.place, has = mine < places, n = has ? mine : places - 1;
    const long outer = places <= 0xffffffffL ? long(unsigned(n) / unsigned(width)) : n / width;
    const long col = n - outer * width, row0 = outer * count;
    typename Body::template Reduced<Real> place;
    for_monoids<0>(typename Body::Monoids{}, [&](auto step_of, auto monoid) {
      channel_pass<decltype(step_of)::index, decltype(monoid), kSplit>(body, place, row0, count, col, at);
    });
    if (!has) continue;
    if constexpr (Body::kStores)
#pragma unroll 4
      for (long c = at.group; c < count; c += kSplit) {
        Real kept = 0.0f;
        if constexpr (Body::kKept >= 0) kept = body.template term<Real>(Step<Body::kKept>{}, place, row0 + c, col);
        body.template store<Real>(place, row0 + c, col, kept);
      }
    if constexpr (Body::kFinalizes)
      if (at.group == 0) body.template finalize<Real>(place, outer, col);
  }
}

template <int kSplit, class Body>
Error run_channels(const Body& body, long places, long count, long width, cudaStream_t stream) {
  Device device;
  RF_TRY(current_device(device));
  constexpr bool kAgain = Body::Monoids::size + Body::kStores > 1;
  const long fit = kChannelBytes / (long(sizeof(Real)) * count * (kChannelThreads / kSplit));
  const long most = !kAgain || fit > 8 ? 8 : fit < 1 ? 1 : fit, all = blocks_of(places, kChannelThreads / kSplit);
  const long wanted = most * device.processors;
  unsigned grid;
  RF_TRY(grid_of(all < wanted ? all : wanted, grid));
  return launch(channels_kernel<Body, kSplit>, grid, kChannelThreads, 0, stream, launch_mode_on(device),
                "launching passes over channels", body, places, count, width);
}

// The body's results for each place.
template <class Body> Error channels(const Body& body, long outer, long count, long width, cudaStream_t stream) {
  const long places = outer * width;
  if (places == 0) return nullptr;
  return places < kChannelPlaces && count >= 8 * kChannelBatch ? run_channels<8>(body, places, count, width, stream)
                                                               : run_channels<1>(body, places, count, width, stream);
}

}  // namespace rf
