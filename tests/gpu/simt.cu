#include "bodies.cuh"
#include "launch_plain.cuh"
#include "native.cuh"
using namespace rf;

RF_ENTRY(plain_simt, Copy, Plain)
RF_ENTRY(operands_simt, Operands, Plain)
RF_ENTRY(rows_simt, AllRows, Plain)
RF_ENTRY(columns_simt, AllColumns, Plain)
RF_ENTRY(both_simt, Both, Plain)
RF_ENTRY(gelu_max_simt, GeluMax, Plain)
RF_ENTRY(plain_half_simt, Copy, PlainOf<Half, Half>)
RF_ENTRY(plain_bfloat_simt, Copy, PlainOf<Bfloat, Bfloat>)
RF_ENTRY(parts_half_simt, Copy, PlainOf<Half, float>)
RF_ENTRY(parts_bfloat_simt, Copy, PlainOf<Bfloat, float>)
