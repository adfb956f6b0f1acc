// Threads, blocks and grids: what the emulator's own header declares.
#include "machine.h"

extern "C" {
long emulator_launches = 0;  // for tests that count them
}

namespace emulator {

unsigned thread_x() { return self().index.x; }
unsigned block_x() { return self().block->index.x; }
unsigned threads_x() { return machine().block_size.x; }
unsigned blocks_x() { return machine().grid.x; }
int lane() { return self().lane(); }
void fail(const char* format, ...) {
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
void arrive(Barrier& b, int threads, bool wait) {
  if (b.arrived > 0 && b.threads != threads) fail("a barrier of %d threads is met by one of %d", threads, b.threads);
  b.threads = threads;
  if (++b.arrived == threads) {
    b.arrived = 0;
    machine().scheduler.wake(b.waiting);
  } else if (wait) {
    machine().scheduler.wait(b.waiting, "a barrier");
  }
}
void bar_sync(int number, int threads) { arrive(self().block->barriers.at(number), threads, true); }
void bar_arrive(int number, int threads) { arrive(self().block->barriers.at(number), threads, false); }
void sync_threads() { bar_sync(0, static_cast<int>(machine().block_size.x)); }
void cluster_sync() { arrive(self().block->cluster->barrier, self().block->cluster->alive(), true); }

// What the lanes of `mask` bring to an exchange; [lane][word].
const uint32_t (*exchange(const char* what, uint32_t mask, const uint32_t* words, int count))[8] {
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
uint32_t shared_address(const void* p) {
  const Block& b = *self().block;
  const auto* at = static_cast<const unsigned char*>(p);
  if (at < b.shared || at >= b.shared + kSharedBytes) fail("not an address of this block's shared memory");
  return static_cast<uint32_t>(at - b.shared);
}
unsigned char* shared_bytes(uint32_t address, size_t bytes) { return shared_bytes(*self().block, address, bytes); }
unsigned char* dynamic_shared() { return self().block->shared + kDynamic; }
void* variable_of(const void* key, size_t bytes) {
  Block& b = *self().block;
  void*& at = b.variable[key];
  if (at == nullptr) {
    b.variables = (b.variables - bytes) / 16 * 16;
    at = b.shared + b.variables;
  }
  return at;
}

// --- a grid ------------------------------------------------------------------------------------------
std::unique_ptr<Thread> take_thread() {
  auto& idle = machine().idle;
  if (idle.empty()) return std::make_unique<Thread>();
  auto t = std::move(idle.back());
  idle.pop_back();
  t->copies.assign(1, {}), t->stores.assign(1, {}), t->products.assign(1, {});
  return t;
}

void end_of_thread() {
  Thread& t = self();
  Block& b = *t.block;
  for (auto& group : t.copies)
    for (auto& copy : group) copy();
  for (const auto& group : t.products)
    if (!group.empty()) fail("the thread ends with products under way");
  for (const auto& group : t.stores)
    if (!group.empty()) fail("the thread ends with stores of the copy engine under way, whose shared memory ends with its block");
  Warp& warp = b.warps[t.index.x / 32];
  warp.ended |= 1u << t.lane();
  for (const auto& [mask, e] : warp.exchanges)
    if (e.arrived && mask >> t.lane() & 1) fail("the thread ends while its warp waits for it (%s)", e.what);
  b.alive--;
}

// Some clusters of a grid at once: the blocks of each follow one another.
bool run_clusters(const std::vector<unsigned>& which, unsigned cluster_size, const std::function<void()>& run) {
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

bool run_grid(unsigned blocks, unsigned threads, unsigned cluster, bool together, const std::function<void()>& run) {
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

int processors() {
  const char* processors = std::getenv("EMULATOR_PROCESSORS");
  return processors ? std::atoi(processors) : 132;
}
static std::mutex one_stream;
bool launch(const cudaLaunchConfig_t& config, void (*run)(const void*), const void* kernel) {
  // one kernel at a time, as in one stream; between two, another thread's may come
  std::this_thread::yield();
  const std::lock_guard<std::mutex> alone(one_stream);
  emulator_launches++;
  bool together = false;
  unsigned cluster = 1;
  for (unsigned i = 0; i < config.numAttrs; i++) {
    if (config.attrs[i].id == cudaLaunchAttributeCooperative) together = config.attrs[i].val.cooperative;
    if (config.attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = config.attrs[i].val.clusterDim.x;
  }
  Machine& m = machine();
  const char* wrong = config.gridDim.x % cluster ? "clusters do not divide the grid"
                      : together && config.gridDim.x > unsigned(processors()) ? "more blocks together than processors"
                      : config.dynamicSmemBytes > kMostDynamic ? "more shared memory than a block can have"
                      : config.blockDim.x > 1024 || config.gridDim.x == 0 ? "no such grid" : nullptr;
  if (wrong) return m.error = wrong, false;
  return run_grid(config.gridDim.x, config.blockDim.x, cluster, together, [=] { run(kernel); });
}
const char* error() { return machine().error.c_str(); }

}  // namespace emulator
