// Numbers of several places of which lanes have some features each, reduced by exchanges: each halves the numbers that a
// lane has and doubles what it has taken of each.
#pragma once
#include "monoid.cuh"

namespace rf {

template <class M> RF_FN float merged_words(float a, float b) {
  typename M::Partial p{{a}};
  M::merge(p, typename M::Partial{{b}});
  return p.w[0];
}

// Of two values in registers, without an address.
RF_FN float one_of(bool first, float a, float b) { return first ? a : b; }

// Of twice `Left` values the lane keeps half, which it takes from the lane that keeps the other half, too. It is the one
// whose number differs by `Apart`.
template <class M, int Left, int Apart = Left, int Count>
RF_FN void halve(float (&of)[Count], int lane) {
  const bool upper = (lane & Apart) != 0;
#pragma unroll
  for (int i = 0; i < Left; i++) {
    const float mine = one_of(upper, of[i + Left], of[i]), other = one_of(upper, of[i], of[i + Left]);
    of[i] = merged_words<M>(mine, __shfl_xor_sync(kFullMask, other, Apart));
  }
}

}  // namespace rf
