// Mainloop on Hopper: the wgmmas of a consumer warpgroup over a tile's steps of K, both operands from shared memory.
//
// Three mainloops (matmul_sm90.cuh says which warps run them, and shows a timeline):
//   mainloop_promoted     kPromote stages, 64 of k, go to a short accumulator, `partial`; fp32 additions then add it to
//                         the tile's. Small products first: lo*hi, hi*lo, hi*hi.
//   mainloop_unpromoted   the tensor cores keep the tile's accumulator; the wgmmas of one stage are always in flight
//   mainloop_rs           A from registers (mainloop_rs_sm90.cuh)
//
// Registers of a thread: 64 of `partial` and 64 a half (64 rows) of the accumulator. The halves share `partial`, one
// after the other. Shared memory: a stage's row of 128 bytes is 32 of k, 64 bytes of hi and 64 of lo; or 64 of k as
// they are.
#pragma once
#include "tile_scheduler_sm90.cuh"

namespace rf {

// Distances inside a stage's row, in units of descriptors.
constexpr int kSlice = kDescriptorUnits<16 * 2>;  // from one instruction's 16 of k to the next one's
constexpr int kLo = kDescriptorUnits<64>;         // from hi to lo of a row that holds both
constexpr int kSlices = 4;                        // of a row, where elements are single

// The mbarriers of the pipeline. A warp releases a stage by lane 0 at its block's own and, in a cluster of two, by lane
// `remote_lane` at the other block's.
struct Pipeline {
  uint32_t full, empty, remote_empty;
  int remote_lane;
  RF_FN void release(int stage) const {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + kMbarrierBytes * stage);
    if (threadIdx.x % 32 == remote_lane) mbarrier_arrive_cluster(remote_empty + kMbarrierBytes * stage);
  }
};

// The wgmmas of one promotion step (`kPromote` stages from `stage`) on rows 64 mi to 64 mi + 63 of the warpgroup, then
// their promotion. a, b: descriptors of the warpgroup's rows in the first stage.
template <class S>
RF_FN void promotion_step(float (&accumulator)[64], float (&partial)[64], uint32_t a, uint32_t b, int stage, int mi,
                          uint32_t full, uint32_t phase) {
  using T = typename S::Mode::Type;
  constexpr int kNext = kDescriptorUnits<S::kStageBytes>, kHalf = kDescriptorUnits<64 * S::kRowBytes>;
  if (mi == 0)
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) mbarrier_wait(full + kMbarrierBytes * (stage + p), phase);
  wgmma_fence();
#pragma unroll
  for (int p = 0; p < S::kPromote; p++) {
    const uint32_t at = a + (stage + p) * kNext + mi * kHalf, bt = b + (stage + p) * kNext;
    if constexpr (S::Mode::kSplit) {
      wgmma<T>(partial, at + kLo, bt, p != 0);
      wgmma<T>(partial, at + kLo + kSlice, bt + kSlice, true);
      wgmma<T>(partial, at, bt + kLo, true);
      wgmma<T>(partial, at + kSlice, bt + kLo + kSlice, true);
    } else {
#pragma unroll
      for (int k = 0; k < kSlices; k++) wgmma<T>(partial, at + kSlice * k, bt + kSlice * k, p + k != 0);
    }
  }
  if constexpr (S::Mode::kSplit) {
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) {
      const uint32_t at = a + (stage + p) * kNext + mi * kHalf, bt = b + (stage + p) * kNext;
      wgmma<T>(partial, at, bt, true);
      wgmma<T>(partial, at + kSlice, bt + kSlice, true);
    }
  }
  wgmma_commit_group();
  wgmma_wait_group<0>();
#pragma unroll
  for (int i = 0; i < 64; i++) {
    asm volatile("" : "+f"(partial[i])::"memory");  // not read before the wait
    accumulator[i] += partial[i];
  }
}

// `steps` promotion steps from `first` on: acc becomes their sum.
template <class S>
RF_FN void mainloop_promoted(Fragment<S::kHalves, 4>& acc, float (&partial)[64], uint32_t a, uint32_t b, int first,
                             int steps, const Pipeline& pipeline) {
#pragma unroll
  for (int i = 0; i < 64; i++) {  // an epilogue may have their registers
    partial[i] = 0.0f;
#pragma unroll
    for (int mi = 0; mi < S::kHalves; mi++) acc.x[mi][i] = 0.0f;
  }
#pragma unroll 1
  for (int k = first; k < first + steps; k++) {
    constexpr int kStepsPerPhase = S::kStages / S::kPromote;
    const int stage = k % kStepsPerPhase * S::kPromote, phase = k / kStepsPerPhase & 1;
#pragma unroll
    for (int mi = 0; mi < S::kHalves; mi++)
      promotion_step<S>(acc.x[mi], partial, a, b, stage, mi, pipeline.full, phase);
#pragma unroll
    for (int p = 0; p < S::kPromote; p++) pipeline.release(stage + p);
  }
}

// Issues the wgmmas of a stage, one for each element; the first ones overwrite the accumulator.
template <class S, bool IsFirst>
RF_FN void wgmma_stage(Fragment<S::kHalves, 4>& acc, uint32_t a, uint32_t b, int stage) {
  using T = typename S::Mode::Type;
  constexpr int kNext = kDescriptorUnits<S::kStageBytes>, kHalf = kDescriptorUnits<64 * S::kRowBytes>;
  const uint32_t at = a + stage * kNext, bt = b + stage * kNext;
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSlices * S::kHalves; i++)
    wgmma<T>(acc.x[i / kSlices], at + i / kSlices * kHalf + kSlice * (i % kSlices), bt + kSlice * (i % kSlices),
             !IsFirst || i % kSlices != 0);
  wgmma_commit_group();
}

// The same steps, one or more, each element a single product, without promotion.
template <class S>
RF_FN void mainloop_unpromoted(Fragment<S::kHalves, 4>& acc, uint32_t a, uint32_t b, int first, int steps,
                               const Pipeline& pipeline) {
  const int end = (first + steps) * S::kPromote;
  int k = first * S::kPromote;
  mbarrier_wait(pipeline.full + kMbarrierBytes * (k % S::kStages), k / S::kStages & 1);
  wgmma_stage<S, true>(acc, a, b, k % S::kStages);
#pragma unroll 1
  for (k++; k < end; k++) {
    const int stage = k % S::kStages;
    mbarrier_wait(pipeline.full + kMbarrierBytes * stage, k / S::kStages & 1);
    wgmma_stage<S, false>(acc, a, b, stage);
    wgmma_wait_group<1>();
    pipeline.release((k - 1) % S::kStages);
  }
  wgmma_wait_group<0>();
#pragma unroll
  for (int i = 0; i < 64 * S::kHalves; i++)
    asm volatile("" : "+f"(acc.x[i / 64][i % 64])::"memory");  // not read before the wait
  pipeline.release((end - 1) % S::kStages);
}

// Defined in mainloop_rs_sm90.cuh, which only IeeeRS needs.
template <class S>
RF_FN void mainloop_rs(Fragment<2, 4>& acc, float (&partial)[64], uint32_t a, uint32_t b, int warpgroup, int first,
                       int count, uint32_t full, uint32_t empty);

}  // namespace rf
