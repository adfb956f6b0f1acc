// Look apart: a look (../look.h) by a kernel of its own, before a product, which takes far longer and has no room for it.
#pragma once
#include "block.cuh"
#include "device.cuh"

namespace rf {

static __global__ void look_kernel(Look look) { look_at_words(look, threadIdx.x, blockDim.x); }

inline Error look_apart(const Look& look, cudaStream_t stream) {
  if (look.count == 0) return nullptr;
  return launch(look_kernel, 1u, 256, 0, stream, Start::after, "looking at parameters", look);
}

}  // namespace rf
