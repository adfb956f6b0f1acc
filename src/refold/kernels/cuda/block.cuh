// Block: what the kernels that reduce rows and columns share: their start, and how parts of one
// result are merged across lanes, warps and blocks, always in the same order.
#pragma once
#include "lanes.cuh"
#include "monoid.cuh"

namespace rf {

constexpr unsigned kWarp = 0xffffffffu;

// Lets the kernel after this one be scheduled, then waits for the one before. Nothing is read or
// written before this. (Before sm_90 kernels follow one another by themselves.)
RF_FN void begin_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// A barrier of `threads` threads of the block, by number; 0 is __syncthreads.
RF_FN void team_sync(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// A part for each of a thread's lanes.
template <class M, class V> struct Parts {
  using Part = typename M::Part;
  Part of[LanesOf<V>::count];
  RF_FN Parts() {
#pragma unroll
    for (Part& p : of) p = M::identity();
  }
  RF_FN void gather(const V& v) {
#pragma unroll
    for (int l = 0; l < LanesOf<V>::count; l++) M::gather(of[l], LanesOf<V>::get(v, l));
  }
  RF_FN void merge(const Parts& o) {
#pragma unroll
    for (int l = 0; l < LanesOf<V>::count; l++) M::merge(of[l], o.of[l]);
  }
  RF_FN Part all() {
#pragma unroll
    for (int half = LanesOf<V>::count / 2; half; half /= 2)
#pragma unroll
      for (int l = 0; l < half; l++) M::merge(of[l], of[l + half]);
    return of[0];
  }
};

template <class M> RF_FN typename M::Part from_lane(typename M::Part p, int lane) {
#pragma unroll
  for (int w = 0; w < M::kWords; w++) p.w[w] = __shfl_sync(kWarp, p.w[w], lane);
  return p;
}

// The part of each team of `lanes` neighbours of a warp (a power of two), for all of them.
template <class M> RF_FN typename M::Part across_lanes(typename M::Part p, int lanes) {
  for (int mask = lanes / 2; mask; mask /= 2) {
    typename M::Part other;
#pragma unroll
    for (int w = 0; w < M::kWords; w++) other.w[w] = __shfl_xor_sync(kWarp, p.w[w], mask);
    M::merge(p, other);
  }
  if (M::kWords == 1) return p;
  // a merge of several words may round differently in the other order: all take what the first has
  return from_lane<M>(p, threadIdx.x & 31 & ~(lanes - 1));
}

// The part of a team of whole warps, for all of its threads. `shared`, one part a warp, must not be
// written again before the team's next barrier but one.
template <class M>
RF_FN typename M::Part across_team(typename M::Part p, int thread, int threads, int barrier, Real* shared) {
  p = across_lanes<M>(p, 32);
  if (threads == 32) return p;
  const int lane = thread % 32, warps = threads / 32;
  if (lane == 0)
#pragma unroll
    for (int w = 0; w < M::kWords; w++) shared[M::kWords * (thread / 32) + w] = p.w[w];
  team_sync(barrier, threads);
  p = M::identity();
  if (lane < warps)
#pragma unroll
    for (int w = 0; w < M::kWords; w++) p.w[w] = shared[M::kWords * lane + w];
  return across_lanes<M>(p, 32);
}

// Whether this block is the last of `blocks` to come here; what the others wrote before is visible.
// All threads come here.
RF_FN bool last_block(unsigned* turns, unsigned blocks) {
  __shared__ unsigned turn;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) turn = atomicInc(turns, blocks - 1);  // back to 0 after the last
  __syncthreads();
  const bool last = turn == blocks - 1;
  if (last) __threadfence();
  return last;
}

}  // namespace rf
