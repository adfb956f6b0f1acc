#include "bodies.cuh"
#include "launch.cuh"
using namespace rf;

RF_ENTRY(operands_ieee_tall, Operands, Schedule<Ieee, Tall>)
RF_ENTRY(operands_ieee_tall_8, Operands, Schedule<Ieee, Tall, 8>)
RF_ENTRY(operands_ieee_small, Operands, Schedule<Ieee, Small>)
RF_ENTRY(rows_ieee_tall, AllRows, Schedule<Ieee, Tall>)
RF_ENTRY(rows_ieee_wide, AllRows, Schedule<Ieee, Wide>)
RF_ENTRY(rows_ieee_tall_2, AllRows, Schedule<Ieee, Tall, 2>)
RF_ENTRY(rows_ieee_wide_8, AllRows, Schedule<Ieee, Wide, 8>)
RF_ENTRY(rows_ieee_small, AllRows, Schedule<Ieee, Small>)
RF_ENTRY(rows_ieee_small_4, AllRows, Schedule<Ieee, Small, 4>)
RF_ENTRY(columns_ieee_tall, AllColumns, Schedule<Ieee, Tall>)
RF_ENTRY(columns_ieee_wide, AllColumns, Schedule<Ieee, Wide>)
RF_ENTRY(columns_ieee_tall_4, AllColumns, Schedule<Ieee, Tall, 4>)
RF_ENTRY(columns_ieee_small_2, AllColumns, Schedule<Ieee, Small, 2>)
RF_ENTRY(columns_tf32_small, AllColumns, Schedule<Tf32, Small>)
RF_ENTRY(columns_tf32_tall, AllColumns, Schedule<Tf32, Tall>)
RF_ENTRY(both_ieee_tall, Both, Schedule<Ieee, Tall>)
RF_ENTRY(both_ieee_small_4, Both, Schedule<Ieee, Small, 4>)
RF_ENTRY(both_ieee_wide_8, Both, Schedule<Ieee, Wide, 8>)
