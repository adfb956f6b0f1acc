// Parallel: how work is shared out, and memory to work in.
//
// Work is cut into tasks whose borders depend on sizes alone, and what tasks leave merges in the
// order of tasks: results are the same bit for bit however many threads there are. Threads take the
// next task when they are free, so that one the machine holds up delays nobody. The pool is
// PyTorch's own: torch.set_num_threads holds.
#pragma once
#include <ATen/Config.h>
#include <sched.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>

#include "lanes.h"

#if AT_PARALLEL_OPENMP && defined(_OPENMP)
#include <omp.h>
namespace at {
int get_num_threads();  // what libtorch_cpu exports. Its header takes the compiler as long as many kernels
bool in_parallel_region();
}  // namespace at

namespace rf {

// Runs run(of, from, to) for shares of [begin, end), as at::parallel_for has it: each share is of at least `grain`, the
// last aside; what a share throws comes here when all are done.
[[gnu::noinline, gnu::noclone]] inline void run_shares(long begin, long end, long grain, const void* of,
                                         void (*run)(const void*, long, long)) {
  const long count = end - begin;
  if (count <= 0) return;
  if (count <= grain || count == 1 || at::in_parallel_region() || at::get_num_threads() <= 1) return run(of, begin, end);
  std::atomic_flag failed = ATOMIC_FLAG_INIT;
  std::exception_ptr thrown;
#pragma omp parallel
  {
    const long most = omp_get_num_threads();  // as many as there are: asked for fewer, the pool is made anew
    const long shares = grain > 0 ? std::min(most, (count + grain - 1) / grain) : most;
    const long share = (count + shares - 1) / shares, from = begin + omp_get_thread_num() * share;
    if (from < end) {
      try {
        run(of, from, std::min(end, from + share));
      } catch (...) {
        if (!failed.test_and_set()) thrown = std::current_exception();
      }
    }
  }
  if (thrown) std::rethrow_exception(thrown);
}

}  // namespace rf
#else
#include <ATen/Parallel.h>
namespace rf {

[[gnu::noinline, gnu::noclone]] inline void run_shares(long begin, long end, long grain, const void* of,
                                         void (*run)(const void*, long, long)) {
  at::parallel_for(begin, end, grain, [&](long from, long to) { run(of, from, to); });
}

}  // namespace rf
#endif

namespace rf {

// Runs f(from, to) for shares. f is called by its address: what runs it is compiled once for all kernels.
template <class F> void parallel_for(long begin, long end, long grain, const F& f) {
  run_shares(begin, end, grain, &f, [](const void* of, long from, long to) { (*static_cast<const F*>(of))(from, to); });
}

constexpr long round_up(long n, long to) { return (n + to - 1) / to * to; }
constexpr long pieces(long n, long of) { return (n + of - 1) / of; }

// Runs f(task, per_thread) for every task; `per_thread` is what make() gives each thread before its first task.
template <class Make, class F> void run_tasks(long tasks, long threads, Make make, F f) {
  std::atomic<long> next{0};
  parallel_for(0, std::min(tasks, std::max(threads, 1L)), 1, [&](long, long) {
    auto per_thread = make();
    for (long t = next++; t < tasks; t = next++) f(t, per_thread);
  });
}

// The same, where g(task, per_thread) for `after` more tasks needs all of f(task) to be done.
template <class F, class Make, class G>
void run_tasks(long before, F f, long after, long threads, Make make, G g) {
  std::atomic<long> next{0}, done{0}, next_after{0};
  parallel_for(0, std::max(threads, 1L), 1, [&](long, long) {
    for (long t = next++; t < before; t = next++) f(t), done++;
    auto per_thread = make();
    // two regions would cost twice the time that threads take to start and to meet
    for (long spins = 0; done < before; spins++)
      if (spins > 1000) sched_yield();
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
