// The results of a tile of convolution_flat.cuh, from the registers that wgmma left them in to memory.
//
// A lane has two features and 64 of 256 places, which are of any rows and images: a table in shared memory says which. What
// follows on each element is computed where it is, so that what belongs to a feature is read once. Then a warp lays eight
// features of 64 places down in a stage of its own, and takes them up again a place a lane: an instruction stores 128 bytes of a
// feature, but for what is padded between rows. Where channels lie last nothing is laid down.
#pragma once
#include "flat_images.cuh"
#include "strip_epilogue.cuh"
#include "strip_rows.cuh"

namespace rf {

constexpr int kMostResults = 256;
struct FlatTable {  // of the places of a result
  int2 at[kMostResults];  // image, place; -1: none
  float unscale[kMostResults];
};

// Where an addressed body reads: col of a row, as others do; here: the element's place in memory of what lies in the order of
// the result; other: of what lies in the other one. Addresses of elements are computed for all operands at once.
struct FlatAt {
  int col;
  long here, other;
};
template <class V, class T> RF_FN V column(const T* p, FlatAt at) { return read_one(p + at.col); }
template <class V, class T> RF_FN V full(const T* p, long, FlatAt at) { return read_one(p + at.here); }
template <class V, class T> RF_FN V along(const T* p, long offset, FlatAt at) { return read_one(p + offset + at.col); }
template <class V, class T> RF_FN V in_other_order(const T* p, FlatAt at) { return read_one(p + at.other); }
template <class T> RF_FN void put(T* p, long, FlatAt at, Real v) { write_one(p + at.here, v); }

// Two results next to each other, the first at an even place of a row, or of one further on.
struct LongPair {
  long col;
  Real next;
};
template <class T> RF_FN void put(T* p, long offset, LongPair pair, Real v) {
  write_vec2<true>(p + offset + pair.col, 0, v, pair.next);
}

// What places of a tile are of images: those of phases along the width next to each other.
template <class S, class Shape>
RF_FN void fill_table(const FlatLaunch& l, FlatTable& table, long place0, int deep, int high, int thread) {
  constexpr int kTogether = Shape::kTogether;
  const Images& images = l.of.images;
  const long image0 = place0 / l.image;
  const unsigned of_image0 = static_cast<unsigned>(place0 - image0 * l.image), size = static_cast<unsigned>(l.image);
#pragma unroll
  for (int k = 0; k < S::kResults / kWarpgroupThreads; k++) {
    const int i = thread + k * kWarpgroupThreads;
    const unsigned of_first = of_image0 + i / kTogether, further = of_first / size;
    const FlatPlace at(l, image0 + further, static_cast<int>(of_first - further * size));
    const int d = at.deep * Shape::Deep::kPhases + deep, h = at.high * Shape::High::kPhases + high;
    const int w = at.wide * kTogether + i % kTogether;
    const bool there = at.image < l.count && d < images.made_deep && h < images.made_high && w < images.made_wide;
    const int place = (d * images.made_high + h) * images.made_wide + w;
    table.at[i] = make_int2(there ? static_cast<int>(at.image) : 0, there ? place : -1);
    table.unscale[i] = there ? l.ranges[at.image].unscale() : 0.0f;
  }
}

// Elements that are not finite once more, in plain fp32. It is rare: one value of each lane after the other, by a function of
// its own, so that its registers are not taken from what is common.
template <class W, int Together, bool Last>
__device__ __noinline__ void repair_flat(const FlatLaunch& l, float (&acc)[64], const FlatTable& table, int place0, int group, int feature0, int lane) {
  const Images& images = l.of.images;
#pragma unroll 1
  for (int i = 0; i < 64; i++) {
    const int feature = feature0 + fragment_feature(i, lane);
    const int2 at = table.at[place0 + fragment_place<Together>(i, lane)];
    float v[1] = {acc[0]};
    const bool there = at.y >= 0 && feature < W::kFeatures;
    const int channel = group * W::kFeatures + feature;
    const long pixel = long(at.x) * images.places + at.y;
    if constexpr (Last) {
      repair_by(v, channel, pixel, there, lane, [&](int of, long where) {
        const long image = where / images.places;
        return plain_element<W, true>(images, l.of.w, image, group, of - group * W::kFeatures,
                                      static_cast<int>(where - image * images.places), lane);
      });
    } else {
      repair<W>(v, l.of, group, channel, pixel, there, lane);
    }
    acc[0] = v[0];
    rotate(acc);
  }
}

// The number of a place of all images, by an instruction: neither factor is negative, which the compiler does not know.
RF_FN long pixel_of(int2 at, int places) {
  return static_cast<long>(static_cast<unsigned long>(static_cast<unsigned>(at.x)) * static_cast<unsigned>(places)) + max(at.y, 0);
}

// An element of a place: its addresses where channels lie last, or first.
template <class W, bool Last> RF_FN FlatAt flat_at(int2 at, int channel, int places) {
  constexpr int kChannels = W::kGroups * W::kFeatures;
  const int place = max(at.y, 0);
  const long last = pixel_of(at, places) * kChannels + channel;
  const long first = (long(at.x) * kChannels + channel) * places + place;
  if constexpr (Last) return {channel, last, first};
  else return {place, first, last};
}

// 16 features of 128 places whose channels lie last, straight from registers: eight lanes have eight features next to each
// other of a place, so that an instruction stores four sectors of 32 bytes, whole. A lane has two of a place's features, eight
// apart, whose addresses are computed once.
template <int Together, class Body>
RF_FN void store_flat_last(const FlatLaunch& l, const Body& body, float (&acc)[64], const FlatTable& table, int place0, int group,
                           int feature0, int lane) {
  using W = typename Body::Window;
  constexpr bool kWhole = W::kFeatures % kFlatFeatures == 0;
  const int places = l.of.images.places, feature = feature0 + lane / 4, channel = group * W::kFeatures + feature;
  const bool there[2] = {kWhole || feature < W::kFeatures, kWhole || feature + 8 < W::kFeatures};
  // use(h, row, channel, address, stored) for each of the two features, if there is one; stored: whether the place is one
  const auto for_two = [&](int i, const auto& use) {
    const int2 at = table.at[place0 + fragment_place<Together>(i, lane)];
    const FlatAt first = flat_at<W, true>(at, channel, places);
    const long row = pixel_of(at, places);
    if (there[0]) use(0, row, channel, first, at.y >= 0);
    if (there[1]) use(1, row, channel + 8, FlatAt{first.col + 8, first.here + 8, first.other + 8L * places}, at.y >= 0);
  };
  if constexpr (Body::kLong) {
#pragma unroll 1
    for (int i = 0; i < 64; i += 4) {
#pragma unroll
      for (int e = 0; e < 2; e++) {
        for_two(i + e, [&](int h, long row, int c, FlatAt at, bool stored) {
          const float v = body.value(Real(acc[e + 2 * h]), row, c, at);
          if (stored) body.store(row, at, v);
        });
      }
      rotate(acc), rotate(acc), rotate(acc), rotate(acc);
    }
  } else {
    // What is read after a store waits for it: so many are computed before the first of them is stored. More addresses at a
    // time do not fit the registers.
    constexpr int kAtOnce = 16;
#pragma unroll
    for (int first = 0; first < 64; first += kAtOnce) {
#pragma unroll
      for (int i = first; i < first + kAtOnce; i += 4) {
#pragma unroll
        for (int e = i; e < i + 2; e++) {
          for_two(e, [&](int h, long row, int c, FlatAt at, bool) { acc[e + 2 * h] = body.value(Real(acc[e + 2 * h]), row, c, at); });
        }
      }
#pragma unroll
      for (int i = first; i < first + kAtOnce; i += 4) {
#pragma unroll
        for (int e = i; e < i + 2; e++) {
          for_two(e, [&](int h, long row, int, FlatAt at, bool stored) {
            if (stored) body.store(row, at, acc[e + 2 * h]);
          });
        }
      }
    }
  }
}

// What follows on an element where channels lie first, in a row of the result.
template <class Body> RF_FN float value_flat(const Body& body, float v, int2 at, int channel, int places) {
  using W = typename Body::Window;
  const long row = at.x * long(W::kGroups * W::kFeatures) + channel;
  if constexpr (Body::kAddressed) return body.value(Real(v), row, channel, flat_at<W, false>(at, channel, places));
  else return body.value(Real(v), row, channel, max(at.y, 0));
}

// What follows on each element, in registers, so that what belongs to a feature is read once.
template <int Together, class Body>
RF_FN void values_flat(const Body& body, float (&acc)[64], const FlatTable& table, int place0, int group, int feature0, int lane,
                       int places) {
  using W = typename Body::Window;
#pragma unroll
  for (int i = 0; i < 64; i++) {
    const int channel = group * W::kFeatures + min(feature0 + fragment_feature(i, lane), W::kFeatures - 1);
    acc[i] = value_flat(body, acc[i], table.at[place0 + fragment_place<Together>(i, lane)], channel, places);
  }
}

// What a lane has of 64 places of a feature: two places of each eight, of two phases four of each sixteen.
template <int Together>
RF_FN void lay_down(float* row, const float (&acc)[64], int piece, int h, int lane) {
#pragma unroll
  for (int j = 0; j < 8 / Together; j++) {
    const int i = 32 / Together * piece + 4 * j + 2 * h;
    if constexpr (Together == 1)
      *reinterpret_cast<float2*>(&row[8 * j + 2 * (lane % 4)]) = make_float2(acc[i], acc[i + 1]);
    else
      *reinterpret_cast<float4*>(&row[16 * j + 4 * (lane % 4)]) = make_float4(acc[i], acc[32 + i], acc[i + 1], acc[33 + i]);
  }
}

// Eight features of 64 results that lie in a stage, two next to each other a lane: both are of a place, or neither. at: the first's.
template <class Body>
RF_FN void store_pairs(const FlatLaunch& l, const Body& body, int2 at, const Stage<64>& stage, int group, int feature0, int lane) {
  using W = typename Body::Window;
  if (at.y < 0) return;
  const long row0 = at.x * (long(W::kGroups) * W::kFeatures) + group * W::kFeatures + feature0;
  float2 v[8];
#pragma unroll
  for (int f = 0; f < 8; f++) v[f] = *reinterpret_cast<const float2*>(&stage.at[f][2 * lane]);
#pragma unroll
  for (int f = 0; f < 8; f++) {
    const LongPair pair{at.y + long(f) * l.of.images.places, Real(v[f].y)};
    if (W::kFeatures % kFlatFeatures == 0 || feature0 + f < W::kFeatures) body.store(row0, pair, Real(v[f].x));
  }
}

// Undoes the scales of 64 sums, of images and of their two features.
template <int Together>
RF_FN void undo_scales(float (&acc)[64], const FlatTable& table, int place0, const float (&of_feature)[2], int lane) {
#pragma unroll
  for (int i = 0; i < 64; i += 2) {
    const float* from = &table.unscale[place0 + fragment_place<Together>(i, lane)];
    float2 of_place;
    if constexpr (Together == 1) of_place = *reinterpret_cast<const float2*>(from);
    else of_place = make_float2(from[0], from[2]);
    acc[i] *= of_place.x * of_feature[i / 2 % 2];
    acc[i + 1] *= of_place.y * of_feature[i / 2 % 2];
  }
}

// 16 features of 128 places, from registers to memory. feature0: of the group. Long bodies are computed here, few at a time.
template <int Together, class Body>
RF_FN void store_flat(const FlatLaunch& l, const Body& body, const float (&acc)[64], const FlatTable& table, Stage<64>& stage,
                      int place0, int group, int feature0, int lane) {
  using W = typename Body::Window;
  constexpr long kChannels = long(W::kGroups) * W::kFeatures;
  constexpr bool kWhole = W::kFeatures % kFlatFeatures == 0;
#pragma unroll
  for (int piece = 0; piece < 2; piece++)
#pragma unroll
    for (int h = 0; h < 2; h++) {  // of eight features
      lay_down<Together>(stage.at[lane / 4], acc, piece, h, lane);
      __syncwarp();
      if constexpr (Together == 2 && !Body::kLong) {
        if (l.in_pairs) {
          store_pairs(l, body, table.at[place0 + 64 * piece + 2 * lane], stage, group, feature0 + 8 * h, lane);
          __syncwarp();
          continue;
        }
      }
#pragma unroll(Body::kLong ? 1 : 2)
      for (int along = lane; along < 64; along += 32) {
        const int2 at = table.at[place0 + 64 * piece + along];
        if (at.y < 0) continue;
        const int first = feature0 + 8 * h;
        const long row0 = at.x * kChannels + group * W::kFeatures + first;
        const auto there = [&](int f) { return kWhole || first + f < W::kFeatures; };
        float v[8];
#pragma unroll
        for (int f = 0; f < 8; f++) v[f] = stage.at[f][along];
        if constexpr (Body::kLong) {
#pragma unroll 1
          for (int f = 0; f < 8; f++) {
            const int channel = group * W::kFeatures + first + f;
            if (there(f)) v[0] = value_flat(body, v[0], at, channel, l.of.images.places);
            rotate(v);
          }
        }
        // rows lie `places` apart: one product of 64 bits for all eight
#pragma unroll
        for (int f = 0; f < 8; f++)
          if (there(f)) body.store(row0, at.y + long(f) * l.of.images.places, v[f]);
      }
      __syncwarp();
    }
}

}  // namespace rf
