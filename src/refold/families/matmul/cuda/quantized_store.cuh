// The end of an epilogue that stores its fragment quantized (quantized.cuh) and takes the moments of its columns.
//
// Why by itself: what is quantized needs a centre for each column, known to all of its lanes, and given that, the
// moments' second word and the codes' range are a sum and a maximum of the same squares. Chan's formula, which has to
// do without a centre, exchanges both words and weighs them at each step. First the columns' means; then
// distances from these, their squares' sum and range; then codes, or values where the range is too large.
//
// The range of a column is the largest root of a thread's sum of squares, of 4 rows: no distance is more, and of
// normal data it is 1.3 times the largest distance, which would take as many instructions again to find.
#pragma once
#include "epilogue.cuh"
#include "narrow.cuh"
#include "quantized.cuh"

namespace rf {

template <class Body> struct Quantizing : Body { Quantized to; };
template <class Body> Quantizing<Body> quantizing(const Body& body, float* memory, long rows) {
  return {body, Quantized(memory, rows, body.width)};
}

constexpr float kWidest = 0.5f;  // the largest square of a range, as a share of the squares' sum

// A column's sum of squares and the largest of its threads' sums.
struct SquaresAndLargest {
  struct Partial { float w[2]; };
  static constexpr int kWords = 2;
  static RF_FN Partial merge(const Partial& p, const Partial& q, Weight) {
    return {{p.w[0] + q.w[0], maximum(p.w[1], q.w[1])}};
  }
};
struct NoWeights { Weight step[3]; };

// Reduces a group's columns across the warp's lanes and leaves them for its warpgroup.
template <class D, class Body, int G>
RF_FN void store_column_partials(typename D::Partial (&partial)[8], int g, EpilogueStorage<Body, G>& shared) {
  const int lane = read_tid_x() % 32, warp = read_tid_x() / 32 % 4;
  const int mine = reduce_columns_across_lanes<D>(partial, NoWeights{}, lane);
#pragma unroll
  for (int w = 0; w < D::kWords; w++)
    shared.columns[warp][w][32 * g + 8 * (mine / 2) + 2 * (lane % 4) + mine % 2] = partial[0].w[w];
}

// share: one over the fragment's rows.
template <bool Whole, int MI, int G, class Body, class Rows>
RF_FN void take_means(const Fragment<MI, G>& acc, const Rows& rows, float share, int g, int at,
                      EpilogueStorage<Body, G>& shared) {
  Down<Sum>::Partial partial[8];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    float sum = 0.0f;
#pragma unroll
    for (int r = 0; r < 2 * MI; r++)
      sum += Whole || rows.in[r] ? acc.x[r / 2][at + 4 * (i / 2) + 2 * (r % 2) + i % 2] : 0.0f;
    partial[i].w[0] = sum * share;
  }
  store_column_partials<Down<Sum>>(partial, g, shared);
}

// A group's values become distances from their columns' centres, in shared.unscale. What is outside is none.
template <bool Whole, int MI, int G, class Body, class Rows>
RF_FN void take_distances(Fragment<MI, G>& acc, const Rows& rows, int g, int at, EpilogueStorage<Body, G>& shared) {
  const int lane = read_tid_x() % 32;
  SquaresAndLargest::Partial partial[8];
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const float2 centre = *reinterpret_cast<const float2*>(&shared.unscale[32 * g + 4 * i + 2 * (lane % 4)]);
#pragma unroll
    for (int e = 0; e < 2; e++) {
      float squares = 0.0f;
#pragma unroll
      for (int r = 0; r < 2 * MI; r++) {
        float& x = acc.x[r / 2][at + 2 * i + 2 * (r % 2) + e];
        x = Whole || rows.in[r] ? x - (e ? centre.y : centre.x) : 0.0f;
        squares = fma(x, x, squares);
      }
      partial[i + e] = {{squares, squares}};
    }
  }
  store_column_partials<SquaresAndLargest>(partial, g, shared);
}

// Stores a group's codes; the columns' rates, codes a distance, are in shared.columns[0][0].
template <bool Whole, int MI, int G, class Body, class Rows>
RF_FN void store_codes(const Quantized& to, const Fragment<MI, G>& acc, const Rows& rows, int col0, int g, int at,
                       const EpilogueStorage<Body, G>& shared) {
  const int lane = read_tid_x() % 32, first = 32 * g + 2 * (lane % 4);
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    const float2 rate = *reinterpret_cast<const float2*>(&shared.columns[0][0][first + 8 * j]);
    const float2 next = *reinterpret_cast<const float2*>(&shared.columns[0][0][first + 8 * j + 8]);
#pragma unroll
    for (int r = 0; r < 2 * MI; r++) {
      const float* x = &acc.x[r / 2][at + 4 * j + 2 * (r % 2)];
      const uint32_t words[2] = {quantize(x[0], x[1], rate.x, rate.y), quantize(x[4], x[5], next.x, next.y)};
      uint16_t* row = to.codes + rows.row[r] * to.cols;
      if constexpr (Whole) {
        exchange_pairs(row + col0 + first, 8 * j, words[0], words[1]);
      } else {
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const int col = col0 + first + 8 * (j + i / 2) + i % 2;
          if (rows.in[r] && col < to.cols) row[col] = static_cast<uint16_t>(words[i / 2] >> 16 * (i % 2));
        }
      }
    }
  }
}

// Stores a group's values by their distances.
template <bool Whole, int MI, int G, class Body, class Rows>
RF_FN void store_values(const Body& body, const Fragment<MI, G>& acc, const Rows& rows, int col0, int g,
                        const EpilogueStorage<Body, G>& shared) {
  const int first = 32 * g + 2 * (read_tid_x() % 4), last = static_cast<int>(body.to.cols) - 1;
#pragma unroll
  for (int j = 0; j < 4; j++) {
    const int col = col0 + first + 8 * j;
    const float2 centre = *reinterpret_cast<const float2*>(&shared.unscale[first + 8 * j]);
#pragma unroll
    for (int r = 0; r < 2 * MI; r++) {
      const float* x = &acc.x[r / 2][4 * j + 2 * (r % 2)];
      const float value[2] = {x[0] + centre.x, x[1] + centre.y};
      const long row = rows.row[r];
      if constexpr (Whole) {
        body.store(row, ColumnPair<true>{col, 0, value[1]}, value[0]);
      } else {
        if (rows.in[r] && col < last) body.store(row, ColumnPair<false>{col, 0, value[1]}, value[0]);
        else if (rows.in[r] && col == last) body.store(row, col, value[0]);
      }
    }
  }
}

// Calls f(group, where it stands) for each of the fragment's groups: unrolled if Whole, else at 0 by rotating.
template <bool Whole, int MI, int G, class F> RF_FN void for_groups(Fragment<MI, G>& acc, const F& f) {
  if constexpr (Whole) {
#pragma unroll
    for (int g = 0; g < G; g++) f(g, 16 * g);
  } else {
#pragma unroll 1
    for (int g = 0; g < G; g++) {
      f(g, 0);
      acc.rotate(false);
    }
  }
}

// Whole: no edge of the result cuts the fragment, and its rows start at multiples of 8 bytes. moments: where the
// first column's go, the second word p.cols after the first.
template <int MI, int G, int Inside, class Body, class P, class Rows>
RF_FN void store_quantized(Step<Inside>, const Body& body, const P& p, Fragment<MI, G>& acc, const Rows& rows, int row0,
                           int col0, float* moments, EpilogueStorage<Body, G>& shared, int barrier) {
  constexpr bool Whole = Inside;
  static_assert(64 * MI == kQuantizedRows && 32 * G == 128, "a fragment is a block of rows, a thread has a column");
  const Quantized& to = body.to;
  const int thread = read_tid_x() % kWarpgroupThreads, col = col0 + thread;
  const auto total = [&](int word) {
    return (shared.columns[0][word][thread] + shared.columns[1][word][thread]) +
           (shared.columns[2][word][thread] + shared.columns[3][word][thread]);
  };
  const float share = Whole ? 1.0f / kQuantizedRows : 1.0f / min(kQuantizedRows, static_cast<int>(p.row_end()) - row0);
  for_groups<Whole>(acc, [&](int g, int at) { take_means<Whole>(acc, rows, share, g, at, shared); });
  named_barrier_sync(barrier, kWarpgroupThreads);
  const float centre = total(0);
  shared.unscale[thread] = centre;
  named_barrier_sync(barrier, kWarpgroupThreads);
  for_groups<Whole>(acc, [&](int g, int at) { take_distances<Whole>(acc, rows, g, at, shared); });
  named_barrier_sync(barrier, kWarpgroupThreads);
  const float m2 = total(0);
  float squares = shared.columns[0][1][thread];
#pragma unroll
  for (int i = 1; i < 4; i++) squares = maximum(squares, shared.columns[i][1][thread]);
  // A square loses less than 2^-140 below float32's range, and a step of that says nothing of values as small.
  const bool tiny = squares < 0x1p-100f && fabsf(centre) < 0x1p-40f && (squares > 0.0f || centre != 0.0f);
  const bool narrow = squares <= kWidest * m2 && is_finite(squares) && !tiny;
  const float range = sqrtf(squares + 0x1p-140f);
  shared.columns[0][0][thread] = 32767.0f / range;
  const bool quantized = all_agree(shared, narrow || col >= to.cols, barrier);
  if (col < to.cols) {
    moments[col] = centre, moments[p.cols + col] = m2;
    to.centres(row0)[col] = centre;
    to.steps(row0)[col] = quantized ? range / 32767.0f : kAsItIs;
  }
  if (quantized)
    for_groups<Whole>(acc, [&](int g, int at) { store_codes<Whole>(to, acc, rows, col0, g, at, shared); });
  else
    for_groups<false>(acc, [&](int g, int) { store_values<Whole>(body, acc, rows, col0, g, shared); });
}

}  // namespace rf
