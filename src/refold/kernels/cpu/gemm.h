// GEMM: acc[row, col] = sum over k of A[row, k] * W[col, k], one tile of acc at a time, in cache.
//
// Both sides are copied into panels that the inner loop reads straight through: A in panels of R
// rows, W in panels of kTileCols columns, each panel as [k][row or column]. The inner loop keeps a
// tile of R x kTileCols sums in registers (28 of AVX-512's 32 vectors at R = 14, 12 of AVX2's 16 at
// R = 6) over kDepth steps of k, then adds it to a tile of acc in the second-level cache. Summing in
// parts of kDepth also keeps the rounding error below that of one long sum. R is chosen so that
// little of the last panel is padding: 128 rows are 9.1 panels of 14, but 9.8 of 13.
//
// The weight is packed a strip of kWide columns at a time, each element once per call however many
// rows there are (up to kPackedBytes of rows), and is read from cache after that.
#pragma once
#include "lanes.h"

namespace rf {

#if defined(CPU_CAPABILITY_AVX512)
constexpr int kMostRows = 14, kLeastRows = 8;
#else
constexpr int kMostRows = 6, kLeastRows = 4;
#endif
constexpr long kTileCols = 2 * kLanes;
constexpr long kDepth = 192;              // k steps between two visits of acc
constexpr long kWide = 64;                // columns of acc in a macro tile, and of a strip
constexpr long kPanels = 4;               // panels of rows in a macro tile
constexpr long kPackedBytes = 64L << 20;  // of rows are packed at a time

// The height of register tiles that wastes least on n rows; taller tiles load less per product.
inline int rows_per_panel(long n) {
  int best = kMostRows;
  double least = 1e300;
  for (int r = kMostRows; r >= kLeastRows; r--) {
    const double cost = static_cast<double>((n + r - 1) / r * r) * (1.0 + 0.01 * (kMostRows - r));
    if (cost < least) least = cost, best = r;
  }
  return best;
}

// src: `count` rows of `depth` floats, ld apart -> dst[k][panel], rows beyond `count` as zeros.
inline void pack_panel(const float* src, long ld, long count, long depth, long panel, float* dst) {
  if (count < panel) std::fill(dst, dst + depth * panel, 0.0f);
  for (long r = 0; r < count; r += kLanes)
    for (long k = 0; k < depth; k += kLanes)
      at::vec::transpose_mxn<float>(src + r * ld + k, ld, dst + k * panel + r, panel,
                                    static_cast<int>(std::min(kLanes, count - r)),
                                    static_cast<int>(std::min(kLanes, depth - k)));
}

// One register tile: acc[i][j] (+)= sum over k of a[k][i] * b[k][j].
template <int R>
RF_FN void register_tile(bool first, long depth, const float* a, const float* b, float* acc) {
  Vec sum[R][2];
#pragma GCC unroll 16
  for (long i = 0; i < R; i++) sum[i][0] = sum[i][1] = Vec(0.0f);
  for (long k = 0; k < depth; k++, a += R, b += kTileCols) {
    const Vec b0 = Vec::loadu(b), b1 = Vec::loadu(b + kLanes);
#pragma GCC unroll 16
    for (long i = 0; i < R; i++) {
      const Vec x(a[i]);
      sum[i][0] = at::vec::fmadd(x, b0, sum[i][0]);
      sum[i][1] = at::vec::fmadd(x, b1, sum[i][1]);
    }
  }
#pragma GCC unroll 16
  for (long i = 0; i < R; i++, acc += kWide) {
    (first ? sum[i][0] : Vec::loadu(acc) + sum[i][0]).store(acc);
    (first ? sum[i][1] : Vec::loadu(acc + kLanes) + sum[i][1]).store(acc + kLanes);
  }
}

// One macro tile of acc, [panels * R][kWide], from packed panels of `depth` steps of k each.
template <int R>
void macro_tile(long panels, long cols, long depth, const float* a, const float* b, float* acc) {
  for (long k = 0; k < depth; k += kDepth) {
    const long steps = std::min(kDepth, depth - k);
    for (long j = 0; j < cols; j += kTileCols)
      for (long p = 0; p < panels; p++)
        register_tile<R>(k == 0, steps, a + p * R * depth + k * R, b + j * depth + k * kTileCols,
                         acc + p * R * kWide + j);
  }
}
using MacroTile = void (*)(long, long, long, const float*, const float*, float*);
template <int R = kMostRows> MacroTile macro_tile_for(int r) {
  if constexpr (R < kLeastRows) return nullptr;
  else return r == R ? macro_tile<R> : macro_tile_for<R - 1>(r);
}

// The same for a few rows, where the product is bound by reading W: every element of W is read
// once, in place, and multiplied with all rows.
constexpr long kFewRows = 4;
template <int Rows>
inline void few_rows(long cols, long depth, const float* a, long lda, const float* w, long ldw,
                     float* acc) {
  for (long j = 0; j < cols; j++, w += ldw) {
    Vec sum[Rows][4];
    for (auto& s : sum)
      for (Vec& v : s) v = Vec(0.0f);
    long k = 0;
    for (; k + 4 * kLanes <= depth; k += 4 * kLanes)
      for (int u = 0; u < 4; u++) {
        const Vec b = Vec::loadu(w + k + u * kLanes);
        for (int i = 0; i < Rows; i++)
          sum[i][u] = at::vec::fmadd(Vec::loadu(a + i * lda + k + u * kLanes), b, sum[i][u]);
      }
    for (; k < depth; k += kLanes) {
      const long left = std::min(kLanes, depth - k);
      const Vec b = Vec::loadu(w + k, left);
      for (int i = 0; i < Rows; i++)
        sum[i][0] = at::vec::fmadd(Vec::loadu(a + i * lda + k, left), b, sum[i][0]);
    }
    for (int i = 0; i < Rows; i++) {
      float x[kLanes];
      ((sum[i][0] + sum[i][1]) + (sum[i][2] + sum[i][3])).store(x);
      for (long n = kLanes / 2; n; n /= 2)
        for (long l = 0; l < n; l++) x[l] += x[l + n];
      acc[i * kWide + j] = x[0];
    }
  }
}

}  // namespace rf
