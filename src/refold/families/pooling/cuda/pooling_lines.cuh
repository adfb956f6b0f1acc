// Pooling lines: means, or largest elements, of windows along long lines that overlap.
//
// Why: an element is in many windows, and a thread that reads a window whole takes it from the L1 as often
// as it lies in one, with the instructions that find it each time. Here a block computes a run of windows of
// one line: what they read is read once, computed once (`term`), and lies in shared memory, with the pool's
// identity in the places outside of the image. So windows have no edges.
//
//   threads    256; a thread's windows lie 256 apart: a warp reads and writes what lies together
//   shared     the reach of a run: up to 16 KB of floats
//   loads      all of a thread's at once, up to 16; then one barrier
#pragma once
#include "windows.cuh"

namespace rf {

template <class Body> struct PoolingLine {
  using Width = typename Body::Width;
  template <class W>
  static constexpr bool kIsOne = W::kSize == 1 && W::kStep == 1 && W::kInside && W::kMade == W::kGiven;
  static constexpr long kMostOfRun = 4 * kPoolingThreads, kMostOfReach = 16 * kPoolingThreads;
  static constexpr long kRuns = (Width::kMade + kMostOfRun - 1) / kMostOfRun;  // of a line
  static constexpr int kRun = int((Width::kMade + kRuns - 1) / kRuns);  // windows; the last run may have less
  static constexpr long kLong = (kRun - 1) * Width::kStep + Width::kSpan;
  // places on a line, and those read beyond its ends, are counted in 32 bits
  static constexpr bool kIsShort = Width::kGiven < 1 << 30 && Width::kMade * Width::kStep < 1 << 30;
  static constexpr bool kTakes = kIsShort && kIsOne<typename Body::Depth> && kIsOne<typename Body::Height> &&
                                 Width::kSize > 1 && Width::kSpan > Width::kStep && kRun > kPoolingThreads &&
                                 kLong <= kMostOfReach;
  static constexpr int kReach = kTakes ? int(kLong) : 1;  // elements that a run reads
};

// A run of windows of a line. Within: all that it reads lies in the image, all that it makes in the result.
template <class Body, bool Within> RF_FN void pool_run(const Body& body, Real* reach, long line, int first) {
  using Pool = typename Body::Pool;
  using Width = typename Body::Width;
  using Line = PoolingLine<Body>;
  constexpr int kLoads = (Line::kReach + kPoolingThreads - 1) / kPoolingThreads;
  constexpr int kResults = (Line::kRun + kPoolingThreads - 1) / kPoolingThreads;
  constexpr int kUnroll = Width::kSize <= kUnrolledTaps / 4 ? int(Width::kSize) : 8;
  const int left = int(Width::kMade) - first, made = Within || left > Line::kRun ? Line::kRun : left;
  const int begin = Width::begin(first), last = int((made - 1) * Width::kStep + Width::kSpan - 1);
  Real loaded[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; i++) {
    const int at = threadIdx.x + i * kPoolingThreads;
    const int col = begin + (at < last ? at : last);
    const Real element = body.template term<Real>(line, Width::template nearest<Within>(col));
    loaded[i] = Width::template holds<Within>(col) ? element : Pool::identity();
  }
#pragma unroll
  for (int i = 0; i < kLoads; i++) {
    const int at = threadIdx.x + i * kPoolingThreads;
    if (at < Line::kReach) reach[at] = loaded[i];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kResults; i++) {
    const int at = threadIdx.x + i * kPoolingThreads;
    if (at >= made) return;
    const Real* window = reach + at * Width::kStep;
    Real value = Pool::identity();
#pragma unroll kUnroll
    for (int tap = 0; tap < int(Width::kSize); tap++) value = Pool::of(value, window[tap * Width::kApart]);
    value = Pool::template whole<Body, Within>(value, 0, 0, first + at);
    body.template store<Real>(value, line, first + at);
  }
}

template <class Body>
__global__ void __launch_bounds__(kPoolingThreads) pooling_lines(const __grid_constant__ Body body) {
  using Line = PoolingLine<Body>;
  using Width = typename Body::Width;
  __shared__ Real reach[Line::kReach];
  const unsigned line = blockIdx.x / unsigned(Line::kRuns);
  const int first = int(blockIdx.x - line * unsigned(Line::kRuns)) * Line::kRun;
  sync_dependent_grids(body);
  // as one for all threads
  if (Width::has(Width::begin(first), Line::kReach) && first + Line::kRun <= Width::kMade)
    pool_run<Body, true>(body, reach, line, first);
  else
    pool_run<Body, false>(body, reach, line, first);
}

}  // namespace rf
