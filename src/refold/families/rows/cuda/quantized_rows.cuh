// A pointwise pass over rows that reads one operand quantized (quantized.cuh), or as it is where its step says so.
//
// A body has besides
//   ReusedQuantized<I>   the type of that operand, the I-th that it reads along the width; its address is that of
//                       what is stored as it is
//
// Layout: a thread takes four columns of eight neighbouring rows, so that it reads centres and steps, as many bytes
// as eight rows of codes, once for them.
#pragma once
#include "quantized.cuh"
#include "rows.cuh"

namespace rf {

template <int I> struct ReusedQuantized : Reused<float, I> {};

// A position in a block of rows whose centres and steps of the operand are known.
template <class V, class C> struct QuantizedAt {
  C at;
  const uint16_t* codes;
  V centre, step;
};

RF_FN Real distances(const uint16_t* p, long at) { return steps_of<false>(p[at]); }
RF_FN Vec4 distances(const uint16_t* p, Vec4At at) {
  const uint2 words = *reinterpret_cast<const uint2*>(p + at.start);
  return make_float4(steps_of<false>(words.x), steps_of<true>(words.x), steps_of<false>(words.y),
                     steps_of<true>(words.y));
}
template <class V, int I, class C> RF_FN V full(ReusedQuantized<I>, long offset, QuantizedAt<V, C> c) {
  return fma(distances(c.codes + offset, c.at), c.step, c.centre);
}
template <class V, int I, int N, class C>
RF_FN V full(ReusedQuantized<I> a, long offset, CachedAt<V, N, QuantizedAt<V, C>> c) {
  if (!c.has[I]) c.value[I] = full<V>(a, offset, c.at), c.has[I] = true;
  return c.value[I];
}
template <class V, class T, class C> RF_FN V full(const T* p, long offset, QuantizedAt<V, C> c) {
  return full<V>(p, offset, c.at);
}
template <class V, class T, class C> RF_FN V column(const T* p, QuantizedAt<V, C> c) { return column<V>(p, c.at); }
template <class T, class C> RF_FN void put(T* p, long offset, QuantizedAt<Real, C> c, Real v) {
  put(p, offset, c.at, v);
}
template <class T, class C> RF_FN void put(T* p, long offset, QuantizedAt<Vec4, C> c, Vec4 v) {
  put(p, offset, c.at, v);
}
template <class T, int N, class C>
RF_FN void put(T* p, long offset, CachedAt<Vec4, N, QuantizedAt<Vec4, C>> c, Vec4 v) {
  put(p, offset, c.at.at, v);
}

constexpr int kQuantizedBatch = 8;
static_assert(kQuantizedRows % kQuantizedBatch == 0, "a thread's rows are of one block");

RF_FN bool is_as_it_is(Real step) { return step < 0.0f; }
RF_FN bool is_as_it_is(Vec4 step) { return step.x[0] < 0.0f; }  // tiles' columns are a multiple of four

template <class V, class Body>
__global__ void __launch_bounds__(kRowThreads, 4)
    pointwise_quantized(const __grid_constant__ Body body, const Quantized from, long rows, long width) {
  const long units = width / LanesOf<V>::count, first = long(blockIdx.x) * blockDim.x + threadIdx.x;
  const long batches = (rows + kQuantizedBatch - 1) / kQuantizedBatch;
  sync_dependent_grids(body);
  if (first >= batches * units) return;
  const long batch = batches * units <= UINT32_MAX ? unsigned(first) / unsigned(units) : first / units;
  const long row = batch * kQuantizedBatch;
  auto at = LanesOf<V>::at(first - batch * units);
  const V centre = column<V>(from.centres(row), at), step = column<V>(from.steps(row), at);
  const QuantizedAt<V, decltype(at)> here{at, from.codes, centre, step};
  const typename Body::Row r{};
  if (is_as_it_is(step)) {
#pragma unroll 1
    for (long i = row; i < min(row + kQuantizedBatch, rows); i++) body.template store<V>(r, i, at);
  } else if (row + kQuantizedBatch <= rows) {
    RegisterCache<V, Body::kReused> cache[kQuantizedBatch];
#pragma unroll
    for (int k = 0; k < kQuantizedBatch; k++) body.template read<V>(row + k, cache[k].at(here));
#pragma unroll
    for (int k = 0; k < kQuantizedBatch; k++) body.template store<V>(r, row + k, cache[k].at(here));
  } else {
#pragma unroll 1
    for (long i = row; i < rows; i++) body.template store<V>(r, i, here);
  }
}

template <class V, class Body>
Error run_quantized(const Body& body, const Quantized& from, long rows, long width, cudaStream_t stream,
                    LaunchMode start) {
  unsigned grid;
  const long threads = blocks_of(rows, kQuantizedBatch) * (width / LanesOf<V>::count);
  RF_TRY(grid_of(blocks_of(threads, kRowThreads), grid));
  return launch(pointwise_quantized<V, Body>, grid, kRowThreads, 0, stream, start, "launching a pointwise kernel", body,
                from, rows, width);
}

// The body's outputs over rows x width; memory: where the operand is quantized. aligned: as of rows().
template <class Body>
Error rows_quantized(const Body& body, float* memory, long rows, long width, bool aligned, cudaStream_t stream) {
  if (rows == 0 || width == 0) return nullptr;
  Device device;
  RF_TRY(current_device(device));
  const LaunchMode start = launch_mode_on(device);
  const Quantized from(memory, rows, width);
  return aligned && width % 4 == 0 ? run_quantized<Vec4>(body, from, rows, width, stream, start)
                                   : run_quantized<Real>(body, from, rows, width, stream, start);
}

}  // namespace rf
