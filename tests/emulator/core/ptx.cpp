// The instructions that wait, read shared memory or begin what is done later: ptx.h declares them.
#include "machine.h"

namespace emulator {

// Of memory that other threads write: who asks in vain lets them run.
void acquire(unsigned& to, const unsigned* p) {
  machine().scheduler.spin();
  to = *p;
}
template <class T> static T* shared(uint32_t address, size_t bytes = sizeof(T)) {
  return reinterpret_cast<T*>(shared_bytes(*self().block, address, bytes));
}
void load_shared(float& x, float& y, float& z, float& w, uint32_t from) {
  const auto* v = shared<float>(from, 16);
  x = v[0], y = v[1], z = v[2], w = v[3];
}
void store_shared(uint32_t to, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  const uint32_t words[4] = {x, y, z, w};
  std::memcpy(shared<uint32_t>(to, 16), words, 16);
}

void store_shared_word(uint32_t to, uint32_t word) { *shared<uint32_t>(to) = word; }

// --- groups of work that a thread begins and waits for -------------------------------------------------
void commit(std::deque<std::vector<Later>>& groups) { groups.emplace_back(); }
void wait_for_group(std::deque<std::vector<Later>>& groups, size_t left) {
  while (groups.size() > left + 1) {
    for (const Later& work : groups.front()) work();
    groups.pop_front();
  }
}
void copy_async(uint32_t to, const void* from, int bytes) {
  auto* there = shared<unsigned char>(to, 16);
  if (reinterpret_cast<uintptr_t>(from) % 16 || bytes < 0 || bytes > 16) fail("cp.async of %d bytes from %p", bytes, from);
  std::memset(there, 0xff, 16);
  self().copies.back().push_back([=] {
    std::memset(there, 0, 16);
    std::memcpy(there, from, bytes);
  });
}
void copy_word_async(uint32_t to, const float* from, int bytes) {
  auto* there = shared<unsigned char>(to, 4);
  if (reinterpret_cast<uintptr_t>(from) % 4 || (bytes != 0 && bytes != 4)) fail("cp.async of %d bytes from %p", bytes, from);
  std::memset(there, 0xff, 4);
  self().copies.back().push_back([=] {
    std::memset(there, 0, 4);
    std::memcpy(there, from, bytes);
  });
}
void copy_commit() { commit(self().copies); }
void copy_wait(int left) { wait_for_group(self().copies, left); }

// --- barriers in shared memory -------------------------------------------------------------------------
struct PhaseBarrier {
  int16_t left, arrivals;  // of this phase, of every one
  int32_t bytes;           // still to come, times two; lowest bit: the phase's parity
};
static_assert(sizeof(PhaseBarrier) == 8);
void end_phase(Block& block, PhaseBarrier& b) {
  if (b.left != 0 || b.bytes >> 1 != 0) return;
  b.left = b.arrivals;
  b.bytes ^= 1;
  machine().scheduler.wake(block.phases);
}
Block& block_of(uint32_t address) {
  Block& own = *self().block;
  const uint32_t rank = address >> kRankShift;
  return rank ? *own.cluster->blocks.at(rank - 1) : own;
}
void barrier_init(uint32_t at, uint32_t arrivals) {
  *shared<PhaseBarrier>(at) = {int16_t(arrivals), int16_t(arrivals), 0};
}
void barrier_arrive(uint32_t at) {
  auto* b = shared<PhaseBarrier>(at);
  if (--b->left < 0) fail("one arrival more than the barrier at %x waits for", at);
  end_phase(block_of(at), *b);
}
void barrier_expect(uint32_t at, uint32_t bytes) {
  shared<PhaseBarrier>(at)->bytes += 2 * static_cast<int>(bytes);
  barrier_arrive(at);
}
void barrier_wait(uint32_t at, uint32_t parity) {
  const auto* b = shared<PhaseBarrier>(at);
  while ((b->bytes & 1u) == (parity & 1u)) machine().scheduler.wait(self().block->phases, "a phase");
}
void map_shared(uint32_t& to, uint32_t address, uint32_t rank) {
  if (rank >= self().block->cluster->blocks.size()) fail("there is no block %u in the cluster", rank);
  to = (rank + 1) << kRankShift | (address & ((1u << kRankShift) - 1));
}

// --- the copy engine -----------------------------------------------------------------------------------
// Pieces of 16 bytes of a row of 128 bytes are permuted by the row of 128 bytes in shared memory.
uint32_t swizzled(uint32_t offset) { return offset ^ (offset >> 7 & 7) << 4; }
void copy_box(const TensorMap map, Block& block, uint32_t to, long x, long y, uint32_t barrier) {
  unsigned char* there = shared_bytes(block, to, 16);
  auto* b = reinterpret_cast<PhaseBarrier*>(shared_bytes(block, barrier, 8));
  if (to % 1024) fail("a tile at shared address %x, not a multiple of 1024", to);
  if (to + map.box * 128 > kSharedBytes) fail("a tile at shared address %x ends outside", to);
  std::memset(there, 0xff, map.box * 128);
  machine().copies.push_back([=, &block] {
    const long wide = 128 / map.bytes;
    for (long r = 0; r < map.box; r++)
      for (long c = 0; c < wide; c++) {
        unsigned char* element = block.shared + swizzled(uint32_t(to + r * 128 + c * map.bytes));
        const bool inside = y + r >= 0 && y + r < map.rows && x + c >= 0 && x + c < map.columns;
        if (inside) std::memcpy(element, map.base + (y + r) * map.stride + (x + c) * map.bytes, map.bytes);
        else std::memset(element, 0, map.bytes);
      }
    b->bytes -= 2 * 128 * static_cast<int>(map.box);
    end_phase(block, *b);
  });
}
void copy_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  Block& block = *self().block;
  unsigned char* there = shared_bytes(block, to, 16);
  auto* b = reinterpret_cast<PhaseBarrier*>(shared_bytes(block, barrier, 8));
  if (to % 16 || reinterpret_cast<uintptr_t>(from) % 16 || bytes % 16 || bytes == 0)
    fail("a copy of %u bytes to %x, not of multiples of 16", bytes, to);
  if (to + bytes > kSharedBytes) fail("a copy to shared address %x ends outside", to);
  std::memset(there, 0xff, bytes);
  machine().copies.push_back([=, &block] {
    std::memcpy(there, from, bytes);
    b->bytes -= 2 * static_cast<int>(bytes);
    end_phase(block, *b);
  });
}
void store_bytes(void* to, uint32_t from, uint32_t bytes) {
  const auto* there = shared<unsigned char>(from, 16);
  if (from % 16 || reinterpret_cast<uintptr_t>(to) % 16 || bytes % 16 || bytes == 0)
    fail("a copy of %u bytes from %x, not of multiples of 16", bytes, from);
  if (from + bytes > kSharedBytes) fail("a copy from shared address %x begins outside", from);
  self().stores.back().push_back([=] { std::memcpy(to, there, bytes); });
}
void bulk_commit() { commit(self().stores); }
void bulk_wait(int left) { wait_for_group(self().stores, left); }
void copy_tile(uint32_t to, const TensorMap* map, uint32_t barrier, int x, int y) {
  copy_box(*map, *self().block, to, x, y, barrier);
}
void copy_tile_to_all(uint32_t to, const TensorMap* map, uint32_t barrier, int x, int y, uint16_t ranks) {
  auto& blocks = self().block->cluster->blocks;
  for (size_t r = 0; r < blocks.size(); r++)
    if (ranks >> r & 1) copy_box(*map, *blocks[r], to, x, y, barrier);
}

// All lanes of a warp come to these together.
void aligned_warp(const char* what) {
  const uint32_t none = 0;
  exchange(what, ~0u, &none, 1);
}

// The driver's: a map of a matrix for the copy engine.
CUresult encode(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* base, const cuuint64_t* sizes,
                const cuuint64_t* strides, const cuuint32_t* boxes, const cuuint32_t* steps,
                CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const unsigned bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? 4 : 2;
  if (rank != 2 || reinterpret_cast<uintptr_t>(base) % 16 || strides[0] % 16 || boxes[0] * bytes != 128 ||
      boxes[1] > 256 || steps[0] != 1 || steps[1] != 1 || sizes[0] == 0 || sizes[1] == 0)
    return CUDA_ERROR_INVALID_VALUE;
  *map = {static_cast<const unsigned char*>(base), long(sizes[0]), long(sizes[1]), long(strides[0]), bytes, boxes[1]};
  return CUDA_SUCCESS;
}

// --- products ------------------------------------------------------------------------------------------
// Sums of 16 exact products and what came before, rounded toward zero, as tensor cores do. (Those of an A100 do so after
// eight; how products are aligned is not imitated.)
using Eight = double __attribute__((vector_size(64)));
struct Sixteen { Eight half[2]; };  // elements along k
using EightWords = uint16_t __attribute__((vector_size(16)));
template <bool Bfloat> Eight widened(const uint16_t* from) {
  EightWords bits;
  std::memcpy(&bits, from, 16);
  if constexpr (Bfloat) {
    using Wide = uint32_t __attribute__((vector_size(32)));
    using Floats = float __attribute__((vector_size(32)));
    return __builtin_convertvector((Floats)(__builtin_convertvector(bits, Wide) << 16), Eight);
  } else {
    using Halves = _Float16 __attribute__((vector_size(16)));
    return __builtin_convertvector((Halves)bits, Eight);
  }
}
float dot(const Sixteen& a, const Sixteen& b, float sum) {
  const Eight p = a.half[0] * b.half[0] + a.half[1] * b.half[1];
  const double exact = ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7])) + double(sum);
  const float nearest = static_cast<float>(exact);
  return std::abs(double(nearest)) > std::abs(exact) ? std::nextafter(nearest, 0.0f) : nearest;
}

// A row of a tile that begins where its descriptor says: swizzled rows of 128 bytes, or, of no swizzle, core matrices
// of eight rows of 16 bytes, whose distances along k and along rows the descriptor has.
template <bool Bfloat> Sixteen tile_row(const Block& block, uint64_t descriptor, int row) {
  if (descriptor >> 62 == 0) {
    const auto field = [&](int bit) { return uint32_t(descriptor >> bit & 0x3fff) << 4; };
    const uint32_t first = field(0) + row / 8 * field(32) + row % 8 * 16, second = first + field(16);
    if (first + 16 > kSharedBytes || second + 16 > kSharedBytes) fail("a row of a tile at %x is outside", second);
    const auto eight = [&](uint32_t at) { return widened<Bfloat>(reinterpret_cast<uint16_t*>(block.shared + at)); };
    return {{eight(first), eight(second)}};
  }
  const uint32_t start = uint32_t(descriptor & 0x3fff) << 4, at = start + row / 8 * 1024 + row % 8 * 128;
  const auto piece = [&](uint32_t offset) {
    return widened<Bfloat>(reinterpret_cast<uint16_t*>(block.shared + swizzled(offset)));
  };
  return {{piece(at), piece(at + 16)}};
}

// A column of such a tile, of 16 rows.
template <bool Bfloat> Sixteen tile_column(const Block& block, uint64_t descriptor, int column) {
  const uint32_t start = uint32_t(descriptor & 0x3fff) << 4;
  uint16_t bits[16];
  for (int k = 0; k < 16; k++)
    bits[k] = *reinterpret_cast<uint16_t*>(block.shared + swizzled(start + k * 128 + column / 8 * 16) + column % 8 * 2);
  return {{widened<Bfloat>(bits), widened<Bfloat>(bits + 8)}};
}

void check_descriptor(uint64_t descriptor) {
  if (descriptor >> 62 == 0) {  // without a swizzle
    if (descriptor >> 46 || (descriptor >> 32 & 0x3fff) == 0 || (descriptor >> 16 & 0x3fff) == 0)
      fail("a descriptor %016llx without distances", static_cast<unsigned long long>(descriptor));
    return;
  }
  if (descriptor >> 32 != 0x40000040 || (descriptor >> 16 & 0xffff) != 1)
    fail("a descriptor %016llx that is not of rows of 128 bytes", static_cast<unsigned long long>(descriptor));
}
// d: this lane's sums of a product [64 x 16] by [Columns x 16], done when the thread waits for it. rows: gives the
// lane's two rows of a then.
// Across: b's tile has its 16 rows of k as rows, of 64 columns, swizzled.
template <bool Bfloat, int Columns = 128, bool Across = false, class Rows>
void later_product(float* d, Rows rows, uint64_t b, bool add) {
  check_descriptor(b);
  static_assert(!Across || Columns == 64);
  if (Across && b >> 62 == 0) fail("a tile along columns without the swizzle%s", "");
  const Block& block = *self().block;
  const int lane = self().lane();
  self().products.back().push_back([=, &block] {
    const std::array<Sixteen, 2> a = rows();
    for (int j = 0; j < Columns / 8; j++)
      for (int e = 0; e < 2; e++) {
        const int place = 8 * j + 2 * (lane % 4) + e;
        const Sixteen column = Across ? tile_column<Bfloat>(block, b, place) : tile_row<Bfloat>(block, b, place);
        for (int h = 0; h < 2; h++) {
          float& to = d[4 * j + 2 * h + e];
          to = dot(a[h], column, add ? to : 0.0f);
        }
      }
  });
}
template <bool Bfloat, int Columns> void product(float* d, uint64_t a, uint64_t b, int add) {
  check_descriptor(a);
  const Thread& t = self();
  const Block& block = *t.block;
  const int row = t.index.x / 32 % 4 * 16 + t.lane() / 4;
  const auto rows = [=, &block] {
    return std::array<Sixteen, 2>{tile_row<Bfloat>(block, a, row), tile_row<Bfloat>(block, a, row + 8)};
  };
  later_product<Bfloat, Columns>(d, rows, b, add != 0);
}
// A row of which four lanes hold, each, words of k 2 q and 1 more, and again 8 further.
template <bool Bfloat> Sixteen row_of_lanes(const uint32_t (*all)[8], int first, int word, int step) {
  uint16_t bits[16];
  for (int q = 0; q < 4; q++)
    for (int s = 0; s < 2; s++) {
      const uint32_t two = all[first + q][word + step * s];
      bits[8 * s + 2 * q] = uint16_t(two), bits[8 * s + 2 * q + 1] = uint16_t(two >> 16);
    }
  return {{widened<Bfloat>(bits), widened<Bfloat>(bits + 8)}};
}
// Lanes hold a in registers: of rows l / 4 and 8 more.
template <bool Bfloat, int Columns, bool Across>
void of_registers(float* d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  const uint32_t mine[4] = {a0, a1, a2, a3};
  const auto* all = exchange("wgmma", ~0u, mine, 4);
  const int first = self().lane() / 4 * 4;
  const std::array<Sixteen, 2> a{row_of_lanes<Bfloat>(all, first, 0, 2), row_of_lanes<Bfloat>(all, first, 1, 2)};
  later_product<Bfloat, Columns, Across>(d, [=] { return a; }, b, add != 0);
}
template <bool Bfloat, int Columns>
void product_of_registers(float* d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  of_registers<Bfloat, Columns, false>(d, a0, a1, a2, a3, b, add);
}
template <bool Bfloat, int Columns>
void product_of_registers_across(float* d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint64_t b, int add) {
  of_registers<Bfloat, Columns, true>(d, a0, a1, a2, a3, b, add);
}
void product_fence() { aligned_warp("wgmma.fence"); }
void product_commit() {
  aligned_warp("wgmma.commit_group");
  commit(self().products);
}
void product_wait(int left) {
  aligned_warp("wgmma.wait_group");
  wait_for_group(self().products, left);
  aligned_warp("wgmma.wait_group");  // a product is done for all lanes at a time
}

// Four tiles of 8 rows of 16 bytes; lane l gives the address of row l % 8 of tile l / 8.
void load_tiles(uint32_t& t0, uint32_t& t1, uint32_t& t2, uint32_t& t3, uint32_t address) {
  const auto* all = exchange("ldmatrix", ~0u, &address, 1);
  const int lane = self().lane();
  uint32_t* to[4] = {&t0, &t1, &t2, &t3};
  for (int i = 0; i < 4; i++) *to[i] = shared<uint32_t>(all[8 * i + lane / 4][0], 16)[lane % 4];
  aligned_warp("ldmatrix");  // loaded for all lanes at a time
}
template <bool Bfloat>
void warp_product(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                  uint32_t b0, uint32_t b1) {
  const uint32_t mine[6] = {a0, a1, a2, a3, b0, b1};
  const auto* all = exchange("mma", ~0u, mine, 6);
  const int lane = self().lane();
  Sixteen a[2], b[2];
  for (int h = 0; h < 2; h++) a[h] = row_of_lanes<Bfloat>(all, lane / 4 * 4, h, 2);
  for (int e = 0; e < 2; e++) b[e] = row_of_lanes<Bfloat>(all, (2 * (lane % 4) + e) * 4, 4, 1);
  float* d[4] = {&d0, &d1, &d2, &d3};
  for (int h = 0; h < 2; h++)
    for (int e = 0; e < 2; e++) *d[2 * h + e] = dot(a[h], b[e], *d[2 * h + e]);
}

// Of each element the bits of TF32 count.
void warp_product_of_tf32(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2,
                                 uint32_t a3, uint32_t b0, uint32_t b1) {
  const uint32_t mine[6] = {a0, a1, a2, a3, b0, b1};
  const auto* all = exchange("mma", ~0u, mine, 6);
  const auto number = [&](int lane, int word) { return double(same_bits<float>(all[lane][word] & ~0x1fffu)); };
  const int lane = self().lane();
  float* d[4] = {&d0, &d1, &d2, &d3};
  for (int h = 0; h < 2; h++)
    for (int e = 0; e < 2; e++) {
      double sum = *d[2 * h + e];
      for (int k = 0; k < 8; k++)
        sum += number(lane / 4 * 4 + k % 4, h + k / 4 * 2) * number((2 * (lane % 4) + e) * 4 + k % 4, 4 + k / 4);
      *d[2 * h + e] = static_cast<float>(sum);
    }
}

void warp_product_of_tf32(float& d0, float& d1, float& d2, float& d3, uint32_t a0, uint32_t a1, uint32_t a2,
                                 uint32_t a3, uint32_t b0, uint32_t b1, float sum) {
  d0 = d1 = d2 = d3 = sum;
  warp_product_of_tf32(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1);
}

template void product<false>(float*, uint64_t, uint64_t, int);
template void product<true>(float*, uint64_t, uint64_t, int);
template void product<false, 64>(float*, uint64_t, uint64_t, int);
template void product<false, 40>(float*, uint64_t, uint64_t, int);
template void product_of_registers<false, 128>(float*, uint32_t, uint32_t, uint32_t, uint32_t, uint64_t, int);
template void product_of_registers<false, 64>(float*, uint32_t, uint32_t, uint32_t, uint32_t, uint64_t, int);
template void product_of_registers_across<false, 64>(float*, uint32_t, uint32_t, uint32_t, uint32_t, uint64_t, int);
template void warp_product<false>(float&, float&, float&, float&, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
                                  uint32_t);
template void warp_product<true>(float&, float&, float&, float&, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,
                                 uint32_t);

}  // namespace emulator
