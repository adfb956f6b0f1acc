// The results of a tile of convolution_flat.cuh, from the registers that wgmma left them in to memory.
//
// A lane has two features and 64 of 256 places, which are of any rows and images: a table in shared memory says which. What
// follows on each element is computed where it is, so that what belongs to a feature is read once. Then a warp lays 16
// features of 32 results down in a stage of its own, and takes them up again, as many results of a row a lane as rows are
// multiples of: an instruction stores 128 bytes of a feature, or of two, or of four, but for what is padded between rows.
// Where channels lie last nothing is laid down.
#pragma once
#include "flat_sums.cuh"
#include "strip_epilogue.cuh"
#include "strip_rows.cuh"

namespace rf {

constexpr int kMostResults = 256;
struct FlatTable {  // of the places of a result
  int2 at[kMostResults];  // image, place; -1: none
  float unscale[kMostResults];  // where an image has a scale
};
using FlatStage = float[16][40];  // 16 features of 32 results of a warp

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

// So many results of a row of a stage, and what stores them. Of two phases along the width 16 results of one lie before those
// of the other.
template <int Together, int Along> struct FlatRun {
  float v[Along];
  // result: the first one's number in the row
  RF_FN FlatRun(const float* row, int result) {
    if constexpr (Together == 2 && Along == 4) {
      const float2 even = *reinterpret_cast<const float2*>(row + result / 2);
      const float2 odd = *reinterpret_cast<const float2*>(row + 16 + result / 2);
      v[0] = even.x, v[1] = odd.x, v[2] = even.y, v[3] = odd.y;
    } else if constexpr (Together == 2) {
#pragma unroll
      for (int i = 0; i < Along; i++) v[i] = row[result / 2 + 16 * ((result + i) % 2)];
    } else if constexpr (Along == 4) {
      const float4 four = *reinterpret_cast<const float4*>(row + result);
      v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
    } else if constexpr (Along == 2) {
      const float2 two = *reinterpret_cast<const float2*>(row + result);
      v[0] = two.x, v[1] = two.y;
    } else {
      v[0] = row[result];
    }
  }
  template <class Body> RF_FN void store(const Body& body, long row, long col) const {
    if constexpr (Along == 4) body.store(row, Vec4At{col}, Vec4(make_float4(v[0], v[1], v[2], v[3])));
    else if constexpr (Along == 2) body.store(row, LongPair{col, Real(v[1])}, Real(v[0]));
    else body.store(row, col, Real(v[0]));
  }
};

// What places of a tile are of images: those of phases along the width next to each other.
template <class S, class Shape>
RF_FN void fill_table(const FlatLaunch& l, FlatTable& table, long place0, int deep, int high, bool scaled, int thread) {
  constexpr int kTogether = Shape::kTogether;
  const Images& images = l.of.images;
  const bool few = l.places < (1L << 31);
  const long image0 = few ? static_cast<long>(l.by_image.of(static_cast<unsigned>(place0))) : place0 / l.image;
  const unsigned of_image0 = static_cast<unsigned>(place0 - image0 * l.image);
#pragma unroll
  for (int k = 0; k < S::kResults / kWarpgroupThreads; k++) {
    const int i = thread + k * kWarpgroupThreads;
    const unsigned of_first = of_image0 + i / kTogether, further = l.by_image.of(of_first);
    const FlatPlace at(l, image0 + further, static_cast<int>(of_first - further * l.image));
    const int d = at.deep * Shape::Deep::kPhases + deep, h = at.high * Shape::High::kPhases + high;
    const int w = at.wide * kTogether + i % kTogether;
    const bool there = at.image < l.count && d < images.made_deep && h < images.made_high && w < images.made_wide;
    const int place = (d * images.made_high + h) * images.made_wide + w;
    table.at[i] = make_int2(there ? static_cast<int>(at.image) : 0, there ? place : -1);
    if (scaled) table.unscale[i] = there ? l.ranges[at.image].unscale() : 0.0f;
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

// What follows on each element, in registers, so that what belongs to a feature is read once. by: of a lane's two features.
template <int Together, class Body, class Sums>
RF_FN void values_flat(const Body& body, const Sums& acc, const FlatTable& table, int place0, int group, int feature0, int lane,
                       int places, const float (&by)[2]) {
  using W = typename Body::Window;
#pragma unroll
  for (int i = 0; i < 64; i++) {
    acc[i] *= by[i / 2 % 2];
    if constexpr (!Body::kLong) {
      const int channel = group * W::kFeatures + min(feature0 + fragment_feature(i, lane), W::kFeatures - 1);
      const int2 at = table.at[place0 + fragment_place<Together>(i, lane)];
      acc[i] = value_flat(body, acc[i], at, channel, places);
    }
  }
}

// What a lane has of 32 results of its two features: two next to each other of each eight, of each phase.
template <int Together, class Sums> RF_FN void lay_down(float (*stage)[40], const Sums& acc, int piece, int lane) {
#pragma unroll
  for (int h = 0; h < 2; h++)
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int each = 4 / Together, phase = j / each;  // of eight places
      const int i = 4 * (each * piece + j % each) + 2 * h + 32 * phase;
      *reinterpret_cast<float2*>(&stage[8 * h + lane / 4][8 * j + 2 * (lane % 4)]) = make_float2(acc[i], acc[i + 1]);
    }
}

// Undoes the scales that images have.
template <int Together, class Sums> RF_FN void undo_scales(const Sums& acc, const FlatTable& table, int place0, int lane) {
#pragma unroll
  for (int i = 0; i < 64; i++) acc[i] *= table.unscale[place0 + fragment_place<Together>(i, lane)];
}
// And those of a lane's two features.
template <class Sums> RF_FN void undo_scales_of_features(const Sums& acc, const float (&of_feature)[2]) {
#pragma unroll
  for (int i = 0; i < 64; i++) acc[i] *= of_feature[i / 2 % 2];
}

// 16 features of so many times 32 results, from registers to memory, by so many of a row. feature0: of the group. Long bodies
// are computed here, few at a time.
template <int Together, int Along, class Body, class Sums>
RF_FN void store_flat(const FlatLaunch& l, const Body& body, Sums& sums, const FlatTable& table, FlatStage& stage, int group,
                      int feature0, int lane) {
  using W = typename Body::Window;
  constexpr int kPieces = 4 * Sums::kHalves;
  constexpr long kChannels = long(W::kGroups) * W::kFeatures;
  constexpr bool kWhole = W::kFeatures % kFlatFeatures == 0;
  constexpr int kLanes = 32 / Along;  // of a feature
  const int along = lane % kLanes * Along, first = lane / kLanes;
  const int places = l.of.images.places;
  int2 next = table.at[along];
#pragma unroll
  for (int piece = 0; piece < kPieces; piece++) {
    const int2 at = next;
    __syncwarp();  // nobody reads what was laid down before
    lay_down<Together>(stage, HalfOfSums<Sums, Together>{sums, piece / 4}, piece % 4, lane);
    __syncwarp();
    if (piece + 1 < kPieces) next = table.at[32 * (piece + 1) + along];
    if (at.y < 0) continue;  // all of a run are of a place, or none
    const long row0 = at.x * kChannels + group * W::kFeatures + feature0 + first;
    const auto there = [&](int f) { return kWhole || feature0 + first + f < W::kFeatures; };
    const float(*from)[40] = &stage[first];
    // rows lie `places` apart: one product of 64 bits for all
    if constexpr (Body::kLong) {
      static_assert(Along == 1, "long bodies take one element at a time");
      float v[16];
#pragma unroll
      for (int f = 0; f < 16; f++) v[f] = FlatRun<Together, 1>(from[f], along).v[0];
#pragma unroll 1
      for (int f = 0; f < 16; f++) {
        const int channel = group * W::kFeatures + feature0 + f;
        if (there(f)) v[0] = value_flat(body, v[0], at, channel, places);
        rotate(v);
      }
#pragma unroll
      for (int f = 0; f < 16; f++)
        if (there(f)) body.store(row0, at.y + long(f) * places, v[f]);
    } else {
#pragma unroll
      for (int f = 0; f < 16; f += Along) {
        const FlatRun<Together, Along> run(from[f], along);
        if (there(f)) run.store(body, row0, at.y + long(f) * places);
      }
    }
  }
}

}  // namespace rf
