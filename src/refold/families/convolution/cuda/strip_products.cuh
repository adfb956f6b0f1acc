// The products of a row of a strip's result, by wgmma from rows and kernels in shared memory, for convolution_strips.cuh.
//
// Registers of a thread: 64 sums, and 64 of a short accumulator where products are promoted. One of 32, for one half of the
// places after the other, was wrong on an H100 where nothing was left of the loop over rows of taps (nvcc 13.0).
#pragma once
#include "strip_producers.cuh"

namespace rf {

// The taps of a phase along one axis, in the order in which they lie.
template <class Axis, int Phase> struct Taps {
  static constexpr int kFirst = Axis::first_of(Phase), kCount = Axis::count_of(Phase);
  static RF_FN int tap(int i) { return kFirst + i * Axis::kApart; }
  static RF_FN int at(int i) { return Axis::at(Phase, tap(i)) - Axis::kLeast; }  // from the first that any phase sees
};

// Calls use(Step<i>) for i < Count.
template <int Count, class Use> RF_FN void for_steps(const Use& use) {
  if constexpr (Count > 0) {
    for_steps<Count - 1>(use);
    use(Step<Count - 1>{});
  }
}

// What scales back the rows that a row of the result meets, where it is the same of all and their channels; else 0.
template <class S, class W, int Phase> RF_FN float unscale_of_rows(const StripStorage<S, W>& shared, int row) {
  using Shape = StripShape<S, W>;
  using High = Taps<typename Shape::High, Phase>;
  float of_all = kAnyScale;
  bool alike = true;
#pragma unroll
  for (int high = 0; high < High::kCount; high++)
#pragma unroll
    for (int chunk = 0; chunk < Shape::kChunks; chunk++) {
      const float of_row = shared.unscale_row[(row + High::at(high)) % Shape::kSlots][chunk];
      alike = alike && (of_row == kAnyScale || of_all == kAnyScale || of_row == of_all);
      of_all = of_row == kAnyScale ? of_all : of_row;
    }
  return !alike ? 0.0f : of_all == kAnyScale ? 1.0f : of_all;
}

// Calls use(Step<i>) for the phases along the width that are computed together, those of which have no taps left out.
template <class S, class W, class Use> RF_FN void for_phases_along(const Use& use) {
  using Wide = typename StripShape<S, W>::Wide;
  if constexpr (Taps<Wide, 0>::kCount != 0) use(Step<0>{});
  if constexpr (Wide::kPhases == 2)
    if constexpr (Taps<Wide, 1>::kCount != 0) use(Step<1>{});
}

// The product of a tap of 16 channels: of 128 places, or of 64 or 40, a phase along the width.
template <int Together, int Wide, int Sums>
RF_FN void multiply_step(float (&acc)[Sums], uint64_t a, uint64_t b, bool add) {
  if constexpr (Together == 1) wgmma_plain(acc, a, b, add);
  else wgmma_plain_half<Wide>(acc, a, b, add);
}

// How a step of 16 products is told to the tensor cores: of a row of taps, and of the row in shared memory that it meets.
template <class S, class W> struct StepsOfRow {
  using Shape = StripShape<S, W>;
  static constexpr int kFeatures = S::kTileRows * 16, kNext = W::Wide::kDilation * 16;
  uint32_t weights;
  CoreMatrices a, b;
  RF_FN StepsOfRow(uint32_t weights, int high, uint32_t row)
      : weights(weights + high * Shape::kWideTaps * Shape::kTapBytes), a(this->weights, kFeatures),
        b(row, Shape::kStepTaps == 2 ? kNext : Shape::kPixels * 16) {}
  RF_FN uint64_t kernels(int tap, int octet, int piece = 0) const {
    return a.at(piece * Shape::kWeightPiece + tap * Shape::kTapBytes + octet * kFeatures);
  }
  // Of a tap alone: what the step has of its neighbour are zeros.
  RF_FN uint64_t kernels_alone(int high, int tap, int piece) const {
    const int behind = (Shape::kPlaneTaps - high * Shape::kWideTaps - tap) * Shape::kTapBytes;
    return CoreMatrices(weights, behind).at(piece * Shape::kWeightPiece + tap * Shape::kTapBytes);
  }
  RF_FN uint64_t places(int place, int octet, int piece = 0) const {
    return b.at(piece * Shape::kRowPiece + (octet * Shape::kPixels + place) * 16);
  }
};

// The products of all taps and channels by one chain of instructions. row: the first that is met; in TF32 class. place:
// of a row in shared memory, where the tile begins.
template <class S, class W, int Phase, int Sums>
RF_FN void multiply_rows(float (&acc)[Sums], uint32_t weights, uint32_t rows, int row, int place) {
  using Shape = StripShape<S, W>;
  using High = Taps<typename Shape::High, Phase>;
  wgmma_fence();
#pragma unroll
  for (int high = 0; high < High::kCount; high++) {
    const int slot = (row + High::at(high)) % Shape::kSlots;
    const StepsOfRow<S, W> steps(weights, High::tap(high), rows + slot * Shape::kRowBytes + place * 16);
    for_phases_along<S, W>([&](auto phase) {
      using Wide = Taps<typename Shape::Wide, phase.index>;
#pragma unroll
      for (int wide = 0; wide < Wide::kCount; wide += Shape::kStepTaps)
#pragma unroll
        for (int octet = 0; octet < Shape::kOctets; octet += 2)
          multiply_step<Shape::kTogether, phase.index>(acc, steps.kernels(Wide::tap(wide), octet),
                                                       steps.places(Wide::at(wide), octet), high + wide + octet != 0);
    });
  }
  wgmma_commit_group();
}

// The sums of a row of the result, products promoted to them: of a row of taps (of fp32 class: of one tap) and a chunk of
// channels, or of one tap where places have scales of their own.
template <class S, class W, int Phase, int Sums>
RF_FN void multiply_and_promote(float (&acc)[Sums], float (&partial)[Sums], const StripStorage<S, W>& shared,
                                uint32_t weights, uint32_t rows, int row, int place, int lane) {
  using Shape = StripShape<S, W>;
  using High = Taps<typename Shape::High, Phase>;
  constexpr int kChunk = Shape::kChunkOctets, kHalf = Sums / 2;
#pragma unroll
  for (int i = 0; i < Sums; i++) acc[i] = partial[i] = 0.0f;
#pragma unroll 1
  for (int high = 0; high < High::kCount; high++) {
    const int slot = (row + High::at(high)) % Shape::kSlots;
    const StepsOfRow<S, W> steps(weights, High::tap(high), rows + slot * Shape::kRowBytes + place * 16);
    const auto of_phase = [&](auto phase) {
      using Wide = Taps<typename Shape::Wide, phase.index>;
      // Steps along the taps whose products are promoted together. Of fp32 class each by itself: three taps of 8 channels,
      // of which each filled a step, were measured to err 1.6 times as much as eager, one at a time as much.
      constexpr int kSteps = (Wide::kCount + Shape::kStepTaps - 1) / Shape::kStepTaps;
      constexpr int kMost = S::Mode::kSplit ? 1 : 5, kAtOnce = kMost < kSteps ? kMost : kSteps;
      // The products of so many taps and octets of a chunk, of a half of the places, or a phase. each: taps of a step.
      const auto issue = [&](auto half, int tap0, auto taps, auto each, auto octets, int chunk) {
        const int place = Shape::kTogether == 1 ? 64 * half.index : 0;
        wgmma_fence();
        // the small products first: tensor cores cut what they add off, by the size of the sum so far
#pragma unroll
        for (int term = S::Mode::kSplit ? 0 : 2; term < 3; term++)
#pragma unroll
          for (int t = 0; t < taps.index; t++)
#pragma unroll
            for (int octet = 0; octet < octets.index; octet += 2) {
              const int channel = kChunk * chunk + octet, piece_a = term == 0, piece_b = term == 1;
              const bool first = term == (S::Mode::kSplit ? 0 : 2) && t == 0 && octet == 0;
              const int tap = (tap0 + t) * each.index, of_row = Wide::tap(tap);
              const bool alone = Shape::kStepTaps > each.index;
              wgmma_plain_half<half.index>(
                  partial,
                  alone ? steps.kernels_alone(High::tap(high), of_row, piece_a) : steps.kernels(of_row, channel, piece_a),
                  steps.places(Wide::at(tap) + place, channel, piece_b), !first);
            }
        wgmma_commit_group();
      };
      // Waits for all products but the last so many issues of them, and uses those of a half.
      const auto settle = [&](auto half, auto left, const auto& promote) {
        wgmma_wait_group<left.index>();
#pragma unroll
        for (int i = kHalf * half.index; i < kHalf * half.index + kHalf; i++) asm volatile("" : "+f"(partial[i]));  // not before
        promote(half);
      };
      // All taps, `AtOnce` steps at a time. One half's are promoted while the tensor cores multiply the other's.
      const auto multiply_all = [&](auto at_once, auto each, auto octets, int chunk, const auto& promote_of) {
        constexpr int kAll = each.index == 1 ? Wide::kCount : kSteps;
        constexpr int kTimes = kAll / at_once.index, kRest = kAll % at_once.index;
        const auto promote_halves = [&](int tap, auto taps, int next, auto next_taps) {  // next: what is multiplied meanwhile
          constexpr bool kMore = next_taps.index != 0;
          if constexpr (Shape::kTogether == 1) {
            settle(Step<0>{}, Step<1>{}, promote_of(tap));
            if constexpr (kMore) issue(Step<0>{}, next, next_taps, each, octets, chunk);
            settle(Step<1>{}, Step<kMore>{}, promote_of(tap));
            if constexpr (kMore) issue(Step<1>{}, next, next_taps, each, octets, chunk);
          } else {
            settle(Step<phase.index>{}, Step<0>{}, promote_of(tap));
            if constexpr (kMore) issue(Step<phase.index>{}, next, next_taps, each, octets, chunk);
          }
        };
        if constexpr (Shape::kTogether == 1) {
          issue(Step<0>{}, 0, at_once, each, octets, chunk);
          issue(Step<1>{}, 0, at_once, each, octets, chunk);
        } else {
          issue(Step<phase.index>{}, 0, at_once, each, octets, chunk);
        }
#pragma unroll(kTimes > 4 ? 1 : kTimes)
        for (int i = 1; i < kTimes; i++)
          promote_halves((i - 1) * at_once.index, at_once, i * at_once.index, at_once);
        promote_halves((kTimes - 1) * at_once.index, at_once, kTimes * at_once.index, Step<kRest>{});
        if constexpr (kRest != 0) promote_halves(kTimes * at_once.index, Step<kRest>{}, 0, Step<0>{});
      };
      const auto add_chunk = [&](auto octets, int chunk) {
        const float of_row = shared.unscale_row[slot][chunk];
        if (of_row != 0.0f) {
          multiply_all(Step<kAtOnce>{}, Step<Shape::kStepTaps>{}, octets, chunk, [&](int) {
            return [&](auto half) {
#pragma unroll
              for (int i = kHalf * half.index; i < kHalf * half.index + kHalf; i++) acc[i] = fmaf(partial[i], of_row, acc[i]);
            };
          });
        } else {
          multiply_all(Step<1>{}, Step<1>{}, octets, chunk, [&](int tap) {
            return [&, tap](auto half) {
              const int first = Shape::kTogether == 1 ? 64 * half.index : 0;
              const float* of_place = shared.unscale[slot][chunk] + Wide::at(tap) + place + first + 2 * (lane % 4);
#pragma unroll
              for (int i = 0; i < kHalf; i++) {
                float& sum = acc[kHalf * half.index + i];
                sum = fmaf(partial[kHalf * half.index + i], of_place[8 * (i / 4) + i % 2], sum);
              }
            };
          });
        }
      };
#pragma unroll 1
      for (int chunk = 0; chunk < Shape::kOctets / kChunk; chunk++) add_chunk(Step<kChunk>{}, chunk);
      if constexpr (Shape::kOctets % kChunk != 0) add_chunk(Step<Shape::kOctets % kChunk>{}, Shape::kOctets / kChunk);
    };
    for_phases_along<S, W>(of_phase);
  }
}

}  // namespace rf
