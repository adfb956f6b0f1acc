#include "bodies.cuh"
#include "mainloop_rs_sm90.cuh"
#include "launch_sm90.cuh"
using namespace rf;

RF_ENTRY(plain_direct_tall, Copy, Schedule<IeeeRS, Tall>)
RF_ENTRY(plain_direct_tall_2, Copy, Schedule<IeeeRS, Tall, 2>)
RF_ENTRY(plain_direct_tall_8, Copy, Schedule<IeeeRS, Tall, 8>)
RF_ENTRY(rows_direct_tall, AllRows, Schedule<IeeeRS, Tall>)
RF_ENTRY(rows_direct_tall_8, AllRows, Schedule<IeeeRS, Tall, 8>)
RF_ENTRY(columns_direct_tall, AllColumns, Schedule<IeeeRS, Tall>)
RF_ENTRY(columns_direct_tall_4, AllColumns, Schedule<IeeeRS, Tall, 4>)
RF_ENTRY(operands_direct_tall, Operands, Schedule<IeeeRS, Tall>)
RF_ENTRY(operands_direct_tall_8, Operands, Schedule<IeeeRS, Tall, 8>)
RF_ENTRY(both_direct_tall, Both, Schedule<IeeeRS, Tall>)
RF_ENTRY(gelu_max_direct_tall_8, GeluMax, Schedule<IeeeRS, Tall, 8>)
RF_ENTRY(moments_direct_tall, StoreMoments, Schedule<IeeeRS, Tall>)
RF_ENTRY(softmax_direct_tall, ScaleSoftmax, Schedule<IeeeRS, Tall>)
RF_BATCH_ENTRY(batch_direct_tall, Schedule<IeeeRS, Tall>)
RF_BATCH_ENTRY(batch_direct_tall_4, Schedule<IeeeRS, Tall, 4>)
