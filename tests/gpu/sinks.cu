#include "bodies.cuh"
#include "launch.cuh"
using namespace rf;

RF_ENTRY(operands_ieee_tall, Operands, Schedule<Ieee, true>)
RF_ENTRY(operands_ieee_tall_8, Operands, Schedule<Ieee, true, 8>)
RF_ENTRY(rows_ieee_tall, AllRows, Schedule<Ieee, true>)
RF_ENTRY(rows_ieee_wide, AllRows, Schedule<Ieee, false>)
RF_ENTRY(rows_ieee_tall_2, AllRows, Schedule<Ieee, true, 2>)
RF_ENTRY(rows_ieee_wide_8, AllRows, Schedule<Ieee, false, 8>)
RF_ENTRY(columns_ieee_tall, AllColumns, Schedule<Ieee, true>)
RF_ENTRY(columns_ieee_wide, AllColumns, Schedule<Ieee, false>)
RF_ENTRY(columns_ieee_tall_4, AllColumns, Schedule<Ieee, true, 4>)
RF_ENTRY(columns_tf32_tall, AllColumns, Schedule<Tf32, true>)
RF_ENTRY(both_ieee_tall, Both, Schedule<Ieee, true>)
RF_ENTRY(both_ieee_wide_8, Both, Schedule<Ieee, false, 8>)
