// The instructions of PTX that kernels here use, one function each; translate.py says which is which. What takes part in
// waiting and in shared memory is in ../core/ptx.cpp.
#pragma once
#include "emulator.h"

namespace emulator {

struct TensorMap {
  const unsigned char* base;
  long columns, rows, stride;  // elements, elements, bytes
  unsigned bytes, box;         // of an element; rows of a box
};

// --- numbers -----------------------------------------------------------------------------------------
inline float float_of_half(uint16_t bits) { return static_cast<float>(same_bits<_Float16>(bits)); }
inline uint16_t half_of(float x) { return same_bits<uint16_t>(static_cast<_Float16>(x)); }
inline float float_of_bfloat(uint16_t bits) { return same_bits<float>(uint32_t(bits) << 16); }
inline uint16_t bfloat_of(float x) {
  const uint32_t bits = same_bits<uint32_t>(x);
  if (x != x) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
inline void max_or_nan(float& to, float a, float b) { to = a != a || b != b ? NAN : a > b ? a : b; }
inline void min_or_nan(float& to, float a, float b) { to = a != a || b != b ? NAN : a < b ? a : b; }
inline void reciprocal(float& to, float x) { to = 1.0f / x; }
inline void power_of_two_of(float& to, float x) { to = exp2f(x); }
inline void half_pair(uint32_t& to, float upper, float lower) { to = uint32_t(half_of(upper)) << 16 | half_of(lower); }
inline void bfloat_pair(uint32_t& to, float upper, float lower) {
  to = uint32_t(bfloat_of(upper)) << 16 | bfloat_of(lower);
}
inline void floats_of_halves(float& lower, float& upper, uint32_t two) {
  lower = float_of_half(uint16_t(two)), upper = float_of_half(uint16_t(two >> 16));
}
inline void split_pair(uint32_t& hi, uint32_t& lo, float x, float y, float scale) {
  x *= scale, y *= scale;
  half_pair(hi, y, x);
  half_pair(lo, y - float_of_half(uint16_t(hi >> 16)), x - float_of_half(uint16_t(hi)));
}

// Ten bits, to nearest, ties away from zero.
inline void nearest_tf32(uint32_t& to, float x) {
  const uint32_t bits = same_bits<uint32_t>(x);
  to = x != x ? 0x7fffffff : (bits & 0x7fffffff) >= 0x7f800000 ? bits : (bits + 0x1000) & ~0x1fffu;
}

// --- memory ------------------------------------------------------------------------------------------
template <class V, class P, class... Words> void store(P* p, Words... words) {
  *aligned(reinterpret_cast<V*>(p)) = V{words...};
}
inline void load_float4(float& x, float& y, float& z, float& w, const float* p) {
  const float4 v = *aligned(reinterpret_cast<const float4*>(p));
  x = v.x, y = v.y, z = v.z, w = v.w;
}
inline void load_float(float& x, const float* p) { x = *aligned(p); }
inline void load_uint2(uint32_t& x, uint32_t& y, const void* p) {
  const uint2 v = *aligned(static_cast<const uint2*>(p));
  x = v.x, y = v.y;
}
// Of memory that other threads write: who asks in vain lets them run.
void acquire(unsigned& to, const unsigned* p);
void load_shared(float& x, float& y, float& z, float& w, uint32_t from);
void store_shared(uint32_t to, uint32_t x, uint32_t y, uint32_t z, uint32_t w);
void store_shared_word(uint32_t to, uint32_t word);

// --- groups of copies that a thread begins and waits for -----------------------------------------------
void copy_async(uint32_t to, const void* from, int bytes);
void copy_word_async(uint32_t to, const float* from, int bytes);
void copy_commit();
void copy_wait(int left);

// --- barriers in shared memory -------------------------------------------------------------------------
void barrier_init(uint32_t at, uint32_t arrivals);
void barrier_arrive(uint32_t at);
void barrier_expect(uint32_t at, uint32_t bytes);
void barrier_wait(uint32_t at, uint32_t parity);
void map_shared(uint32_t& to, uint32_t address, uint32_t rank);

// --- the copy engine -----------------------------------------------------------------------------------
void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier);
void store_bytes(void* to, uint32_t from, uint32_t bytes);  // from shared memory, as late as the thread lets it
void bulk_commit();
void bulk_wait(int left);
void copy_tile(uint32_t to, const TensorMap* map, uint32_t barrier, int x, int y);
void copy_tile_to_all(uint32_t to, const TensorMap* map, uint32_t barrier, int x, int y, uint16_t ranks);

// --- products ------------------------------------------------------------------------------------------
// d: this lane's sums of a product [64 x 16] by [Columns x 16], done when the thread waits for it.
template <bool Bfloat, int Columns = 128> void product(float* d, uint64_t a, uint64_t b, int add);
// Lanes hold a in registers: of rows l / 4 and 8 more.
template <bool Bfloat, int Columns>
void product_of_registers(float* d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add);
template <bool Bfloat, int Columns>
void product_of_registers_across(float* d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add);
void product_fence();
void product_commit();
void product_wait(int left);

// Four tiles of 8 rows of 16 bytes; lane l gives the address of row l % 8 of tile l / 8.
void load_tiles(uint32_t& t0, uint32_t& t1, uint32_t& t2, uint32_t& t3, uint32_t address);
template <bool Bfloat>
void warp_product(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                  uint32_t b0, uint32_t b1);
// Of each element the bits of TF32 count.
void warp_product_of_tf32(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2,
                          uint32_t a3, uint32_t b0, uint32_t b1);
void warp_product_of_tf32(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2,
                          uint32_t a3, uint32_t b0, uint32_t b1, float sum);

}  // namespace emulator
