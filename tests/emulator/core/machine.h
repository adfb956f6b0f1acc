// Emulator: grids of CUDA threads on the host, with what they share: blocks, warps, clusters, shared memory.
//
// What it checks by itself: accesses of vectors are aligned, lanes that a warp's exchange names are there, barriers are
// named with one number of threads, no thread waits for ever. Shared memory begins as NaN. What runs beside the
// threads on a GPU (copies to shared memory, products of four warps) happens here as late as it may, or at random: who
// does not wait for it reads what was there before.
#pragma once
#include <algorithm>
#include <array>
#include <cstdarg>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "cuda.h"
#include "cuda_runtime.h"
#include "fibers.h"

namespace emulator {

struct Index { unsigned x = 0, y = 0, z = 0; };
struct Block;
struct Cluster;

// An exchange of some lanes of a warp: what each has brought, twice, so that who is fast does not overwrite.
struct Exchange {
  uint32_t words[2][32][8];
  uint32_t arrived = 0;
  unsigned turn = 0;
  const char* what = nullptr;
  Waiting waiting;
};

struct Warp {
  uint32_t ended = 0;
  std::map<uint32_t, Exchange> exchanges;  // by the mask of their lanes
};

struct Barrier {
  int arrived = 0, threads = 0;
  Waiting waiting;
};

// Work that is begun in one place and done in another.
using Later = std::function<void()>;

struct Thread {
  Index index;
  Block* block = nullptr;
  Fiber fiber;
  // groups of copies, of stores by the copy engine, and of products, that this thread has begun; the last group is not yet
  // committed
  std::deque<std::vector<Later>> copies{1}, stores{1}, products{1};
  int lane() const { return index.x % 32; }
};

constexpr size_t kSharedBytes = 256 << 10;  // of a block; the kernel's own, from kDynamic on, and its variables'
constexpr size_t kMostIdle = 4096;          // threads that are kept, with their stacks, for the next grid
constexpr size_t kSideBySide = 6;           // clusters that run at a time, if nothing asks for more
constexpr size_t kDynamic = 16;

struct Block {
  Index index;
  Cluster* cluster = nullptr;
  unsigned rank = 0;  // in the cluster
  std::vector<std::unique_ptr<Thread>> threads;
  std::vector<Warp> warps;
  std::array<Barrier, 16> barriers;
  Waiting phases;  // for a phase of any barrier in shared memory to end
  int alive = 0;
  unsigned char* shared = nullptr;
  size_t variables = kSharedBytes;  // where the last one begins
  std::map<const void*, void*> variable;

  Block() { shared = static_cast<unsigned char*>(std::aligned_alloc(1024, kSharedBytes)); }
  ~Block() { std::free(shared); }
  Block(const Block&) = delete;
};

struct Cluster {
  std::vector<Block*> blocks;
  Barrier barrier;
  int alive() const {
    int threads = 0;
    for (const Block* b : blocks) threads += b->alive;
    return threads;
  }
};

// What the host has asked for; one grid at a time.
struct Machine {
  Scheduler scheduler;
  Index grid, block_size;
  std::vector<Later> copies;  // of the copy engine, not yet done
  std::vector<std::unique_ptr<Thread>> idle;
  uint64_t random = 88172645463325252u;
  std::string error;  // of the last launch
  unsigned launches = 0;
};
inline Machine& machine() {
  static Machine it;
  return it;
}
inline Thread& self() { return *static_cast<Thread*>(machine().scheduler.current->data); }

constexpr int kRankShift = 20;  // of an address in shared memory: where the block's number begins
inline unsigned char* shared_bytes(const Block& own, uint32_t address, size_t bytes) {
  const uint32_t rank = address >> kRankShift, offset = address & ((1u << kRankShift) - 1);
  if (rank > own.cluster->blocks.size() || offset + bytes > kSharedBytes) fail("shared address %x is outside", address);
  if (offset % std::min<size_t>(bytes, 16)) fail("shared address %x is not aligned by %zu bytes", address, bytes);
  return (rank ? own.cluster->blocks[rank - 1]->shared : own.shared) + offset;
}
inline uint32_t draw() {
  uint64_t& random = machine().random;
  random = random * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(random >> 33);
}

}  // namespace emulator
