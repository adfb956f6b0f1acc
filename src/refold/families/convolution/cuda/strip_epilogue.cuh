// A row of a strip's result, from the registers that wgmma left it in to memory, for convolution_strips.cuh.
//
// Why by way of shared memory: a lane has two places of each eight. A warp lays eight features down, of as many places as
// there is room for (Stage, strip_rows.cuh), and takes them up again four places a lane, so that an instruction stores
// whole lines. Bodies are computed before, in registers, where a lane has two features whose operands it reads once.
//
// Registers of a thread: 64 values of the row.
#pragma once
#include "convolution_sm80.cuh"
#include "halved_lanes.cuh"

namespace rf {

// Which of its 64 values of a row a lane has where: the i-th is of its feature 8 (i / 2 % 2) + lane / 4 of the warp's 16,
// and at place 8 (i / 4) + 2 (lane % 4) + i % 2. Of two phases together each has half, and their elements alternate.
RF_FN int fragment_feature(int i, int lane) { return 8 * (i / 2 % 2) + lane / 4; }
template <int Together, int Sums = 64> RF_FN int fragment_place(int i, int lane) {
  const int each = Sums / Together, place = 8 * (i % each / 4) + 2 * (lane % 4) + i % 2;
  return Together * place + i / each;
}

// The values move down by one; the first comes in above.
template <int Sums> RF_FN void rotate(float (&acc)[Sums]) {
  const float first = acc[0];
#pragma unroll
  for (int i = 0; i < Sums - 1; i++) acc[i] = acc[i + 1];
  acc[Sums - 1] = first;
}

// By so many.
template <int By, int Sums> RF_FN void rotate_by(float (&acc)[Sums]) {
  float first[By];
#pragma unroll
  for (int i = 0; i < By; i++) first[i] = acc[i];
#pragma unroll
  for (int i = 0; i < Sums - By; i++) acc[i] = acc[i + By];
#pragma unroll
  for (int i = 0; i < By; i++) acc[Sums - By + i] = first[i];
}

// Where a warp's row of a result lies: feature0: its first of a group's features; place: in a result, the first of the
// 128, of which those from `begin` to `end` are the row's.
struct RowOfResult {
  long image;
  int group, feature0, place, begin, end;
};

// Which image, of those that have places of a tile next to each other, a place of the tile is of, and where there.
struct OneImage {
  RF_FN int image_of(int) const { return 0; }
  RF_FN int along_of(int along) const { return along; }
  RF_FN bool has(int) const { return true; }
  RF_FN bool begins(int image) const { return image == 0; }
  RF_FN int begin_of(int) const { return 0; }
  static constexpr bool kOne = true;
};

// Those of several images, 1 << pitch_log places each, where rows are short: what a place sees lies behind it in shared
// memory, so that they are one row for wgmma. left: the images that there are from the tile's first on. All lie as far from
// where their images begin, so that all are shifted alike.
struct JoinedImages {
  int pitch_log, left;
  RF_FN int image_of(int place) const { return place >> pitch_log; }
  RF_FN int along_of(int place) const { return place & ((1 << pitch_log) - 1); }
  RF_FN bool has(int image) const { return image < left; }
  RF_FN bool begins(int image) const { return begin_of(image) < 128; }  // in the tile
  RF_FN int begin_of(int image) const { return image << pitch_log; }
  static constexpr bool kOne = false;
};

// Elements that are not finite once more, in plain fp32. It is rare: one value of each lane after the other.
template <class W, int Together, class Joined, int Sums>
RF_FN void repair_row(const ConvolutionLaunch& l, float (&acc)[Sums], const RowOfResult& at, const Joined& joined, int lane) {
#pragma unroll 1
  for (int i = 0; i < Sums; i++) {
    const int feature = at.feature0 + fragment_feature(i, lane), place = fragment_place<Together, Sums>(i, lane);
    const int image = joined.image_of(place), along = joined.along_of(place);
    const bool there = joined.has(image) && along >= at.begin && along < at.end && feature < W::kFeatures;
    float v[1] = {acc[0]};
    repair<W>(v, l, at.group, at.group * W::kFeatures + feature,
              (at.image + image) * l.images.places + at.place + along, there, lane);
    acc[0] = v[0];
    rotate(acc);
  }
}

// What follows on each element of a row, in registers.
template <class Body>
RF_FN void values_of_row(const ConvolutionLaunch& l, const Body& body, float (&acc)[64], const RowOfResult& at, int lane) {
  using W = typename Body::Window;
#pragma unroll
  for (int i = 0; i < 64; i++) {
    const int feature = min(at.feature0 + fragment_feature(i, lane), W::kFeatures - 1);
    const int channel = at.group * W::kFeatures + feature;
    const long row = at.image * (long(W::kGroups) * W::kFeatures) + channel;
    acc[i] = body.value(Real(acc[i]), row, channel, min(at.place + fragment_place<1>(i, lane), l.images.places - 1));
  }
}

// Two pairs of places, the second eight behind the first where there are as many; a body's lanes are those four.
struct PairsAt { long first, second; };
template <class V, class T> RF_FN V column(const T* p, PairsAt at) {
  const Vec2 a = read_vec2(p + at.first), b = read_vec2(p + at.second);
  return V(make_float4(a.first, a.second, b.first, b.second));
}
template <class V, class T> RF_FN V full(const T* p, long offset, PairsAt at) { return column<V>(p + offset, at); }

// Those of four places that are the row's, of rows that begin or end within them. even: in the middle of them.
template <class Body>
RF_FN void store_some(const Body& body, const Vec4& v, long row, const RowOfResult& at, int along, bool even) {
  if (even) {
    const bool behind = along < at.begin;
    const ColumnPair<true> pair{at.place + along + (behind ? 2 : 0), 0, behind ? v.x[3] : v.x[1]};
    body.store(row, pair, behind ? v.x[2] : v.x[0]);
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; e++)
    if (along + e >= at.begin && along + e < at.end) body.store(row, at.place + along + e, v.x[e]);
}

// What follows on each element, two pairs of places at a time, which a lane has of each sixteen: of the first so many, whose
// places begin with `begin`.
template <bool InFours, bool kWhole, int Values = 64, class Body, class Joined>
RF_FN void values_of_pairs(const ConvolutionLaunch& l, const Body& body, float (&acc)[64], const RowOfResult& at,
                           const Joined& joined, int lane, int begin = 0) {
  using W = typename Body::Window;
  constexpr long kChannels = long(W::kGroups) * W::kFeatures;
#pragma unroll
  for (int h = 0; h < 2; h++) {  // of eight features
    const int feature = at.feature0 + 8 * h + lane / 4;
    const int channel = at.group * W::kFeatures + (kWhole ? feature : min(feature, W::kFeatures - 1));
    // a place that there is: of the last rows of an image, those behind it are not the row's
    const auto there = [&](int place, int vector) { return min(at.place + joined.along_of(place), l.images.places - vector); };
#pragma unroll
    for (int i = 2 * h; i < Values; i += 8) {
      const int place = begin + fragment_place<1>(i, lane), image = joined.image_of(place);
      const long row = (at.image + (joined.has(image) ? image : 0)) * kChannels + channel;
      const Vec4 v(make_float4(acc[i], acc[i + 1], acc[i + 4], acc[i + 5]));
      Vec4 w;
      if constexpr (InFours) {
        w = body.value(v, row, channel, PairsAt{there(place, 2), there(place + 8, 2)});
      } else {
#pragma unroll
        for (int e = 0; e < 4; e++) w.x[e] = body.value(Real(v.x[e]), row, channel, there(place + e % 2 + e / 2 * 8, 1));
      }
      acc[i] = w.x[0], acc[i + 1] = w.x[1], acc[i + 4] = w.x[2], acc[i + 5] = w.x[3];
    }
  }
}

// A row of a strip's result, 16 features of a warp. kWhole: no tile has features that there are not. acc: scaled back.
// InFours: rows are moved so that they start at multiples of 16 bytes; else each feature's may start anywhere.
template <bool InFours, bool kWhole, class Body, class Joined, class Stage>
RF_FN void finalize_row(const ConvolutionLaunch& l, const Body& body, float (&acc)[64], const RowOfResult& at,
                        const Joined& joined, Stage& stage, int lane) {
  using W = typename Body::Window;
  constexpr long kChannels = long(W::kGroups) * W::kFeatures;
  constexpr int kCols = Stage::kCols, kEach = kCols / 4, kAtOnce = 32 / kEach;  // lanes of a feature; features of a warp
  constexpr int kPieces = 128 / kCols;
  // Ends of rows are stored after what is whole, all at once. Of long bodies in pieces that was slower (mish and tanh of
  // volumes: 1515 us, 1109 so).
  constexpr bool kEndsLater = !Body::kLong || kPieces == 1;
  const auto channel_of = [&](int which) {  // of the warp's 16
    const int feature = at.feature0 + which;
    return at.group * W::kFeatures + (kWhole ? feature : min(feature, W::kFeatures - 1));
  };
  const auto is_mine = [&](int which, int image) {
    return (kWhole || at.feature0 + which < W::kFeatures) && joined.has(image);
  };
  const auto row_of = [&](int which, int image) {
    return (at.image + (joined.has(image) ? image : 0)) * kChannels + channel_of(which);
  };
  const int quad = lane / 4, pair = 2 * (lane % 4);
  // A place that there is: of the last rows of an image, those behind it are not the row's.
  const auto there = [&](int place, int vector) { return min(at.place + joined.along_of(place), l.images.places - vector); };
  // What follows on each element, while it is in registers: all 64 at once. Long bodies, of which the instructions' cache
  // would not have room for as many, when values are taken up again, and few at a time.
  if constexpr (!Body::kLong) values_of_pairs<InFours, kWhole>(l, body, acc, at, joined, lane);
  // 64 bytes of a row are whole sectors, of 32: where a piece of it begins in the middle of one, all move on by four places.
  constexpr bool kMoves = InFours && kPieces > 1 && Joined::kOne;
  const auto moved_of = [&](long row) { return kMoves && ((row * l.images.places + at.place) & 4) != 0 ? 4 : 0; };
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const bool moved = moved_of(row_of(8 * h + quad, 0)) != 0, ahead = moved && pair < 4;
    const int to = moved ? (pair + 4) % 8 : pair;
#pragma unroll
    for (int piece = 0; piece < kPieces; piece++) {
      float* of_quad = stage.at[quad] + to;
#pragma unroll
      for (int j = 0; j < kCols / 8; j++) {  // of eight places
        const int i = 4 * (piece * kCols / 8 + j) + 2 * h, next = (i + 4) % 64;
        if constexpr (kMoves)
          *reinterpret_cast<float2*>(of_quad + 8 * j) =
              make_float2(one_of(ahead, acc[next], acc[i]), one_of(ahead, acc[next + 1], acc[i + 1]));
        else
          *reinterpret_cast<float2*>(of_quad + 8 * j) = make_float2(acc[i], acc[i + 1]);
      }
      __syncwarp();
      const int first = lane % kEach * 4, image = joined.image_of(kCols * piece + first);
      // several features at a time, which do not wait for each other
      constexpr int kBatch = kAtOnce < 4 ? 4 : 8 / kAtOnce;
#pragma unroll(Body::kLong ? 1 : 8)
      for (int i0 = 0; i0 < 8; i0 += kAtOnce * kBatch) {
        Vec4 v[kBatch];
        const auto of_stage = [&](int b) { return i0 + kAtOnce * b + lane / kEach; };
        // all lanes move on by as many places as the feature's row is from a multiple of 16 bytes
        const auto lead_of = [&](long row) {
          return l.aligned ? static_cast<int>(-(row * l.images.places + at.place) & 3) : 0;
        };
        const auto along_of = [&](long row) { return joined.along_of((kCols * piece + first + moved_of(row)) % 128); };
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
          const float* from = stage.at[of_stage(b)];
          if constexpr (InFours) {
            v[b] = Vec4(*reinterpret_cast<const float4*>(from + first));
          } else {
#pragma unroll
            for (int e = 0; e < 4; e++)
              v[b].x[e] = from[(first + lead_of(row_of(8 * h + of_stage(b), image)) + e) % kCols];
          }
        }
#pragma unroll
        for (int b = 0; b < (Body::kLong ? kBatch : 0); b++) {
          const long row = row_of(8 * h + of_stage(b), image);
          const int channel = channel_of(8 * h + of_stage(b));
          if constexpr (InFours) {
            v[b] = body.value(v[b], row, channel, Vec4At{min(at.place + along_of(row), l.images.places - 4)});
          } else {
#pragma unroll
            for (int e = 0; e < 4; e++) {
              const int along = kCols * piece + (first + lead_of(row) + e) % kCols;
              v[b].x[e] = body.value(Real(v[b].x[e]), row, channel, there(along, 1));
            }
          }
        }
        if (Body::kLong && kEndsLater && InFours)
#pragma unroll
          for (int b = 0; b < kBatch; b++)
            *reinterpret_cast<float4*>(stage.at[of_stage(b)] + first) =
                make_float4(v[b].x[0], v[b].x[1], v[b].x[2], v[b].x[3]);
#pragma unroll
        for (int b = 0; b < kBatch; b++) {
          const long row = row_of(8 * h + of_stage(b), image);
          const bool mine = is_mine(8 * h + of_stage(b), image);
          if constexpr (InFours) {
            const int along = along_of(row);
            const bool whole = along >= at.begin && along + 4 <= at.end;
            if (mine && whole) body.store(row, Vec4At{at.place + along}, v[b]);
            else if (!kEndsLater && mine && along + 4 > at.begin && along < at.end)
              store_some(body, v[b], row, at, along, l.images.made_wide % 2 == 0);
          } else if (mine) {
            const int from = first + lead_of(row), along0 = kCols * piece + from;
            if (l.aligned && from + 4 <= kCols && along0 >= at.begin && along0 + 4 <= at.end) {
              body.store(row, Vec4At{at.place + along0}, v[b]);
            } else {
#pragma unroll
              for (int e = 0; e < 4; e++) {
                const int along = kCols * piece + (from + e) % kCols;
                if (along >= at.begin && along < at.end) body.store(row, at.place + along, v[b].x[e]);
              }
            }
          }
        }
      }
      if (Body::kLong && kEndsLater && InFours) __syncwarp();
      if constexpr (InFours && kEndsLater) {  // the ends of rows: a feature of an image a lane
        const int image = lane / 8, which = 8 * h + lane % 8;
        const bool mine = joined.begins(image) && is_mine(which, image);
        const long row = row_of(which, image);
        const auto store_end = [&](int along) {
          const int of_piece = (joined.begin_of(image) + along - moved_of(row) + 128) % 128 - kCols * piece;
          if (!mine || of_piece < 0 || of_piece >= kCols) return;
          const Vec4 v(*reinterpret_cast<const float4*>(stage.at[lane % 8] + of_piece));
          store_some(body, v, row, at, along, l.images.made_wide % 2 == 0);
        };
        const int last = at.end & ~3;
        if (at.begin != 0) store_end(0);
        if (last != at.end && (last != 0 || at.begin == 0)) store_end(last);
      }
      __syncwarp();
    }
  }
}

// As finalize_row, of two phases together: a lane has four elements next to each other as they are. Where rows start
// anywhere, each lane moves on to the next multiple of 16 bytes, by up to three elements of the lane behind it.
template <bool InFours, bool kWhole, class Body, int Sums>
RF_FN void finalize_pairs(const ConvolutionLaunch& l, const Body& body, const float (&acc)[Sums], const RowOfResult& at,
                          int lane) {
  using W = typename Body::Window;
  constexpr int kAll = Sums / 8, kPhase = Sums / 2;  // pieces of 16 elements
  constexpr long kChannels = long(W::kGroups) * W::kFeatures;
  const int first = 4 * (lane % 4);  // of 16 elements
#pragma unroll 1
  for (int h = 0; h < 2; h++) {  // of eight features
    const int feature = at.feature0 + 8 * h + lane / 4;
    const bool mine = kWhole || feature < W::kFeatures;
    const int channel = at.group * W::kFeatures + (mine ? feature : W::kFeatures - 1);
    const long row = at.image * kChannels + channel;
    const auto half = [&](int i) { return one_of(h == 0, acc[i], acc[i + 2]); };
    if constexpr (InFours) {
      // 64 bytes of a quad are whole sectors, of 32: where its first element begins in the middle of one, the lane of the
      // first four is a piece ahead of the others
      const bool ahead = ((row * l.images.places + at.place) & 4) != 0 && first == 0;
      const auto along_of = [&](int p) { return 16 * ((p + ahead) % kAll) + first; };
      constexpr int kPieces = 4;  // at a time: registers
#pragma unroll
      for (int piece0 = 0; piece0 < kAll; piece0 += kPieces) {
        Vec4 v[kPieces];
#pragma unroll
        for (int p = 0; p < kPieces && piece0 + p < kAll; p++) {
          const int piece = piece0 + p, after = (piece + 1) % kAll;
          const auto of = [&](int i) { return one_of(ahead, half(4 * after + i), half(4 * piece + i)); };
          // a place that there is: of the last rows of an image, those behind it are not the row's
          const Vec4At col{min(at.place + along_of(piece), l.images.places - 4)};
          v[p] = body.value(Vec4(make_float4(of(0), of(kPhase), of(1), of(kPhase + 1))), row, channel, col);
        }
#pragma unroll
        for (int p = 0; p < kPieces && piece0 + p < kAll; p++) {
          const int along = along_of(piece0 + p);
          if (!mine || along + 4 <= at.begin || along >= at.end) continue;
          if (along >= at.begin && along + 4 <= at.end) body.store(row, Vec4At{at.place + along}, v[p]);
          else store_some(body, v[p], row, at, along, true);
        }
      }
    } else {
      const auto of_piece = [&](int piece) {
        Vec4 v;
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const int place = min(at.place + 16 * piece + first + e, l.images.places - 1);
          v.x[e] = body.value(Real(half(4 * piece + e % 2 * kPhase + e / 2)), row, channel, place);
        }
        return v;
      };
      const int lead = l.aligned ? static_cast<int>(-(row * l.images.places + at.place) & 3) : 0;
      Vec4 here = of_piece(0);
      if (first == 0 && mine)  // what lies before the first multiple
#pragma unroll
        for (int e = 0; e < 3; e++)
          if (e < lead && e >= at.begin && e < at.end) body.store(row, at.place + e, here.x[e]);
#pragma unroll
      for (int piece = 0; piece < kAll; piece++) {
        const Vec4 next = of_piece(piece + 1 < kAll ? piece + 1 : piece);
        float of[7] = {here.x[0], here.x[1], here.x[2], here.x[3]};
#pragma unroll
        for (int e = 0; e < 3; e++)
          of[4 + e] = __shfl_sync(kFullMask, one_of(first == 0, next.x[e], here.x[e]), (lane & ~3) | ((lane + 1) & 3));
#pragma unroll
        for (int e = 0; e < 6; e++) of[e] = one_of((lead & 1) != 0, of[e + 1], of[e]);
#pragma unroll
        for (int e = 0; e < 4; e++) of[e] = one_of((lead & 2) != 0, of[e + 2], of[e]);
        const int along = 16 * piece + first + lead;
        if (mine && l.aligned && along >= at.begin && along + 4 <= at.end) {
          body.store(row, Vec4At{at.place + along}, Vec4(make_float4(of[0], of[1], of[2], of[3])));
        } else if (mine) {
#pragma unroll
          for (int e = 0; e < 4; e++)
            if (along + e >= at.begin && along + e < at.end) body.store(row, at.place + along + e, of[e]);
        }
        here = next;
      }
    }
  }
}

}  // namespace rf
