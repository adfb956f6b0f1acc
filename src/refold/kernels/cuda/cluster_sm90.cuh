// Clusters on Hopper: what the blocks of one share, one instruction each.
#pragma once
#include <cstdint>

#include "functor.cuh"

namespace rf {

// All threads of all blocks of the cluster; of the block, where it is alone.
RF_FN void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
// The same address in the shared memory of the cluster's block `rank`.
RF_FN uint32_t map_shared_rank(uint32_t address, uint32_t rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
// To an address of map_shared_rank. The block there must have begun: a cluster_sync lies before it.
RF_FN void store_shared_cluster(uint32_t to, uint32_t word) {
  asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(to), "r"(word) : "memory");
}

}  // namespace rf
