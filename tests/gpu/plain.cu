#include "bodies.cuh"
#include "launch.cuh"
using namespace rf;

extern "C" Error split_ieee(const float* x, long rows, long depth, long ld, void* out, float* unscale,
                            cudaStream_t stream) {
  return split<Ieee>(x, rows, depth, ld, out, unscale, stream);
}
extern "C" Error split_tf32(const float* x, long rows, long depth, long ld, void* out, float* unscale,
                            cudaStream_t stream) {
  return split<Tf32>(x, rows, depth, ld, out, unscale, stream);
}
RF_ENTRY(plain_ieee_tall, Copy, Schedule<Ieee, true>)
RF_ENTRY(plain_ieee_wide, Copy, Schedule<Ieee, false>)
RF_ENTRY(plain_ieee_tall_2, Copy, Schedule<Ieee, true, 2>)
RF_ENTRY(plain_ieee_wide_4, Copy, Schedule<Ieee, false, 4>)
RF_ENTRY(plain_ieee_tall_8, Copy, Schedule<Ieee, true, 8>)
RF_ENTRY(plain_tf32_tall, Copy, Schedule<Tf32, true>)
RF_ENTRY(plain_tf32_wide, Copy, Schedule<Tf32, false>)
RF_ENTRY(plain_tf32_tall_8, Copy, Schedule<Tf32, true, 8>)
RF_ENTRY(plain_half_tall, Copy, Schedule<Native<Half>, true>)
RF_ENTRY(plain_half_wide, Copy, Schedule<Native<Half>, false>)
RF_ENTRY(plain_half_tall_8, Copy, Schedule<Native<Half>, true, 8>)
RF_ENTRY(plain_bfloat_tall, Copy, Schedule<Native<Bfloat>, true>)
RF_ENTRY(plain_bfloat_wide, Copy, Schedule<Native<Bfloat>, false>)
RF_ENTRY(plain_bfloat_tall_8, Copy, Schedule<Native<Bfloat>, true, 8>)
RF_ENTRY(parts_half_tall, Copy, Schedule<Native<Half, 2>, true>)
RF_ENTRY(parts_half_wide_4, Copy, Schedule<Native<Half, 2>, false, 4>)
RF_ENTRY(parts_bfloat_tall, Copy, Schedule<Native<Bfloat, 2>, true>)
