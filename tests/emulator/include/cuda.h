// Stands in for the driver's header: maps of matrices for the copy engine.
#pragma once
#include "cuda_runtime.h"

using cuuint32_t = uint32_t;
using cuuint64_t = uint64_t;
enum CUresult { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE };
enum CUtensorMapDataType {
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_DATA_TYPE_FLOAT32
};
enum CUtensorMapInterleave { CU_TENSOR_MAP_INTERLEAVE_NONE };
enum CUtensorMapSwizzle { CU_TENSOR_MAP_SWIZZLE_128B };
enum CUtensorMapL2promotion { CU_TENSOR_MAP_L2_PROMOTION_L2_256B };
enum CUtensorMapFloatOOBfill { CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE };
using CUtensorMap = emulator::TensorMap;
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
enum { cudaEnableDefault };

namespace emulator {
inline CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base, const cuuint64_t* sizes,
                       const cuuint64_t* strides, const cuuint32_t* boxes, const cuuint32_t* steps,
                       CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const unsigned bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
  if (rank != 2 || reinterpret_cast<uintptr_t>(base) % 16 || strides[0] % 16 || boxes[0] * bytes != 128 ||
      boxes[1] > 256 || steps[0] != 1 || steps[1] != 1 || sizes[0] == 0 || sizes[1] == 0)
    return CUDA_ERROR_INVALID_VALUE;
  *map = {static_cast<const unsigned char*>(base), long(sizes[0]), long(sizes[1]), long(strides[0]), bytes, boxes[1]};
  return CUDA_SUCCESS;
}
}  // namespace emulator
inline cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, int,
                                                    cudaDriverEntryPointQueryResult* result) {
  *function = reinterpret_cast<void*>(&emulator::encode), *result = cudaDriverEntryPointSuccess;
  return cudaSuccess;
}
