// Functor: the names that generated bodies are written in, for CUDA.
//
// Why: a body (struct Matmul0 {...}) is one C++ text for every backend. On the CPU its lanes `Vec`
// are a SIMD vector and a position `C` is a run of columns; here a lane is one float and a position
// is one column index, so each thread runs the body once for each element that it holds.
//
// All arithmetic is in `Real`, float32 unless a file says otherwise before it comes here; elements of
// other types are converted as they are loaded and stored.
//
// Layout: data row after row; offsets and rows are 64-bit, columns 32-bit.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#define RF_FN __device__ __forceinline__

#ifndef RF_REAL
#define RF_REAL float
#endif

namespace rf {

using Real = RF_REAL;
using Vec = Real;
constexpr unsigned kFullMask = 0xffffffffu;  // all lanes of a warp
template <int S> struct Step { static constexpr int index = S; };
template <class... M> struct List { static constexpr int size = sizeof...(M); };

// Calls f(Step<i>, monoid) for each monoid of a list.
template <int S, class F> RF_FN void for_monoids(List<>, F&&) {}
template <int S, class F, class M, class... Rest> RF_FN void for_monoids(List<M, Rest...>, F&& f) {
  f(Step<S>{}, M{});
  for_monoids<S + 1>(List<Rest...>{}, f);
}

// What memory holds, by one element; narrow.cuh has the same for elements of 16 bits. Never by __ldg: the
// kernel starts beside the end of the one before, which may still write what is read here, and the
// assembler takes memory read so for constant: it moves such loads before the wait.
template <class T> RF_FN Real read_one(const T* p) { return *p; }
// A mask as zeros and ones: as PyTorch has it, any byte but zero is true.
RF_FN Real read_one(const bool* p) { return *reinterpret_cast<const unsigned char*>(p) != 0; }
template <class T> RF_FN void write_one(T* p, Real v) { *p = v; }
// Next to each other from p + more on; together: by one access, which p + more is aligned for. Written so it stays one: the
// compiler takes the assignment of a float2 apart.
template <bool Together, class T> RF_FN void write_vec2(T* p, int more, Real first, Real second) {
  if constexpr (Together && sizeof(T) == 4) {
    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(p + more), "f"(float(first)), "f"(float(second)));
  } else {
    p[more] = first;
    p[more + 1] = second;
  }
}
// The same of what is read.
struct Vec2 { Real first, second; };
template <class T> RF_FN Vec2 read_vec2(const T* p) {
  if constexpr (sizeof(T) == 4) {
    const float2 v = *reinterpret_cast<const float2*>(p);
    return {v.x, v.y};
  } else {
    return {read_one(p), read_one(p + 1)};
  }
}
// Whether p[row * width + col] is aligned for two pairs of columns wherever col is a multiple of four.
template <class T> RF_FN bool in_pairs(const T* p, long width) {
  constexpr int kBytes = sizeof(T) < 4 ? 4 * sizeof(T) : 16;
  return width * sizeof(T) % kBytes == 0 && reinterpret_cast<uintptr_t>(p) % kBytes == 0;
}

template <class V> RF_FN V lanes(Real x) { return x; }
template <class V, class T> RF_FN V scalar(const T* p) { return read_one(p); }
template <class V, class T, class C> RF_FN V column(const T* p, C col) { return read_one(p + col); }
template <class V, class T, class C> RF_FN V full(const T* p, long offset, C col) {
  return read_one(p + offset + col);
}
template <class T, class C> RF_FN void put(T* p, long offset, C col, Real v) { write_one(p + offset + col, v); }
template <class T> RF_FN void put(T* p, long offset, Real v) { write_one(p + offset, v); }

// Two columns that one thread holds: a body's store(row, ColumnPair<Together>{col, more, next}, v) writes v to col +
// more and `next` beside it. more: a constant, so that a row's stores share an address; the compiler would rather
// compute each anew if it could see into it.
template <bool Together> struct ColumnPair {
  int col, more;
  Real next;
};
template <bool Together, class T> RF_FN void put(T* p, long offset, ColumnPair<Together> pair, Real v) {
  long first = offset + pair.col;
  asm("" : "+l"(first));
  write_vec2<Together>(p + first, pair.more, v, pair.next);
}

// One of a pair of columns that a thread computes, one after the other: what a body reads of a row for the first is
// read for both, and kept for the second in the order in which bodies read.
struct ColumnOfPair {
  int col;  // the first one's
  bool second;
  Real* cache;
  int* next;  // of kept
  template <class T> RF_FN Real read(const T* p) const {
    if (second) return cache[(*next)++];
    const Vec2 v = read_vec2(p + col);
    cache[(*next)++] = v.second;
    return v.first;
  }
};
template <class V, class T> RF_FN V column(const T* p, ColumnOfPair col) { return read_one(p + col.col + col.second); }
template <class V, class T> RF_FN V full(const T* p, long offset, ColumnOfPair col) { return col.read(p + offset); }

// Two such pairs, the second 8 columns after the first; all lanes of the warp store theirs.
struct TwoColumnPairs {
  int col, more;
  Real next[3];
};
template <class T> RF_FN void write_pairs(T* p, int more, Real v, const Real (&next)[3]) {
  write_vec2<true>(p, more, v, next[0]);
  write_vec2<true>(p, more + 8, next[1], next[2]);
}
// Lanes 2 i and 2 i + 1 have columns next to each other: one takes the first pairs of both, the other one the second,
// 16 bytes each: half as many stores, 64 bytes of a row each.
RF_FN void write_pairs(float* p, int more, Real v, const Real (&next)[3]) {
  const bool odd = threadIdx.x % 2;
  const float got = __shfl_xor_sync(kFullMask, odd ? v : next[1], 1);
  const float got_next = __shfl_xor_sync(kFullMask, odd ? next[0] : next[2], 1);
  const float4 four = odd ? make_float4(got, got_next, next[1], next[2]) : make_float4(v, next[0], got, got_next);
  // volatile: exchanges stay behind the stores before them, whose registers they need
  asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(p + more + (odd ? 6 : 0)), "f"(four.x), "f"(four.y),
               "f"(four.z), "f"(four.w) : "memory");
}
template <class T> RF_FN void put(T* p, long offset, const TwoColumnPairs& pairs, Real v) {
  long first = offset + pairs.col;
  asm("" : "+l"(first));
  write_pairs(p + first, pairs.more, v, pairs.next);
}

RF_FN Real where(bool mask, Real yes, Real no) { return mask ? yes : no; }

// A product that is rounded whatever is added to it: of values that are computed twice, for their maximum and for
// the distance from it, both have the same bits.
template <class V> RF_FN V mul_rn(Real a, Real b) {
  if constexpr (sizeof(Real) == 4) return __fmul_rn(a, b);
  else return __dmul_rn(a, b);
}

}  // namespace rf
