// Few: the product of a long side with a few rows, bound by reading the long side.
//
// `many` rows of the long side are streamed once, in place, against all of the few rows, which
// stay in L1 a slice of k at a time. A tile is `Few` x `Many` dot products,
// each summed in one vector along a slice, to which the vectors of the other slices are added: one
// long sum would be less accurate than PyTorch's. Nothing is packed. The rows that the next tile
// reads are asked for while this one computes.
#pragma once
#include "gemm.h"
#include "monoid.h"

namespace rf {

constexpr long kSkinny = 12;          // at most so many rows on the short side
constexpr long kMany = 64;         // rows of the long side in a task
constexpr long kSlice = 4096;      // floats of the few rows in a slice: half of the first level
constexpr long kLongest = 2048;    // steps of k in a slice, which is summed by itself

// sums[many][Few] (+)= dot products over `depth` of Many rows at m (ldm apart) with Few rows at f.
template <int Few, int Many, class F, class M>
inline void dot_tile(bool first, long depth, const F* const* f, const M* m, long ldm, const M* next,
                     Vec* sums) {
  Vec s[Many][Few];
#pragma GCC unroll 16
  for (int j = 0; j < Many; j++)
#pragma GCC unroll 16
    for (int i = 0; i < Few; i++) s[j][i] = Vec(0.0f);
  auto step = [&](long k, auto read) __attribute__((always_inline)) {
    Vec b[Many];
#pragma GCC unroll 16
    for (int j = 0; j < Many; j++) b[j] = read(m + j * ldm + k);
#pragma GCC unroll 16
    for (int i = 0; i < Few; i++) {
      const Vec a = read(f[i] + k);
#pragma GCC unroll 16
      for (int j = 0; j < Many; j++) s[j][i] = fmadd(a, b[j], s[j][i]);
    }
  };
  long k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
#pragma GCC unroll 16
    for (int j = 0; j < Many; j++) __builtin_prefetch(next + j * ldm + k, 0, 3);
    step(k, [](const auto* p) { return read_lanes(p); });
  }
  if (k < depth) step(k, [&](const auto* p) { return read_lanes(p, depth - k); });
#pragma GCC unroll 16
  for (int j = 0; j < Many; j++)
#pragma GCC unroll 16
    for (int i = 0; i < Few; i++) sums[j * Few + i] = first ? s[j][i] : sums[j * Few + i] + s[j][i];
}

// out[j * step_many + i * step_few] = dot product of row j of m with row i of f, for `many` rows of
// m and `few` of f. sums: room for kMany * Few vectors.
template <int Few, int Many, class F, class M>
void dots(long few, long many, long depth, const F* f, long ldf, const M* m, long ldm, Vec* sums,
          Real* out, long step_few, long step_many) {
  const long slice = std::min(round_up(kSlice / Few, kLanes), kLongest);
  const F* rows[Few];
  for (long k = 0; k == 0 || k < depth; k += slice) {
    const long steps = std::min(slice, depth - k);
    // where there are fewer than Few rows, the last one stands in for the rest
    for (long i = 0; i < Few; i++) rows[i] = f + std::min(i, few - 1) * ldf + k;
    long j = 0;
    for (; j + Many <= many; j += Many) {
      const M* here = m + j * ldm + k;
      const M* next = j + 2 * Many <= many ? here + Many * ldm : m + k + slice;
      dot_tile<Few, Many>(k == 0, steps, rows, here, ldm, next, sums + j * Few);
    }
    for (; j < many; j++) {
      const M* here = m + j * ldm + k;
      dot_tile<Few, 1>(k == 0, steps, rows, here, ldm, here, sums + j * Few);
    }
  }
  for (long j = 0; j < many; j++)
    for (long i = 0; i < few; i++)
      out[j * step_many + i * step_few] = Sum::horizontal(sums[j * Few + i]);
}

template <class F, class M>
using Dots = void (*)(long, long, long, const F*, long, const M*, long, Vec*, Real*, long, long);
template <class F, class M> Dots<F, M> dots_for(long few) {
#if defined(CPU_CAPABILITY_AVX512)
  if (few <= 1) return dots<1, 8, F, M>;
  if (few <= 2) return dots<2, 8, F, M>;
  if (few <= 4) return dots<4, 6, F, M>;
  if (few <= 6) return dots<6, 4, F, M>;
  if (few <= 8) return dots<8, 3, F, M>;
  return dots<12, 2, F, M>;
#else
  if (few <= 1) return dots<1, 8, F, M>;
  if (few <= 2) return dots<2, 4, F, M>;
  if (few <= 4) return dots<4, 2, F, M>;
  if (few <= 8) return dots<8, 1, F, M>;
  return dots<12, 1, F, M>;
#endif
}

}  // namespace rf
