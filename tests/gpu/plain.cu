#include "bodies.cuh"
using namespace rf;

extern "C" Error split_ieee(const float* x, long rows, long depth, long ld, void* out, float* unscale,
                            cudaStream_t stream) {
  return split<Ieee>(x, rows, depth, ld, out, unscale, stream);
}
extern "C" Error split_tf32(const float* x, long rows, long depth, long ld, void* out, float* unscale,
                            cudaStream_t stream) {
  return split<Tf32>(x, rows, depth, ld, out, unscale, stream);
}
RF_ENTRY(plain_ieee_tall, Plain, Ieee, true)
RF_ENTRY(plain_ieee_wide, Plain, Ieee, false)
RF_ENTRY(plain_ieee_tall_2, Plain, Ieee, true, 2)
RF_ENTRY(plain_ieee_wide_4, Plain, Ieee, false, 4)
RF_ENTRY(plain_ieee_tall_8, Plain, Ieee, true, 8)
RF_ENTRY(plain_tf32_tall, Plain, Tf32, true)
RF_ENTRY(plain_tf32_wide, Plain, Tf32, false)
RF_ENTRY(plain_tf32_tall_8, Plain, Tf32, true, 8)
RF_ENTRY(plain_half_tall, Plain, Native<Half>, true)
RF_ENTRY(plain_bfloat_tall, Plain, Native<Bfloat>, true)
