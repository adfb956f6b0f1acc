// Stands in for CUDA's header: the language's words, the intrinsics and the runtime calls that kernels here use.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "emulator.h"

#define __device__
#define __host__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)
#define __restrict__

// Read as numbers; only x is used.
namespace emulator {
template <unsigned (*Of)()> struct Axis {
  operator unsigned() const { return Of(); }
};
}  // namespace emulator
static struct { emulator::Axis<emulator::thread_x> x; } threadIdx;
static struct { emulator::Axis<emulator::block_x> x; } blockIdx;
static struct { emulator::Axis<emulator::threads_x> x; } blockDim;
static struct { emulator::Axis<emulator::blocks_x> x; } gridDim;

// --- vectors -----------------------------------------------------------------------------------------
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(16) double2 { double x, y; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(8) int2 { int x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// --- bits and numbers --------------------------------------------------------------------------------
namespace emulator {
template <class To, class From> To same_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "bits are reinterpreted, not converted");
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}
}  // namespace emulator
inline float __int_as_float(int x) { return emulator::same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emulator::same_bits<float>(x); }
inline unsigned __float_as_uint(float x) { return emulator::same_bits<unsigned>(x); }
inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const uint64_t both = uint64_t(high) << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; i++) result |= unsigned(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
  return result;
}
inline float rsqrtf(float x) { return static_cast<float>(1.0 / std::sqrt(double(x))); }
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline float __fmul_rn(float x, float y) { return x * y; }
inline double __dmul_rn(double x, double y) { return x * y; }
template <class T> T min(T a, T b) { return b < a ? b : a; }
template <class T> T max(T a, T b) { return a < b ? b : a; }

// --- memory ------------------------------------------------------------------------------------------
namespace emulator {
template <class T> T* aligned(T* p) {
  if (reinterpret_cast<uintptr_t>(p) % alignof(T)) fail("%p is not aligned by %zu bytes", (const void*)p, alignof(T));
  return p;
}
}  // namespace emulator
template <class T> T __ldg(const T* p) { return *emulator::aligned(p); }
template <class T> T __ldcg(const T* p) { return *emulator::aligned(p); }
template <class T> T __ldcs(const T* p) { return *emulator::aligned(p); }
template <class T> void __stcg(T* p, T v) { *emulator::aligned(p) = v; }
inline size_t __cvta_generic_to_global(const void* p) { return reinterpret_cast<size_t>(p); }
inline void* __cvta_global_to_generic(size_t p) { return reinterpret_cast<void*>(p); }
inline size_t __cvta_generic_to_shared(const void* p) { return emulator::shared_address(p); }
inline void __threadfence() {}
template <class T> T atomicExch(T* p, T v) { return std::exchange(*p, v); }
template <class T> T atomicAdd(T* p, T v) { return std::exchange(*p, *p + v); }
template <class T> T atomicMax(T* p, T v) { return std::exchange(*p, *p < v ? v : *p); }
inline unsigned atomicInc(unsigned* p, unsigned most) { return std::exchange(*p, *p >= most ? 0 : *p + 1); }

// --- warps and blocks --------------------------------------------------------------------------------
inline void __syncthreads() { emulator::sync_threads(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) {
  const uint32_t none = 0;
  emulator::exchange("syncwarp", mask, &none, 1);
}
namespace emulator {
template <class T> T from_lane(const char* what, uint32_t mask, T mine, int lane) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  uint32_t words[2];
  std::memcpy(words, &mine, sizeof mine);
  const auto* all = exchange(what, mask, words, sizeof(T) / 4);
  if (!(mask >> lane & 1)) fail("%s of lane %d, which is not of the mask %08x", what, lane, mask);
  std::memcpy(&mine, all[lane], sizeof mine);
  return mine;
}
}  // namespace emulator
template <class T> T __shfl_sync(unsigned mask, T v, int lane) {
  return emulator::from_lane("shfl", mask, v, lane & 31);
}
template <class T> T __shfl_xor_sync(unsigned mask, T v, int lanes) {
  return emulator::from_lane("shfl.xor", mask, v, emulator::lane() ^ lanes);
}
inline unsigned __ballot_sync(unsigned mask, bool v) {
  const uint32_t word = v;
  const auto* all = emulator::exchange("ballot", mask, &word, 1);
  unsigned votes = 0;
  for (int l = 0; l < 32; l++) votes |= (mask >> l & 1 && all[l][0] ? 1u : 0u) << l;
  return votes;
}
inline bool __any_sync(unsigned mask, bool v) { return __ballot_sync(mask, v) != 0; }
inline unsigned __reduce_max_sync(unsigned mask, unsigned v) {
  const auto* all = emulator::exchange("redux.max", mask, &v, 1);
  unsigned most = 0;
  for (int l = 0; l < 32; l++)
    if (mask >> l & 1) most = max(most, all[l][0]);
  return most;
}

// --- the runtime -------------------------------------------------------------------------------------
// A device with as many processors as EMULATOR_PROCESSORS says, 132 by default.
enum cudaError_t { cudaSuccess, cudaErrorLaunchFailure, cudaErrorInvalidValue };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount, cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize, cudaFuncAttributeNonPortableClusterSizeAllowed };
enum cudaLaunchAttributeID {
  cudaLaunchAttributeCooperative, cudaLaunchAttributeProgrammaticStreamSerialization,
  cudaLaunchAttributeClusterDimension
};
struct dim3 {
  unsigned x, y = 1, z = 1;
  dim3(unsigned x = 1) : x(x) {}
};
union cudaLaunchAttributeValue {
  int cooperative, programmaticStreamSerializationAllowed;
  struct { unsigned x, y, z; } clusterDim;
};
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};
using cudaStream_t = void*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline const char* cudaGetErrorString(cudaError_t) { return emulator::error(); }
inline const char* cudaGetErrorName(cudaError_t) { return "emulated"; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute == cudaDevAttrMultiProcessorCount) *value = emulator::processors();
  else *value = attribute == cudaDevAttrComputeCapabilityMajor ? __CUDA_ARCH__ / 100 : __CUDA_ARCH__ / 10 % 10;
  return cudaSuccess;
}
template <class Kernel> cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int bytes) {
  return size_t(bytes) <= emulator::kMostDynamic ? cudaSuccess : cudaErrorInvalidValue;
}
inline cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void*, const cudaLaunchConfig_t*) {
  *clusters = 8;
  return cudaSuccess;
}
namespace emulator {
template <class Run> void run_of(const void* it) { (*static_cast<const Run*>(it))(); }
}  // namespace emulator
template <class... Takes, class... Gives>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c, void (*kernel)(Takes...), Gives&&... gives) {
  const std::tuple<std::decay_t<Takes>...> arguments(std::forward<Gives>(gives)...);
  const auto run = [&] { std::apply(kernel, arguments); };
  return emulator::launch(*c, emulator::run_of<decltype(run)>, &run) ? cudaSuccess : cudaErrorLaunchFailure;
}

#include "ptx.h"
