// Quantized: values of a product kept as integers of 16 bits until the columns' moments are known.
//
// Why: the train step of a batch norm stores the product and reads it again to normalise it, and where that is more
// than the L2 holds, both passes are at memory's rate. Half the bytes make S2's step under TF32 2.6%
// shorter, where the operands' ten bits lack nine times what the integers add.
//
// A block of 128 rows of a column is quantized by its own centre, its mean, and step: 32767 of them are its range, a
// bound of the distances from the centre. So an error is at most half a step, of normal data 3e-5 of the column's
// deviation by root mean square (3.6 deviations of range, steps by the square root of 12); a column of equal values
// is exact, and what is shifted by a large mean loses nothing by it. Where values are far apart the range of one
// would cost the others' accuracy: if the square of any column's range in a tile is more than half of its squared
// distances' sum (8 deviations), or not finite, the tile is stored as it is, and its steps say so.
//
// Layout: codes [rows, columns], then for each block [centres, steps] of all columns;
//   value = centre + step * (code - 32768).
#pragma once
#include "functor.cuh"

namespace rf {

constexpr int kQuantizedRows = 128;  // of a block
constexpr float kMiddle = 32768.0f;  // the code of a centre
constexpr float kAsItIs = -1.0f;     // the step of what is not quantized

struct Quantized {
  uint16_t* codes;
  float* scales;  // centres, then steps
  long cols;
  __host__ __device__ Quantized(float* memory, long rows, long width)
      : codes(reinterpret_cast<uint16_t*>(memory)), scales(memory + (rows * width + 7) / 8 * 4), cols(width) {}
  RF_FN float* centres(long row) const { return scales + row / kQuantizedRows * 2 * cols; }
  RF_FN float* steps(long row) const { return centres(row) + cols; }
};

// Two codes as one word, the first in the lower half: of distances from the centre, in steps. The addition rounds to
// an integer, which stands in the lower bits of the sum, for at 1.5 * 2^23 floats are the integers.
RF_FN uint32_t quantize(float first, float second, float first_rate, float second_rate) {
  constexpr float kInteger = 12582912.0f + kMiddle;
  return __byte_perm(__float_as_uint(fmaf(first, first_rate, kInteger)),
                     __float_as_uint(fmaf(second, second_rate, kInteger)), 0x5410);
}

// The distance that a code stands for, in steps, exact. word: two codes; Upper: which. 2^23 + code is a float whose
// lower bits are the code.
template <bool Upper> RF_FN float steps_of(uint32_t word) {
  constexpr float k2To23 = 8388608.0f;
  constexpr uint32_t kUpperOf23 = 0x4b00u;  // the upper half of its bits
  return __uint_as_float(__byte_perm(word, kUpperOf23, Upper ? 0x5432 : 0x5410)) - (k2To23 + kMiddle);
}

}  // namespace rf
