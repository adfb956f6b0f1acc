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

// A side of a product as Python gives it.
template <class Mode> struct Packed {
  static constexpr int kArguments = 2;
  const float* plain;
  void* packed;
  Operand operator()(long rows, long depth) const { return packed_operand<Mode>(packed, plain, rows, depth); }
};

// One that the product splits itself.
template <class Mode> struct Unsplit {
  static constexpr int kArguments = 1;
  const float* plain;
  Operand operator()(long rows, long depth) const { return packed_operand<Mode>(nullptr, plain, rows, depth); }
};

// Schedules by the sizes of a call, the first that holds.
template <long Most, class S> struct UpToRows {
  using Type = S;
  static bool holds(long rows, long) { return rows <= Most; }
};
template <class S> struct UnalignedDepth {
  using Type = S;
  static bool holds(long, long depth) { return depth % 4 != 0; }
};
template <class First, class... Rest> struct BySize {
  // run(schedule) with the one that holds.
  template <class Run> static Error choose(long rows, long depth, const Run& run) {
    if constexpr (sizeof...(Rest) == 0)
      return run(First{});
    else
      return First::holds(rows, depth) ? run(typename First::Type{}) : BySize<Rest...>::choose(rows, depth, run);
  }
};

// What a product by the body's Schedules works in, for a result of rows x cols; unsplit_depth: see workspace_bytes.
template <class Body>
Error batch_workspace_size(WorkspaceSize& size, long rows, long cols, long unsplit_depth, long batches) {
  return Body::Schedules::choose(rows, unsplit_depth, [&](auto s) {
    return workspace_bytes<decltype(s), Body>(rows, cols, size.scratch, size.arrivals, unsplit_depth, batches);
  });
}
template <class Body> Error matmul_workspace_size(WorkspaceSize& size, long rows, long cols, long unsplit_depth) {
  return batch_workspace_size<Body>(size, rows, cols, unsplit_depth, 1);
}
template <class Body>
Error matmul(const Body& body, long rows, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
             cudaStream_t stream) {
  return Body::Schedules::choose(rows, depth, [&](auto schedule) {
    return matmul<decltype(schedule)>(body, a, b, depth, workspace, stream);
  });
}

}  // namespace rf
