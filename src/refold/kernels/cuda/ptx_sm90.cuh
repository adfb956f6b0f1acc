// Ptx on Hopper: the instructions that the product is built from, one small function each.
//
// Why: mbarriers in shared memory, TMA loads of whole tiles, and wgmma, the matrix product of a warpgroup, have no C++
// spelling. Nothing here decides anything.
//
// Layout: a tile in shared memory is rows of 128 bytes, 16-byte pieces permuted inside every eight
// rows (TMA's 128-byte swizzle), and starts at a multiple of 1024 bytes.
#pragma once
#include <cuda.h>

#include "cluster_sm90.cuh"
#include "ptx_sm80.cuh"

namespace rf {

constexpr int kSwizzleRowBytes = 128;    // a row of a stage
constexpr int kSwizzleAlignment = 1024;  // eight rows, after which the swizzle repeats
constexpr int kMbarrierBytes = 8;

// --- mbarriers in shared memory -----------------------------------------------------------------
RF_FN void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
RF_FN void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
RF_FN void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// The same in another block of the cluster (map_shared_rank).
RF_FN void mbarrier_arrive_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
RF_FN void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier), "r"(parity)
      : "memory");
}
// Makes initialised barriers visible to TMA.
RF_FN void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// --- loads and stores by TMA -------------------------------------------------------------------
RF_FN void tma_load(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4}], [%2];" ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}
// The same to both blocks of a 2-CTA cluster (multicast), where each counts the bytes at its own mbarrier.
RF_FN void tma_load_multicast(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to), "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(uint16_t(3))
      : "memory");
}
// So many bytes that lie next to each other, a multiple of 16, as do both addresses.
RF_FN void bulk_load(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}
// From shared memory; this thread's stores since the last bulk_commit are a group.
RF_FN void bulk_store(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
RF_FN void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until all groups of this thread have read shared memory; until they are done.
RF_FN void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(0) : "memory"); }
RF_FN void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" ::"n"(0) : "memory"); }
RF_FN void prefetch_tensormap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// What the asynchronous proxy (wgmma) reads after this was written before it.
RF_FN void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- shared memory ---------------------------------------------------------------------------------
RF_FN float4 load_shared_v4(uint32_t from) {
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(from)
               : "memory");
  return v;
}

// --- registers -----------------------------------------------------------------------------------
template <int N> RF_FN void setmaxnreg_dec() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> RF_FN void setmaxnreg_inc() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }

// --- wgmma: matrix products of a warpgroup---------------------------------------------------------
// Both sides lie in shared memory along k; 1024 bytes from eight rows to the next eight. A tile is
// named by the low word of its matrix descriptor, its address in units of 16 bytes, which can be added to;
// the high word is the same for all.
template <int Bytes> constexpr int kDescriptorUnits = Bytes >> 4;
constexpr uint32_t kAddressMask = 0x3ffff;          // bits of a shared address
constexpr uint32_t kLeadingOffset = 1u << 16;       // of no meaning with this swizzle, whose rows are whole
constexpr uint32_t kStrideOffset = kDescriptorUnits<kSwizzleAlignment>;  // high word: from eight rows to the next
constexpr uint32_t kSwizzle128 = 1u << 30;          // high word: the 128-byte swizzle
RF_FN uint32_t descriptor_word(uint32_t address) { return kLeadingOffset | ((address & kAddressMask) >> 4); }
RF_FN uint64_t matrix_descriptor(uint32_t word) { return (uint64_t(kSwizzle128 | kStrideOffset) << 32) | word; }
RF_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
RF_FN void wgmma_commit_group() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int Left> RF_FN void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Left) : "memory");
}

// The registers of d as an instruction names and takes them, 64 at a time.
#define RF_ACCUMULATORS_20                                                           \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "           \
  "%16, %17, %18, %19"
#define RF_ACCUMULATORS_32                                                           \
  RF_ACCUMULATORS_20                                                                 \
  ", %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RF_ACCUMULATORS                                                              \
  RF_ACCUMULATORS_32                                                                 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RF_INOUT_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define RF_INOUT_8(d, i) RF_INOUT_4(d, i), RF_INOUT_4(d, i + 4)
#define RF_INOUT(d)                                                                                          \
  RF_INOUT_8(d, 0), RF_INOUT_8(d, 8), RF_INOUT_8(d, 16), RF_INOUT_8(d, 24), RF_INOUT_8(d, 32), RF_INOUT_8(d, 40), \
      RF_INOUT_8(d, 48), RF_INOUT_8(d, 56)

// d[64 x 128] (+)= a[64 x 16] * b[128 x 16]^T; with add = false d is overwritten.
template <class T> RF_FN void wgmma(float (&d)[64], uint32_t a, uint32_t b, bool add);
#define RF_WGMMA(T, types)                                                                                        \
  template <> RF_FN void wgmma<T>(float (&d)[64], uint32_t a, uint32_t b, bool add) {                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"                                                     \
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32." types " {" RF_ACCUMULATORS "}, %64, %65, "        \
                 "p, 1, 1, 0, 0;\n}"                                                                              \
                 : RF_INOUT(d)                                                                                    \
                 : "l"(matrix_descriptor(a)), "l"(matrix_descriptor(b)), "r"(int(add)));                          \
  }
RF_WGMMA(Half, "f16.f16")
RF_WGMMA(Bfloat, "bf16.bf16")
#undef RF_WGMMA

// The same of descriptors as they are, fp16.
RF_FN void wgmma_plain(float (&d)[64], uint64_t a, uint64_t b, bool add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" RF_ACCUMULATORS
               "}, %64, %65, p, 1, 1, 0, 0;\n}"
               : RF_INOUT(d)
               : "l"(a), "l"(b), "r"(int(add)));
}

// d[64 x 64] (+)= a[64 x 16] * b[64 x 16]^T in the First-th 32 registers; or d[64 x 40] in the First-th 20, where they are
// multiples of these.
template <int First, int Sums> RF_FN void wgmma_plain_half(float (&d)[Sums], uint64_t a, uint64_t b, bool add) {
  if constexpr (Sums % 20 == 0)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %22, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n40k16.f32.f16.f16 {" RF_ACCUMULATORS_20
                 "}, %20, %21, p, 1, 1, 0, 0;\n}"
                 : RF_INOUT_8(d, 20 * First), RF_INOUT_8(d, 20 * First + 8), RF_INOUT_4(d, 20 * First + 16)
                 : "l"(a), "l"(b), "r"(int(add)));
  else
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" RF_ACCUMULATORS_32
                 "}, %32, %33, p, 1, 1, 0, 0;\n}"
                 : RF_INOUT_8(d, 32 * First), RF_INOUT_8(d, 32 * First + 8), RF_INOUT_8(d, 32 * First + 16),
                   RF_INOUT_8(d, 32 * First + 24)
                 : "l"(a), "l"(b), "r"(int(add)));
}

// wgmma_plain with a in registers ("RS"), fp16: lane l of warp w holds of rows 16 w + l / 4 and 8 more, k 2 (l % 4) and
// 1 more, and again 8 further.
RF_FN void wgmma_rs(float (&d)[64], const uint32_t (&a)[4], uint32_t b, bool add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" RF_ACCUMULATORS
               "}, {%64, %65, %66, %67}, %68, p, 1, 1, 0;\n}"
               : RF_INOUT(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(matrix_descriptor(b)), "r"(int(add)));
}
// The same of d[64 x 64].
#define RF_WGMMA_RS_HALF(name, flag)                                                                                \
  RF_FN void name(float (&d)[32], const uint32_t (&a)[4], uint32_t b, bool add) {                                   \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"                                                       \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" RF_ACCUMULATORS_32                          \
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, " flag ";\n}"                                              \
                 : RF_INOUT_8(d, 0), RF_INOUT_8(d, 8), RF_INOUT_8(d, 16), RF_INOUT_8(d, 24)                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(matrix_descriptor(b)), "r"(int(add)));           \
  }
RF_WGMMA_RS_HALF(wgmma_rs_half, "0")
RF_WGMMA_RS_HALF(wgmma_rs_half_transposed, "1")  // b[16 x 64] in memory
#undef RF_WGMMA_RS_HALF
#undef RF_ACCUMULATORS
#undef RF_ACCUMULATORS_32
#undef RF_ACCUMULATORS_20
#undef RF_INOUT_8
#undef RF_INOUT_4
#undef RF_INOUT

}  // namespace rf
