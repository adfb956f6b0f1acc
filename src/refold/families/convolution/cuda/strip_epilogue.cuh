// A row of a strip's result, from the registers that wgmma left it in to memory, for convolution_strips.cuh.
//
// Why in registers: kernels and rows fill the shared memory, and a tile that is staged in what is left of it goes there and
// back in pieces, each with two barriers of a warp. Exchanges between lanes need neither.
//
// Registers of a thread: 64 values of the row, 32 of them under way to the body and to memory.
#pragma once
#include "convolution_sm80.cuh"

namespace rf {

// Which of its 64 values of a row a lane has where: the i-th is of its feature 8 (i / 2 % 2) + lane / 4 of the warp's 16,
// and at place 8 (i / 4) + 2 (lane % 4) + i % 2. Of two phases together each has 32, and their elements alternate.
RF_FN int fragment_feature(int i, int lane) { return 8 * (i / 2 % 2) + lane / 4; }
template <int Together> RF_FN int fragment_place(int i, int lane) {
  const int each = 64 / Together, place = 8 * (i % each / 4) + 2 * (lane % 4) + i % 2;
  return Together * place + i / each;
}

// The values move down by so many; those that leave below come in above.
template <int By> RF_FN void rotate(float (&acc)[64]) {
  float left[By];
#pragma unroll
  for (int i = 0; i < By; i++) left[i] = acc[i];
#pragma unroll
  for (int i = 0; i < 64 - By; i++) acc[i] = acc[i + By];
#pragma unroll
  for (int i = 0; i < By; i++) acc[64 - By + i] = left[i];
}

// Of two neighbouring lanes, which have two values each of one place and of eight places on, the even one gets all four of
// the former, the odd one those of the latter.
RF_FN Vec4 joined(float a0, float a1, float b0, float b1, bool odd) {
  const float x = __shfl_xor_sync(kFullMask, odd ? a0 : b0, 1), y = __shfl_xor_sync(kFullMask, odd ? a1 : b1, 1);
  return make_float4(odd ? x : a0, odd ? y : a1, odd ? b0 : x, odd ? b1 : y);
}

// Of two values in registers, without an address.
RF_FN float one_of(bool first, float a, float b) { return first ? a : b; }

// Eight quads of lanes have eight pieces each, of a feature; after this each has of eight features the piece of its number.
RF_FN void transpose(Vec4 (&v)[8], int quad) {
#pragma unroll
  for (int step = 1; step < 8; step *= 2) {
    const bool upper = quad & step;
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (!(i & step))
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const float low = v[i].x[e], high = v[i | step].x[e];
          const float other = __shfl_xor_sync(kFullMask, upper ? low : high, 4 * step);
          v[i].x[e] = upper ? other : low;
          v[i | step].x[e] = upper ? high : other;
        }
  }
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
};

// Elements that are not finite once more, in plain fp32. It is rare: one value of each lane after the other.
template <class W, int Together, class Joined>
RF_FN void repair_row(const ConvolutionLaunch& l, float (&acc)[64], const RowOfResult& at, const Joined& joined, int lane) {
#pragma unroll 1
  for (int i = 0; i < 64; i++) {
    const int feature = at.feature0 + fragment_feature(i, lane), place = fragment_place<Together>(i, lane);
    const int image = joined.image_of(place), along = joined.along_of(place);
    const bool there = joined.has(image) && along >= at.begin && along < at.end && feature < W::kFeatures;
    float v[1] = {acc[0]};
    repair<W>(v, l, at.group, at.group * W::kFeatures + feature,
              (at.image + image) * l.images.places + at.place + along, there, lane);
    acc[0] = v[0];
    rotate<1>(acc);
  }
}

// A lane's first place of the four next to each other that it has of each 16.
template <int Together> RF_FN int first_place(int lane) {
  return Together == 2 ? 4 * (lane % 4) : lane & 1 ? 8 + 2 * (lane % 4 - 1) : 2 * (lane % 4);
}
// The piece-th 16 places of the quad's of eight features, h = 0 or 1: four of them a lane. Neighbours exchange values for
// that; of two phases together they have them. late: of two phases the lane of the first four places has those of the piece after.
template <int Together> RF_FN Vec4 in_fours(const float (&acc)[64], int piece, int h, bool late, int lane) {
  const int after = (piece + 1) % 8;
  const auto half = [&](int i) { return one_of(h == 0, acc[i], acc[i + 2]); };
  if constexpr (Together == 2) {
    const bool other = late && lane % 4 == 0;
    const auto of = [&](int i) { return one_of(other, half(4 * after + i), half(4 * piece + i)); };
    return make_float4(of(0), of(32), of(1), of(33));
  } else {
    const auto of = [&](int i) { return half(8 * piece + i); };
    return joined(of(0), of(1), of(4), of(5), lane & 1);
  }
}

// Four values of a feature a lane, in the order of `place` / 4, to memory where its row starts at no multiple of 16 bytes:
// all lanes move on by `lead` places, and take from the next one what they miss. Single elements at the ends.
template <int Together, class Body>
RF_FN void store_shifted(const Body& body, const Vec4& v, long row, bool mine, const RowOfResult& at, int lead, int lane) {
  const int place = 16 * (lane / 4) + first_place<Together>(lane), after = place + 4;  // who has the next four
  const int next = after / 16 % 8 * 4 + (Together == 2 ? after % 16 / 4 : after / 8 % 2 + after / 4 % 2 * 2);
  float all[7];
#pragma unroll
  for (int e = 0; e < 4; e++) all[e] = v.x[e];
#pragma unroll
  for (int e = 0; e < 3; e++) all[4 + e] = __shfl_sync(kFullMask, v.x[e], next);
  Vec4 w;
#pragma unroll
  for (int e = 0; e < 4; e++)
    w.x[e] = one_of(lead < 2, one_of(lead == 0, all[e], all[e + 1]), one_of(lead == 2, all[e + 2], all[e + 3]));
  const auto is_whole = [&](int first) { return first >= lead && first + 4 <= at.end; };
  if (!mine) return;
  if (is_whole(place + lead)) body.store(row, Vec4At{at.place + place + lead}, w);
#pragma unroll
  for (int e = 0; e < 4; e++) {
    const int of_four = place + lead - (e < lead ? 4 : 0);  // the four that this element is one of
    if (!is_whole(of_four) && place + e < at.end) body.store(row, at.place + place + e, v.x[e]);
  }
}

// A row of a strip's result, 16 features of a warp. kWhole: no tile has features that there are not. acc: scaled back.
// InFours: rows are moved so that they start at multiples of 16 bytes; else each feature's may start anywhere. kLongRuns: quads exchange theirs, too, so that an instruction stores 512 bytes of one feature. Of
// slim tiles, with few products between stores, that was measured to be faster (8 -> 64 channels, rows of 254: 1542 us
// after 1856), of broad ones slower (64 -> 128: 997 after 909). The loop is rolled, since a body may be long.
// Without whole sectors broad tiles took 1135 us where they take 900 (64 -> 128).
template <int Together, bool InFours, bool kLongRuns, bool kWhole, class Body>
RF_FN void finalize_row(const ConvolutionLaunch& l, const Body& body, float (&acc)[64], const RowOfResult& at, int lane) {
  using W = typename Body::Window;
  constexpr long kChannels = long(W::kGroups) * W::kFeatures;
  const auto of_feature = [&](int which, auto use) {  // of the warp's 16
    const int feature = at.feature0 + which;
    const bool mine = kWhole || feature < W::kFeatures;
    const int channel = at.group * W::kFeatures + (mine ? feature : W::kFeatures - 1);
    use(at.image * kChannels + channel, channel, mine);
  };
  const int quad = lane / 4;
  const int first = first_place<Together>(lane);  // of 16 places, the lane's four
  // A place that there is: of the last rows of an image, those behind it are not the row's.
  const auto col_of = [&](int along) { return Vec4At{min(at.place + along, l.images.places - 4)}; };
  if constexpr (InFours && Together == 1) {
    const bool even = l.images.made_wide % 2 == 0;
    const long start = at.place + first;
#pragma unroll 1
    for (int h = 0; h < 2; h++) {  // of eight features
      Vec4 v[8];                   // of eight times 16 places, of one feature
#pragma unroll
      for (int p = 0; p < 8; p++) v[p] = in_fours<Together>(acc, p, h, false, lane);
      of_feature(8 * h + quad, [&](long row, int channel, bool mine) {
#pragma unroll
        for (int p = 0; p < 8; p++)
          // a place that there is: of the last rows of an image, those behind it are not the row's
          v[p] = body.value(v[p], row, channel, Vec4At{min(at.place + 16 * p + first, l.images.places - 4)});
        const auto store_some = [&](int along0) {  // four places, some of which are the row's
          const int from = max(along0, at.begin), until = min(along0 + 4, at.end);
          float x[4];
#pragma unroll
          for (int e = 0; e < 4; e++) {
            x[e] = v[0].x[e];
#pragma unroll
            for (int p = 1; p < 8; p++) x[e] = one_of(along0 / 16 == p, v[p].x[e], x[e]);
          }
          if (!mine || first != along0 % 16) return;
          if (even) {
            const bool late = from != along0;
            const ColumnPair<true> pair{at.place + from, 0, late ? x[3] : x[1]};
            if (from < until) body.store(row, pair, late ? x[2] : x[0]);
          } else {
#pragma unroll
            for (int e = 0; e < 4; e++)
              if (along0 + e >= from && along0 + e < until) body.store(row, at.place + along0 + e, x[e]);
          }
        };
        const int last = at.end & ~3;
        if (at.begin != 0) store_some(0);
        if (last != at.end && (last != 0 || at.begin == 0)) store_some(last);
      });
      const auto is_whole = [&](int along) { return along >= at.begin && along + 4 <= at.end; };
      if constexpr (kLongRuns) {
        transpose(v, quad);
        const int along = 16 * quad + first;
#pragma unroll
        for (int i = 0; i < 8; i++)
          of_feature(8 * h + i, [&](long row, int, bool mine) {
            if (mine && is_whole(along)) body.store(row, Vec4At{at.place + along}, v[i]);
          });
      } else {
        of_feature(8 * h + quad, [&](long row, int, bool mine) {
#pragma unroll
          for (int p = 0; p < 8; p++) {
            // 64 bytes of a quad are whole sectors, of 32: where its first place begins in the middle of one, the lane
            // of the first four places is 16 places ahead of the others
            const bool late = first == 0 && ((row * l.images.places + at.place) & 4) != 0;
            const int q = late ? (p + 1) % 8 : p;
            Vec4 w;
#pragma unroll
            for (int e = 0; e < 4; e++) w.x[e] = one_of(late, v[(p + 1) % 8].x[e], v[p].x[e]);
            if (mine && is_whole(16 * q + first)) body.store(row, Vec4At{start + 16 * q}, w);
          }
        });
      }
    }
  } else if constexpr (InFours) {  // two phases together: fewer values at a time, registers
    const auto store = [&](long row, int along, const Vec4& v) {
      if (along >= at.begin && along + 4 <= at.end) body.store(row, Vec4At{at.place + along}, v);
    };
    // At the row's two ends, those two of four places that are the row's.
    const auto store_end = [&](long row, int along, const Vec4& v) {
      const int from = max(along, at.begin), until = min(along + 4, at.end);
      if (from >= until || until - from == 4) return;
      const bool behind = from != along;
      body.store(row, ColumnPair<true>{at.place + from, 0, behind ? v.x[3] : v.x[1]}, behind ? v.x[2] : v.x[0]);
    };
#pragma unroll 1
    for (int h = 0; h < 2; h++) {  // of eight features
      of_feature(8 * h + quad, [&](long row, int channel, bool mine) {
        // 64 bytes of a quad are whole sectors, of 32: where its first place begins in the middle of one, the lane of
        // the first four places is a piece ahead of the others
        const bool late = ((row * l.images.places + at.place) & 4) != 0;
        const auto along_of = [&](int p) { return 16 * ((p + (late && first == 0)) % 8) + first; };
        constexpr int kPieces = 4;  // at a time: registers
#pragma unroll
        for (int piece0 = 0; piece0 < 8; piece0 += kPieces) {
          Vec4 v[kPieces];
#pragma unroll
          for (int p = 0; p < kPieces; p++) {
            v[p] = in_fours<Together>(acc, piece0 + p, h, late, lane);
            v[p] = body.value(v[p], row, channel, col_of(along_of(piece0 + p)));
          }
#pragma unroll
          for (int p = 0; p < kPieces; p++)
            if (const int along = along_of(piece0 + p); mine) store(row, along, v[p]), store_end(row, along, v[p]);
        }
      });
    }
  } else {
#pragma unroll 1
    for (int h = 0; h < 2; h++) {
      Vec4 v[8];
#pragma unroll
      for (int p = 0; p < 8; p++) v[p] = in_fours<Together>(acc, p, h, false, lane);
      of_feature(8 * h + quad, [&](long row, int channel, bool) {
#pragma unroll
        for (int p = 0; p < 8; p++)
#pragma unroll
          for (int e = 0; e < 4; e++) {
            const int col = min(at.place + 16 * p + first + e, l.images.places - 1);
            v[p].x[e] = body.value(Real(v[p].x[e]), row, channel, col);
          }
      });
      transpose(v, quad);
#pragma unroll
      for (int i = 0; i < 8; i++)
        of_feature(8 * h + i, [&](long row, int, bool mine) {
          const int lead = static_cast<int>(-(row * l.images.places + at.place) & 3);
          if (l.aligned) store_shifted<Together>(body, v[i], row, mine, at, lead, lane);
          else if (mine)
#pragma unroll
            for (int e = 0; e < 4; e++)
              if (const int along = 16 * quad + first + e; along < at.end) body.store(row, at.place + along, v[i].x[e]);
        });
    }
  }
}

}  // namespace rf
