#include "bodies.cuh"
#include "direct_sm90.cuh"
#include "launch.cuh"
using namespace rf;

RF_ENTRY(plain_direct_tall, Copy, Schedule<Direct, Tall>)
RF_ENTRY(plain_direct_tall_2, Copy, Schedule<Direct, Tall, 2>)
RF_ENTRY(plain_direct_tall_8, Copy, Schedule<Direct, Tall, 8>)
RF_ENTRY(rows_direct_tall, AllRows, Schedule<Direct, Tall>)
RF_ENTRY(rows_direct_tall_8, AllRows, Schedule<Direct, Tall, 8>)
RF_ENTRY(columns_direct_tall, AllColumns, Schedule<Direct, Tall>)
RF_ENTRY(columns_direct_tall_4, AllColumns, Schedule<Direct, Tall, 4>)
RF_ENTRY(operands_direct_tall, Operands, Schedule<Direct, Tall>)
RF_ENTRY(operands_direct_tall_8, Operands, Schedule<Direct, Tall, 8>)
RF_ENTRY(both_direct_tall, Both, Schedule<Direct, Tall>)
RF_ENTRY(gelu_max_direct_tall_8, GeluMax, Schedule<Direct, Tall, 8>)
RF_ENTRY(moments_direct_tall, StoreMoments, Schedule<Direct, Tall>)
RF_ENTRY(softmax_direct_tall, ScaleSoftmax, Schedule<Direct, Tall>)
RF_BATCH_ENTRY(batch_direct_tall, Schedule<Direct, Tall>)
RF_BATCH_ENTRY(batch_direct_tall_4, Schedule<Direct, Tall, 4>)
