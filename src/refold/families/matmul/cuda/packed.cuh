// Packed: operands of a product as the entries of an emitted module take them.
//
// Layout: a packed operand is one block of memory: the matrix as the tensor cores read it (hi_lo_split.cuh),
// then, aligned by 256, what undoes the scaling of each row.
#pragma once
#include "operand.cuh"

namespace rf {

template <class Mode> size_t packed_bytes(long rows, long depth) {
  return aligned_bytes(split_bytes<Mode>(rows, depth)) + static_cast<size_t>(rows) * sizeof(float);
}

template <class Mode> float* packed_unscale(void* packed, long rows, long depth) {
  return reinterpret_cast<float*>(static_cast<char*>(packed) + aligned_bytes(split_bytes<Mode>(rows, depth)));
}

// x [rows, depth] without gaps -> packed (packed_bytes of it).
template <class Mode> Error pack(const float* x, void* packed, long rows, long depth, cudaStream_t stream) {
  return hi_lo_split<Mode>(x, rows, depth, depth, packed, packed_unscale<Mode>(packed, rows, depth), stream);
}

// packed: null for an `a` that the product splits itself.
template <class Mode> Operand packed_operand(void* packed, const float* plain, long rows, long depth) {
  if (packed == nullptr) return split_operand<Mode>(nullptr, nullptr, plain, rows, depth, depth);
  return split_operand<Mode>(packed, packed_unscale<Mode>(packed, rows, depth), plain, rows, depth, depth);
}

// What matmul<S>(body, ...) works in, for a result of rows x cols; unsplit_depth: see workspace_bytes.
template <class S, class Body>
Error matmul_workspace_size(long rows, long cols, long unsplit_depth, WorkspaceSize& size, long batches = 1) {
  return workspace_bytes<S, Body>(rows, cols, size.scratch, size.arrivals, unsplit_depth, batches);
}

}  // namespace rf
