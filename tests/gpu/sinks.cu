#include "bodies.cuh"
using namespace rf;

RF_ENTRY(operands_ieee_tall, Operands, Ieee, true)
RF_ENTRY(operands_ieee_tall_8, Operands, Ieee, true, 8)
RF_ENTRY(rows_ieee_tall, AllRows, Ieee, true)
RF_ENTRY(rows_ieee_wide, AllRows, Ieee, false)
RF_ENTRY(rows_ieee_tall_2, AllRows, Ieee, true, 2)
RF_ENTRY(rows_ieee_wide_8, AllRows, Ieee, false, 8)
RF_ENTRY(columns_ieee_tall, AllColumns, Ieee, true)
RF_ENTRY(columns_ieee_wide, AllColumns, Ieee, false)
RF_ENTRY(columns_ieee_tall_4, AllColumns, Ieee, true, 4)
RF_ENTRY(columns_tf32_tall, AllColumns, Tf32, true)
RF_ENTRY(both_ieee_tall, Both, Ieee, true)
RF_ENTRY(both_ieee_wide_8, Both, Ieee, false, 8)
