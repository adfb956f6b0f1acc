// Native: operands of 16-bit elements as the entries of an emitted module take them.
//
// Layout: rows without gaps, at any address. A folded weight has more bits than its elements: it is given as
// two 16-bit terms, hi and lo, that add up to it. The terms of a row follow one another, each filled up with zeros to
// whole stages.
#pragma once
#include "narrow.cuh"
#include "operand.cuh"

namespace rf {

// An operand [rows, depth] as it is.
template <class T> Operand native_operand(const T* data, long rows, long depth) {
  return {data, rows, depth, nullptr, reinterpret_cast<const float*>(data), depth};
}

// An operand as hi and lo, and the fp32 rows that they add up to.
template <class T> Operand hi_lo_operand(const T* data, const float* plain, long rows, long depth) {
  return {data, rows, b_elements<Native<T, 2>>(depth), nullptr, plain, depth};
}

}  // namespace rf
