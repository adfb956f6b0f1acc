// Look: the device's side of ../look.h. Kernels that a call may start first compare a few words of the parameters with
// what they were. One block does, beside its work: it costs a pair of loads.
#pragma once
#include "../look.h"
#include "math.cuh"

namespace rf {

using rf_watch::Look;

// The look of a body; one that has none looks at nothing.
template <class Body> RF_FN auto look_of(const Body& body, int) -> decltype(body.look) { return body.look; }
template <class Body> RF_FN Look look_of(const Body&, long) { return {}; }

// volatile: other calls may write what is read here while this kernel runs.
RF_FN void look_at_words(const Look& look, unsigned first, unsigned step) {
  const volatile uint32_t* const volatile* words = look.words;
  const volatile uint32_t* expected = look.expected;
  for (unsigned i = first; i < look.count; i += step)
    if (*words[i] != expected[i]) *static_cast<volatile uint32_t*>(look.flag) = look.epoch;
}

// After the kernel waited for the one before, so that what that one wrote is looked at, too; and before any thread of
// the first block returns, since each looks at words of its own.
template <class Body> RF_FN void look_in_first_block(const Body& body) {
  const Look look = look_of(body, 0);
  if (look.count != 0 && blockIdx.x == 0) look_at_words(look, threadIdx.x, blockDim.x);
}

}  // namespace rf
