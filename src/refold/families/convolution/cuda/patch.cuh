// Patches of images in shared memory, and kernels as fragments, for convolution_patches.cuh: what lies where, how it gets
// there, and the instructions that multiply it.
#pragma once
#include "lanes.cuh"
#include "mode.cuh"
#include "phases.cuh"

namespace rf {

// Tiles by their features: fragments of 16 that a warp has, warps side by side along them. A warp has 32 places.
struct Features16 { static constexpr int kMI = 1, kWarps = 1; };
struct Features32 { static constexpr int kMI = 2, kWarps = 1; };
struct Features64 { static constexpr int kMI = 2, kWarps = 2; };

// Channels: of a patch, at a time.
template <class M, class Tile, int Channels> struct Patches {
  using Mode = M;
  static constexpr int kThreads = 256, kMI = Tile::kMI, kWarps = Tile::kWarps, kChunk = Channels;
  static constexpr int kTileRows = 16 * kMI * kWarps, kTileCols = 32 * (kThreads / 32 / kWarps);
};

// refold/patches.py computes the same.
template <class S, class W> struct PatchShape {
  using P = Phases<W>;
  static constexpr int kChunks = (W::kChannels + S::kChunk - 1) / S::kChunk, kSlots = kChunks > 1 ? 2 : 1;
  static constexpr int kTiles = (W::kFeatures + S::kTileRows - 1) / S::kTileRows;  // of a group's features
  // phases along the width whose results are stored together
  static constexpr int kJoined = P::Wide::kPhases == 2 ? 2 : 1;
  static constexpr int kPitch = 32 * kJoined + 8;  // of staged rows: fragments are stored without conflicts of banks
  static constexpr int kStagingBytes = S::kThreads / 32 * 16 * kPitch * 4;
  // steps of 8 of K of all phases, at most
  static constexpr int kSteps = (W::kTaps * S::kChunk + 7 * P::kPhases) / 8;
  static constexpr int kTableBytes = (kSteps + 1) * 4 * 8;  // one more is loaded
  static constexpr int kMost = 99 << 10;  // what a block of sm_86 and sm_89 can have: least of all
  static RF_FN int steps(int phase) { return (typename P::Phase(phase).taps() * S::kChunk + 7) / 8; }
};

struct PatchLaunch {
  Images images;
  const float* w;        // the kernels as they are
  const float4* packed;  // and as fragments
  bool in_fours;         // places of an image, and addresses, are multiples of four
  int log_wide, log_high;  // a tile's box of places has powers of two along each axis
  int boxes_deep, boxes_high, boxes_wide;
  int patch_high, patch_wide, plane, pitch;  // elements of a patch: of an axis, of a channel; from channel to channel
  int lanes;                                 // threads that load a channel, a power of two
  int splits;                                // blocks that share the phases of a tile
  float4* statistics;                        // where kernels work that take them: patch_statistics.cuh
};

// --- instructions ------------------------------------------------------------------------------------
// Four bytes, or zero.
RF_FN void cp_async_word(uint32_t to, const float* from, bool there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(there ? 4 : 0) : "memory");
}
// The nearest number of TF32's ten bits.
RF_FN float tf32_of(float x) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return __uint_as_float(bits);
}
// d[16 x 8] += a[16 x 8] * b[8 x 8]^T of TF32. Lane l: a[h + 2 k] is row 8 h + l / 4, column 4 k + l % 4; b0, b1 row l / 4,
// columns l % 4 and 4 more; d as of mma_sync.
RF_FN void mma_tf32(float (&d)[4], const float (&a)[4], float b0, float b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)));
}
// The same, of sums that begin.
RF_FN void begin_mma_tf32(float (&d)[4], const float (&a)[4], float b0, float b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%10, %10, %10, %10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
        "r"(__float_as_uint(b0)), "r"(__float_as_uint(b1)), "f"(0.0f));
}

// --- kernels as fragments ----------------------------------------------------------------------------
// [group][16 features][phase][chunk][step of 8 of K][lane] of float4; of a phase and a chunk K runs over (tap, channel).
template <class S, class W> struct Fragments {
  using Shape = PatchShape<S, W>;
  static constexpr int kSixteens = Shape::kTiles * S::kTileRows / 16;
  static constexpr long kAllSteps = long(Shape::kSteps) * Shape::kChunks;  // of 16 features, or some more
  static long bytes() { return (W::kGroups * kSixteens * kAllSteps + 1) * 32 * 16; }
};

template <class S, class W>
__global__ void __launch_bounds__(256) pack_fragments(const float* w, float4* packed, long count) {
  using P = Phases<W>;
  using Shape = PatchShape<S, W>;
  constexpr int kSixteens = Fragments<S, W>::kSixteens;
  constexpr long steps = Fragments<S, W>::kAllSteps;
  wait_on_dependent_grids();
  launch_dependent_grids();  // it waits for this one's results itself
  const long at = blockIdx.x * 256L + threadIdx.x;
  if (at >= count) return;
  const int lane = at % 32, row = at / (32 * steps), sixteen = row % kSixteens, group = row / kSixteens;
  int step = at / 32 % steps, phase = 0;
  while (phase < P::kPhases && step >= Shape::steps(phase) * Shape::kChunks) {
    step -= Shape::steps(phase) * Shape::kChunks;
    phase++;
  }
  float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  if (phase < P::kPhases && group < W::kGroups) {
    const typename P::Phase of(phase);
    const int chunk = step / Shape::steps(phase), taps = of.taps();
    const auto element = [&](int down, int right) {
      const int feature = 16 * sixteen + 8 * down + lane / 4;
      const int k = step % Shape::steps(phase) * 8 + 4 * right + lane % 4, j = k / S::kChunk;
      const int channel = chunk * S::kChunk + k % S::kChunk;
      if (feature >= W::kFeatures || j >= taps || channel >= W::kChannels) return 0.0f;
      int d, h, x;
      const int tap = of.tap(j, d, h, x);
      const float value = w[kernel_at<W>(group, feature, channel, tap)];
      return S::Mode::kSplit ? value : tf32_of(value);
    };
    v = make_float4(element(0, 0), element(1, 0), element(0, 1), element(1, 1));
  }
  packed[at] = v;
}

// --- patches ------------------------------------------------------------------------------------------
// Which box of places, features and phases a block has.
template <class S, class W> struct PatchTile {
  long image;
  int group, tile, split;   // tile: of the group's features
  int box;                  // of an image
  int deep, high, wide;     // where the box begins
  RF_FN PatchTile(const PatchLaunch& l, int block) {
    using Shape = PatchShape<S, W>;
    split = block % l.splits, block /= l.splits;
    tile = block % Shape::kTiles, block /= Shape::kTiles;
    group = block % W::kGroups, block /= W::kGroups;
    box = block % (l.boxes_deep * l.boxes_high * l.boxes_wide);
    wide = block % l.boxes_wide << l.log_wide, block /= l.boxes_wide;
    high = block % l.boxes_high << l.log_high, block /= l.boxes_high;
    deep = block % l.boxes_deep * (S::kTileCols >> l.log_wide >> l.log_high);
    image = block / l.boxes_deep;
  }
};

// Starts the copies of a chunk of channels: a thread has some places of the patch, and every so many channels.
template <class S, class W>
RF_FN void load_patch(const PatchLaunch& l, const PatchTile<S, W>& tile, int chunk, uint32_t to) {
  using P = Phases<W>;
  const Images& images = l.images;
  const int first = chunk * S::kChunk, step = S::kThreads / l.lanes;
  const float* x = images.x + ((tile.image * W::kGroups + tile.group) * W::kChannels + first) * long(images.channel);
  const int origin_d = tile.deep * P::Deep::kStep + P::Deep::kLeast, origin_h = tile.high * P::High::kStep + P::High::kLeast;
  const int origin_w = tile.wide * P::Wide::kStep + P::Wide::kLeast;
#pragma unroll 1
  for (int p = threadIdx.x & (l.lanes - 1); p < l.plane; p += l.lanes) {
    const int row = p / l.patch_wide, w = origin_w + p - row * l.patch_wide;
    const int deep = row / l.patch_high, h = origin_h + row - deep * l.patch_high, d = origin_d + deep;
    const bool inside =
        unsigned(w) < unsigned(images.wide) && unsigned(h) < unsigned(images.high) && unsigned(d) < unsigned(images.deep);
    int c = threadIdx.x / l.lanes;
    const float* from = x + (inside ? (d * images.high + h) * images.wide + w : 0) + c * long(images.channel);
    uint32_t at = to + (c * l.pitch + p) * 4;
#pragma unroll 4
    for (; c < S::kChunk; c += step, from += step * long(images.channel), at += step * l.pitch * 4) {
      const bool there = inside && first + c < W::kChannels;
      cp_async_word(at, there ? from : x, there);
    }
  }
}

// Where each step's k of a phase is seen in a patch, from a place on: of lane l % 4 those of k and of k + 4.
template <class S, class W> RF_FN void lay_table(const PatchLaunch& l, int2* table) {
  using P = Phases<W>;
  int before = 0;
#pragma unroll 1
  for (int phase = 0; phase < P::kPhases; phase++) {
    const typename P::Phase of(phase);
    const int steps = PatchShape<S, W>::steps(phase), taps = of.taps();
    const auto seen_at = [&](int k) {
      const int j = k / S::kChunk;
      if (j >= taps) return 0;  // its kernels are zero
      int d, h, w;
      of.tap(j, d, h, w);
      d -= P::Deep::kLeast, h -= P::High::kLeast, w -= P::Wide::kLeast;
      return k % S::kChunk * l.pitch + (d * l.patch_high + h) * l.patch_wide + w;
    };
    for (int i = threadIdx.x; i < 4 * steps; i += S::kThreads) {
      const int k = i / 4 * 8 + i % 4;
      table[4 * before + i] = make_int2(seen_at(k), seen_at(k + 4));
    }
    before += steps;
  }
}

}  // namespace rf
