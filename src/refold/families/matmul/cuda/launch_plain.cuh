// Launch: the host side of the plain product, rf::matmul<Plain>.
#pragma once
#include "matmul_plain.cuh"
#include "operand.cuh"

namespace rf {

template <class A, class B, class Body> struct Product<PlainOf<A, B>, Body> {
  template <class T>
  static Partition<Body> partition(long rows, long cols) {
    return {rows, cols, 64 * T::kMI, 32 * T::kG};
  }

  // Of any kernel that could be chosen: the depth is not known here.
  static Error bytes(long rows, long cols, long, size_t& scratch, size_t& arrivals, long) {
    static_assert(!Body::kBatched, "of a batch only tensor cores make products");
    const Partition<Body> tiled = partition<Tiled>(rows, cols), skinny = partition<Skinny<4, false>>(rows, cols);
    scratch = tiled.bytes() > skinny.bytes() ? tiled.bytes() : skinny.bytes();
    arrivals = (tiled.arrivals() > skinny.arrivals() ? tiled.arrivals() : skinny.arrivals()) * sizeof(unsigned);
    return nullptr;
  }

  template <class T>
  static Error skinny(const Body& body, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
                    cudaStream_t stream) {
    const auto by_four = [](const Operand& s, size_t element) {
      return reinterpret_cast<uintptr_t>(s.plain) % (4 * element) == 0 && s.ld % 4 == 0;
    };
    const unsigned blocks = static_cast<unsigned>(blocks_of(T::kAcross ? a.rows : b.rows, T::kLong));
    const Partition<Body> grid = partition<T>(a.rows, b.rows);
    const Problem problem = grid.problem(a, b, depth, workspace);
    RF_TRY(launch(matmul_skinny<T, A, B, Body>, blocks, T::kThreads, 0, stream, LaunchMode::overlapping,
                  "launching the skinny product", problem, body, by_four(a, sizeof(A)) && by_four(b, sizeof(B))));
    return grid.finalize(body, problem, stream);
  }

  static Error run(const Body& body, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
                   cudaStream_t stream) {
    constexpr long kFar = 1L << 28;  // eight rows this far apart are within 2^31 elements
    if (depth >= 128 && a.ld < kFar && b.ld < kFar) {  // a warp has four of k for each lane
      if (a.rows <= 4) return skinny<Skinny<4, false>>(body, a, b, depth, workspace, stream);
      if (a.rows <= 8) return skinny<Skinny<8, false>>(body, a, b, depth, workspace, stream);
      if (a.rows <= 16) return skinny<Skinny<16, false>>(body, a, b, depth, workspace, stream);
      if (b.rows <= 16) return skinny<Skinny<16, true>>(body, a, b, depth, workspace, stream);
    }
    const Partition<Body> grid = partition<Tiled>(a.rows, b.rows);
    const Problem problem = grid.problem(a, b, depth, workspace);
    const long blocks = blocks_of(a.rows, Tiled::kTileRows) * blocks_of(b.rows, Tiled::kTileCols);
    if (blocks > INT32_MAX) return error("a product of %ld x %ld has too many tiles", a.rows, b.rows);
    RF_TRY(launch(matmul_tiled<A, B, Body>, static_cast<unsigned>(blocks), Tiled::kThreads, 0, stream,
                  LaunchMode::overlapping, "launching the plain product", problem, body));
    return grid.finalize(body, problem, stream);
  }
};

}  // namespace rf
