// Elements: the types of 16 bits in memory.
#pragma once
#include <cstdint>

namespace rf {

struct Half {
  static constexpr bool kBfloat = false;
  uint16_t bits;
};
struct Bfloat {
  static constexpr bool kBfloat = true;
  uint16_t bits;
};

}  // namespace rf
