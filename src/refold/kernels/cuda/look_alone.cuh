// A look of its own, for a call that starts no kernel that would take it along, or takes the original.
#pragma once
#include "device.cuh"
#include "look.cuh"
#include "run.cuh"

namespace rf {

__global__ void __launch_bounds__(128) look_kernel(Look look) { look_at_words(look, threadIdx.x, blockDim.x); }

#ifndef __CUDACC_RTC__
static Error look_alone(cudaStream_t stream) {
  const Look look = rf_watch::take_look();
  if (look.count == 0) return nullptr;
  return launch(look_kernel, 1, 128, 0, stream, LaunchMode::after, "looking at the parameters", look);
}
static PyObject* look_alone_called(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return launched(look_alone, args, n);
}
RF_METHOD(look_alone, look_alone_called)
#endif

}  // namespace rf
