// Block: what the kernels that reduce rows and columns share: their start, and how partials of
// one result are merged across lanes, warps and blocks, always in the same order.
#pragma once
#include <type_traits>

#include "lanes.cuh"
#include "look.cuh"
#include "monoid.cuh"
#include "sync.cuh"

namespace rf {

// sync_dependent_grids() of a kernel that a call may start first.
template <class Body> RF_FN void sync_dependent_grids(const Body& body) {
  sync_dependent_grids();
  look_in_first_block(body);
}

// The I-th operand that several passes of a body read along the width.
template <class T, int I> struct Reused { const T* p; };
template <class V, class T, int I, class C> RF_FN V column(Reused<T, I> a, C c) { return column<V>(a.p, c); }
template <class V, class T, int I, class C> RF_FN V full(Reused<T, I> a, long offset, C c) {
  return full<V>(a.p, offset, c);
}

// One column of a row that is held; what does not count is read like what does, and not stored.
struct MaskedColumn {
  int col;
  bool counts;
};
// Where a row starts, in one register pair: a column is then one instruction away, or a constant. Of an address
// that it sees through, the assembler computes the whole sum anew for every column.
template <class T> RF_FN T* start_of_row(T* p) {
  size_t address = __cvta_generic_to_global(p);
  asm("" : "+l"(address));
  return static_cast<T*>(__cvta_global_to_generic(address));
}
template <class V, class T> RF_FN V column(const T* p, MaskedColumn c) { return read_one(p + c.col); }
template <class V, class T> RF_FN V full(const T* p, long offset, MaskedColumn c) {
  return read_one(start_of_row(p + offset) + c.col);
}
template <class T> RF_FN void put(T* p, long offset, MaskedColumn c, Real v) {
  T* to = start_of_row(p + offset) + c.col;
  if (c.counts) write_one(to, v);
}

// A position that knows what has been read there: each of N such operands is read once. What `has` says is
// known to the compiler where passes are unrolled; there the values stay in registers.
template <class V, int N, class C> struct CachedAt {
  C at;
  V* value;
  bool* has;
};
template <class V, int N> struct RegisterCache {
  V value[N ? N : 1];
  bool has[N ? N : 1] = {};
  template <class C> RF_FN CachedAt<V, N, C> at(C position) { return {position, value, has}; }
};
template <class V, class T, int I, int N, class C> RF_FN V full(Reused<T, I> a, long offset, CachedAt<V, N, C> c) {
  if (!c.has[I]) c.value[I] = full<V>(a.p, offset, c.at), c.has[I] = true;
  return c.value[I];
}
template <class V, class T, int I, int N, class C> RF_FN V column(Reused<T, I> a, CachedAt<V, N, C> c) {
  return full<V>(a, 0, c);
}
template <class V, class T, int N, class C> RF_FN V full(const T* p, long offset, CachedAt<V, N, C> c) {
  return full<V>(p, offset, c.at);
}
template <class V, class T, int N, class C> RF_FN V column(const T* p, CachedAt<V, N, C> c) {
  return column<V>(p, c.at);
}
template <class T, int N, class C> RF_FN void put(T* p, long offset, CachedAt<Real, N, C> c, Real v) {
  put(p, offset, c.at, v);
}
template <class T, int N> RF_FN void put(T* p, long offset, CachedAt<Vec4, N, Vec4At> c, Vec4 v) {
  put(p, offset, c.at, v);
}

// A partial for each of a thread's lanes.
template <class M, class V> struct LanePartials {
  using Partial = typename M::Partial;
  Partial of[LanesOf<V>::count];
  RF_FN LanePartials() {
#pragma unroll
    for (Partial& p : of) p = M::identity();
  }
  RF_FN void accumulate(const V& v) {
#pragma unroll
    for (int l = 0; l < LanesOf<V>::count; l++) M::accumulate(of[l], LanesOf<V>::get(v, l));
  }
  RF_FN void merge(const LanePartials& o) {
#pragma unroll
    for (int l = 0; l < LanesOf<V>::count; l++) M::merge(of[l], o.of[l]);
  }
  RF_FN Partial all() {
#pragma unroll
    for (int half = LanesOf<V>::count / 2; half; half /= 2)
#pragma unroll
      for (int l = 0; l < half; l++) M::merge(of[l], of[l + half]);
    return of[0];
  }
};

// What a thread has accumulated of a row. Sums and the like have a partial for each of a thread's lanes, any other
// takes the values of a batch at once.
template <class M, class V> struct Accumulated {
  LanePartials<M, V> partials;
  template <int N, class In> RF_FN void accumulate(const V (&x)[N], In in) {
#pragma unroll
    for (int k = 0; k < N; k++)
      if (in(k)) partials.accumulate(x[k]);
  }
  RF_FN void merge(const Accumulated& o) { partials.merge(o.partials); }
  RF_FN typename M::Partial all() { return partials.all(); }
};
template <class M, class V> struct AccumulatedAtOnce {
  typename M::Partial partial = M::identity();
  template <int N, class In> RF_FN void accumulate(const V (&x)[N], In in) {
    constexpr int kLanes = LanesOf<V>::count;
    Real values[N * kLanes];
    bool counts[N * kLanes];
#pragma unroll
    for (int i = 0; i < N * kLanes; i++)
      values[i] = LanesOf<V>::get(x[i / kLanes], i % kLanes), counts[i] = in(i / kLanes);
    M::accumulate_batch(partial, values, counts);
  }
  RF_FN void merge(const AccumulatedAtOnce& o) { M::merge(partial, o.partial); }
  RF_FN typename M::Partial all() { return partial; }
};
template <class M, class V>
using AccumulatedOf = std::conditional_t<kByLane<M>, Accumulated<M, V>, AccumulatedAtOnce<M, V>>;

template <class M> RF_FN typename M::Partial from_lane(typename M::Partial p, int lane) {
#pragma unroll
  for (int w = 0; w < M::kWords; w++) p.w[w] = __shfl_sync(kFullMask, p.w[w], lane);
  return p;
}

// The partial of each group of `lanes` neighbours of a warp (a power of two), for all of them.
template <class M> RF_FN typename M::Partial warp_reduce(typename M::Partial p, int lanes) {
  for (int mask = lanes / 2; mask; mask /= 2) {
    typename M::Partial other;
#pragma unroll
    for (int w = 0; w < M::kWords; w++) other.w[w] = __shfl_xor_sync(kFullMask, p.w[w], mask);
    M::merge(p, other);
  }
  if (kByLane<M>) return p;
  // a merge of several words may round differently in the other order: all take what the first has
  return from_lane<M>(p, threadIdx.x & 31 & ~(lanes - 1));
}

// The partial of a group of whole warps, for all of its threads. `shared`, one partial a warp, must not be
// written again before the group's next barrier but one.
template <class M>
RF_FN typename M::Partial group_reduce(typename M::Partial p, int thread, int threads, int barrier, Real* shared) {
  p = warp_reduce<M>(p, 32);
  if (threads == 32) return p;
  const int lane = thread % 32, warps = threads / 32;
  if (lane == 0)
#pragma unroll
    for (int w = 0; w < M::kWords; w++) shared[M::kWords * (thread / 32) + w] = p.w[w];
  named_barrier_sync(barrier, threads);
  p = M::identity();
  if (lane < warps)
#pragma unroll
    for (int w = 0; w < M::kWords; w++) p.w[w] = shared[M::kWords * lane + w];
  return warp_reduce<M>(p, 32);
}

// Whether this block is the last of `blocks` to come here; what the others wrote before is visible.
// All threads come here.
RF_FN bool last_block(unsigned* arrivals, unsigned blocks) {
  __shared__ unsigned arrival;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) arrival = atomicInc(arrivals, blocks - 1);  // back to 0 after the last
  __syncthreads();
  const bool last = arrival == blocks - 1;
  if (last) __threadfence();
  return last;
}

}  // namespace rf
