#include "bodies.cuh"
using namespace rf;

RF_ENTRY(gelu_max_ieee_tall_8, GeluMax, Ieee, true, 8)
RF_ENTRY(gelu_max_tf32_tall_8, GeluMax, Tf32, true, 8)
RF_ENTRY(moments_ieee_tall, StoreMoments, Ieee, true)
RF_ENTRY(moments_tf32_tall, StoreMoments, Tf32, true)
RF_ENTRY(softmax_ieee_tall, ScaleSoftmax, Ieee, true)
RF_ENTRY(softmax_tf32_tall, ScaleSoftmax, Tf32, true)
RF_ENTRY(sigmoid_sum_ieee_wide, SigmoidSum, Ieee, false)
RF_ENTRY(sigmoid_sum_tf32_wide, SigmoidSum, Tf32, false)
