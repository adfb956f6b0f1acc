// Device: what the host side of every kernel needs: checked calls, facts of the device, launches.
//
// Why: an emitted file calls kernels with raw addresses and sizes. Each host function here gives back
// nullptr, or one line of text that says what failed; the caller raises it. Nothing synchronises or
// allocates, so every call can be captured in a CUDA graph. The current device is the one used.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>

namespace rf {

using Error = const char*;  // nullptr: no error; else text that lives until the thread's next one

inline Error error(const char* format, ...) {
  static thread_local char text[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

inline Error checked(cudaError_t status, const char* doing) {
  if (status == cudaSuccess) return nullptr;
  cudaGetLastError();  // an error that is reported here must not turn up again elsewhere
  return error("%s: %s (%s)", doing, cudaGetErrorString(status), cudaGetErrorName(status));
}

#define RF_TRY(expression) \
  if (::rf::Error rf_error = (expression)) return rf_error

constexpr int kDevices = 64;  // per process

struct Device {
  int ordinal = -1, processors = 0, major = 0, minor = 0;
};

inline Error current_device(Device& device) {
  static std::atomic<unsigned> known[kDevices];  // processors << 16 | major << 8 | minor
  RF_TRY(checked(cudaGetDevice(&device.ordinal), "asking for the current device"));
  if (device.ordinal >= kDevices) return error("device %d: at most %d are known", device.ordinal, kDevices);
  unsigned facts = known[device.ordinal].load(std::memory_order_relaxed);
  if (facts == 0) {
    const char* doing = "asking what the device can do";
    int processors, major, minor;
    RF_TRY(checked(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device.ordinal), doing));
    RF_TRY(checked(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.ordinal), doing));
    RF_TRY(checked(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.ordinal), doing));
    facts = unsigned(processors) << 16 | unsigned(major) << 8 | unsigned(minor);
    known[device.ordinal].store(facts, std::memory_order_relaxed);
  }
  device.processors = facts >> 16, device.major = facts >> 8 & 255, device.minor = facts & 255;
  return nullptr;
}

// Lets a kernel use `bytes` of shared memory on this device; once for each kernel and device.
template <class Kernel>
Error allow_shared(Kernel* kernel, size_t bytes, const Device& device, std::atomic<uint64_t>& done) {
  const uint64_t bit = uint64_t(1) << device.ordinal;
  if (done.load(std::memory_order_relaxed) & bit) return nullptr;
  RF_TRY(checked(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                 "asking for the kernel's shared memory"));
  done.fetch_or(bit, std::memory_order_relaxed);
  return nullptr;
}

enum class Start {
  after,        // once the kernel before has ended
  overlapping,  // its prologue may run beside the end of the kernel before (it waits before it reads)
  cooperative,  // overlapping, and with all blocks resident at once
};

template <class... Takes, class... Gives>
Error launch(void (*kernel)(Takes...), unsigned blocks, unsigned threads, size_t shared, cudaStream_t stream,
             Start start, const char* doing, const Gives&... arguments) {
  Device device;
  RF_TRY(current_device(device));
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks), config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared, config.stream = stream;
  config.attrs = attributes;
  if (start == Start::cooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  if (start != Start::after && device.major >= 9) {  // older devices know no overlap
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  return checked(cudaLaunchKernelEx(&config, kernel, static_cast<Takes>(arguments)...), doing);
}

}  // namespace rf
