// Passes over the channels of each place of a patch's result, for convolution_patches.cuh: a softmax, a logsumexp, the
// least of them.
//
// Why here: a kernel of channels reads the whole result again, and what is left of it may be a number a place. A tile has
// all channels, of which a lane has 2 kMI of each of its 8 places (of two joined phases 16): it joins these, three exchanges
// halve the places and double the channels, and what a warp knows of a place goes by way of shared memory to its lanes, and
// to the warp beside it. Elements are staged as the last pass has them (kKeepsTerms), an exponential, say, or as the first.
//
// Shared memory: none of its own. Rows of a warp's stage end in eight words that nobody uses: four numbers a place, or two
// of joined phases. Registers of a thread: 8 to 16 beside the sums.
#pragma once
#include "functor.cuh"
#include "halved_lanes.cuh"
#include "patch_epilogue.cuh"
#include "sum_of_exp.cuh"

namespace rf {

template <class Body> inline constexpr bool kPassesChannels = !std::is_void<typename Body::OverChannels>::value;

constexpr int kChannelsBarrier = 1;  // to 4: of the warps that have the same places

// What becomes of a staged element of most bodies.
template <class Body> struct StagedValues {
  struct Reduced {};
  const Body& body;
  template <class V, class At> RF_FN Reduced known(const At&) const { return {}; }
  template <class V, class C> RF_FN V value(const Reduced&, V v, long row, long channel, C col) const {
    return body.value(v, row, channel, col);
  }
};

// The same of bodies of passes. stages: of the first of the warps that have the same places.
template <class S, class Body> struct PatchChannels {
  using W = typename Body::Window;
  using P = Phases<W>;
  using Shape = PatchShape<S, W>;
  using Monoids = typename Body::OverChannels;
  template <class V> using Reduced = typename Body::template Reduced<V>;
  static constexpr int kJoined = Shape::kJoined, kPasses = Monoids::size, kPlaces = 32;
  static_assert(kPasses * kJoined * kPlaces <= 16 * 8, "rows of a stage end in as many words");
  static_assert(W::kGroups == 1 && W::kFeatures <= S::kTileRows, "a tile has all channels");

  const Body& body;
  float (*stages)[16][Shape::kPitch];

  // What a warp knows of a place of a phase.
  RF_FN float& word(int warp, int pass, int phase, int place) const {
    return stages[warp][4 * (pass * kJoined + phase) + place / 8][32 * kJoined + place % 8];
  }
  // What all channels' first passes give. at(e): of the V's e-th element phase and place, as it is staged.
  template <class V, int Passes, class At> RF_FN Reduced<V> known_of(const At& at) const {
    Reduced<V> known{};
    for_monoids<0>(Monoids{}, [&](auto pass, auto monoid) {
      using M = decltype(monoid);
      constexpr int kPass = decltype(pass)::index;
      if constexpr (kPass < Passes) {
        V value;
#pragma unroll
        for (int e = 0; e < int(sizeof(V) / sizeof(Real)); e++) {
          const int staged = at(e);
          float all = word(0, kPass, staged / 32, staged % 32);
#pragma unroll
          for (int w = 1; w < S::kWarps; w++)
            all = merged_words<M>(all, word(w, kPass, staged / 32, staged % 32));
          reinterpret_cast<Real*>(&value)[e] = all;
        }
        body.set(pass, known, value);
      }
    });
    return known;
  }
  template <class V, class At> RF_FN Reduced<V> known(const At& at) const { return known_of<V, kPasses>(at); }
  template <class V, class C> RF_FN V value(const Reduced<V>& known, V v, long row, long channel, C col) const {
    return body.of_element(known, v, row, channel, col);
  }

  // All passes. acc: of a warp, with the body's values in it; left as they are staged.
  RF_FN void reduce(float (&acc)[kJoined][S::kMI][4][4], const PatchEpilogue<S, W>& epilogue, int beside) const {
    const int lane = epilogue.lane, feature0 = 16 * S::kMI * beside + lane / 4;
    const long row0 = epilogue.tile.image * W::kFeatures;
    const auto channel_of = [&](int mi, int half) { return min(feature0 + 16 * mi + 8 * half, W::kFeatures - 1); };
    const auto place_of = [&](int i) { return 8 * (i / 2) + 2 * (lane % 4) + i % 2; };  // of the lane's eight
    epilogue.values(body, acc, 16 * S::kMI * beside);
    meet();  // what this block's phase before has left there is read
    for_monoids<0>(Monoids{}, [&](auto pass, auto monoid) {
      using M = decltype(monoid);
      constexpr int kPass = decltype(pass)::index;
#pragma unroll
      for (int j = 0; j < kJoined; j++) {
        float of[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
          const int place = place_of(i);
          const Reduced<Real> known = known_of<Real, kPass>([&](int) { return 32 * j + place; });
          of[i] = M::identity().w[0];
#pragma unroll
          for (int mi = 0; mi < S::kMI; mi++)
#pragma unroll
            for (int half = 0; half < 2; half++) {
              float& x = acc[j][mi][i / 2][2 * half + i % 2];
              const int channel = channel_of(mi, half);
              const float term =
                  body.term(pass, known, Real(x), row0 + channel, channel, epilogue.element_of(j, place));
              if (Body::kKeepsTerms && kPass + 1 == kPasses) x = term;
              if (W::kFeatures == S::kTileRows || feature0 + 16 * mi + 8 * half < W::kFeatures)
                of[i] = merged_words<M>(of[i], term);
            }
        }
        halve<M, 4, 16>(of, lane), halve<M, 2, 8>(of, lane), halve<M, 1, 4>(of, lane);
        word(beside, kPass, j, place_of(lane / 4)) = of[0];
      }
      meet();
    });
  }

  // A number a place, of joined phases next to each other.
  RF_FN void store_places(const PatchEpilogue<S, W>& epilogue, int beside) const {
    const int log = epilogue.runs.log + (kJoined > 1);
#pragma unroll 1
    for (int i = epilogue.lane + 32 * beside; i < 32 * kJoined; i += 32 * S::kWarps) {
      const auto at = epilogue.run_of(i >> log);
      const int in = i & ((1 << log) - 1);
      if (in >= at.count) continue;
      const int staged = epilogue.staged(epilogue.runs.log, i >> log, in);
      const long col = at.start + in * PatchEpilogue<S, W>::kStep;
      const auto all = known<Real>([&](int) { return staged; });
      body.store(epilogue.tile.image, col, body.of_place(all, epilogue.tile.image, col));
    }
  }

 private:
  // Of the warps that have the same places.
  RF_FN void meet() const {
    if constexpr (S::kWarps == 1) __syncwarp();
    else named_barrier_sync(kChannelsBarrier + threadIdx.x / (32 * S::kWarps), 32 * S::kWarps);
  }
};

}  // namespace rf
