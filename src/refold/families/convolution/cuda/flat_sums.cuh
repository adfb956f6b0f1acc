// The sums of a consumer of convolution_flat.cuh, and the products that are added to them: TF32 class 128 sums a thread, fp32
// class 64, whose products are hi hi + 2^-11 (hi lo + lo hi).
#pragma once
#include "flat_images.cuh"
#include "strip_rows.cuh"

namespace rf {

constexpr int kBothSums = 2;  // of phases 0 and 1

// 64 of a thread's sums, where they are: copies take registers of their own.
template <class Sums, int Together> struct HalfOfSums {
  Sums& sums;
  int half;
  RF_FN float& operator[](int i) const { return sums.template at<Together>(half, i); }
  RF_FN bool all_finite() const {
    float none[4] = {};  // 0 times what is not finite is NaN
#pragma unroll
    for (int i = 0; i < 64; i++) none[i % 4] = fmaf((*this)[i], 0.0f, none[i % 4]);
    return none[0] + none[1] + (none[2] + none[3]) == 0.0f;
  }
};

// The sums of a thread. `multiply` issues the products of a stage of kernels and of places from `b` on; but for those that
// it issues all are done when it returns.
template <class S, bool Split> struct FlatSums {
  static constexpr int kHalves = 2;  // of 128 places of the result each
  float of[2][64];                   // of places, or of the phases along the width
  bool add[2] = {false, false};      // to what is there; else they are the first
  template <int Phase> RF_FN void multiply(const CoreMatrices& a, const CoreMatrices& b, int octet_bytes) {
    constexpr int kBegin = Phase == kBothSums ? 0 : Phase, kEnd = Phase == kBothSums ? 2 : Phase + 1;
    wgmma_fence();
#pragma unroll
    for (int octet = 0; octet < S::kChannels / 8; octet += 2)
#pragma unroll
      for (int i = kBegin; i < kEnd; i++) {
        wgmma_plain(of[i], a.at(octet * kFlatFeatures * 16), b.at(octet * octet_bytes + (i - kBegin) * 128 * 16), add[i]);
        add[i] = true;
      }
    wgmma_commit_group();
    wgmma_wait_group<1>();
  }
  RF_FN void settle() {
    wgmma_wait_group<0>();
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int i = 0; i < 64; i++) asm volatile("" : "+f"(of[half][i]));  // not before
  }
  // The i-th of a half of the places: those of two phases, one after the other.
  template <int Together> RF_FN float& at(int half, int i) { return Together == 1 ? of[half][i] : of[i / 32][32 * half + i % 32]; }
};

template <class S> struct FlatSums<S, true> {
  static constexpr int kHalves = 1;
  float of[64], stage[64], small[64];
  bool add = false;
  RF_FN FlatSums() {
#pragma unroll
    for (int i = 0; i < 64; i++) of[i] = 0.0f;
  }
  template <int> RF_FN void multiply(const CoreMatrices& a, const CoreMatrices& b, int octet_bytes) {
    constexpr int kLowOfA = kFlatFeatures * S::kChannels * 2, kOctets = S::kChannels / 8;
    const auto product = [&](float (&d)[64], int octet, bool low_a, bool low_b, bool add) {
      wgmma_plain(d, a.at(low_a * kLowOfA + octet * kFlatFeatures * 16), b.at((low_b * kOctets + octet) * octet_bytes), add);
    };
    wgmma_fence();
#pragma unroll
    for (int octet = 0; octet < kOctets; octet += 2) product(stage, octet, false, false, octet > 0);
    wgmma_commit_group();
#pragma unroll
    for (int octet = 0; octet < kOctets; octet += 2) {
      product(small, octet, false, true, add);
      product(small, octet, true, false, true);
      add = true;
    }
    wgmma_commit_group();
    wgmma_wait_group<1>();
#pragma unroll
    for (int i = 0; i < 64; i++) asm volatile("" : "+f"(stage[i]));  // not before
#pragma unroll
    for (int i = 0; i < 64; i++) of[i] += stage[i];
  }
  RF_FN void settle() {
    wgmma_wait_group<0>();
#pragma unroll
    for (int i = 0; i < 64; i++) asm volatile("" : "+f"(small[i]));  // not before
#pragma unroll
    for (int i = 0; i < 64; i++) of[i] = fmaf(small[i], 1.0f / kOfLow, of[i]);
  }
  template <int> RF_FN float& at(int, int i) { return of[i]; }
};

}  // namespace rf
