// Attention's tiles: 64 keys and their values of one head, as hi and lo, scaled fp16 each, the way wgmma reads them.
//
// Why: each block of queries multiplies all keys and values. Split once, they come to shared memory by one copy of
// bytes that lie next to each other, as many as they have in fp32.
//
// Layout of a tile, Panels of 64 features (8192 bytes each, rows of 128 bytes in TMA's 128-byte swizzle):
//   keys hi, keys lo       [panel][key][feature]
//   values hi, values lo   [panel][feature][key]: the other way round, so that the sum over keys is along a row
// What is beyond the last key or feature is zero. unscale[tile] = the powers of two that undo the scaling of the
// tile's keys (x) and values (y), whose largest are taken to [2^14, 2^15) (hi_lo_split.cuh): what is as small as 2^-17
// of these keeps 22 bits. Of zeros it is 0. Where a key or value is not finite both are NaN: attention_plain.cuh computes
// that head.
//
//   kernel                 threads           registers (a thread)   shared memory
//   split_attention_tiles  256, one tile     48; of two panels 77    16.7 KB a panel: the values, transposed
#pragma once
#include "device.cuh"
#include "hi_lo_split.cuh"
#include "look.cuh"
#include "ptx_sm90.cuh"

namespace rf {

constexpr int kAttentionKeys = 64;        // of a tile
constexpr int kPanelFeatures = 64;        // of a panel
constexpr int kPanelBytes = kAttentionKeys * kSwizzleRowBytes;
constexpr int kAttentionMatrices = 4;        // keys hi and lo, values hi and lo
template <int Panels> constexpr int kAttentionTileBytes = kAttentionMatrices * Panels * kPanelBytes;

// The power of two that undoes the scaling of numbers whose largest is `most`, as bits. Of zeros it is 0: their products
// are no reason for plain arithmetic. Of what is not finite NaN.
RF_FN float unscale_of(unsigned most) {
  const float largest = __uint_as_float(most);
  if (!is_finite(largest)) return __uint_as_float(0x7fffffffu);
  return most == 0 ? 0.0f : power_of_two(-scale_exponent(largest));
}

// Of a tile's two matrices. Where one has what is not finite both are NaN.
RF_FN float2 unscales_of(unsigned x, unsigned y) {
  const unsigned most = max(x, y);
  if (!is_finite(__uint_as_float(most))) return make_float2(unscale_of(most), unscale_of(most));
  return make_float2(unscale_of(x), unscale_of(y));
}

// [batches, tokens, heads, width] as it lies, features next to each other: from a batch to the next, and so on.
struct Tokens {
  static constexpr int kArguments = 4;  // of a call from Python
  const float* data;
  long batch, token, head;
  RF_FN const float* at(long b, int t, int h) const { return data + b * batch + t * token + h * head; }
  bool is_aligned() const { return aligned(data) && batch % 4 == 0 && token % 4 == 0 && head % 4 == 0; }
};

// q [batches, queries, heads, width]; k and v [batches, keys, heads, width]; out as q, without gaps. The mask's element of
// a key is added to its score: at mask + batch * mask_batch + head * mask_head + query * mask_query + key.
struct Attention {
  Tokens q, k, v;
  const float* mask;
  float* out;
  long batches;
  int queries, keys, heads, width;
  long mask_batch, mask_head, mask_query;
  const unsigned char* tiles;  // [batch][head][tile]
  const float2* unscale;
  bool aligned;  // whether q, k and v can be read 16 bytes at a time
  float* sums;   // null, or [batches, heads, places]: for each query the logarithm of the sum that its softmax divides by
  int places;    // the queries and perhaps more, fewer than 64: infinity
  float score_scale;  // what the products of queries and keys are multiplied by, see `restored`
  const uint64_t* kept;  // of bodies that drop: see attention_draws.cuh
  RF_FN int tiles_of_head() const { return (keys + kAttentionKeys - 1) / kAttentionKeys; }
  RF_FN long query_at(long batch, int query, int head) const { return ((batch * queries + query) * heads + head) * width; }
  RF_FN long key_at(long batch, int key, int head) const { return ((batch * keys + key) * heads + head) * width; }
  // Four features from `column` on of what is at x; zero where there is nothing.
  RF_FN float4 four(const float* x, int column, bool there) const {
    return aligned ? load_four<true>(x, column, there ? width : 0) : load_four<false>(x, column, there ? width : 0);
  }
  RF_FN void store_sum(long batch, int head, int query, float sum) const {
    if (query < places) sums[(batch * heads + head) * places + query] = query < queries ? sum : infinity();
  }
  RF_FN const float* mask_row(long batch, int head, int query) const {
    return mask + batch * mask_batch + head * mask_head + query * mask_query;
  }
};

// Four values as two words of fp16 pairs, hi and lo.
RF_FN void split_four(float4 v, float scale, uint2& hi, uint2& lo) {
  const float x[4] = {v.x * scale, v.y * scale, v.z * scale, v.w * scale};
  __half2 h[2] = {__floats2half2_rn(x[0], x[1]), __floats2half2_rn(x[2], x[3])};
  __half2 l[2] = {__floats2half2_rn(x[0] - __low2float(h[0]), x[1] - __high2float(h[0])),
                  __floats2half2_rn(x[2] - __low2float(h[1]), x[3] - __high2float(h[1]))};
  hi = *reinterpret_cast<const uint2*>(h), lo = *reinterpret_cast<const uint2*>(l);
}

// Where four elements lie in a panel, from `column` of `row` on, in bytes.
RF_FN int panel_offset(int row, int column) {
  return row * kSwizzleRowBytes + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2;
}

template <int Panels>
__global__ void __launch_bounds__(256) split_attention_tiles(const Attention a, unsigned char* tiles, float2* unscale) {
  constexpr int kLanes = 16 * Panels, kRows = 256 / kLanes, kHeld = kAttentionKeys / kRows;
  __shared__ float values[kAttentionKeys][Panels * kPanelFeatures + 1];  // transposed reads find other banks
  __shared__ unsigned of_warp[8][2];
  const int of_head = a.tiles_of_head(), tile = blockIdx.x % of_head, head = blockIdx.x / of_head % a.heads;
  const long batch = blockIdx.x / of_head / a.heads;
  const int thread = threadIdx.x, down = thread / kLanes, column = 4 * (thread % kLanes);
  wait_on_dependent_grids();
  launch_dependent_grids();  // it waits for this one's results itself
  float4 k[kHeld], v[kHeld];
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    const int key = tile * kAttentionKeys + down + i * kRows;
    k[i] = a.four(a.k.at(batch, key, head), column, key < a.keys);
    v[i] = a.four(a.v.at(batch, key, head), column, key < a.keys);
  }
  unsigned most_k = 0, most_v = 0;
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    most_k = larger(most_k, k[i]), most_v = larger(most_v, v[i]);
    float* to = &values[down + i * kRows][column];
    to[0] = v[i].x, to[1] = v[i].y, to[2] = v[i].z, to[3] = v[i].w;
  }
  most_k = __reduce_max_sync(kFullMask, most_k), most_v = __reduce_max_sync(kFullMask, most_v);
  if (thread % 32 == 0) of_warp[thread / 32][0] = most_k, of_warp[thread / 32][1] = most_v;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 8; i++) most_k = max(most_k, of_warp[i][0]), most_v = max(most_v, of_warp[i][1]);
  const int e_k = scale_exponent(__uint_as_float(most_k)), e_v = scale_exponent(__uint_as_float(most_v));
  if (thread == 0) unscale[blockIdx.x] = unscales_of(most_k, most_v);
  unsigned char* to = tiles + long(blockIdx.x) * kAttentionTileBytes<Panels>;
  uint2 hi, lo;
#pragma unroll
  for (int i = 0; i < kHeld; i++) {
    split_four(k[i], power_of_two(e_k), hi, lo);
    const int at = column / kPanelFeatures * kPanelBytes + panel_offset(down + i * kRows, column % kPanelFeatures);
    *reinterpret_cast<uint2*>(to + at) = hi;
    *reinterpret_cast<uint2*>(to + at + Panels * kPanelBytes) = lo;
  }
  to += 2 * Panels * kPanelBytes;
#pragma unroll
  for (int i = 0; i < 4 * Panels; i++) {  // sixteen threads write a row of 64 keys
    const int feature = thread / 16 + 16 * i, key = 4 * (thread % 16);
    const float4 four = make_float4(values[key][feature], values[key + 1][feature], values[key + 2][feature],
                                    values[key + 3][feature]);
    split_four(four, power_of_two(e_v), hi, lo);
    const int at = feature / kPanelFeatures * kPanelBytes + panel_offset(feature % kPanelFeatures, key);
    *reinterpret_cast<uint2*>(to + at) = hi;
    *reinterpret_cast<uint2*>(to + at + Panels * kPanelBytes) = lo;
  }
}

}  // namespace rf
