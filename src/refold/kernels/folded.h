// Reductions that keep one number: what they make of two, `of(a, b)`, and what they start from.
//
// A struct here, and a row of the op table that names it as its monoid, give a reduction to all kernels: of rows,
// columns and products, on the CPU and on CUDA. `of` must not care how values are grouped, rounding aside, and
// `of(start(), a)` must be a. V is a number, or lanes of numbers on the CPU. How partials are accumulated and merged,
// always in the same order, stands in each target's monoid header, as `Folded`.
#pragma once

namespace rf {

template <class Op> struct Folded;

struct LargerOf {
  static RF_FN Real start() { return -infinity(); }
  template <class V> static RF_FN V of(V a, V b) { return maximum(a, b); }
};
using Max = Folded<LargerOf>;

struct SmallerOf {
  static RF_FN Real start() { return infinity(); }
  template <class V> static RF_FN V of(V a, V b) { return minimum(a, b); }
};
using Min = Folded<SmallerOf>;

}  // namespace rf
