// Block: what the kernels that reduce rows and columns share: their start, and how parts of one
// result are merged across lanes, warps and blocks, always in the same order.
#pragma once
#include <type_traits>

#include "lanes.cuh"
#include "look.cuh"
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

// begin_kernel() of a kernel that a call may start first.
template <class Body> RF_FN void begin_kernel(const Body& body) {
  begin_kernel();
  look_in_first_block(body);
}

// A barrier of `threads` threads of the block, by number; 0 is __syncthreads.
RF_FN void team_sync(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// The I-th operand that several passes of a body read along the width.
template <class T, int I> struct Again { const T* p; };
template <class V, class T, int I, class C> RF_FN V column(Again<T, I> a, C c) { return column<V>(a.p, c); }
template <class V, class T, int I, class C> RF_FN V full(Again<T, I> a, long offset, C c) {
  return full<V>(a.p, offset, c);
}

// One column of a row that is held; what does not count is read like what does, and not stored.
struct Single {
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
template <class V, class T> RF_FN V column(const T* p, Single c) { return read_one(p + c.col); }
template <class V, class T> RF_FN V full(const T* p, long offset, Single c) {
  return read_one(start_of_row(p + offset) + c.col);
}
template <class T> RF_FN void put(T* p, long offset, Single c, Real v) {
  T* to = start_of_row(p + offset) + c.col;
  if (c.counts) write_one(to, v);
}

// A position that knows what has been read there: each of N such operands is read once. What `has` says is
// known to the compiler where passes are unrolled; there the values stay in registers.
template <class V, int N, class C> struct KnownAt {
  C at;
  V* value;
  bool* has;
};
template <class V, int N> struct Known {
  V value[N ? N : 1];
  bool has[N ? N : 1] = {};
  template <class C> RF_FN KnownAt<V, N, C> at(C position) { return {position, value, has}; }
};
template <class V, class T, int I, int N, class C> RF_FN V full(Again<T, I> a, long offset, KnownAt<V, N, C> c) {
  if (!c.has[I]) c.value[I] = full<V>(a.p, offset, c.at), c.has[I] = true;
  return c.value[I];
}
template <class V, class T, int I, int N, class C> RF_FN V column(Again<T, I> a, KnownAt<V, N, C> c) {
  return full<V>(a, 0, c);
}
template <class V, class T, int N, class C> RF_FN V full(const T* p, long offset, KnownAt<V, N, C> c) {
  return full<V>(p, offset, c.at);
}
template <class V, class T, int N, class C> RF_FN V column(const T* p, KnownAt<V, N, C> c) {
  return column<V>(p, c.at);
}
template <class T, int N, class C> RF_FN void put(T* p, long offset, KnownAt<Real, N, C> c, Real v) {
  put(p, offset, c.at, v);
}
template <class T, int N> RF_FN void put(T* p, long offset, KnownAt<Four, N, Quad> c, Four v) {
  put(p, offset, c.at, v);
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

// What a thread has gathered of a row. A monoid of one word has a part for each of a thread's lanes, any other takes
// the values of a batch at once.
template <class M, class V> struct Gathered {
  Parts<M, V> parts;
  template <int N, class In> RF_FN void gather(const V (&x)[N], In in) {
#pragma unroll
    for (int k = 0; k < N; k++)
      if (in(k)) parts.gather(x[k]);
  }
  RF_FN void merge(const Gathered& o) { parts.merge(o.parts); }
  RF_FN typename M::Part all() { return parts.all(); }
};
template <class M, class V> struct GatheredAtOnce {
  typename M::Part part = M::identity();
  template <int N, class In> RF_FN void gather(const V (&x)[N], In in) {
    constexpr int kLanes = LanesOf<V>::count;
    Real values[N * kLanes];
    bool counts[N * kLanes];
#pragma unroll
    for (int i = 0; i < N * kLanes; i++)
      values[i] = LanesOf<V>::get(x[i / kLanes], i % kLanes), counts[i] = in(i / kLanes);
    M::gather_some(part, values, counts);
  }
  RF_FN void merge(const GatheredAtOnce& o) { M::merge(part, o.part); }
  RF_FN typename M::Part all() { return part; }
};
template <class M, class V>
using GatheredOf = std::conditional_t<M::kWords == 1, Gathered<M, V>, GatheredAtOnce<M, V>>;

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
