// Fibers: the threads of a grid as coroutines of one thread of the host, one running at a time.
//
// Why: kernels wait for each other's threads (shuffles, barriers, copies), so each needs a stack of its own, and
// there are thousands. Who runs next is drawn at random: what holds only in one order fails here sooner.
#pragma once
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <utility>
#include <vector>

namespace emulator {

constexpr size_t kStack = 256 << 10;

struct Fiber {
  Fiber() = default;
  Fiber(const Fiber&) = delete;
  ~Fiber() {
    if (stack) munmap(stack, kStack);
  }
  std::jmp_buf place;
  char* stack = nullptr;
  bool started = false, ended = false;
  void* data = nullptr;  // what it runs, for whoever asks
  std::function<void()> run;
};

// Fibers that wait for one thing.
struct Waiting {
  const char* what = nullptr;
  std::vector<Fiber*> fibers;
};

class Scheduler {
 public:
  Fiber* current = nullptr;
  std::string failure;            // the first one's text, if anything failed
  std::function<bool()> advance;  // does a piece of what runs beside the threads (copies); false: there is none

  void start(Fiber& f) {
    if (f.stack == nullptr) f.stack = take_stack();
    *canary(f) = kCanary;
    f.started = f.ended = false;
    ready_.push_back(&f);
  }

  // Runs all that was started. False: something failed, or all wait for what nobody does.
  bool run() {
    spins_ = 0;
    while (failure.empty()) {
      if (ready_.empty() || draw() % 8 == 0) {
        if (advance && advance()) spins_ = 0;
        else if (ready_.empty()) break;
      }
      if (ready_.empty()) continue;
      const size_t i = draw() % ready_.size();
      Fiber* f = ready_[i];
      ready_[i] = ready_.back();
      ready_.pop_back();
      resume(*f);
      if (*canary(*f) != kCanary) std::abort();  // a stack has overflowed: nothing can be trusted any more
    }
    if (failure.empty()) failure = who_waits();
    const bool well = failure.empty();
    ready_.clear();
    waiting_.clear();
    return well;
  }

  // Of the running fiber: lets others run until it is woken.
  void wait(Waiting& w, const char* what) {
    w.fibers.push_back(current);
    w.what = what;
    waiting_for(what)++;
    leave();
  }
  void wake(Waiting& w) {
    spins_ = 0;
    if (w.fibers.empty()) return;
    waiting_for(w.what) -= static_cast<long>(w.fibers.size());
    ready_.insert(ready_.end(), w.fibers.begin(), w.fibers.end());
    w.fibers.clear();
  }
  // Of the running fiber, which looks again and again at memory that another one writes.
  void spin() {
    if (++spins_ > kMostSpins)
      fail(std::to_string(ready_.size() + 1) + " threads look for ever at memory that nobody writes, " + who_waits());
    ready_.push_back(current);
    leave();
  }
  [[noreturn]] void fail(const std::string& why) {
    if (failure.empty()) failure = why;
    std::longjmp(home_, 1);
  }

 private:
  static constexpr uint64_t kCanary = 0x5eed5eed5eed5eed;
  static constexpr long kMostSpins = 20'000'000;
  std::vector<Fiber*> ready_;
  std::jmp_buf home_;
  std::vector<std::pair<const char*, long>> waiting_;  // how many for what, which is one text of few
  long spins_ = 0;
  uint64_t random_ = seed();

  long& waiting_for(const char* what) {  // threads wait a million times: texts are compared by where they lie
    for (auto& [text, fibers] : waiting_)
      if (text == what) return fibers;
    return waiting_.emplace_back(what, 0).second;
  }
  std::string who_waits() const {
    std::map<std::string, long> all;
    for (const auto& [what, fibers] : waiting_) all[what] += fibers;
    std::string text;
    for (const auto& [what, fibers] : all)
      if (fibers > 0) text += (text.empty() ? "" : ", ") + std::to_string(fibers) + " threads wait for " + what;
    return text;
  }
  static uint64_t seed() {
    const char* text = std::getenv("EMULATOR_SEED");
    return 0x9e3779b97f4a7c15u * (text ? std::strtoull(text, nullptr, 10) + 1 : 1);
  }
  uint32_t draw() {  // xorshift
    random_ ^= random_ << 13, random_ ^= random_ >> 7, random_ ^= random_ << 17;
    return static_cast<uint32_t>(random_ >> 32);
  }
  static char* take_stack() {
    void* p = mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) std::abort();
    return static_cast<char*>(p);
  }
  static uint64_t* canary(Fiber& f) { return reinterpret_cast<uint64_t*>(f.stack); }

  __attribute__((noinline)) void leave() {
    if (setjmp(current->place) == 0) std::longjmp(home_, 1);
  }
  __attribute__((noinline)) void resume(Fiber& f) {
    current = &f;
    if (setjmp(home_) != 0) return;
    if (f.started) std::longjmp(f.place, 1);
    f.started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = f.stack, context.uc_stack.ss_size = kStack, context.uc_link = nullptr;
    const auto self = reinterpret_cast<uintptr_t>(this);
    makecontext(&context, reinterpret_cast<void (*)()>(&Scheduler::begin), 2, unsigned(self), unsigned(self >> 32));
    setcontext(&context);
  }
  static void begin(unsigned low, unsigned high) {
    auto& self = *reinterpret_cast<Scheduler*>(uintptr_t(high) << 32 | low);
    self.current->run();
    self.current->ended = true;
    std::longjmp(self.home_, 1);
  }
};

}  // namespace emulator
