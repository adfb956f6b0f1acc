#include "bodies.cuh"
#include "launch_sm90.cuh"
using namespace rf;

extern "C" Error split_ieee(const float* x, long rows, long depth, long ld, void* out, float* unscale,
                            cudaStream_t stream) {
  return hi_lo_split<Ieee>(x, rows, depth, ld, out, unscale, stream);
}
extern "C" Error split_tf32(const float* x, long rows, long depth, long ld, void* out, float* unscale,
                            cudaStream_t stream) {
  return hi_lo_split<Tf32>(x, rows, depth, ld, out, unscale, stream);
}
RF_ENTRY(plain_ieee_tall, Copy, Schedule<Ieee, Tall>)
RF_ENTRY(plain_ieee_wide, Copy, Schedule<Ieee, Wide>)
RF_ENTRY(plain_ieee_tall_2, Copy, Schedule<Ieee, Tall, 2>)
RF_ENTRY(plain_ieee_wide_4, Copy, Schedule<Ieee, Wide, 4>)
RF_ENTRY(plain_ieee_tall_8, Copy, Schedule<Ieee, Tall, 8>)
RF_ENTRY(plain_ieee_small, Copy, Schedule<Ieee, Small>)
RF_ENTRY(plain_ieee_small_2, Copy, Schedule<Ieee, Small, 2>)
RF_ENTRY(plain_ieee_small_4, Copy, Schedule<Ieee, Small, 4>)
RF_ENTRY(plain_ieee_small_8, Copy, Schedule<Ieee, Small, 8>)
RF_ENTRY(plain_ieee_small_32, Copy, Schedule<Ieee, Small, 32>)
RF_ENTRY(plain_tf32_small_16, Copy, Schedule<Tf32, Small, 16>)
RF_ENTRY(plain_tf32_tall, Copy, Schedule<Tf32, Tall>)
RF_ENTRY(plain_tf32_wide, Copy, Schedule<Tf32, Wide>)
RF_ENTRY(plain_tf32_tall_8, Copy, Schedule<Tf32, Tall, 8>)
RF_ENTRY(plain_tf32_small, Copy, Schedule<Tf32, Small>)
RF_ENTRY(plain_tf32_small_4, Copy, Schedule<Tf32, Small, 4>)
RF_ENTRY(plain_half_tall, Copy, Schedule<Native<Half>, Tall>)
RF_ENTRY(plain_half_wide, Copy, Schedule<Native<Half>, Wide>)
RF_ENTRY(plain_half_tall_8, Copy, Schedule<Native<Half>, Tall, 8>)
RF_ENTRY(plain_half_small_16, Copy, Schedule<Native<Half>, Small, 16>)
RF_ENTRY(plain_half_small, Copy, Schedule<Native<Half>, Small>)
RF_ENTRY(plain_bfloat_tall, Copy, Schedule<Native<Bfloat>, Tall>)
RF_ENTRY(plain_bfloat_wide, Copy, Schedule<Native<Bfloat>, Wide>)
RF_ENTRY(plain_bfloat_tall_8, Copy, Schedule<Native<Bfloat>, Tall, 8>)
RF_ENTRY(plain_bfloat_small, Copy, Schedule<Native<Bfloat>, Small>)
RF_ENTRY(parts_half_tall, Copy, Schedule<Native<Half, 2>, Tall>)
RF_ENTRY(parts_half_wide_4, Copy, Schedule<Native<Half, 2>, Wide, 4>)
RF_ENTRY(parts_half_small_2, Copy, Schedule<Native<Half, 2>, Small, 2>)
RF_ENTRY(parts_bfloat_tall, Copy, Schedule<Native<Bfloat, 2>, Tall>)
RF_ENTRY(narrow_half_tall, CopyNarrow<Half>, Schedule<Native<Half>, Tall>)
RF_ENTRY(narrow_half_small_2, CopyNarrow<Half>, Schedule<Native<Half>, Small, 2>)
RF_ENTRY(narrow_bfloat_wide, CopyNarrow<Bfloat>, Schedule<Native<Bfloat>, Wide>)
RF_ENTRY(narrow_bfloat_wide_8, CopyNarrow<Bfloat>, Schedule<Native<Bfloat>, Wide, 8>)
RF_ENTRY(narrow_bfloat_small, CopyNarrow<Bfloat>, Schedule<Native<Bfloat>, Small>)
