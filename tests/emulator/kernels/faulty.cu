// Small kernels with the mistakes that the emulator must catch, one each, and the same without it (kFaulty = false).
#include "ptx_sm90.cuh"
#include "block.cuh"
#include "device.cuh"
using namespace rf;

// Threads read what others wrote to shared memory, without a barrier between.
template <bool kFaulty> __global__ void unguarded(float* out) {
  __shared__ float words[128];
  words[threadIdx.x] = float(threadIdx.x);
  if (!kFaulty) __syncthreads();
  out[threadIdx.x] = words[127 - threadIdx.x];
}

// One thread does not come to the barrier.
template <bool kFaulty> __global__ void deserted(float* out) {
  if (!kFaulty || threadIdx.x != 5) __syncthreads();
  out[threadIdx.x] = 127.0f - threadIdx.x;
}

// Half of the threads think that the barrier is of all, half that it is of half.
template <bool kFaulty> __global__ void miscounted(float* out) {
  named_barrier_sync(1, kFaulty && threadIdx.x < 64 ? 64 : 128);
  out[threadIdx.x] = 127.0f - threadIdx.x;
}

// A lane leaves, and the others exchange values with it.
template <bool kFaulty> __global__ void unled(float* out) {
  if (kFaulty && threadIdx.x == 31) return;
  out[threadIdx.x] = 127.0f - __shfl_xor_sync(kFullMask, float(threadIdx.x ^ 1), 1);
}

// Lanes of one warp meet at different exchanges.
template <bool kFaulty> __global__ void divided(float* out) {
  float x = float(threadIdx.x ^ 1);
  if (kFaulty && threadIdx.x % 2) x = __any_sync(kFullMask, true) ? 0.0f : x;
  else x = __shfl_xor_sync(kFullMask, x, 1);
  out[threadIdx.x] = 127.0f - x;
}

// 16 bytes from an address that is a multiple of four.
template <bool kFaulty> __global__ void skewed(float* out) {
  float* to = out + 4 * threadIdx.x;
  if (threadIdx.x >= 32) return;
  const float at = 127.0f - 4 * threadIdx.x;
  if (kFaulty && threadIdx.x == 3) to += 1;
  write_vec4(to, Vec4(make_float4(at, at - 1, at - 2, at - 3)));
}

// What cp.async copies is read before it is waited for.
template <bool kFaulty> __global__ void impatient(float* out) {
  __shared__ __align__(16) float words[128];
  out[threadIdx.x] = 127.0f - threadIdx.x;
  __syncthreads();
  if (threadIdx.x < 32) cp_async(shared_address(words + 4 * threadIdx.x), out + 4 * threadIdx.x, 16);
  cp_async_commit();
  cp_async_wait<kFaulty ? 1 : 0>();
  __syncthreads();
  out[threadIdx.x] = words[threadIdx.x];
}

// A thread looks at memory that nobody writes.
template <bool kFaulty> __global__ void hopeless(float* out) {
  __shared__ unsigned word;
  if (threadIdx.x == 0) word = kFaulty ? 0 : 1;
  __syncthreads();
  unsigned here;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(here) : "l"(&word) : "memory");
  while (here == 0);
  out[threadIdx.x] = 127.0f - threadIdx.x;
}

// A barrier in shared memory waits for one arrival more than there are threads.
template <bool kFaulty> __global__ void short_of_one(float* out) {
  __shared__ uint64_t barrier;
  const uint32_t at = shared_address(&barrier);
  if (threadIdx.x == 0) mbarrier_init(at, kFaulty ? 129 : 128);
  __syncthreads();
  mbarrier_arrive(at);
  mbarrier_wait(at, 0);
  out[threadIdx.x] = 127.0f - threadIdx.x;
}

// The sums of a product of four warps are read before it is waited for.
template <bool kFaulty> __global__ void unfinished(float* out) {
  __shared__ __align__(16) unsigned char raw[(64 + 128) * 128 + 1024];
  unsigned char* tile = raw + (-shared_address(raw) & 1023);
  auto* words = reinterpret_cast<uint16_t*>(tile);
  for (int i = threadIdx.x; i < (64 + 128) * 64; i += 128) words[i] = 0x3c00;  // ones
  __syncthreads();
  float sums[64];
  for (int i = 0; i < 64; i++) sums[i] = 0.0f;
  wgmma_fence();
  wgmma<Half>(sums, descriptor_word(shared_address(tile)), descriptor_word(shared_address(tile) + 64 * 128), true);
  wgmma_commit_group();
  if (!kFaulty) wgmma_wait_group<0>();
  out[threadIdx.x] = sums[63] - 16.0f + 127.0f - threadIdx.x;
  if (kFaulty) wgmma_wait_group<0>();
}

template <class Kernel> static Error one_block(Kernel* kernel, float* out, Blocks blocks = 1) {
  return launch(kernel, blocks, 128, 0, nullptr, LaunchMode::cooperative, "launching", out);
}
#define RF_BOTH(name)                                                                      \
  extern "C" Error name(float* out) { return one_block(name<true>, out); }                 \
  extern "C" Error name##_mended(float* out) { return one_block(name<false>, out); }
RF_BOTH(unguarded)
RF_BOTH(deserted)
RF_BOTH(miscounted)
RF_BOTH(unled)
RF_BOTH(divided)
RF_BOTH(skewed)
RF_BOTH(impatient)
RF_BOTH(hopeless)
RF_BOTH(short_of_one)
RF_BOTH(unfinished)
extern "C" Error crowded(float* out) { return one_block(deserted<false>, out, 133); }
extern "C" Error crowded_mended(float* out) { return one_block(deserted<false>, out, 132); }
