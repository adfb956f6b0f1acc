// Sums of exponentials that all of these are divided by, as a softmax has them.
#pragma once
#include "lanes.cuh"

namespace rf {

// The sum of exponentials of which the largest is one, and they are divided by: it lies between one and their count. A
// quotient is that of IEEE, but for one that is subnormal, at three instructions: what multiplying by the rounded
// reciprocal leaves is put right.
template <class V> struct SumOfExp {
  V value, one_over;
  SumOfExp() = default;
  RF_FN SumOfExp(V v) : value(v), one_over(V(1.0f) / v) {}
  RF_FN operator V() const { return value; }
};
RF_FN Real operator/(Real x, const SumOfExp<Real>& sum) {
  const Real q = x * sum.one_over;
  return fma(fma(-q, sum.value, x), sum.one_over, q);
}
RF_FN Vec4 operator/(Vec4 x, const SumOfExp<Vec4>& sum) {
  return Vec4::each([&](int i) {
    const Real q = x.x[i] * sum.one_over.x[i];
    return fma(fma(-q, sum.value.x[i], x.x[i]), sum.one_over.x[i], q);
  });
}

}  // namespace rf
