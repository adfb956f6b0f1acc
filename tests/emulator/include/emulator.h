// Emulator: grids of CUDA threads on the host, with what they share: blocks, warps, clusters, shared memory.
//
// What it checks by itself: accesses of vectors are aligned, lanes that a warp's exchange names are there, barriers are
// named with one number of threads, no thread waits for ever. Shared memory begins as NaN. What runs beside the
// threads on a GPU (copies to shared memory, products of four warps) happens here as late as it may, or at random: who
// does not wait for it reads what was there before.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

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
  // groups of copies, and of products, that this thread has begun; the last group is not yet committed
  std::deque<std::vector<Later>> copies{1}, products{1};
  int lane() const { return index.x % 32; }
};

constexpr size_t kSharedBytes = 256 << 10;  // of a block; the kernel's own, from kDynamic on, and its variables'
constexpr size_t kMostIdle = 4096;          // threads that are kept, with their stacks, for the next grid
constexpr size_t kSideBySide = 6;           // clusters that run at a time, if nothing asks for more
constexpr size_t kDynamic = 16, kMostDynamic = 232448;

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
[[noreturn]] inline void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
inline void fail(const char* format, ...) {
  char text[300], place[120];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  const Thread& t = self();
  std::snprintf(place, sizeof place, "block %u, thread %u: ", t.block->index.x, t.index.x);
  machine().scheduler.fail(std::string(place) + text);
}

// --- waiting -----------------------------------------------------------------------------------------
inline void arrive(Barrier& b, int threads, bool wait) {
  if (b.arrived > 0 && b.threads != threads) fail("a barrier of %d threads is met by one of %d", threads, b.threads);
  b.threads = threads;
  if (++b.arrived == threads) {
    b.arrived = 0;
    machine().scheduler.wake(b.waiting);
  } else if (wait) {
    machine().scheduler.wait(b.waiting, "a barrier");
  }
}
inline void bar_sync(int number, int threads) { arrive(self().block->barriers.at(number), threads, true); }
inline void bar_arrive(int number, int threads) { arrive(self().block->barriers.at(number), threads, false); }
inline void sync_threads() { bar_sync(0, static_cast<int>(machine().block_size.x)); }
inline void cluster_sync() { arrive(self().block->cluster->barrier, self().block->cluster->alive(), true); }

// What the lanes of `mask` bring to an exchange; [lane][word].
inline const uint32_t (*exchange(const char* what, uint32_t mask, const uint32_t* words, int count))[8] {
  Thread& t = self();
  Warp& warp = t.block->warps[t.index.x / 32];
  const uint32_t mine = 1u << t.lane();
  if (!(mask & mine)) fail("%s: lane %d is not of its own mask %08x", what, t.lane(), mask);
  if (mask & warp.ended) fail("%s: lanes %08x have ended", what, mask & warp.ended);
  Exchange& e = warp.exchanges[mask];
  if (e.arrived && std::strcmp(e.what, what) != 0) fail("%s meets %s", what, e.what);
  e.what = what;
  const unsigned turn = e.turn;
  auto* to = e.words[turn % 2];
  std::copy(words, words + count, to[t.lane()]);
  e.arrived |= mine;
  if (e.arrived == mask) {
    e.arrived = 0, e.turn++;
    machine().scheduler.wake(e.waiting);
  } else {
    machine().scheduler.wait(e.waiting, what);
  }
  return to;
}

// --- shared memory -----------------------------------------------------------------------------------
// Addresses of 32 bits: an offset, and above it the number of the cluster's block plus one (0: one's own).
constexpr int kRankShift = 20;
inline uint32_t shared_address(const void* p) {
  const Block& b = *self().block;
  const auto* at = static_cast<const unsigned char*>(p);
  if (at < b.shared || at >= b.shared + kSharedBytes) fail("not an address of this block's shared memory");
  return static_cast<uint32_t>(at - b.shared);
}
inline unsigned char* shared_bytes(const Block& own, uint32_t address, size_t bytes) {
  const uint32_t rank = address >> kRankShift, offset = address & ((1u << kRankShift) - 1);
  if (rank > own.cluster->blocks.size() || offset + bytes > kSharedBytes) fail("shared address %x is outside", address);
  if (offset % std::min<size_t>(bytes, 16)) fail("shared address %x is not aligned by %zu bytes", address, bytes);
  return (rank ? own.cluster->blocks[rank - 1]->shared : own.shared) + offset;
}
template <class T, class Site> T& shared_variable(Site) {
  static const char key = 0;
  Block& b = *self().block;
  void*& at = b.variable[&key];
  if (at == nullptr) {
    b.variables = (b.variables - sizeof(T)) / 16 * 16;
    at = b.shared + b.variables;
  }
  return *static_cast<T*>(at);
}
inline unsigned char* dynamic_shared() { return self().block->shared + kDynamic; }

// --- a grid ------------------------------------------------------------------------------------------
inline std::unique_ptr<Thread> take_thread() {
  auto& idle = machine().idle;
  if (idle.empty()) return std::make_unique<Thread>();
  auto t = std::move(idle.back());
  idle.pop_back();
  t->copies.assign(1, {}), t->products.assign(1, {});
  return t;
}

inline void end_of_thread() {
  Thread& t = self();
  Block& b = *t.block;
  for (auto& group : t.copies)
    for (auto& copy : group) copy();
  for (const auto& group : t.products)
    if (!group.empty()) fail("the thread ends with products under way");
  Warp& warp = b.warps[t.index.x / 32];
  warp.ended |= 1u << t.lane();
  for (const auto& [mask, e] : warp.exchanges)
    if (e.arrived && mask >> t.lane() & 1) fail("the thread ends while its warp waits for it (%s)", e.what);
  b.alive--;
}

inline uint32_t draw() {
  uint64_t& random = machine().random;
  random = random * 6364136223846793005u + 1442695040888963407u;
  return static_cast<uint32_t>(random >> 33);
}

// Some clusters of a grid at once: the blocks of each follow one another.
template <class Run> bool run_clusters(const std::vector<unsigned>& which, unsigned cluster_size, const Run& run) {
  Machine& m = machine();
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<Cluster>> clusters;
  m.copies.clear();
  for (unsigned i = 0; i < which.size() * cluster_size; i++) {
    auto b = std::make_unique<Block>();
    b->index.x = which[i / cluster_size] * cluster_size + i % cluster_size;
    std::memset(b->shared, 0xff, kSharedBytes);
    if (i % cluster_size == 0) clusters.push_back(std::make_unique<Cluster>());
    b->cluster = clusters.back().get(), b->rank = i % cluster_size;
    b->cluster->blocks.push_back(b.get());
    b->warps.resize((m.block_size.x + 31) / 32);
    b->alive = static_cast<int>(m.block_size.x);
    for (unsigned t = 0; t < m.block_size.x; t++) {
      auto thread = take_thread();
      thread->index.x = t, thread->block = b.get(), thread->fiber.data = thread.get();
      if (t / 32 == m.block_size.x / 32) b->warps[t / 32].ended = ~0u << m.block_size.x % 32;
      thread->fiber.run = [&run] { run(), end_of_thread(); };
      m.scheduler.start(thread->fiber);
      b->threads.push_back(std::move(thread));
    }
    blocks.push_back(std::move(b));
  }
  m.scheduler.advance = [&m] {
    if (m.copies.empty()) return false;
    std::swap(m.copies[draw() % m.copies.size()], m.copies.back());
    const Later copy = std::move(m.copies.back());
    m.copies.pop_back();
    copy();
    return true;
  };
  const bool well = m.scheduler.run();
  for (auto& b : blocks)
    for (auto& t : b->threads)
      if (m.idle.size() < kMostIdle) m.idle.push_back(std::move(t));
  return well;
}

template <class Run> bool run_grid(unsigned blocks, unsigned threads, unsigned cluster, bool together, const Run& run) {
  Machine& m = machine();
  m.grid.x = blocks, m.block_size.x = threads;
  m.scheduler.failure.clear();
  m.launches++;
  // Those that need not be together come in any order, some side by side.
  std::vector<unsigned> order(blocks / cluster);
  for (unsigned i = 0; i < order.size(); i++) order[i] = i;
  for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[draw() % i]);
  const size_t at_once = together ? order.size() : kSideBySide;
  for (size_t first = 0; first < order.size(); first += at_once) {
    const auto begin = order.begin() + first, end = first + at_once < order.size() ? begin + at_once : order.end();
    if (!run_clusters({begin, end}, cluster, run)) {
      m.error = m.scheduler.failure;
      return false;
    }
  }
  return true;
}

}  // namespace emulator
