// Device: what the host side of every kernel needs: checked calls, facts of the device, launches.
//
// Why: an emitted file calls kernels with raw addresses and sizes. Each host function here gives back
// nullptr, or one line of text that says what failed; the caller raises it. Nothing synchronises or
// allocates, so every call can be captured in a CUDA graph. The current device is the one used.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <mutex>

#ifdef RF_APART
extern "C" const char* rf_handle(void* row, int code, void** handle);
#endif

namespace rf {

using Error = const char*;  // nullptr: no error; else text that lives until the thread's next one

#define RF_TRY(expression) \
  if (::rf::Error rf_error = (expression)) return rf_error

constexpr int kDevices = 64;  // per process

struct Device {
  int ordinal = -1, processors = 0, major = 0, minor = 0;
  bool has_dependent_launch() const { return major >= 9; }  // programmatic dependent launch
};

// Memory that a kernel works with besides its operands, and how much of each it needs. A workspace
// belongs to one stream at a time. Kernels that run one after another can share it: scratch is dead
// at a kernel's end, and every launch leaves the counters that it used at zero.
struct Workspace {
  static constexpr int kArguments = 2;  // of a call from Python
  void* scratch;      // any content, aligned by 256
  unsigned* arrivals;  // zeroed once, when they are allocated
};
struct WorkspaceSize {
  size_t scratch = 0, arrivals = 0;  // bytes
};

constexpr long blocks_of(long n, long block) { return (n + block - 1) / block; }
constexpr long covering_power_of_two(long least) {
  long p = 1;
  while (p < least) p *= 2;
  return p;
}

// Whether all addresses can be read four elements at a time, 16 bytes or fewer.
template <class... T> bool aligned(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % (sizeof(T) < 4 ? 4 * sizeof(T) : 16) == 0) && ...);
}

// Whether kernels wait for the one before: those compiled for older devices than Hopper do not, wherever
// they run, and must not start beside it.
constexpr int kCompiledFor[] = {__CUDA_ARCH_LIST__};
constexpr bool kWaitsOnGrids = kCompiledFor[0] >= 900;

enum class LaunchMode {
  after,        // once the kernel before has ended
  overlapping,  // its prologue may run beside the end of the kernel before (it waits before it reads)
  cooperative,  // overlapping, and with all blocks resident at once
};

// Kernels that call sync_dependent_grids() first start like this.
inline LaunchMode launch_mode_on(const Device& device) {
  return device.has_dependent_launch() ? LaunchMode::overlapping : LaunchMode::after;
}

// How many blocks; cluster: so many at a time share memory and barriers (Hopper).
struct Blocks {
  unsigned count, cluster;
  Blocks(unsigned count, unsigned cluster = 1) : count(count), cluster(cluster) {}
};

#ifdef __CUDACC_RTC__  // names that the host's templates have, of which NVRTC makes nothing
Error error(const char* format, ...);
Error current_device(Device& device);
Error grid_of(long blocks, unsigned& grid);
template <class... Given> Error allow_shared(const Given&...);
template <class... Given> Error launch(const Given&...);
#else
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
  cudaGetLastError();  // an error that is reported here must not be reported again elsewhere
  return error("%s: %s (%s)", doing, cudaGetErrorString(status), cudaGetErrorName(status));
}

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

// Makes of a kernel's address what CUDA's runtime takes for it.
#ifdef RF_APART  // its address is a row's, which runtime/nvrtc.py writes
template <class Kernel> Error find(Kernel*& kernel, const Device& device) {
  const bool own = device.major == kCompiledFor[0] / 100;
  void* handle = nullptr;
  RF_TRY(rf_handle(reinterpret_cast<void*>(kernel), own ? 0 : 1, &handle));
  kernel = reinterpret_cast<Kernel*>(handle);
  return nullptr;
}
#else
template <class Kernel> Error find(Kernel*&, const Device&) { return nullptr; }
#endif

// Lets a kernel use `bytes` of shared memory on this device; once for each kernel and device.
template <class Kernel>
Error allow_shared(Kernel* kernel, size_t bytes, const Device& device, std::atomic<uint64_t>& done) {
  const uint64_t bit = uint64_t(1) << device.ordinal;
  if (done.load(std::memory_order_relaxed) & bit) return nullptr;
  RF_TRY(find(kernel, device));
  RF_TRY(checked(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                      cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
                 "asking for the kernel's shared memory"));
  done.fetch_or(bit, std::memory_order_relaxed);
  return nullptr;
}

inline Error grid_of(long blocks, unsigned& grid) {
  if (blocks > INT32_MAX) return error("a launch of %ld blocks: at most 2^31 - 1 are possible", blocks);
  grid = static_cast<unsigned>(blocks);
  return nullptr;
}

template <class... Takes, class... Gives>
Error launch(void (*kernel)(Takes...), Blocks blocks, unsigned threads, size_t shared, cudaStream_t stream,
             LaunchMode start, const char* doing, const Gives&... arguments) {
  Device device;
  RF_TRY(current_device(device));
  RF_TRY(find(kernel, device));
  cudaLaunchAttribute attributes[3] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks.count), config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared, config.stream = stream;
  config.attrs = attributes;
  if (start == LaunchMode::cooperative) {
    attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
    attributes[config.numAttrs++].val.cooperative = 1;
  }
  if (kWaitsOnGrids && start != LaunchMode::after && device.has_dependent_launch()) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (blocks.cluster > 1) {
    auto& cluster = attributes[config.numAttrs].val.clusterDim;
    attributes[config.numAttrs++].id = cudaLaunchAttributeClusterDimension;
    cluster.x = blocks.cluster, cluster.y = cluster.z = 1;
  }
  return checked(cudaLaunchKernelEx(&config, kernel, static_cast<Takes>(arguments)...), doing);
}

// Makes a device the current one while it lives. Failing to is seen by the launch that follows.
class OnDevice {
 public:
  explicit OnDevice(int ordinal) {
    if (cudaGetDevice(&before_) == cudaSuccess && before_ != ordinal) moved_ = cudaSetDevice(ordinal) == cudaSuccess;
  }
  ~OnDevice() {
    if (moved_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool moved_ = false;
};

inline std::mutex launches;

// Launches the kernels of one call on a device, which the calling thread leaves as it found it. A stream's calls share
// its workspace, where one kernel leaves what the next reads: no other thread's kernels may come between them.
template <class Call> Error launch_on(long device, const Call& call) {
  const OnDevice here(static_cast<int>(device));
  const std::lock_guard<std::mutex> alone(launches);
  return call();
}
#endif

}  // namespace rf
