// GEMM: acc[row, col] = sum over k of A[row, k] * W[col, k], for a block of acc kept in cache.
//
// Both sides are copied into panels that the inner loop reads straight through: A in panels of up
// to kMostRows rows, W in panels of one or two vectors of columns, each panel as [k][row or
// column]. The inner loop keeps a tile of sums in registers (28 of AVX-512's 32 vectors, 12 of
// AVX2's 16) over kDepth steps of k, then adds it to acc. A panel of A (10 KB) stays near the
// L1 for all panels of W of a strip (88 KB, in L2), acc in L2: what comes from further away is used kWide times, and is
// asked for ahead by the inner loop.
//
// Panels have as many rows as each other, or one more, so that none is padded: 200 rows are 5
// panels of 14 and 10 of 13. Summing kDepth at a time makes the rounding error less than
// PyTorch's (by 3%; equal at 192). On a core of 118 GFLOP/s (Zen 4) the inner loop runs at 98% of
// peak, large products at 92%: the rest is touching new memory for the result, packing, and what
// follows the product.
#pragma once
#include "lanes.h"
#include "parallel.h"

namespace rf {

#if defined(CPU_CAPABILITY_AVX512)
constexpr int kMostRows = 14, kLeastRows = 7;
#else
constexpr int kMostRows = 6, kLeastRows = 4;
#endif
constexpr long kTileCols = 2 * kLanes;
constexpr long kDepth = 176;      // k steps between two visits of acc: a multiple of kLine
constexpr long kWide = 128;       // most columns of a strip, and the distance of rows in acc
constexpr long kLine = 64 / sizeof(Real);  // numbers in a cache line

// n rows in panels: the fewest of at most kMostRows rows, as even as can be.
struct Panels {
  long n, count;
  explicit Panels(long rows) : n(rows), count(pieces(rows, kMostRows)) {}
  long start(long p) const { return n * p / count; }
  long rows(long p) const { return start(p + 1) - start(p); }
};

// kLanes vectors of a matrix, transposed.
template <class V> RF_FN void transpose(V* block) {
  // each step shuffles rows and lanes as one moves a digit of an index from its end to its front
  for (long step = 1; step < kLanes; step *= 2) {
    V next[kLanes];
#pragma GCC unroll 8
    for (long i = 0; i < kLanes / 2; i++) {
      const auto halves = interleave2(block[i], block[i + kLanes / 2]);
      next[2 * i] = halves.first;
      next[2 * i + 1] = halves.second;
    }
#pragma GCC unroll 8
    for (long i = 0; i < kLanes; i++) block[i] = next[i];
  }
}
#if defined(CPU_CAPABILITY_AVX512)
// Floats by 64 shuffles of lanes near each other: 0.36 cycles an element (0.54 by the other way).
RF_FN void transpose(FloatVec* block) {
  constexpr long kFloats = 16;
  __m512 r[kFloats], t[kFloats];
#pragma GCC unroll 8
  for (long i = 0; i < kFloats; i += 2) {
    t[i] = _mm512_unpacklo_ps(block[i], block[i + 1]);
    t[i + 1] = _mm512_unpackhi_ps(block[i], block[i + 1]);
  }
#pragma GCC unroll 16
  for (long i = 0; i < kFloats; i++) {  // each four lanes: four rows of one column
    const long from = i / 4 * 4 + i % 4 / 2;
    const __m512d x = _mm512_castps_pd(t[from]), y = _mm512_castps_pd(t[from + 2]);
    r[i] = _mm512_castpd_ps(i % 2 == 0 ? _mm512_unpacklo_pd(x, y) : _mm512_unpackhi_pd(x, y));
  }
#pragma GCC unroll 8
  for (long i = 0; i < kFloats / 2; i++) {  // two fours of one column, and two of that 8 further on
    const long from = i / 4 * 8 + i % 4;
    t[i / 4 * 8 + i % 4] = _mm512_shuffle_f32x4(r[from], r[from + 4], 0x88);
    t[i / 4 * 8 + i % 4 + 4] = _mm512_shuffle_f32x4(r[from], r[from + 4], 0xdd);
  }
#pragma GCC unroll 8
  for (long i = 0; i < kFloats / 2; i++) {
    block[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
    block[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
  }
}
#endif

// src: `count` rows of `depth` floats, ld apart -> dst[k][panel]. `panel` is `count`, or a multiple
// of kLanes; then copies of the last row fill it up (what becomes of them is not read). Not inlined,
// like multiply(): each of its many calls would be compiled anew, for up to half of a module's time.
template <class T>
__attribute__((noinline)) void pack(const T* src, long ld, long count, long depth, long panel,
                                    Real* dst) {
  for (long r = 0; r < panel; r += kLanes) {
    const bool whole_lanes = panel - r >= kLanes;
    for (long k = 0; k < depth; k += kLanes) {
      const long steps = std::min(kLanes, depth - k);
      Vec block[kLanes];
#pragma GCC unroll 16
      for (long i = 0; i < kLanes; i++) {
        const T* row = src + std::min(r + i, count - 1) * ld + k;
        block[i] = steps == kLanes ? read_lanes(row) : read_lanes(row, steps);
      }
      transpose(block);
      Real* to = dst + k * panel + r;
#pragma GCC unroll 16
      for (long i = 0; i < kLanes; i++, to += panel) {
        if (i == steps) break;
        // lanes beyond a narrow panel are overwritten by its next steps, if they reach as far: what
        // lies behind the panel may be another thread's
        if (whole_lanes || (r == 0 && (depth - k - i) * panel >= kLanes)) block[i].store(to);
        else block[i].store(to, static_cast<int>(panel - r));
      }
    }
  }
}

// What the inner loop asks for while it computes: lines from `a` on, and rows of W `ld` apart, of
// which it fetches the next kDepth floats each.
struct Prefetch {
  const Real* a;
  const char* w;
  long ld;  // bytes
};
template <class T> RF_FN Prefetch prefetch_of(const Real* a, const T* w, long ld) {
  return {a, reinterpret_cast<const char*>(w), ld * static_cast<long>(sizeof(T))};
}
constexpr long kRowsAhead = kDepth / 4 / (kDepth / kLine);  // rows of W that one tile asks for

// One register tile: acc[i][j] (+)= sum over k of a[k][i] * b[k][j], R rows by C vectors.
template <int R, int C>
void register_tile(bool first, long depth, const Real* __restrict a, const Real* __restrict b,
                   Real* __restrict acc, Prefetch ahead) {
  Vec sum[R][C];
#pragma GCC unroll 16
  for (int i = 0; i < R; i++)
#pragma GCC unroll 2
    for (int j = 0; j < C; j++) sum[i][j] = Vec(0.0f);
  auto step = [&]() __attribute__((always_inline)) {
    Vec w[C];
#pragma GCC unroll 2
    for (int j = 0; j < C; j++) w[j] = Vec::loadu(b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < R; i++) {
      const Vec x(a[i]);
#pragma GCC unroll 2
      for (int j = 0; j < C; j++) sum[i][j] = fmadd(x, w[j], sum[i][j]);
    }
    a += R;
    b += C * kLanes;
  };
  long k = 0;
  for (long row = 0; row < kRowsAhead && k + 4 * kDepth / kLine <= depth; row++) {
    const char* w = ahead.w + row * ahead.ld;
    for (long u = 0; u < kDepth / kLine; u++, k += 4, w += 64, ahead.a += kLine) {
      __builtin_prefetch(ahead.a, 0, 2);
      __builtin_prefetch(w, 0, 2);
      step();
      step();
      step();
      step();
    }
  }
  for (; k < depth; k++) step();
#pragma GCC unroll 16
  for (int i = 0; i < R; i++, acc += kWide)
#pragma GCC unroll 2
    for (int j = 0; j < C; j++) {
      Real* to = acc + j * kLanes;
      (first ? sum[i][j] : Vec::loadu(to) + sum[i][j]).store(to);
    }
}
using Tile = void (*)(bool, long, const Real*, const Real*, Real*, Prefetch);
template <int C, int R = kMostRows> Tile tile_for(long rows) {
  if constexpr (R < kLeastRows) return nullptr;
  else return rows == R ? register_tile<R, C> : tile_for<C, R - 1>(rows);
}

// The tiles that Panels need: of two heights, one vector wide or two.
struct Tiles {
  long least;
  Tile of[2][2];
  explicit Tiles(const Panels& panels) : least(panels.n / panels.count) {
    for (long i = 0; i < 2; i++) {
      of[i][0] = tile_for<1>(least + i);
      of[i][1] = tile_for<2>(least + i);
    }
  }
};

// The rows of A, ld apart, in panels. packed: as [kDepth of k][panel][k][row], the panels from
// `origin` on, which have `rows` rows; or null, and each panel is packed when it is needed.
template <class T> struct LhsPanels {
  const Panels& panels;
  const T* data;
  long ld;
  Real* packed = nullptr;
  long origin = 0, rows = 0;
};

// Some columns of the product: `cols` rows of W at data, ld apart. next: those that come next.
template <class T> struct Strip {
  const T* data;
  long ld, cols;
  const T* next;
};

// acc = the product of the panels [first, last) of A with one strip of W. scratch: kScratch floats.
constexpr long kScratch = (kWide + round_up(kMostRows, kLanes)) * kDepth;
template <class TA, class TW>
__attribute__((noinline)) void multiply(const LhsPanels<TA>& a, const Tiles& tiles, long first, long last,
                                        const Strip<TW>& w, long depth, Real* scratch, Real* acc) {
  Real* own_panel = scratch + kWide * kDepth;
  const long top = a.panels.start(first);
  for (long k = 0; k < depth; k += kDepth) {
    const long steps = std::min(kDepth, depth - k);
    for (long j = 0; j < w.cols; j += kTileCols) {
      const long count = std::min(kTileCols, w.cols - j);
      pack(w.data + j * w.ld + k, w.ld, count, steps, round_up(count, kLanes), scratch + j * steps);
    }
    const TW* next = k + kDepth < depth ? w.data + k + kDepth : w.next;
    long asked = 0;  // rows of W
    for (long p = first; p < last; p++) {
      const long height = a.panels.rows(p), start = a.panels.start(p);
      const Real* panel = a.packed + k * a.rows + (start - a.panels.start(a.origin)) * steps;
      if (a.packed == nullptr) {
        pack(a.data + start * a.ld + k, a.ld, height, steps, height, own_panel);
        panel = own_panel;
        asked = 0;
      }
      for (long j = 0; j < w.cols; j += kTileCols, asked += kRowsAhead) {
        const Real* panel_ahead = panel + height * steps + j * height * steps / w.cols;
        Prefetch ahead = prefetch_of(panel_ahead, next, 0);
        if (a.packed == nullptr)
          ahead = prefetch_of(panel_ahead, a.data + (start + height + asked) * a.ld + k, a.ld);
        else if (asked + kRowsAhead <= w.cols)
          ahead = prefetch_of(panel_ahead, next + asked * w.ld, w.ld);
        tiles.of[height - tiles.least][w.cols - j > kLanes](
            k == 0, steps, panel, scratch + j * steps, acc + (start - top) * kWide + j, ahead);
      }
    }
  }
}

}  // namespace rf
