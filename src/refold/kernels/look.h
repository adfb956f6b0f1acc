// Look: what a kernel on a GPU compares in passing, so that writes which nothing on the host shows are seen.
#pragma once
#include <cstdint>

namespace rf_watch {

// What a kernel on a GPU looks at: it sets *flag to epoch where a word is not the expected one. A call that
// synchronises with nothing learns of it at the call after.
struct Look {
  const uint32_t* const* words;
  const uint32_t* expected;
  uint64_t count;
  uint32_t* flag;
  uint32_t epoch;
};
#ifdef __CUDACC_RTC__
Look take_look();
#else
static thread_local Look next_look;  // of the kernel that this thread starts next

// The look that is due, once.
[[maybe_unused]] static Look take_look() {
  const Look due = next_look;
  next_look.count = 0;
  return due;
}
#endif

}  // namespace rf_watch
