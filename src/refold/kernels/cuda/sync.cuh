// Sync: what threads, blocks and kernels wait for each other by, beside __syncthreads.
#pragma once
#include "functor.cuh"

namespace rf {

constexpr int kWarpgroupThreads = 128;  // four warps, which issue a wgmma together

// A named barrier of `threads` threads of the block; number 0 is __syncthreads.
RF_FN void named_barrier_sync(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// The same by threads that do not wait themselves.
RF_FN void named_barrier_arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// --- programmatic dependent launch (sm_90; before that, kernels follow each other) -----------------
// Waits for the kernel before this one in the stream: nothing that it wrote may be read before.
RF_FN void wait_on_dependent_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// Lets the next kernel of the stream start its prologue, once every block has said so or ended.
RF_FN void launch_dependent_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Both. Nothing is read or written before this.
RF_FN void sync_dependent_grids() {
  launch_dependent_grids();
  wait_on_dependent_grids();
}

}  // namespace rf
