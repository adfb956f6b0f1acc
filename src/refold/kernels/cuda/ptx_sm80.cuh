// Ptx for sm_80 and later: the instructions of the generic product, and what every kernel needs of
// shared memory and of the kernel before it.
//
// Layout: fragments of a warp as the instructions define them; lane l holds of a tile [8 rows, 16 bytes]
// that ldmatrix reads the four bytes 4 (l % 4) of row l / 4.
#pragma once
#include "elements.cuh"
#include "sync.cuh"

namespace rf {

RF_FN uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// --- copies to shared memory that the copying thread does not wait for -----------------------------
// 16 bytes, of which the first `bytes` are read and the others are zero.
RF_FN void cp_async(uint32_t to, const void* from, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
RF_FN void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most `Left` of this thread's committed groups are under way.
template <int Left> RF_FN void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}
RF_FN void store_shared_v4(uint32_t to, uint4 v) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// --- matrix products of one warp ---------------------------------------------------------------------
// Four tiles [8, 16 bytes]; lane l gives the address of row l % 8 of tile l / 8.
RF_FN void ldmatrix(uint32_t (&tile)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(tile[0]), "=r"(tile[1]), "=r"(tile[2]), "=r"(tile[3])
               : "r"(address)
               : "memory");
}

// d[16 x 8] += a[16 x 16] * b[8 x 16]^T: d[2 h + e] of lane l is row 8 h + l / 4, column 2 (l % 4) + e.
template <class T>
RF_FN void mma_sync(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (T::kBfloat)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace rf
