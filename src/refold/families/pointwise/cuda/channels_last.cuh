// Channels last: pointwise values of images that lie with their channels last, stored channels first, or the
// other way round.
//
// Why: where cuDNN computes a convolution it computes it with the channels last. From images that lie
// channels first it converts both ways, the result in a pass at half of memory's rate, and what follows
// reads that once more. Here what follows is computed of the result as cuDNN leaves it, and stored in the
// model's own order: the conversion costs no pass.
//
// Between two convolutions it is the other way round: the results lie channels last, and what lies
// channels first, such as a shortcut, goes by way of shared memory. Read `places` for `channels` and the
// reverse then: the kernel is the same.
//
// A body is one of rows (rows_kernels.cuh), without a pass, over rows = images x channels and columns =
// places. It gives, too,
//   kLast                how many operands lie [image, place, channel]
//   given(Step<I>, at)   an element of the I-th of them, by its place in memory
// and its store reads them by as_last<V, I>(col).
//
// Layout: a block takes a tile of kLastTile = 4096 elements of one image, 64 channels by 64 places, or
// 32 by 128 where channels are few; 16 elements a thread. It reads them along the channels, 128 bytes
// or more of a place; they stand in shared memory [channel, place], a place more to a row so that 32
// channels lie in 32 banks; it stores them along the places, 256 bytes or more of a channel. Elements are
// taken one by one: rows of an odd number of places begin nowhere in particular, and a warp's 32 make
// whole lines all the same. What is read of other operands is read for four elements before any of these
// is stored.
//   256 threads, at most 64 registers a thread (__launch_bounds__: four blocks on a multiprocessor)
//   shared memory: 16.3 KB an operand that lies so (of fp32), two at most
// Timed on no card yet.
#pragma once
#include "rows_kernels.cuh"

namespace rf {

constexpr int kLastThreads = 256, kLastTile = 4096, kLastAtOnce = 4, kMostLast = 2;

// A column of a row, and what the operands with their channels last have there.
template <int N> struct LastAt {
  long col;
  Real given[N];
};
template <class V, int I, int N> RF_FN V as_last(const LastAt<N>& c) { return c.given[I]; }
template <class V, int I, int N, class C> RF_FN V as_last(const CachedAt<V, N, C>& c) {
  return as_last<V, I>(c.at);
}
template <class V, class T, int N> RF_FN V column(const T* p, const LastAt<N>& c) { return read_one(p + c.col); }
template <class V, class T, int N> RF_FN V full(const T* p, long offset, const LastAt<N>& c) {
  return read_one(p + offset + c.col);
}
template <class T, int N> RF_FN void put(T* p, long offset, const LastAt<N>& c, Real v) {
  write_one(p + offset + c.col, v);
}

// Calls f(Step<n>) for each of N operands.
template <int N, int S = 0, class F> RF_FN void for_last(F&& f) {
  if constexpr (S < N) {
    f(Step<S>{});
    for_last<N, S + 1>(f);
  }
}

template <int kChannels> struct LastTile {
  static constexpr int kPlaces = kLastTile / kChannels, kPitch = kPlaces + 1,
                       kEach = kLastTile / kLastThreads;
};

template <int kChannels, class Body>
__global__ void __launch_bounds__(kLastThreads, 4)
    pointwise_last(const __grid_constant__ Body body, long channels, long width, long channel_tiles, long place_tiles) {
  using Tile = LastTile<kChannels>;
  constexpr int kN = Body::kLast;
  static_assert(kN >= 1 && kN <= kMostLast, "tiles of more operands do not fit in 48 KB of shared memory");
  __shared__ Real tile[kN][kChannels][Tile::kPitch];
  const long at = blockIdx.x / channel_tiles, image = at / place_tiles;
  const long first_channel = (blockIdx.x - at * channel_tiles) * kChannels;
  const long first_place = (at - image * place_tiles) * Tile::kPlaces;
  const int most_channels = int(channels - first_channel < kChannels ? channels - first_channel : kChannels);
  const int most_places = int(width - first_place < Tile::kPlaces ? width - first_place : Tile::kPlaces);
  sync_dependent_grids(body);
  // read along the channels
  const long begin = (image * width + first_place) * channels + first_channel;
  for_last<kN>([&](auto step) {
    constexpr int kOperand = decltype(step)::index;
    Real read[Tile::kEach];
#pragma unroll
    for (int i = 0; i < Tile::kEach; i++) {
      const int e = i * kLastThreads + threadIdx.x, channel = e % kChannels, place = e / kChannels;
      const bool inside = channel < most_channels && place < most_places;
      read[i] = inside ? body.given(step, begin + place * channels + channel) : Real(0);
    }
#pragma unroll
    for (int i = 0; i < Tile::kEach; i++) {
      const int e = i * kLastThreads + threadIdx.x;
      tile[kOperand][e % kChannels][e / kChannels] = read[i];
    }
  });
  __syncthreads();
  // compute and store along the places
  const typename Body::Row r{};
  const long first_row = image * channels + first_channel;
#pragma unroll 1
  for (int first = 0; first < Tile::kEach; first += kLastAtOnce) {
    RegisterCache<Real, Body::kReused> cache[kLastAtOnce];
    LastAt<kN> col[kLastAtOnce];
    long row[kLastAtOnce];
    bool inside[kLastAtOnce];
#pragma unroll
    for (int k = 0; k < kLastAtOnce; k++) {
      const int e = (first + k) * kLastThreads + threadIdx.x, place = e % Tile::kPlaces, channel = e / Tile::kPlaces;
      inside[k] = channel < most_channels && place < most_places;
      row[k] = first_row + channel;
      col[k].col = first_place + place;
#pragma unroll
      for (int n = 0; n < kN; n++) col[k].given[n] = tile[n][channel][place];
      if (inside[k]) body.template read<Real>(row[k], cache[k].at(col[k]));
    }
#pragma unroll
    for (int k = 0; k < kLastAtOnce; k++)
      if (inside[k]) body.template store<Real>(r, row[k], cache[k].at(col[k]));
  }
}

template <int kChannels, class Body>
Error run_channels_last(const Body& body, long images, long channels, long width, cudaStream_t stream) {
  Device device;
  RF_TRY(current_device(device));
  const long channel_tiles = blocks_of(channels, long(kChannels));
  const long place_tiles = blocks_of(width, long(LastTile<kChannels>::kPlaces));
  unsigned grid;
  RF_TRY(grid_of(images * channel_tiles * place_tiles, grid));
  return launch(pointwise_last<kChannels, Body>, grid, kLastThreads, 0, stream, launch_mode_on(device),
                "launching a pointwise kernel of images with their channels last", body, channels, width, channel_tiles,
                place_tiles);
}

// The body's outputs over images x channels x width places.
template <class Body>
Error channels_last(const Body& body, long images, long channels, long width, cudaStream_t stream) {
  if (images * channels * width == 0) return nullptr;
  const long behind = channels % 64;  // of a tile of 64 channels at least half should be there
  return behind > 0 && behind <= 32 && channels < 128 ? run_channels_last<32>(body, images, channels, width, stream)
                                                      : run_channels_last<64>(body, images, channels, width, stream);
}

}  // namespace rf
