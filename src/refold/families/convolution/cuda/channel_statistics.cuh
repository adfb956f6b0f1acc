// Mean and variance of each channel of an image: what kernels of convolutions know of some of its places, and how that is
// merged, by Chan's formula, always in the same order.
#pragma once
#include "device.cuh"
#include "lanes.cuh"
#include "run.cuh"
#include "sync.cuh"

namespace rf {

// A body whose values are computed before a row is stored.
template <class Body> struct Computed {
  using Window = typename Body::Window;
  static constexpr bool kLong = false;
  const Body& of;
  template <class V, class C> RF_FN V value(V acc, long, long, C) const { return acc; }
  template <class V, class C> RF_FN void store(long row, C col, V v) const { of.store(row, col, v); }
};

// Of some places: how many, an origin, the mean's distance from it, and squared deviations from the mean. An origin far
// from zero leaves the mean few digits, and their difference all.
struct PlaceStatistics {
  float count = 0.0f, origin = 0.0f, mean = 0.0f, m2 = 0.0f;
  RF_FN void merge(const PlaceStatistics& o) {
    if (o.count == 0.0f) return;
    if (count == 0.0f) {
      *this = o;
      return;
    }
    const float total = count + o.count, delta = (o.origin - origin) + (o.mean - mean), share = o.count / total;
    // what is infinite stays so: it would be subtracted from itself
    mean = is_finite(mean) && is_finite(o.mean) ? mean + delta * share : mean + o.mean;
    m2 += o.m2 + delta * (delta * (count * share));
    count = total;
  }
  RF_FN float whole_mean() const { return origin + mean; }
  RF_FN float variance() const { return m2 / count; }
};

constexpr int kStatisticsThreads = 128;  // a warp a channel of an image

template <class Body>
__global__ void __launch_bounds__(kStatisticsThreads, 1)
    merge_statistics(const __grid_constant__ Body body, const float4* partials, long channels, int count) {
  const int lane = threadIdx.x % 32;
  const long channel = long(blockIdx.x) * (kStatisticsThreads / 32) + threadIdx.x / 32;
  sync_dependent_grids();
  if (channel >= channels) return;
  PlaceStatistics all;
  for (int i = lane; i < count; i += 32) {
    const float4 partial = partials[channel * count + i];
    all.merge({partial.x, partial.y, partial.z, partial.w});
  }
#pragma unroll
  for (int apart = 16; apart > 0; apart /= 2) {
    const auto of_lane = [&](float mine) { return __shfl_sync(kFullMask, mine, (lane + apart) % 32); };
    all.merge({of_lane(all.count), of_lane(all.origin), of_lane(all.mean), of_lane(all.m2)});
  }
  if (lane == 0) body.set_statistics(channel, all);
}

}  // namespace rf
