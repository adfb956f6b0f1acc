// Pooling: means, or largest elements, of windows of an image's planes.
//
// Why: a window's elements are neighbours in memory. Neighbouring threads take neighbouring windows of
// a row, so that what one warp reads lies together; windows that overlap read it again from the L1.
// Sizes are constants of the body: windows are unrolled, and no place is found by a division that
// takes long.
//
// A body gives
//   Pool                          LargestOf, or MeanOf<whether what is padded counts>
//   Depth, Height, Width          a Window each
//   term(row, col)                an element of the image, row after row of all planes
//   store(value, row, col)        takes an element of the result
//
// Long lines whose windows overlap have a kernel of their own (pooling_lines.cuh). Of others:
// threads whose windows lie in the image read them as they are: a load each, and what is met of it.
// What lies outside is read at the nearest place and left out: a load that waits for no branch is
// under way with all others.
//
// Layout: one thread takes a column of up to kRows rows of the result, where their windows overlap: a
// row of the image is met along the width once, for all of them. 256 threads a block; registers by the
// body; no shared memory.
#pragma once
#include "pooling_lines.cuh"

namespace rf {

struct PoolingBody {
  rf_watch::Look look = rf_watch::take_look();  // see look.h
};

template <class Body> struct PoolingShape {
  using Depth = typename Body::Depth;
  using Height = typename Body::Height;
  using Width = typename Body::Width;
  static constexpr bool kShares = Height::kSpan > Height::kStep &&
                                  Depth::kSize * Width::kSize * (Height::kSpan + 3 * Height::kStep) <= kUnrolledTaps;
  static constexpr int kRows = !kShares || Height::kMade == 1 ? 1 : Height::kMade < 4 ? int(Height::kMade) : 4;
  static constexpr bool kUnrolled = kShares || Depth::kSize * Height::kSize * Width::kSize <= kUnrolledTaps;
  static constexpr long kGroups = (Height::kMade + kRows - 1) / kRows;  // of rows of the result
  static constexpr int kReach = int((kRows - 1) * Height::kStep + Height::kSpan), kNext = kRows == 1 ? int(Height::kApart) : 1;
  // the row of the image that is read for another; a thread's last rows may lie behind the result
  template <bool Within> static RF_FN long nearest(long row) {
    if constexpr (Within) return row;
    else if constexpr (kRows > 1 && Height::kMade % kRows != 0) return row < 0 ? 0 : row < Height::kGiven ? row : Height::kGiven - 1;
    else return Height::template nearest<false>(row);
  }
  // whether row `at` of those that the thread reads belongs to the window of its row `r`
  static constexpr RF_FN bool takes(int r, int at) {
    const int in = at - r * int(Height::kStep);
    return in >= 0 && in % int(Height::kApart) == 0 && in < int(Height::kSpan);
  }
};

struct PoolingPlace { long plane, od, group, ow; };

// Which plane, rows and column a thread has; Index: of 32 bits where they suffice.
template <class Body, class Index> RF_FN PoolingPlace pooling_place(Index thread) {
  using Shape = PoolingShape<Body>;
  const Index columns = Index(Body::Width::kMade), groups = Index(Shape::kGroups), depth = Index(Body::Depth::kMade);
  const Index row = thread / columns, slice = row / groups, plane = slice / depth;
  return {long(plane), long(slice - plane * depth), long(row - slice * groups), long(thread - row * columns)};
}

// Whether all that a thread reads lies in the image, and all its rows in the result.
template <class Body> RF_FN bool lies_within(const PoolingPlace& at) {
  using Depth = typename Body::Depth;
  using Height = typename Body::Height;
  using Width = typename Body::Width;
  using Shape = PoolingShape<Body>;
  const long first = at.group * Shape::kRows;
  const bool rows = Height::kMade % Shape::kRows == 0 || first + Shape::kRows <= Height::kMade;
  return rows && Depth::has(Depth::begin(at.od), Depth::kSpan) && Height::has(Height::begin(first), Shape::kReach) &&
         Width::has(Width::begin(at.ow), Width::kSpan);
}

// A row of the image, met along the width by the window of a column.
template <class Body, bool Within> RF_FN Real met_along(const Body& body, long row, long ow) {
  using Pool = typename Body::Pool;
  using Width = typename Body::Width;
  constexpr int kUnroll = PoolingShape<Body>::kUnrolled ? int(Width::kSize) : 4;
  const long begin = Width::begin(ow);
  Real value = Pool::identity();
#pragma unroll kUnroll
  for (int i = 0; i < int(Width::kSize); i++) {
    const long col = begin + i * Width::kApart;
    const Real element = body.template term<Real>(row, Width::template nearest<Within>(col));
    value = Pool::of(value, Width::template holds<Within>(col) ? element : Pool::identity());
  }
  return value;
}

// A thread's elements of the result. Within: all that it reads lies in the image.
template <class Body, bool Within> RF_FN void pool_column(const Body& body, const PoolingPlace& at) {
  using Pool = typename Body::Pool;
  using Depth = typename Body::Depth;
  using Height = typename Body::Height;
  using Shape = PoolingShape<Body>;
  constexpr int kRows = Shape::kRows, kPlanes = int(Depth::kSize);
  constexpr int kUnrollDepth = Shape::kUnrolled ? kPlanes : 1, kUnrollRows = Shape::kUnrolled ? Shape::kReach : 1;
  Real values[kRows];
#pragma unroll
  for (int r = 0; r < kRows; r++) values[r] = Pool::identity();
  const long top = Height::begin(at.group * kRows);
#pragma unroll kUnrollDepth
  for (int i = 0; i < kPlanes; i++) {
    const long d = Depth::begin(at.od) + i * Depth::kApart;
    const long rows = (at.plane * Depth::kGiven + Depth::template nearest<Within>(d)) * Height::kGiven;
#pragma unroll kUnrollRows
    for (int j = 0; j < Shape::kReach; j += Shape::kNext) {
      bool wanted = false;
#pragma unroll
      for (int r = 0; r < kRows; r++) wanted |= Shape::takes(r, j);
      if (!wanted) continue;
      const Real along = met_along<Body, Within>(body, rows + Shape::template nearest<Within>(top + j), at.ow);
      const bool holds = Depth::template holds<Within>(d) && Height::template holds<Within>(top + j);
      const Real met = holds ? along : Pool::identity();
#pragma unroll
      for (int r = 0; r < kRows; r++)
        if (Shape::takes(r, j)) values[r] = Pool::of(values[r], met);
    }
  }
  const long above = (at.plane * Depth::kMade + at.od) * Height::kMade;
#pragma unroll
  for (int r = 0; r < kRows; r++) {
    const long oh = at.group * kRows + r;
    if (Within || oh < Height::kMade) {
      const Real value = Pool::template whole<Body, Within>(values[r], at.od, oh, at.ow);
      body.template store<Real>(value, above + oh, at.ow);
    }
  }
}

template <class Body>
__global__ void __launch_bounds__(kPoolingThreads)
    pooling_windows(const __grid_constant__ Body body, long threads) {
  const long thread = long(blockIdx.x) * kPoolingThreads + threadIdx.x;
  sync_dependent_grids(body);
  if (thread >= threads) return;
  const PoolingPlace at = threads <= 0xffffffffL ? pooling_place<Body>(unsigned(thread))
                                                 : pooling_place<Body>(static_cast<unsigned long>(thread));
  if (lies_within<Body>(at)) pool_column<Body, true>(body, at);
  else pool_column<Body, false>(body, at);
}

template <class Body> Error pooling(const Body& body, long planes, cudaStream_t stream) {
  Device device;
  RF_TRY(current_device(device));
  unsigned grid;
  if constexpr (PoolingLine<Body>::kTakes) {
    const long lines = planes * Body::Depth::kMade * Body::Height::kMade;
    if (lines == 0) return nullptr;
    RF_TRY(grid_of(lines * PoolingLine<Body>::kRuns, grid));
    return launch(pooling_lines<Body>, grid, kPoolingThreads, 0, stream, launch_mode_on(device),
                  "launching a pooling kernel of lines", body);
  } else {
    const long threads = planes * Body::Depth::kMade * PoolingShape<Body>::kGroups * Body::Width::kMade;
    if (threads == 0) return nullptr;
    RF_TRY(grid_of(blocks_of(threads, kPoolingThreads), grid));
    return launch(pooling_windows<Body>, grid, kPoolingThreads, 0, stream, launch_mode_on(device),
                  "launching a pooling kernel", body, threads);
  }
}

}  // namespace rf
