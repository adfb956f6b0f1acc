// Parallel: how work is shared out, and memory to work in.
//
// Work is cut into tasks whose borders depend on sizes alone, and what tasks leave merges in the
// order of tasks: results are the same bit for bit however many threads there are. Threads take the
// next task when they are free, so that one the machine holds up delays nobody. The pool is
// PyTorch's own: torch.set_num_threads holds.
#pragma once
#include <ATen/Parallel.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>

#include "lanes.h"

namespace rf {

constexpr long round_up(long n, long to) { return (n + to - 1) / to * to; }
constexpr long pieces(long n, long of) { return (n + of - 1) / of; }

// Runs f(task, per_thread) for every task; `per_thread` is what make() gives each thread before its first task.
template <class Make, class F> void run_tasks(long tasks, long threads, Make make, F f) {
  if (tasks <= 0) return;
  if (threads <= 1 || tasks == 1) {
    auto per_thread = make();
    for (long t = 0; t < tasks; t++) f(t, per_thread);
    return;
  }
  std::atomic<long> next{0};
  at::parallel_for(0, std::min(tasks, threads), 1, [&](long, long) {
    auto per_thread = make();
    for (long t = next++; t < tasks; t = next++) f(t, per_thread);
  });
}

// The same, where g(task, per_thread) for `after` more tasks needs all of f(task) to be done.
template <class F, class Make, class G>
void run_tasks(long before, F f, long after, long threads, Make make, G g) {
  if (threads <= 1) {
    for (long t = 0; t < before; t++) f(t);
    return run_tasks(after, 1, make, g);
  }
  std::atomic<long> next{0}, done{0}, next_after{0};
  at::parallel_for(0, threads, 1, [&](long, long) {
    for (long t = next++; t < before; t = next++) f(t), done++;
    auto per_thread = make();
    // two regions would cost twice the time that threads take to start and to meet
    for (long spins = 0; done < before; spins++)
      if (spins > 1000) std::this_thread::yield();
    for (long t = next_after++; t < after; t = next_after++) g(t, per_thread);
  });
}

// Numbers to work in: aligned to cache lines; large ones to huge pages, which spares page faults and
// the TLB.
struct Freed {
  void operator()(Real* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<Real[], Freed>;
inline Buffer buffer(long count) {
  constexpr size_t kHuge = size_t{2} << 20;
  const size_t bytes = static_cast<size_t>(std::max(count, 1L)) * sizeof(Real);
  const size_t align = bytes >= 2 * kHuge ? kHuge : 64;
  const size_t size = (bytes + align - 1) / align * align;
  void* p = std::aligned_alloc(align, size);
  if (p == nullptr) throw std::bad_alloc();
#if defined(MADV_HUGEPAGE)
  if (align == kHuge) madvise(p, size, MADV_HUGEPAGE);
#endif
  return Buffer(static_cast<Real*>(p));
}

}  // namespace rf
