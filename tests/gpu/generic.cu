#include "bodies.cuh"
#include "launch_sm80.cuh"
using namespace rf;

RF_ENTRY(plain_ieee_generic, Copy, Generic<Ieee>)
RF_ENTRY(plain_ieee_generic_4, Copy, Generic<Ieee, 4>)
RF_ENTRY(plain_tf32_generic, Copy, Generic<Tf32>)
RF_ENTRY(plain_half_generic, Copy, Generic<Native<Half>>)
RF_ENTRY(plain_bfloat_generic, Copy, Generic<Native<Bfloat>>)
RF_ENTRY(rows_ieee_generic, AllRows, Generic<Ieee>)
RF_ENTRY(columns_ieee_generic, AllColumns, Generic<Ieee>)
RF_ENTRY(rows_ieee_generic_4, AllRows, Generic<Ieee, 4>)
RF_ENTRY(columns_ieee_generic_4, AllColumns, Generic<Ieee, 4>)
RF_ENTRY(operands_ieee_generic, Operands, Generic<Ieee>)
RF_ENTRY(both_ieee_generic, Both, Generic<Ieee>)
RF_ENTRY(columns_tf32_generic, AllColumns, Generic<Tf32>)
RF_ENTRY(plain_ieee_generic_8, Copy, Generic<Ieee, 8>)
RF_ENTRY(plain_tf32_generic_8, Copy, Generic<Tf32, 8>)
RF_ENTRY(moments_ieee_generic, StoreMoments, Generic<Ieee>)
RF_ENTRY(parts_half_generic, Copy, Generic<Native<Half, 2>>)
RF_ENTRY(parts_bfloat_generic_4, Copy, Generic<Native<Bfloat, 2>, 4>)
RF_ENTRY(columns_half_generic, AllColumns, Generic<Native<Half>>)
RF_ENTRY(narrow_bfloat_generic, CopyNarrow<Bfloat>, Generic<Native<Bfloat>>)
