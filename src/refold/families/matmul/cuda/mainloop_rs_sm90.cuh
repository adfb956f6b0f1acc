// Mainloop with A from registers ("RS" wgmma): fp32 rows of a, split into hi and lo fp16 in registers, on their way to
// the tensor cores.
//
// Why: splitting x beforehand reads and writes it once more, 16 us of 65 for 1024 x 8192, and is a launch. Here TMA
// brings x as it is, as many bytes as its split would have. A thread reads what its fragments need, 16 bytes at a time,
// splits it, and the tensor cores take A from registers.
//
// Scale: of each row and 32 of k, the power of two that takes the largest of them to [2^14, 2^15); four lanes share a
// row's 32. The short accumulator takes these 32 of k, and its promotion undoes the scale: one multiply-add where there
// was an addition. So rows may be graded from step to step.
//
// Registers of a thread, of 240: 128 accumulator, 64 short accumulator, 2 x 17 of `upper` and `lower` (hi, lo, scales).
//
// Timeline of a stage: while the tensor cores multiply one half of the warpgroup's rows, its threads split the other.
//   tensor cores   upper(k)            | lower(k)               | upper(k + 1)
//   threads        split lower(k),     | split upper(k + 1),    | split lower(k + 1),
//                  promote upper(k)    | promote lower(k)       | promote upper(k + 1)
// What stands in the tensor cores' way then is the promotion alone: the other warpgroup's wgmmas fill it (ping-pong).
#pragma once
#include "mainloop_sm90.cuh"

namespace rf {

// 32 of k of 64 rows as the tensor cores take them: [slice of 16 of k][what a lane holds of it], and the
// powers of two that undo the scales of this lane's two rows, whose upper halves say all: the first row's
// above the second's.
struct SplitRows {
  uint32_t hi[2][4], lo[2][4], unscale;

  // at: this lane's first piece of 16 bytes (direct_piece); the second one is its neighbour.
  RF_FN void take(uint32_t at) {
    float4 x[2][2];
    load(x, at);
    const float upper = scale(x[0], 0), lower = scale(x[1], 1);
    split(x[0], 0, upper);
    split(x[1], 1, lower);
  }

  // sums = these rows times 128 columns whose 32 hi and 32 lo start at b; the small products first.
  RF_FN void multiply(float (&partial)[64], uint32_t b) const {
    wgmma_fence();
    wgmma_rs(partial, lo[0], b, false);
    wgmma_rs(partial, lo[1], b + kSlice, true);
    wgmma_rs(partial, hi[0], b + kLo, true);
    wgmma_rs(partial, hi[1], b + kLo + kSlice, true);
    wgmma_rs(partial, hi[0], b, true);
    wgmma_rs(partial, hi[1], b + kSlice, true);
    wgmma_commit_group();
  }

  // 0, from what is computed last.
  RF_FN uint32_t settled() const {
    const uint32_t all = lo[0][0] & lo[0][1] & lo[0][2] & lo[0][3] & lo[1][0] & lo[1][1] & lo[1][2] & lo[1][3];
    return all == 0xffffffffu;  // no conversion gives that NaN
  }

  // Adds what `multiply` gave to sum.
  RF_FN void promote(float (&accumulator)[64], float (&partial)[64]) {
    wgmma_wait_group<0>();
#pragma unroll
    for (int s = 0; s < 2; s++)
#pragma unroll
      for (int i = 0; i < 4; i++) asm volatile("" : "+r"(hi[s][i]), "+r"(lo[s][i]));  // were in use until here
    const float factor[2] = {__uint_as_float(unscale & 0xffff0000u), __uint_as_float(unscale << 16)};
#pragma unroll
    for (int i = 0; i < 64; i++) {
      asm volatile("" : "+f"(partial[i])::"memory");  // not read before the wait
      accumulator[i] = fmaf(partial[i], factor[i / 2 % 2], accumulator[i]);
    }
  }

 private:
  // Rows l / 4 and l / 4 + 8 of a warp's 16: [row][slice].
  RF_FN static void load(float4 (&x)[2][2], uint32_t at) {
#pragma unroll
    for (int r = 0; r < 2; r++)
      x[r][0] = load_shared_v4(at + kSwizzleAlignment * r), x[r][1] = load_shared_v4((at ^ 16) + kSwizzleAlignment * r);
  }

  // The scale of a row, whose 32 of k four lanes hold.
  RF_FN float scale(const float4 (&x)[2], int r) {
    float most = fmaxf(largest(x[0]), largest(x[1]));
    most = fmaxf(most, __shfl_xor_sync(kFullMask, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kFullMask, most, 2));
    // The exponent alone, as it lies in a float. From 2^-112 up: a power of two is at most 2^126 here.
    // An infinity or NaN is scaled by 2^-114 and stays what it is.
    constexpr uint32_t kOne = 1u << 23, kExponent = 0x7f800000u;  // of an exponent; its bits
    constexpr uint32_t kTarget = 14, kLeast = 15, kTwiceBias = 254;
    constexpr unsigned kUpperHalves = 0x3276;  // of the first word, of the second
    const uint32_t exponent = max(__float_as_uint(most), kLeast * kOne) & kExponent;
    const uint32_t back = exponent - kTarget * kOne;
    unscale = r == 0 ? back : __byte_perm(unscale, back, kUpperHalves);
    return __uint_as_float((kTwiceBias + kTarget) * kOne - exponent);
  }

  RF_FN void split(const float4 (&x)[2], int r, float scale) {
#pragma unroll
    for (int s = 0; s < 2; s++) {
      split_pair(x[s].x, x[s].y, scale, hi[s][r], lo[s][r]);
      split_pair(x[s].z, x[s].w, scale, hi[s][r + 2], lo[s][r + 2]);
    }
  }

  RF_FN static float largest(float4 v) {
    return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
  }

  // volatile: stays where it is among the products. The compiler would move it to its use, behind them.
  RF_FN static void split_pair(float x, float y, float scale, uint32_t& hi, uint32_t& lo) {
    asm volatile(
        "{\n.reg .f16 a, b;\n.reg .f32 x, y, p, q;\n"
        "mul.f32 x, %2, %4;\nmul.f32 y, %3, %4;\n"
        "cvt.rn.f16x2.f32 %0, y, x;\nmov.b32 {a, b}, %0;\n"
        "cvt.f32.f16 p, a;\ncvt.f32.f16 q, b;\n"
        "sub.f32 p, x, p;\nsub.f32 q, y, q;\n"
        "cvt.rn.f16x2.f32 %1, q, p;\n}"
        : "=&r"(hi), "=&r"(lo)
        : "f"(x), "f"(y), "f"(scale));
  }
};

// Where this lane's first piece of 16 bytes lies in 64 rows of a stage: it takes 32 of a row's 128 bytes,
// pieces 2 q and 2 q + 1 of 8, which TMA's swizzle has permuted by the row. Eight lanes that read at a
// time read all 32 banks. Computed where it is used: there is no register to keep it in.
RF_FN uint32_t direct_piece(uint32_t rows) {
  const unsigned thread = read_tid_x(), lane = thread % 32, warp = thread / 32 % 4;
  return rows + (16 * warp + lane / 4) * kSwizzleRowBytes + ((2 * (lane % 4)) ^ (lane / 4)) * 16;
}

// Ping-pong: the warpgroups' wgmmas take the tensor cores alternately. With both under way, both would end at a time,
// and nothing would be multiplied while both promote. Warpgroup 1 lets warpgroup 0 go first.
RF_FN void ping_pong_wait(int warpgroup) {
  named_barrier_sync(kPingPongBarrier + warpgroup, kConsumerThreads);
}
RF_FN void ping_pong_arrive(int warpgroup) {
  named_barrier_arrive(kPingPongBarrier + 1 - warpgroup, kConsumerThreads);
}

// Products of `count` stages from `first` on, counted over all tiles. a: address of the warpgroup's rows in the
// first stage; b: descriptor of its columns.
template <class S>
RF_FN void mainloop_rs(Fragment<2, 4>& acc, float (&partial)[64], uint32_t a, uint32_t b, int warpgroup, int first,
                       int count, uint32_t full, uint32_t empty) {
  constexpr int kHalf = 64 * S::kRowBytes;
  if (count <= 0) return;
  if (first == 0 && warpgroup == 1) ping_pong_arrive(warpgroup);
  SplitRows upper, lower;
  int stage = first % S::kStages, phase = first / S::kStages & 1;
  mbarrier_wait(full + kMbarrierBytes * stage, phase);
  upper.take(direct_piece(a + stage * S::kStageBytes));
#pragma unroll 1
  for (int k = 1; k <= count; k++) {
    // the last step splits its own rows once more, in vain
    const int step = first + (k < count ? k : count - 1), next = step % S::kStages, next_phase = step / S::kStages & 1;
    const uint32_t columns = b + stage * kDescriptorUnits<S::kStageBytes>;
    ping_pong_wait(warpgroup);
    upper.multiply(partial, columns);
    ping_pong_arrive(warpgroup);
    lower.take(direct_piece(a + stage * S::kStageBytes + kHalf));
    mbarrier_wait(full + kMbarrierBytes * next, next_phase + lower.settled());
    upper.promote(acc.x[0], partial);
    ping_pong_wait(warpgroup);
    lower.multiply(partial, columns);
    ping_pong_arrive(warpgroup);
    upper.take(direct_piece(a + next * S::kStageBytes));
    mbarrier_wait(full + kMbarrierBytes * stage, phase + upper.settled());
    lower.promote(acc.x[1], partial);
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty + kMbarrierBytes * stage);
    phase = next_phase;
    stage = next;
  }
}

}  // namespace rf
