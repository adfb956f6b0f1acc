// The monoids of the CUDA kernels on the host, in the order in which the epilogue merges them.
#include "monoid.cuh"
using namespace rf;

// A row of n values in `blocks` blocks of columns, `lanes` lanes to a block: lanes gather, merge in
// pairs (lane l with l ^ mask), and the blocks' parts merge first to last; more than 4 of them three at a time, as the
// teams of finalize.cuh do.
template <class M, bool AtOnce = false> static void reduce(const float* x, long n, int blocks, int lanes, float* out) {
  typename M::State state{}, team{};
  for (int b = 0; b < blocks; b++) {
    typename M::Partial partial[32];
    for (int l = 0; l < lanes; l++) {
      partial[l] = M::identity();
      const long end = n * (b + 1) / blocks;
      for (long i = n * b / blocks + l; i < end; i += lanes * (AtOnce ? 4 : 1)) {
        if constexpr (AtOnce) {  // four at a time, as far as there are any
          float v[4];
          bool in[4];
          for (int k = 0; k < 4; k++) in[k] = i + k * lanes < end, v[k] = x[in[k] ? i + k * lanes : end - 1];
          M::accumulate_batch(partial[l], v, in);
        } else {
          M::accumulate(partial[l], x[i]);
        }
      }
    }
    for (int mask = 1; mask < lanes; mask *= 2)
      for (int l = 0; l < lanes; l += 2 * mask) M::merge(partial[l], partial[l + mask]);
    M::merge(blocks > 4 ? team : state, partial[0]);
    if (blocks > 4 && (b % 3 == 2 || b == blocks - 1)) M::merge(state, M::partial(team)), team = {};
  }
  M::results(state, out);
}

extern "C" void reduce_row(int monoid, const float* x, long n, int blocks, int lanes, float* out) {
  switch (monoid) {
    case 0: return reduce<Sum>(x, n, blocks, lanes, out);
    case 1: return reduce<Max>(x, n, blocks, lanes, out);
    case 2: return reduce<Min>(x, n, blocks, lanes, out);
    case 3: return reduce<LogSumExp>(x, n, blocks, lanes, out);
    case 4: return reduce<Softmax>(x, n, blocks, lanes, out);
    case 5: return reduce<Softmax, true>(x, n, blocks, lanes, out);
    case 6: return reduce<LogSumExpState, true>(x, n, blocks, lanes, out);
    case 7: return reduce<RowMoments, true>(x, n, blocks, lanes, out);
    case 8: return reduce<SumAndSquares>(x, n, blocks, lanes, out);
  }
}

// A column of n values, four to a lane, the lanes' parts merged in pairs, blocks of 4 * lanes in order.
extern "C" void moments(const float* x, long n, int lanes, float* out) {
  using D = Down<Moments>;
  MomentsState state;
  for (long first = 0; first < n; first += 4 * lanes) {
    D::Partial partial[32];
    float count[32];
    for (int l = 0; l < lanes; l++) {
      float v[4];
      bool in[4];
      count[l] = 0.0f;
      for (int i = 0; i < 4; i++) {
        const long at = first + 4 * l + i;
        in[i] = at < n;
        v[i] = x[in[i] ? at : n - 1];
        count[l] += in[i];
      }
      partial[l] = D::of<4>(v, in, count[l] > 0.0f ? 1.0f / count[l] : 0.0f);
    }
    for (int mask = 1; mask < lanes; mask *= 2)
      for (int l = 0; l < lanes; l += 2 * mask) {
        partial[l] = D::merge(partial[l], partial[l + mask], Weight(count[l], count[l + mask]));
        count[l] += count[l + mask];
      }
    D::merge(state, partial[0], count[0]);
  }
  out[0] = state.count, out[1] = state.mean, out[2] = state.m2;
}
