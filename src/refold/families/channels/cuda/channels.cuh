// Channels: passes over the channels of each place of a space [outer, count, width].
//
// Why: a softmax over channels, a norm of them, or their largest are bound by memory. A thread has a place, and walks over
// its channels, once for each pass; neighbours have neighbouring places, so that a warp reads 128 bytes of a channel. The
// passes that follow find in the L1 what the first has read: no more blocks are at work than whose places fit there. Where
// nothing follows the first pass a thread has four places, if there are many, and addresses allow it. Channels that
// registers hold have kernels of their own (held_channels.cuh).
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
// Roles of a block's 256 threads: `kSplit` groups, each with some of the channels of 256 / kSplit units, of one place or
// four. One group where channels are few, and where one pass reads many places. 8 where places are too few to fill the
// device, and where those of 256 threads fill the L1: of 64 channels two blocks were at work, of 128 one (an H100, files 49
// and 91 of KernelBench's level 2 less their convolutions, of 2 million places each: some 900 and 6300 us). Groups merge
// their partials first to last.
//
//   kSplit   registers (nvcc 13.0, sm_90a): softmax, norm; logsumexp, smallest; these two by four   shared memory
//   1        47, 40; 32, 32; 60, 40                                                                none
//   8        48, 40; 39, 32                                                                        1 KB a word of a partial
//
// A largest value and the sum of exponentials below it, a mean and squared deviations, are statistics of one pass.
//
// Results do not depend on the device: kSplit follows from the sizes alone.
#pragma once
#include "channels_body.cuh"

namespace rf {

constexpr int kChannelThreads = 256;
constexpr long kChannelPlaces = 1 << 17;   // so many fill a device
constexpr long kChannelsToSplit = 64;
constexpr long kChannelBytes = 160 << 10;  // of the L1, for what several passes read
template <class V> constexpr int kChannelBatch = LanesOf<V>::count == 4 ? 4 : 8;  // channels that a thread has in flight

template <int kSplit> struct ChannelGroups {
  static constexpr int kUnits = kChannelThreads / kSplit;
  int group, unit;  // the thread's
  RF_FN ChannelGroups() : group(threadIdx.x / kUnits), unit(threadIdx.x % kUnits) {}
};

template <class M> RF_FN typename M::State no_values() {
  if constexpr (std::is_same<typename M::State, typename M::Partial>::value) return M::identity();
  else return {};
}

// What a place's channels are reduced to: of all groups' states, the same for each of them.
template <class M, int kSplit>
RF_FN typename M::State merged(const typename M::State& mine, const ChannelGroups<kSplit>& at) {
  if constexpr (kSplit == 1) return mine;
  __shared__ Real words[M::kWords][kSplit][ChannelGroups<kSplit>::kUnits];
  const typename M::Partial partial = M::partial(mine);
  __syncthreads();  // the last pass's have been read
#pragma unroll
  for (int w = 0; w < M::kWords; w++) words[w][at.group][at.unit] = partial.w[w];
  __syncthreads();
  typename M::State all = no_values<M>();
#pragma unroll
  for (int g = 0; g < kSplit; g++) {
    typename M::Partial next;
#pragma unroll
    for (int w = 0; w < M::kWords; w++) next.w[w] = words[w][g][at.unit];
    M::merge(all, next);
  }
  return all;
}

// What pass S has reduced places to, as the body takes it: lanes, or two of them.
template <int S, class M, class V, class Body, class P, int N>
RF_FN void set_lanes(const Body& body, P& place, const typename M::State (&states)[N]) {
  V values[M::kResults];
#pragma unroll
  for (int l = 0; l < N; l++) {
    Real results[M::kResults];
    M::results(states[l], results);
#pragma unroll
    for (int i = 0; i < M::kResults; i++) {
      if constexpr (N == 1) values[i] = results[i];
      else values[i].x[l] = results[i];
    }
  }
  if constexpr (M::kResults == 1) body.set(Step<S>{}, place, values[0]);
  else body.set(Step<S>{}, place, values);
}

// Pass S of the thread's places, over its group's channels.
template <int S, class M, class V, int kSplit, class Body, class P, class C>
RF_FN void channel_pass(const Body& body, P& place, long row0, long count, C col, const ChannelGroups<kSplit>& at) {
  constexpr int kBatch = kChannelBatch<V>, kLanes = LanesOf<V>::count;
  typename M::State states[kLanes];
  typename M::Partial of_batches[kLanes];  // of statistics that several values are taken into at a time
#pragma unroll
  for (int l = 0; l < kLanes; l++) states[l] = no_values<M>(), of_batches[l] = M::identity();
  const auto take = [&](const V* x, auto how_many) {
#pragma unroll
    for (int l = 0; l < kLanes; l++) {
      if constexpr (kByLane<M>) {
        typename M::Partial some = M::identity();
#pragma unroll
        for (int k = 0; k < how_many.index; k++) M::accumulate(some, LanesOf<V>::get(x[k], l));
        M::merge(states[l], some);
      } else {
        Real values[how_many.index];
        bool counts[how_many.index];
#pragma unroll
        for (int k = 0; k < how_many.index; k++) values[k] = LanesOf<V>::get(x[k], l), counts[k] = true;
        M::accumulate_batch(of_batches[l], values, counts);
      }
    }
  };
  long c = at.group;
#pragma unroll 1
  for (; c + (kBatch - 1) * kSplit < count; c += kBatch * kSplit) {
    V x[kBatch];
#pragma unroll
    for (int k = 0; k < kBatch; k++) x[k] = body.template term<V>(Step<S>{}, place, row0 + c + k * kSplit, col);
    take(x, Step<kBatch>{});
  }
#pragma unroll 1
  for (; c < count; c += kSplit) {
    const V x = body.template term<V>(Step<S>{}, place, row0 + c, col);
    take(&x, Step<1>{});
  }
#pragma unroll
  for (int l = 0; l < kLanes; l++) {
    if constexpr (!kByLane<M>) M::merge(states[l], of_batches[l]);
    states[l] = merged<M>(states[l], at);
  }
  set_lanes<S, M, V>(body, place, states);
}

// width: in units. V: of a thread's places.
template <class Body, class V, int kSplit>
__global__ void __launch_bounds__(kChannelThreads)
    channels_kernel(const __grid_constant__ Body body, long units, long count, long width) {
  const ChannelGroups<kSplit> at;
  sync_dependent_grids(body);
  const long step = long(gridDim.x) * at.kUnits;
#pragma unroll 1
  for (long first = long(blockIdx.x) * at.kUnits; first < units; first += step) {
    const long mine = first + at.unit, has = mine < units, n = has ? mine : units - 1;
    const long outer = units <= 0xffffffffL ? long(unsigned(n) / unsigned(width)) : n / width, row0 = outer * count;
    const auto col = LanesOf<V>::at(n - outer * width);
    typename Body::template Reduced<V> place;
    for_monoids<0>(typename Body::Monoids{}, [&](auto pass, auto monoid) {
      channel_pass<decltype(pass)::index, decltype(monoid), V, kSplit>(body, place, row0, count, col, at);
    });
    if (!has) continue;
    if constexpr (Body::kStores) {
#pragma unroll 4
      for (long c = at.group; c < count; c += kSplit) {
        V kept = 0.0f;
        if constexpr (Body::kKept >= 0) kept = body.template term<V>(Step<Body::kKept>{}, place, row0 + c, col);
        body.template store<V>(place, row0 + c, col, kept);
      }
    }
    if constexpr (Body::kFinalizes)
      if (at.group == 0) body.template finalize<V>(place, outer, col);
  }
}

template <class Body> constexpr bool kSinglePass = Body::Monoids::size + Body::kStores == 1;

template <class V, int kSplit, class Body>
Error run_channels(const Body& body, long outer, long count, long width, cudaStream_t stream) {
  Device device;
  RF_TRY(current_device(device));
  constexpr int kUnits = ChannelGroups<kSplit>::kUnits;
  const long of_row = width / LanesOf<V>::count, units = outer * of_row, all = blocks_of(units, kUnits);
  const long fit = kChannelBytes / (long(sizeof(V)) * count * kUnits);
  const long most = kSinglePass<Body> || fit > 8 ? 8 : fit < 1 ? 1 : fit, wanted = most * device.processors;
  unsigned grid;
  RF_TRY(grid_of(all < wanted ? all : wanted, grid));
  return launch(channels_kernel<Body, V, kSplit>, grid, kChannelThreads, 0, stream, launch_mode_on(device),
                "launching passes over channels", body, units, count, of_row);
}

// The body's results for each place. aligned: whether all that is read and written along the places can be taken 16 bytes
// at a time (see aligned()).
template <class Body>
Error channels(const Body& body, long outer, long count, long width, bool aligned, cudaStream_t stream) {
  const long places = outer * width;
  if (places == 0) return nullptr;
  if (count >= kChannelsToSplit && (places < kChannelPlaces || !kSinglePass<Body>))
    return run_channels<Real, 8>(body, outer, count, width, stream);
  if constexpr (kSinglePass<Body>)
    if (aligned && width % 4 == 0 && places >= kChannelPlaces)
      return run_channels<Vec4, 1>(body, outer, count, width, stream);
  return run_channels<Real, 1>(body, outer, count, width, stream);
}

}  // namespace rf
