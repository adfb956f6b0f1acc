// Fragment: what a warpgroup (four warps) holds of a product, 64 MI rows by 32 G columns in 16 G MI registers a thread.
//
// Layout: a warpgroup is four warps that hold a fragment of 64 MI rows and 32 G columns the way the
// tensor cores leave it: acc[mi][16 g + 4 j + 2 h + e] of lane l of warp w is the element
//   row  64 mi + 16 w + 8 h + l / 4,   column  32 g + 8 j + 2 (l % 4) + e.
//
// Elements that tensor cores could not compute are computed again here, before any epilogue sees them.
#pragma once
#include "math.cuh"
#include "sync.cuh"

namespace rf {

// A product's sizes and the memory that its epilogue works with. Pointers may be null if unused.
struct Problem {
  long rows, cols, depth;
  const float* a;        // the unsplit operands, for exceptional values: rows lda and ldb apart, elements of
  const float* b;        // a row a_step and b_step
  long lda, ldb, a_step, b_step;
  const float* a_unscale;  // powers of two that undo the scaling of rows of a and of b
  const float* b_unscale;
  float* row_partials;        // [block of columns][row][row_words]
  float* column_partials;     // [block of rows][column_words][column]
  unsigned* row_arrivals;     // one for each block of rows, zero between launches; null: finalize.cuh merges rows
  int batch_rows, batch_tiles;  // of a batch of products: rows of a of each, and how many tiles cover them
  long a_next, b_next;          // from one product's unsplit operand to the next one's
  RF_FN long row_end() const { return rows; }
  RF_FN long b_row(int col) const { return col; }
  RF_FN const float* a_at(long row) const { return a + row * lda; }
  RF_FN const float* b_at(int col) const { return b + col * ldb; }
};

// The same as one tile of a batch of products sees it. The products lie one below the other, `rows` of a in all;
// each has its own `cols` rows of b, and no tile takes rows of two.
struct BatchProblem : Problem {
  int product, first_row;  // which; the tile's
  RF_FN long row_end() const { return long(product + 1) * batch_rows; }
  RF_FN long b_row(int col) const { return product * cols + col; }
  RF_FN const float* a_at(long row) const { return a + product * a_next + (row - long(product) * batch_rows) * lda; }
  RF_FN const float* b_at(int col) const { return b + product * b_next + col * ldb; }
};
template <int TileRows> RF_FN BatchProblem batch_problem(const Problem& p, int tile_row) {
  const int product = tile_row / p.batch_tiles, down = tile_row - product * p.batch_tiles;
  return {p, product, product * p.batch_rows + down * TileRows};
}

// threadIdx.x, read anew: what an epilogue derives from it is then computed where it is used. The
// compiler would otherwise compute it before the loop over tiles and hold it in registers that the
// products need.
RF_FN int read_tid_x() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

// The same for blockIdx.x.
RF_FN int read_ctaid_x() {
  int block;
  asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
  return block;
}

// One element by plain float32 arithmetic, by a whole warp: lanes take every 32nd product.
RF_FN float plain_dot(const float* a, long a_step, const float* b, long b_step, long depth, int lane) {
  float sum = 0.0f;
#pragma unroll 1  // it is rare, and callers have few registers left
  for (long k = lane; k < depth; k += 32) sum = fma(a[k * a_step], b[k * b_step], sum);
#pragma unroll
  for (int mask = 16; mask; mask /= 2) sum += __shfl_xor_sync(kFullMask, sum, mask);
  return sum;
}

template <int MI, int G> struct Fragment {
  float x[MI][16 * G];

  // Moves group 1 to the place of group 0, and so on around.
  RF_FN void rotate(int by_one) {
#pragma unroll
    for (int mi = 0; mi < MI; mi++) {
      if (by_one) {
        const float first = x[mi][0];
#pragma unroll
        for (int i = 0; i + 1 < 16 * G; i++) x[mi][i] = x[mi][i + 1];
        x[mi][16 * G - 1] = first;
      } else if (G > 1) {
        float first[16];
#pragma unroll
        for (int i = 0; i < 16; i++) first[i] = x[mi][i];
#pragma unroll
        for (int i = 0; i + 16 < 16 * G; i++) x[mi][i] = x[mi][i + 16];
#pragma unroll
        for (int i = 0; i < 16; i++) x[mi][16 * (G - 1) + i] = first[i];
      }
    }
  }

  // Elements that are not finite, from an operand that holds an infinity or a NaN, once more in
  // float32: a split infinity is inf + (inf - inf), so the tensor cores give NaN where float32 may
  // give an infinity. Finite operands never come here: scaled halves cannot overflow; but for rows of a that
  // come as they are (not AScaled) and are so large that they overflow while b is still scaled. What b's
  // scaling is undone with must then come first, for all of the warp's elements: true if it was.
  template <bool AScaled, class P> RF_FN bool repair(const P& p, int row0, int col0) {
    float none[4] = {};  // 0 times what is not finite is NaN: half the time of a comparison
#pragma unroll
    for (int mi = 0; mi < MI; mi++)
#pragma unroll
      for (int i = 0; i < 16 * G; i++) none[i % 4] = fma(x[mi][i], 0.0f, none[i % 4]);
    if (!__any_sync(kFullMask, none[0] + none[1] + none[2] + none[3] != 0.0f)) return false;
    const int thread = read_tid_x(), lane = thread % 32, warp = thread / 32 % 4;
#pragma unroll 1
    for (int i = 0; i < 16 * G; i++) {
#pragma unroll
      for (int mi = 0; mi < MI; mi++) {
        const int row = row0 + 64 * mi + 16 * warp + 8 * (i / 2 % 2) + lane / 4;
        const int col = col0 + 8 * (i / 4) + 2 * (lane % 4) + i % 2;
        if constexpr (!AScaled) x[mi][0] *= p.b_unscale[p.b_row(min(col, static_cast<int>(p.cols) - 1))];
        unsigned todo = __ballot_sync(
            kFullMask, !is_finite(x[mi][0]) && row < p.row_end() && col < p.cols);
        for (; todo; todo &= todo - 1) {
          const int owner = __ffs(todo) - 1;
          const long r = __shfl_sync(kFullMask, row, owner);
          const int c = __shfl_sync(kFullMask, col, owner);
          const float dot = plain_dot(p.a_at(r), p.a_step, p.b_at(c), p.b_step, p.depth, lane);
          if (lane == owner) x[mi][0] = dot;
        }
      }
      rotate(true);
    }
    return !AScaled;
  }
};

}  // namespace rf
