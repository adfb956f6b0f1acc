// Which weights of attention a dropout keeps: the numbers that PyTorch's attention of float32 draws for GPUs, as bits.
//
// Why: under one seed a kernel of ours drops what PyTorch's would. Each weight has a number of its own, by its place among
// all of them [batch][head][query][key] and the generator's state: Philox 4x32-10, four numbers for a counter. So numbers
// are not drawn in the order of some kernel's threads, and a gradient draws them once more from the same state.
// Every tile of scores is asked for its bits by two or three kernels, one of which has keys as its rows, where a counter's
// four numbers would be drawn for one of them. They are drawn once a pass, and are 1/32 of what the weights would take.
//
// Layout: kept[batch][head][query][tile], 64 keys of a tile in a word, the first in its lowest bit.
//
//   kernel           threads             registers (a thread)   shared memory
//   draw_attention   256, a word each    see docs/attention.md  none
#pragma once
#include "attention_tiles.cuh"

namespace rf {

// The state of PyTorch's generator: from where on its numbers are drawn.
struct Drawn {
  long seed, offset;
};

// The four numbers of a counter, by Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011).
RF_FN uint4 philox(uint64_t counter, uint64_t seed) {
  uint32_t key[2] = {uint32_t(seed), uint32_t(seed >> 32)};
  uint4 x = make_uint4(uint32_t(counter), uint32_t(counter >> 32), 0, 0);
#pragma unroll
  for (int round = 0; round < 10; round++) {
    const uint64_t a = uint64_t(0xD2511F53u) * x.x, b = uint64_t(0xCD9E8D57u) * x.z;
    x = make_uint4(uint32_t(b >> 32) ^ x.y ^ key[0], uint32_t(b), uint32_t(a >> 32) ^ x.w ^ key[1], uint32_t(a));
    key[0] += 0x9E3779B9u, key[1] += 0xBB67AE85u;
  }
  return x;
}

// Whether a weight is kept: its number, in (0, 1] as curand makes it, is larger than the probability to drop it.
RF_FN bool is_kept(uint32_t number, float dropped) {
  return fmaf(float(number), 2.3283064e-10f, 2.3283064e-10f / 2.0f) > dropped;
}

static __global__ void __launch_bounds__(256)
    draw_attention(const Attention a, Drawn drawn, float dropped, uint64_t* kept) {
  wait_on_dependent_grids();
  launch_dependent_grids();  // it waits for this one's results itself
  const long word = blockIdx.x * 256l + threadIdx.x;
  const int tiles = a.tiles_of_head(), tile = word % tiles;
  const long row = word / tiles;  // of all queries
  if (row >= a.batches * a.heads * a.queries) return;
  const int keys = a.keys - tile * kAttentionKeys < kAttentionKeys ? a.keys - tile * kAttentionKeys : kAttentionKeys;
  const uint64_t first = uint64_t(drawn.offset) + row * uint64_t(a.keys) + tile * kAttentionKeys;
  uint64_t bits = 0;
  const int skipped = first % 4;
#pragma unroll 1
  for (int i = -skipped; i < keys; i += 4) {
    const uint4 numbers = philox((first + i) / 4, drawn.seed);
    const uint32_t four[4] = {numbers.x, numbers.y, numbers.z, numbers.w};
#pragma unroll
    for (int j = 0; j < 4; j++)
      if (i + j >= 0 && i + j < keys && is_kept(four[j], dropped)) bits |= uint64_t(1) << (i + j);
  }
  kept[word] = bits;
}

// Of a query the bits of a tile; none beyond the last query.
RF_FN uint64_t kept_word(const Attention& a, long batch, int head, int query, int tile) {
  if (query >= a.queries) return 0;
  return a.kept[((batch * a.heads + head) * a.queries + query) * a.tiles_of_head() + tile];
}

// Those of a tile that a thread has as 32 scores: keys of its rows `query` and `query` + 8.
RF_FN unsigned kept_of_queries(const Attention& a, long batch, int head, int query, int tile) {
  const int column = 2 * (threadIdx.x % 4);
  unsigned kept = 0;
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const uint64_t word = kept_word(a, batch, head, query + 8 * h, tile) >> column;
#pragma unroll
    for (int j = 0; j < 8; j++) kept |= (uint32_t(word >> (8 * j)) & 3u) << (4 * j + 2 * h);
  }
  return kept;
}

// The same where its rows are the keys `key` and `key` + 8, and 64 queries from first_query on go by.
RF_FN unsigned kept_of_keys(const Attention& a, long batch, int head, int key, int first_query) {
  const int column = first_query + 2 * (threadIdx.x % 4);
  unsigned kept = 0;
#pragma unroll
  for (int j = 0; j < 8; j++)
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const uint64_t word = kept_word(a, batch, head, column + 8 * j + e, key / kAttentionKeys) >> key % kAttentionKeys;
      kept |= (uint32_t(word) & 1u) << (4 * j + e) | (uint32_t(word >> 8) & 1u) << (4 * j + 2 + e);
    }
  return kept;
}

// A weight by plain arithmetic: whether it is kept.
RF_FN bool is_kept(const Attention& a, long batch, int head, int query, int key) {
  return kept_word(a, batch, head, query, key / kAttentionKeys) >> key % kAttentionKeys & 1;
}

}  // namespace rf
