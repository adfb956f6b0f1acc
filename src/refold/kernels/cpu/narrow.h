// Narrow: elements of 16 bits, loaded and stored by the names of lanes.h.
//
// A fused kernel computes in float32 what PyTorch rounds to 16 bits after every op. A value is widened
// where it is loaded, which is exact, and rounded to nearest even where it is stored. It needs RF_VECTORS.
#pragma once
#include "lanes.h"

namespace rf {

// PyTorch's types, of this namespace: so templates find the functions below.
struct Half : c10::Half {
  using c10::Half::Half;
};
struct Bfloat : c10::BFloat16 {
  using c10::BFloat16::BFloat16;
};

RF_FN Vec read_lanes(const Half* p) {
  Vec v;
  at::vec::load_fp32_from_fp16(p, v);
  return v;
}
RF_FN Vec read_lanes(const Bfloat* p) {
  Vec v;
  at::vec::load_fp32_from_bf16(p, v);
  return v;
}
template <class T> RF_FN Vec read_some(const T* p, long count) {
  T some[kLanes] = {};
  for (long i = 0; i < count; i++) some[i] = p[i];
  return read_lanes(some);
}
RF_FN Vec read_lanes(const Half* p, long count) { return read_some(p, count); }
RF_FN Vec read_lanes(const Bfloat* p, long count) { return read_some(p, count); }
RF_FN void write_lanes(Half* p, Vec v, long count = kLanes) {
  at::vec::convert_float_half(v, v).store(p, static_cast<int>(count));
}
RF_FN void write_lanes(Bfloat* p, Vec v, long count = kLanes) {
  at::vec::convert_float_bfloat16(v, v).store(p, static_cast<int>(count));
}

// Rounded as if it had been stored as T.
template <class T> RF_FN Real rounded(Real x) { return static_cast<Real>(static_cast<T>(x)); }
template <class T> RF_FN Vec rounded(Vec x) {
  T kept[kLanes];
  write_lanes(kept, x);
  return read_lanes(kept);
}

}  // namespace rf
