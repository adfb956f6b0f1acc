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
// and at place 8 (i / 4) + 2 (lane % 4) + i % 2.
RF_FN int fragment_feature(int i, int lane) { return 8 * (i / 2 % 2) + lane / 4; }
RF_FN int fragment_place(int i, int lane) { return 8 * (i / 4) + 2 * (lane % 4) + i % 2; }

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

// Elements that are not finite once more, in plain fp32. It is rare: one value of each lane after the other.
template <class W> RF_FN void repair_row(const ConvolutionLaunch& l, float (&acc)[64], const RowOfResult& at, int lane) {
#pragma unroll 1
  for (int i = 0; i < 64; i++) {
    const int feature = at.feature0 + fragment_feature(i, lane), along = fragment_place(i, lane);
    float v[1] = {acc[0]};
    repair<W>(v, l, at.group, at.group * W::kFeatures + feature, at.image * l.images.places + at.place + along,
              along >= at.begin && along < at.end && feature < W::kFeatures, lane);
    acc[0] = v[0];
    rotate<1>(acc);
  }
}

// A row of a strip's result, 16 features of a warp. kWhole: no tile has features that there are not. acc: scaled back.
// In fours: neighbours exchange values, so that each lane has four places next to each other and a quad of lanes stores 64
// bytes of a feature. kLongRuns: quads exchange theirs, too, so that an instruction stores 512 bytes of one feature. Of
// slim tiles, with few products between stores, that was measured to be faster (8 -> 64 channels, rows of 254: 1542 us
// after 1856), of broad ones slower (64 -> 128: 997 after 909). The loop is rolled, since a body may be long.
// Without whole sectors broad tiles took 1135 us where they take 900 (64 -> 128).
template <bool InFours, bool kLongRuns, bool kWhole, class Body>
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
  if constexpr (InFours) {
    const bool odd = lane & 1;
    const int first = odd ? 8 + 2 * (lane % 4 - 1) : 2 * (lane % 4);  // of 16 places, the lane's four
    const bool even = l.images.made_wide % 2 == 0;
    const long start = at.place + first;
#pragma unroll 1
    for (int h = 0; h < 2; h++) {  // of eight features
      Vec4 v[8];                   // of eight times 16 places, of one feature
      const auto half = [&](int i) { return one_of(h == 0, acc[i], acc[i + 2]); };
#pragma unroll
      for (int p = 0; p < 8; p++)
        v[p] = joined(half(8 * p), half(8 * p + 1), half(8 * p + 4), half(8 * p + 5), odd);
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
  } else {
#pragma unroll 1
    for (int octet = 0; octet < 16; octet++, rotate<4>(acc)) {
#pragma unroll
      for (int i = 0; i < 4; i++)
        of_feature(8 * (i / 2) + quad, [&](long row, int channel, bool mine) {
          const int along = fragment_place(4 * octet + i, lane), col = at.place + along;
          if (mine && along >= at.begin && along < at.end)
            body.store(row, col, body.value(Real(acc[i]), row, channel, col));
        });
    }
  }
}

}  // namespace rf
