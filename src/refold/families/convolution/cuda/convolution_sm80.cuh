// Convolution on sm_80 and later: an implicit product of the features' kernels with the windows of an image, by the
// instructions of matmul_sm80.cuh (cp.async, ldmatrix, mma.sync), from fp32 images and to fp32 images as they lie.
//
// Why: a library's convolution wants channels last, so that images are written twice in passes of their own, once
// more for the bias, and once more for what follows. Here windows are values where they lie, lanes along the width,
// and the epilogue's body is applied before anything is stored. Features are the product's rows and places its columns,
// so that what is stored runs along the width, too.
//
// Scales are found as the windows are read: each place's share of a stage (64 of K, or 32 of Ieee) is scaled by the
// power of two that takes its largest value to [2^14, 2^15), as rows of products are (hi_lo_split.cuh), and the
// products of a stage are promoted to the sums multiplied by its inverse, which costs no instruction: an addition is a
// fused multiply-add. What is padded is zero after scaling. So no pass looks for the largest value before, and images of
// any size, beside others of any other, keep the bits that they have. Kernels are packed once, a scale for each feature.
//
// Roles of the 256 threads: two warpgroups, all features of the tile by 64 places each; all load. A pair of lanes l and
// l + 16 reads one place's share of a stage: 16 places next to each other an instruction, 64 bytes.
// Registers of a thread: 32 MI accumulators, 8 MI short ones, 16 MI of A's fragments, 16 of B's, and 32 (Ieee: 16)
// values of the next stage but one, which arrive while the tensor cores work.
// Shared memory: 3 stages of 8 MI KB of kernels and 16 KB of windows, rows of 128 bytes swizzled as matmul_sm80.cuh's,
// and 3 x 512 bytes of scales: 96.5 KB of 128 features, 73.5 KB of 64 (two blocks a processor). The tile of the
// result, which the epilogue reads row after row, lies where the stages were.
//
// Timeline (slots of both operands are stages modulo 3):
//   cp.async of kernels   0 1 | 2              | 3
//   reads of windows      0 1 | 2              | 3
//   all threads               | convert 1,     | convert 2,
//                             | mma 0          | mma 1
// One __syncthreads a stage: the stage is there for all, and nobody reads the slots that are written next.
//
// Elements that are not finite, because of an operand that is not, are computed again in plain fp32.
#pragma once
#include "hi_lo_split.cuh"
#include "lanes.cuh"
#include "matmul_sm80.cuh"
#include "phases.cuh"

namespace rf {

// What a body of a convolution is unless it says otherwise: one that stores the convolution.
struct ConvolutionBody {
  static constexpr bool kLong = false;  // more arithmetic of an element than a kernel should unroll
  static constexpr int kPoolHigh = 1, kPoolWide = 1;  // windows of the result, whose largest or mean is stored
  template <class V, class C> RF_FN V value(V acc, long row, long channel, C col) const { return acc; }
  template <class V, class C> RF_FN V pooled(V acc, long row, long channel, C col) const { return acc; }
  using OverChannels = void;  // the monoid that a place's channels are reduced by, of which one value is stored
  static constexpr bool kBySectors = false;  // strips store rows of floats, at row_of_result, by whole sectors of memory
  static constexpr bool kKeepsTerms = false;  // of passes by patches: all that follows on an element is of its last term
  // A mean of each of an image's channels, a variance, and the values themselves: what is asked for.
  static constexpr bool kStatistics = false, kSpread = false, kStoresValues = true;
  // Images, and what is stored and read of the result's shape, lie with their channels last: rows are places then. A body
  // that is addressed takes each element's addresses (FlatAt) for its column.
  static constexpr bool kGivenLast = false, kMakesLast = false, kAddressed = false;
  rf_watch::Look look = rf_watch::take_look();  // see look.h
};

struct Broad { static constexpr int kMI = 2; };  // tiles of 128 features
struct Slim { static constexpr int kMI = 1; };   // of 64

template <class M, class Tile> struct GenericConvolution {
  using Mode = M;
  static constexpr int kMI = Tile::kMI, kG = 2;  // the fragment of a warpgroup: 64 MI x 64
  static constexpr int kTileRows = 64 * kMI, kTileCols = 128;
  static constexpr int kStages = 3, kThreads = 256, kRowBytes = 128;
  static constexpr int kABytes = kTileRows * kRowBytes, kStageBytes = kABytes + kTileCols * kRowBytes;
};

struct ConvolutionLaunch {
  Images images;
  const float* w;        // the kernels as they are, [features, channels, taps]
  Rows packed;           // and as the tensor cores read them
  const float* unscale;  // of each feature
  int feature_tiles;     // of a group
  bool aligned;          // what is read and written along the places starts at multiples of 16 bytes
  bool in_fours;         // and places of an image are a multiple of four
  float4* statistics;    // where kernels work that take them: strip_statistics.cuh
};

// The exponent that takes a value of these bits to [2^14, 2^15), within what a power of two can be; 0 where none can.
RF_FN int exponent_of_bits(unsigned most) {
  const int e = 141 - static_cast<int>(most >> 23);
  return most >= 0x7f800000u ? 0 : e > 126 ? 126 : e;
}

// Two scaled values as fp16, and as fp16 what that leaves of them.
RF_FN void split_scaled(float a, float b, __half2& hi, __half2& lo) {
  hi = __floats2half2_rn(a, b);
  lo = __floats2half2_rn(a - __low2float(hi), b - __high2float(hi));
}

// What one thread has of a place's share of a stage.
template <class S, class W> struct WindowValues {
  static constexpr bool kSplit = S::Mode::kSplit;
  static constexpr int kValues = kSplit ? 16 : 32;
  float v[kValues];

  // Of the values of 32 of K the i-th of a thread's: in the order in which kernels are packed (hi_lo_split.cuh).
  RF_FN static int k_of(int i, int half) {
    return kSplit ? 8 * (i % 8 / 2) + 4 * half + 2 * (i / 8) + i % 2 : i;
  }

  RF_FN void load(const Images& images, const WindowAt<W>& window, int stage, int half) {
    const int first = stage * S::Mode::kStageDepth + (kSplit ? 0 : 32 * half);
    if constexpr (W::kChannels % 32 == 0) {  // 32 of K are channels of one tap
      int offset;
      const bool there = window.at(images, first / W::kChannels, offset) && first < W::kDepth;
      int channel = images.channel;
      asm("" : "+r"(channel));  // the compiler would hold its multiples in registers that the products need
      const float* from = window.x + long(first % W::kChannels) * channel + offset;
#pragma unroll
      for (int i = 0; i < kValues; i++) v[i] = there ? from[long(k_of(i, half)) * channel] : 0.0f;
    } else {
      const int begin = stage * S::Mode::kStageDepth;  // a constant where stages are unrolled
#pragma unroll
      for (int i = 0; i < kValues; i++)
        v[i] = window.value(images, begin + k_of(i, 0), begin + k_of(i, 1) + (kSplit ? 0 : 32), half);
    }
  }

  // To row `row` of a stage's windows in shared memory, scaled.
  RF_FN void store(uint32_t windows, float* unscale, int row, int half) const {
    unsigned most = 0;
#pragma unroll
    for (int i = 0; i < kValues; i++) most = max(most, __float_as_uint(v[i]) & 0x7fffffffu);
    most = max(most, __shfl_xor_sync(kFullMask, most, 16));
    const int e = exponent_of_bits(most);
    const float scale = power_of_two(e);
    if (half == 0) unscale[row] = power_of_two(-e);
#pragma unroll
    for (int piece = 0; piece < kValues / 8; piece++) {
      __half2 hi[4], lo[4];
#pragma unroll
      for (int i = 0; i < 4; i++)
        split_scaled(v[8 * piece + 2 * i] * scale, v[8 * piece + 2 * i + 1] * scale, hi[i], lo[i]);
      const int at = kValues / 8 * half + piece;
      store_shared_v4(windows + swizzled_offset(row, at), *reinterpret_cast<const uint4*>(hi));
      if constexpr (kSplit)
        store_shared_v4(windows + swizzled_offset(row, 4 + at), *reinterpret_cast<const uint4*>(lo));
    }
  }
};

// So many stages are unrolled, so that taps and channels of few channels' windows are constants.
constexpr int kUnrolled = 3;

// Rows of the result's tile, as far apart as lets a warp store its fragments without conflicts of banks.
constexpr int kResultPitch = 136;

template <class S> struct ConvolutionStorage {
  union {
    unsigned char stages[S::kStages][S::kStageBytes];
    float result[S::kTileRows][kResultPitch];
  };
  alignas(8) float unscale[S::kStages][S::kTileCols];
};

// Which features and places a block computes. Tiles of the same places follow one another, so that their windows are
// read from a cache.
template <class S, class W> struct ConvolutionTile {
  int group, feature0;  // of the group
  long pixel0;
  RF_FN ConvolutionTile(const ConvolutionLaunch& l, int block) {
    const int tiles = W::kGroups * l.feature_tiles, tile = block % tiles;
    pixel0 = long(block / tiles) * S::kTileCols;
    group = tile / l.feature_tiles, feature0 = tile % l.feature_tiles * S::kTileRows;
  }
};

// Computes elements that are not finite once more: N of each lane, next to each other from `pixel` on, of one channel of the
// result. recompute(channel, pixel) computes one, by a whole warp. All lanes of a warp call this; there: whether a lane has any.
template <int N, class Recompute>
RF_FN void repair_by(float (&v)[N], int channel, long pixel, bool there, int lane, const Recompute& recompute) {
#pragma unroll 1
  for (int i = 0; i < N; i++) {
    float mine = v[0];
#pragma unroll
    for (int j = 1; j < N; j++) mine = j == i ? v[j] : mine;
    unsigned todo = __ballot_sync(kFullMask, there && !is_finite(mine));
    for (; todo; todo &= todo - 1) {
      const int owner = __ffs(todo) - 1, of = __shfl_sync(kFullMask, channel, owner);
      const float made = recompute(of, __shfl_sync(kFullMask, pixel + i, owner));
#pragma unroll
      for (int j = 0; j < N; j++)
        if (lane == owner && j == i) v[j] = made;
    }
  }
}

// The same, in plain fp32.
template <class W, int N>
RF_FN void repair(float (&v)[N], const ConvolutionLaunch& l, int group, int channel, long pixel, bool there, int lane) {
  repair_by(v, channel, pixel, there, lane, [&](int of, long at) {
    if constexpr (W::kTransposed) {
      const long image = at / l.images.places;
      return plain_element<W>(l.images, l.w, image, group, of - group * W::kFeatures,
                              static_cast<int>(at - image * l.images.places), lane);
    } else {
      const WindowAt<W> window(l.images, group, at);
      return plain_window<W>(l.images, window, l.w + long(of) * W::kDepth, lane);
    }
  });
}
template <int N> RF_FN bool all_finite(const float (&v)[N]) {
  float none[4] = {};  // 0 times what is not finite is NaN
#pragma unroll
  for (int i = 0; i < N; i++) none[i % 4] = fmaf(v[i], 0.0f, none[i % 4]);
  return none[0] + none[1] + (none[2] + none[3]) == 0.0f;
}

// Values of a row of the result as a body takes them, and where they lie: four next to each other, or one. All that a
// thread has are computed before the first is stored, since what is read after a store waits for it.
template <int Each> struct PositionOf { using Value = Vec4; using Col = Vec4At; };
template <> struct PositionOf<1> { using Value = Real; using Col = int; };
template <int Each> using Values = typename PositionOf<Each>::Value;
template <int Each> struct Position {
  typename PositionOf<Each>::Col col;
  RF_FN Values<Each> read(const float* from) const {
    if constexpr (Each == 4) return Vec4(*reinterpret_cast<const float4*>(from));
    else return *from;
  }
};

// The rows of the result's tile: a warp takes 128 places of one feature, of which a lane has four, next to each other
// (InFours) or every 32nd. Where they lie in images is found once: it is the same of all rows.
template <bool InFours, class S, class Body>
RF_FN void finalize_rows(const ConvolutionLaunch& l, const Body& body,
                         const ConvolutionTile<S, typename Body::Window>& tile,
                         float (&result)[S::kTileRows][kResultPitch], int warp, int lane) {
  using W = typename Body::Window;
  constexpr int kRuns = InFours ? 1 : 4, kEach = 4 / kRuns;
  constexpr long kChannels = long(W::kGroups) * W::kFeatures;
  const int channel0 = tile.group * W::kFeatures + tile.feature0;
  long rows0[kRuns];
  Position<kEach> at[kRuns];
  bool there[kRuns];
#pragma unroll
  for (int i = 0; i < kRuns; i++) {
    const long pixel = tile.pixel0 + 32 * i + kEach * lane, last = l.images.pixels - kEach;
    there[i] = pixel <= last;
    const long safe = there[i] ? pixel : last, image = safe / l.images.places;  // of one that there is
    rows0[i] = image * kChannels + channel0;
    at[i].col = {static_cast<int>(safe - image * l.images.places)};
  }
  const int rows = min(S::kTileRows, W::kFeatures - tile.feature0);
#pragma unroll 2
  for (int row = warp; row < rows; row += S::kThreads / 32) {
    float* sums = result[row];
    float sum[4];
#pragma unroll
    for (int i = 0; i < 4; i++) sum[i] = sums[32 * i + lane];
    if (__any_sync(kFullMask, !all_finite(sum))) {
#pragma unroll 1
      for (int i = 0; i < 4; i++) {
        float v[1] = {sums[32 * i + lane]};
        const long pixel = tile.pixel0 + 32 * i + lane;
        repair<W>(v, l, tile.group, channel0 + row, pixel, pixel < l.images.pixels, lane);
        sums[32 * i + lane] = v[0];
      }
      __syncwarp();
    }
    Values<kEach> v[kRuns];
#pragma unroll
    for (int i = 0; i < kRuns; i++)
      v[i] = body.value(at[i].read(&sums[32 * i + kEach * lane]), rows0[i] + row, channel0 + row, at[i].col);
#pragma unroll
    for (int i = 0; i < kRuns; i++)
      if (there[i]) body.store(rows0[i] + row, at[i].col, v[i]);
  }
}

// The epilogue of a tile: its sums to shared memory, from there row after row to the body. What it derives from the
// thread's number is computed here (read_tid_x), not held in registers while the products need them.
template <class S, class Body>
RF_FN void finalize_tile(const ConvolutionLaunch& l, const Body& body, const Fragment<S::kMI, S::kG>& acc,
                       float (&result)[S::kTileRows][kResultPitch]) {
  using W = typename Body::Window;
  const ConvolutionTile<S, W> tile(l, read_ctaid_x());
  const int thread = read_tid_x(), warp = thread / 32, lane = thread % 32, warpgroup = warp / 4;
#pragma unroll
  for (int mi = 0; mi < S::kMI; mi++)
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int row = 64 * mi + 16 * (warp % 4) + 8 * h + lane / 4, feature = tile.feature0 + row;
      const float by = feature < W::kFeatures ? l.unscale[tile.group * W::kFeatures + feature] : 0.0f;
#pragma unroll
      for (int n = 0; n < 4 * S::kG; n++) {
        const float* x = &acc.x[mi][4 * n + 2 * h];
        *reinterpret_cast<float2*>(&result[row][64 * warpgroup + 8 * n + 2 * (lane % 4)]) =
            make_float2(x[0] * by, x[1] * by);
      }
    }
  __syncthreads();
  if (l.in_fours) finalize_rows<true, S>(l, body, tile, result, warp, lane);
  else finalize_rows<false, S>(l, body, tile, result, warp, lane);
}

template <class S, class Body>
__global__ void __launch_bounds__(S::kThreads, S::kMI == 1 ? 2 : 1)
    convolution_sm80(const __grid_constant__ ConvolutionLaunch launch, const __grid_constant__ Body body) {
  using W = typename Body::Window;
  extern __shared__ __align__(128) unsigned char raw_shared[];
  auto& shared = *reinterpret_cast<ConvolutionStorage<S>*>(raw_shared);
  const uint32_t stage_base = shared_address(shared.stages);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warpgroup = warp / 4;
  wait_on_dependent_grids();
  look_in_first_block(body);

  const ConvolutionTile<S, W> tile(launch, blockIdx.x);
  const TileLoader a(launch.packed, tile.group * W::kFeatures + tile.feature0);
  const int mine = 16 * warp + lane % 16, half = lane / 16;
  const WindowAt<W> window(launch.images, tile.group, tile.pixel0 + mine);
  constexpr int kEnd = (W::kDepth + S::Mode::kStageDepth - 1) / S::Mode::kStageDepth;
  auto copy = [&](int stage, int slot) {
    if (stage < kEnd) a.copy<S::kTileRows, true>(stage_base + slot * S::kStageBytes, stage);
    cp_async_commit();  // an empty group too: groups are counted
  };
  WindowValues<S, W> values;
  auto convert = [&](int slot) {
    values.store(stage_base + slot * S::kStageBytes + S::kABytes, shared.unscale[slot], mine, half);
  };
  Fragment<S::kMI, S::kG> acc;
#pragma unroll
  for (int mi = 0; mi < S::kMI; mi++)
#pragma unroll
    for (int i = 0; i < 16 * S::kG; i++) acc.x[mi][i] = 0.0f;
#pragma unroll
  for (int s = 0; s + 1 < S::kStages; s++) copy(s, s);
  values.load(launch.images, window, 0, half);
  convert(0);
  if (kEnd > 1) values.load(launch.images, window, 1, half);
  const auto after = [](int slot) { return slot + 1 == S::kStages ? 0 : slot + 1; };
  int slot = 0;
#pragma unroll(kEnd <= kUnrolled ? kEnd : 1)
  for (int k = 0; k < kEnd; k++) {
    cp_async_wait<S::kStages - 2>();
    __syncthreads();  // stage k is there for all, and nobody reads the slots of stage k - 1 any more
    copy(k + 2, after(after(slot)));
    if (k + 1 < kEnd) convert(after(slot));
    if (k + 2 < kEnd) values.load(launch.images, window, k + 2, half);
    const uint32_t at = stage_base + slot * S::kStageBytes;
    const float* unscale = shared.unscale[slot] + 64 * warpgroup + 2 * (lane % 4);
    mma_stage<S>(acc, at, at + S::kABytes + warpgroup * 64 * S::kRowBytes, [&](float& sum, float partial, int n, int i) {
      sum = fmaf(partial, unscale[16 * n + 8 * (i / 4) + i % 2], sum);
    });
    slot = after(slot);
  }
  cp_async_wait<0>();
  __syncthreads();
  launch_dependent_grids();
  finalize_tile<S>(launch, body, acc, shared.result);
}

}  // namespace rf
