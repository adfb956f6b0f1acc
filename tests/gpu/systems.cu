#include "bodies.cuh"
#include "launch_sm90.cuh"
using namespace rf;

RF_ENTRY(gelu_max_ieee_tall_8, GeluMax, Schedule<Ieee, Tall, 8>)
RF_ENTRY(gelu_max_tf32_tall_8, GeluMax, Schedule<Tf32, Tall, 8>)
RF_ENTRY(moments_ieee_tall, StoreMoments, Schedule<Ieee, Tall>)
RF_ENTRY(moments_tf32_tall, StoreMoments, Schedule<Tf32, Tall>)
RF_ENTRY(softmax_ieee_tall, ScaleSoftmax, Schedule<Ieee, Tall>)
RF_ENTRY(softmax_tf32_tall, ScaleSoftmax, Schedule<Tf32, Tall>)
RF_ENTRY(sigmoid_sum_ieee_wide, SigmoidSum, Schedule<Ieee, Wide>)
RF_ENTRY(sigmoid_sum_tf32_wide, SigmoidSum, Schedule<Tf32, Wide>)
