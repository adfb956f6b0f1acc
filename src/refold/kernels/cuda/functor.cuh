// Functor: the names that generated bodies are written in, for CUDA.
//
// Why: a body (struct Matmul0 {...}) is one C++ text for every backend. On the CPU its lanes `Vec`
// are a SIMD vector and a position `C` is a run of columns; here a lane is one float and a position
// is one column index, so each thread runs the body once for each element that it holds.
//
// Layout: float32 data, row after row; offsets and rows are 64-bit, columns 32-bit.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#ifndef RF_FN  // the tests compile monoids and bodies for the host
#define RF_FN __device__ __forceinline__
#endif

namespace rf {

using Vec = float;
template <int S> struct Step { static constexpr int index = S; };
template <class... M> struct List { static constexpr int size = sizeof...(M); };

// Calls f(Step<i>, monoid) for each monoid of a list.
template <int S, class F> RF_FN void for_monoids(List<>, F&&) {}
template <int S, class F, class M, class... Rest> RF_FN void for_monoids(List<M, Rest...>, F&& f) {
  f(Step<S>{}, M{});
  for_monoids<S + 1>(List<Rest...>{}, f);
}

template <class V> RF_FN V lanes(float x) { return x; }
template <class V> RF_FN V scalar(const float* p) { return __ldg(p); }
template <class V, class C> RF_FN V column(const float* p, C col) { return __ldg(p + col); }
template <class V, class C> RF_FN V full(const float* p, long offset, C col) {
  return __ldg(p + offset + col);
}
template <class C> RF_FN void put(float* p, long offset, C col, float v) { p[offset + col] = v; }
RF_FN void put(float* p, long offset, float v) { p[offset] = v; }

RF_FN float where(bool mask, float yes, float no) { return mask ? yes : no; }

}  // namespace rf
