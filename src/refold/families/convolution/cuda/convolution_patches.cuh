// Convolution by patches, sm_80 and later: along up to three axes, of any stride and dilation, transposed ones too.
//
// Why: the implicit product (convolution_sm80.cuh) reads and converts an element once for each tap that sees it. Here a
// block copies what its box of places sees of the image, a patch, to shared memory once, by cp.async, as it lies; a tap
// is another offset. Of a transposed convolution each phase of the result is an ordinary convolution by some of the taps
// (phases.cuh), and all phases of a box see the same patch. The two phases along a width of stride 2 are kept in
// registers until both are there, so that what is stored is next to each other.
//
// Tensor cores multiply TF32, whose range is fp32's: nothing is scaled, and elements of any sizes keep the bits that they
// have. Of TF32 class both sides are rounded to nearest; of fp32 class each is split in two, three products are added,
// the small ones first, and promoted to the sums every 8 of K. Every 32 were measured to err 1.6 to 2.7 times as eager.
//
// K runs over (tap, channel of the chunk) without gaps: 3 channels of 27 taps are 81 of 88. A table in shared memory says
// where each k is seen. Kernels come from global memory, packed before as fragments (pack_fragments): all blocks read the
// same, so that they lie in the L1 and L2.
//
// Roles: 8 warps, 32 places each of 16 or 32 of the tile's features; all load.
//   tile         features   places   warps along features
//   Features16   16         256      1
//   Features32   32         256      1
//   Features64   64         128      2
// Registers of a thread: 16 MI sums (of two joined phases twice as many), as many short ones of fp32 class, fragments.
// Shared memory, 99 KB at most: patches of a chunk of channels (two where there are more chunks), the table of 4 bytes a
// k, and of each warp 16 features by 32 places (or 64) of the result, which the epilogue reads row after row.
//
// Timeline, of one chunk: copies | table | all phases: products, epilogue. Of more, for each phase:
//   copies     0 | 1           | 2
//   products       0 (wait, 1) | 1 (wait, 2)
// Blocks of one processor are at different places of it.
//
// Elements that are not finite are computed again in plain fp32: an infinity split in two is NaN.
#pragma once
#include "convolution.cuh"
#include "patch_channels.cuh"
#include "patch_epilogue.cuh"
#include "patch_statistics.cuh"

namespace rf {

// What a step of 8 of K needs before it can begin: fragments of kernels, and where its k are seen.
template <int MI> struct PatchStep {
  float4 kernels[MI];
  int2 at;
  RF_FN void load(const float4* from, long apart, const int2* table, int step) {
#pragma unroll
    for (int mi = 0; mi < MI; mi++) kernels[mi] = from[mi * apart + step * 32];
    at = table[4 * step];
  }
};

// Steps of K: acc += the kernels' fragments times what a warp's places see of a patch. kernels: of the lane, of the first
// 16 features; 16 features further on they are `apart` from there. seen: the lane's place of each eight.
template <class S>
RF_FN void multiply_patch(float (&acc)[S::kMI][4][4], const float4* kernels, long apart, const int2* table,
                          const float* patch, const int (&seen)[4], int steps) {
  constexpr bool kSplit = S::Mode::kSplit;
  constexpr int kMI = S::kMI;
  // Steps whose loads are under way together. Measured on an H100, TF32 class, microseconds, of 2 and of 4: Features64 2872
  // and 1854, 4791 and 2962; Features32 1651 and 1812; Features16 860 and 896. Of fp32 class two at most differ by 3%.
  constexpr int kUnrolled = !kSplit && S::kWarps > 1 ? 4 : 2;
  PatchStep<kMI> next;
  next.load(kernels, apart, table, 0);
#pragma unroll kUnrolled
  for (int s = 0; s < steps; s++) {
    const PatchStep<kMI> now = next;
    next.load(kernels, apart, table, s + 1);  // behind the last there is one more, of any content
    float hi[kMI][4], lo[kMI][4];
#pragma unroll
    for (int mi = 0; mi < kMI; mi++) {
      const float a[4] = {now.kernels[mi].x, now.kernels[mi].y, now.kernels[mi].z, now.kernels[mi].w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        hi[mi][i] = kSplit ? tf32_of(a[i]) : a[i];
        if constexpr (kSplit) lo[mi][i] = tf32_of(a[i] - hi[mi][i]);
      }
    }
#pragma unroll
    for (int n = 0; n < 4; n++) {
      const float b0 = patch[seen[n] + now.at.x], b1 = patch[seen[n] + now.at.y];
      const float hi0 = tf32_of(b0), hi1 = tf32_of(b1);
      if constexpr (!kSplit) {
#pragma unroll
        for (int mi = 0; mi < kMI; mi++) mma_tf32(acc[mi][n], hi[mi], hi0, hi1);
      } else {
        const float lo0 = tf32_of(b0 - hi0), lo1 = tf32_of(b1 - hi1);
        float sums[kMI][4];  // tensor cores cut what they add off, by the size of the sum so far: the small ones first
#pragma unroll
        for (int mi = 0; mi < kMI; mi++) begin_mma_tf32(sums[mi], lo[mi], hi0, hi1);
#pragma unroll
        for (int mi = 0; mi < kMI; mi++) mma_tf32(sums[mi], hi[mi], lo0, lo1);
#pragma unroll
        for (int mi = 0; mi < kMI; mi++) mma_tf32(sums[mi], hi[mi], hi0, hi1);
#pragma unroll
        for (int mi = 0; mi < kMI; mi++)
#pragma unroll
          for (int i = 0; i < 4; i++) acc[mi][n][i] += sums[mi][i];
      }
    }
  }
}

// Blocks of a processor: of fp32 class the sums of two phases, of 32 features a warp, and the short ones take more than
// half of the registers.
template <class S, class W> constexpr int kPatchBlocks = S::Mode::kSplit && PatchShape<S, W>::kJoined * S::kMI > 2 ? 1 : 2;

template <class S, class Body>
__global__ void __launch_bounds__(S::kThreads, kPatchBlocks<S, typename Body::Window>)
    convolution_patches(const __grid_constant__ PatchLaunch launch, const __grid_constant__ Body body) {
  using W = typename Body::Window;
  using P = Phases<W>;
  using Shape = PatchShape<S, W>;
  constexpr int kJoined = Shape::kJoined, kChunks = Shape::kChunks;
  extern __shared__ __align__(128) unsigned char raw_shared[];
  auto* staging = reinterpret_cast<float(*)[16][Shape::kPitch]>(raw_shared);
  auto* table = reinterpret_cast<int2*>(raw_shared + Shape::kStagingBytes);
  auto* patches = reinterpret_cast<float*>(raw_shared + Shape::kStagingBytes + Shape::kTableBytes);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, beside = warp % S::kWarps;
  const int slot = S::kChunk * launch.pitch, split = blockIdx.x % launch.splits;
  wait_on_dependent_grids();
  look_in_first_block(body);

  const auto load = [&](int chunk, int to) {
    load_patch<S, W>(launch, PatchTile<S, W>(launch, read_ctaid_x()), chunk, shared_address(patches + to * slot));
    cp_async_commit();
  };
  load(0, 0);
  lay_table<S, W>(launch, table);

  const int first_place = warp / S::kWarps * 32;  // of the warp, in the tile's box
  int seen[4];  // the lane's places in the patch
#pragma unroll
  for (int n = 0; n < 4; n++) {
    const int place = first_place + 8 * n + lane / 4, w = place & ((1 << launch.log_wide) - 1);
    const int rest = place >> launch.log_wide, h = rest & ((1 << launch.log_high) - 1), d = rest >> launch.log_high;
    seen[n] = (d * P::Deep::kStep * launch.patch_high + h * P::High::kStep) * launch.patch_wide + w * P::Wide::kStep;
  }
  const PatchTile<S, W> at(launch, blockIdx.x);
  const int feature0 = at.tile * S::kTileRows + 16 * S::kMI * beside;  // of the warp, in its group
  const long apart = Fragments<S, W>::kAllSteps * 32L;                   // from 16 features to the next
  const float4* kernels =
      launch.packed + (long(at.group) * Fragments<S, W>::kSixteens + feature0 / 16) * apart + lane;

  const PatchStatistics<S, W> statistics{staging[warp], lane};
  if constexpr (Body::kStatistics) statistics.clear();
  int before = 0, used = 0, begun = 0;  // steps of earlier phases; chunks used; phases of this block so far
#pragma unroll 1
  for (int joined = 0; joined < P::kPhases; joined += kJoined) {
    const bool mine = joined / kJoined % launch.splits == split;
    float acc[kJoined][S::kMI][4][4];
#pragma unroll
    for (int j = 0; j < kJoined; j++) {
#pragma unroll
      for (int mi = 0; mi < S::kMI; mi++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
          for (int i = 0; i < 4; i++) acc[j][mi][n][i] = 0.0f;
      const int steps = Shape::steps(joined + j);
      if (mine) {
#pragma unroll 1
        for (int chunk = 0; chunk < kChunks; chunk++, used++) {
          if (kChunks > 1 || begun == 0) {
            cp_async_wait<0>();
            __syncthreads();  // it is there for all, and nobody reads the other slot any more
            begun = 1;
          }
          if (kChunks > 1) load(chunk + 1 == kChunks ? 0 : chunk + 1, (used + 1) % 2);
          multiply_patch<S>(acc[j], kernels + (before * kChunks + chunk * steps) * 32L, apart,
                            table + 4 * before + lane % 4, patches + (kChunks > 1 ? used % 2 * slot : 0), seen, steps);
        }
      }
      before += steps;
    }
    if (!mine) continue;
    // what follows from the block's number is computed again, not held in registers while the products need them
    const PatchTile<S, W> tile(launch, read_ctaid_x());
    const PatchRuns runs{min(launch.log_wide, 5), first_place, tile.deep, tile.high, tile.wide};
    const PatchEpilogue<S, W> epilogue{launch, runs, tile, typename P::Phase(joined), lane};
    const auto stage = [&](int mi) {
#pragma unroll
      for (int j = 0; j < kJoined; j++)
#pragma unroll
        for (int n = 0; n < 4; n++) {
          const float(&x)[4] = acc[j][mi][n];
          float* to = &staging[warp][lane / 4][32 * j + 8 * n + 2 * (lane % 4)];
          *reinterpret_cast<float2*>(to) = make_float2(x[0], x[1]);
          *reinterpret_cast<float2*>(to + 8 * Shape::kPitch) = make_float2(x[2], x[3]);
        }
    };
    const auto finite = [&](int mi) {
      float none = 0.0f;  // 0 times what is not finite is NaN
#pragma unroll
      for (int j = 0; j < kJoined; j++)
#pragma unroll
        for (int n = 0; n < 4; n++)
#pragma unroll
          for (int i = 0; i < 4; i++) none = fmaf(acc[j][mi][n][i], 0.0f, none);
      return !__any_sync(kFullMask, none != 0.0f);
    };
    if constexpr (kPassesChannels<Body> || Body::kStatistics) {
#pragma unroll
      for (int mi = 0; mi < S::kMI; mi++) {
        if (finite(mi)) continue;
        __syncwarp();
        stage(mi);
        __syncwarp();
        if (feature0 + 16 * mi < W::kFeatures) epilogue.repair(staging[warp], feature0 + 16 * mi);
#pragma unroll
        for (int j = 0; j < kJoined; j++)
#pragma unroll
          for (int n = 0; n < 4; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
              acc[j][mi][n][i] = staging[warp][8 * (i / 2) + lane / 4][32 * j + 8 * n + 2 * (lane % 4) + i % 2];
        __syncwarp();
      }
      const auto store = [&](const auto& values) {
#pragma unroll
        for (int mi = 0; mi < S::kMI; mi++) {
          stage(mi);
          __syncwarp();
          if (feature0 + 16 * mi < W::kFeatures) epilogue.finalize(body, values, staging[warp], feature0 + 16 * mi);
          __syncwarp();
        }
      };
      if constexpr (Body::kStatistics) {
        epilogue.values(body, acc, feature0);
        statistics.template add<Body::kSpread>(acc, epilogue);
        const Computed<Body> computed{body};
        if constexpr (Body::kStoresValues) store(StagedValues<Computed<Body>>{computed});
      } else {
        const PatchChannels<S, Body> channels{body, staging + (warp - beside)};
        channels.reduce(acc, epilogue, beside);
        if constexpr (Body::kStoresValues) store(channels);
        else channels.store_places(epilogue, beside);
      }
    } else {
#pragma unroll
      for (int mi = 0; mi < S::kMI; mi++) {
        stage(mi);
        const bool is_finite = finite(mi);
        __syncwarp();
        if (feature0 + 16 * mi < W::kFeatures) {
          if (!is_finite) epilogue.repair(staging[warp], feature0 + 16 * mi);
          epilogue.finalize(body, StagedValues<Body>{body}, staging[warp], feature0 + 16 * mi);
        }
        __syncwarp();
      }
    }
  }
  cp_async_wait<0>();
  if constexpr (Body::kStatistics) store_statistics<S, W>(launch, PatchTile<S, W>(launch, read_ctaid_x()), staging);
  launch_dependent_grids();
}

// The box of 2^n places of a tile: the least work, copies included, of those whose patches fit.
template <class S, class W> Error choose_box(PatchLaunch& l, size_t& shared) {
  using P = Phases<W>;
  using Shape = PatchShape<S, W>;
  const Images& m = l.images;
  const auto places = [](int made, int phases) { return (made + phases - 1) / phases; };
  const int deep = places(m.made_deep, P::Deep::kPhases), high = places(m.made_high, P::High::kPhases);
  const int wide = places(m.made_wide, P::Wide::kPhases);
  int log_tile = 0;
  while (S::kTileCols >> (log_tile + 1)) log_tile++;
  double least = 0.0;
  shared = 0;
  for (int log_wide = log_tile; log_wide >= 3; log_wide--)
    for (int log_high = log_tile - log_wide; log_high >= 0; log_high--) {
      const int w = 1 << log_wide, h = 1 << log_high, d = 1 << (log_tile - log_wide - log_high);
      if ((W::kPlaces < 2 && h > 1) || (W::kPlaces < 3 && d > 1)) continue;
      const long patch_d = (d - 1) * P::Deep::kStep + P::Deep::kMost - P::Deep::kLeast + 1;
      const long patch_h = (h - 1) * P::High::kStep + P::High::kMost - P::High::kLeast + 1;
      const long patch_w = (w - 1) * P::Wide::kStep + P::Wide::kMost - P::Wide::kLeast + 1;
      const long plane = patch_d * patch_h * patch_w, pitch = (plane + 23) / 32 * 32 + 8;  // 8 modulo 32
      const long bytes = Shape::kStagingBytes + Shape::kTableBytes + Shape::kSlots * S::kChunk * pitch * 4;
      if (bytes > Shape::kMost) continue;
      const double boxes = double(blocks_of(deep, d)) * blocks_of(high, h) * blocks_of(wide, w);
      const double work = boxes * (4.0 * S::kTileCols + plane);
      if (shared != 0 && work >= least) continue;
      least = work, shared = static_cast<size_t>(bytes);
      l.log_wide = log_wide, l.log_high = log_high;
      l.boxes_deep = blocks_of(deep, d), l.boxes_high = blocks_of(high, h), l.boxes_wide = blocks_of(wide, w);
      l.patch_high = int(patch_h), l.patch_wide = int(patch_w), l.plane = int(plane), l.pitch = int(pitch);
    }
  return shared ? nullptr : error("a patch of %d channels does not fit shared memory", S::kChunk);
}

// Of what `patches` is given.
template <class S, class W>
Error patch_launch_of(PatchLaunch& l, size_t& shared, const float* x, long count, long deep, long high, long wide,
                      long places, const Device& device) {
  using Shape = PatchShape<S, W>;
  RF_TRY(images_of<W>(l.images, x, count, deep, high, wide, places));
  RF_TRY((choose_box<S, W>(l, shared)));
  l.lanes = 32;
  while (l.lanes < S::kThreads && l.lanes < l.plane) l.lanes *= 2;
  const long boxes = count * l.boxes_deep * l.boxes_high * l.boxes_wide, phases = Phases<W>::kPhases / Shape::kJoined;
  l.splits = static_cast<int>(boxes * W::kGroups * Shape::kTiles >= 2L * device.processors ? 1 : phases);
  return nullptr;
}

// What statistics are merged from: of each channel of an image.
inline long partials_of(const PatchLaunch& l) { return long(l.boxes_deep) * l.boxes_high * l.boxes_wide * l.splits; }

template <class S, class Body>
Error patches_workspace_size(WorkspaceSize& size, long count, long deep, long high, long wide, long places) {
  using W = typename Body::Window;
  size.scratch = Fragments<S, W>::bytes();
  if (!Body::kStatistics || count == 0 || places == 0) return nullptr;
  Device device;
  RF_TRY(current_device(device));
  PatchLaunch l{};
  size_t shared;
  RF_TRY((patch_launch_of<S, W>(l, shared, nullptr, count, deep, high, wide, places, device)));
  size.scratch += sizeof(float4) * static_cast<size_t>(count * W::kGroups * W::kFeatures * partials_of(l));
  return nullptr;
}

// images [count, channels, deep, high, wide] -> body's outputs, `places` for each of a result's channels. w: the kernels
// as they are; they are packed into the workspace first. aligned: as of `convolution`.
template <class S, class Body>
Error patches(const Body& body, const float* x, const float* w, long count, long deep, long high, long wide,
              long places, bool aligned, const Workspace& work, cudaStream_t stream) {
  using W = typename Body::Window;
  using Shape = PatchShape<S, W>;
  if (count == 0 || places == 0) return nullptr;
  Device device;
  RF_TRY(current_device(device));
  if (device.major < 8)
    return error("the device has compute capability %d.%d; this kernel is for 8.0 and later", device.major,
                 device.minor);
  PatchLaunch l{};
  size_t shared;
  RF_TRY((patch_launch_of<S, W>(l, shared, x, count, deep, high, wide, places, device)));
  auto* to = static_cast<float4*>(work.scratch);
  l.w = w, l.packed = to;
  l.in_fours = aligned && places % 4 == 0;
  const long fragments = Fragments<S, W>::bytes() / 16;
  l.statistics = to + fragments;
  unsigned grid, pack_grid;
  RF_TRY(grid_of(count * partials_of(l) * W::kGroups * Shape::kTiles, grid));
  RF_TRY(grid_of(blocks_of(fragments, 256), pack_grid));
  RF_TRY(launch(pack_fragments<S, W>, pack_grid, 256, 0, stream, LaunchMode::overlapping, "packing kernels", w, to,
                fragments));
  static std::atomic<uint64_t> allowed{0};
  auto* kernel = convolution_patches<S, Body>;
  RF_TRY(allow_shared(kernel, Shape::kMost, device, allowed));
  RF_TRY(launch(kernel, grid, S::kThreads, shared, stream, LaunchMode::overlapping, "launching the convolution", l,
                body));
  if constexpr (Body::kStatistics) {
    const long channels = count * W::kGroups * W::kFeatures;
    unsigned merge_grid;
    RF_TRY(grid_of(blocks_of(channels, kStatisticsThreads / 32), merge_grid));
    return launch(merge_statistics<Body>, merge_grid, kStatisticsThreads, 0, stream, LaunchMode::overlapping,
                  "launching the end of statistics", body, static_cast<const float4*>(l.statistics), channels,
                  static_cast<int>(partials_of(l)));
  }
  return nullptr;
}

}  // namespace rf
