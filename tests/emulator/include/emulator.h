// Emulator: what kernels and the host's code ask of it. All that is behind it is in ../core, which is compiled once: each
// file of kernels would take longer to compile with it than for its own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

struct cudaLaunchConfig_t;

namespace emulator {

unsigned thread_x();
unsigned block_x();
unsigned threads_x();  // of a block
unsigned blocks_x();   // of the grid
int lane();
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// --- waiting -----------------------------------------------------------------------------------------
void bar_sync(int number, int threads);
void bar_arrive(int number, int threads);
void sync_threads();
void cluster_sync();

// What the lanes of `mask` bring to an exchange; [lane][word].
const uint32_t (*exchange(const char* what, uint32_t mask, const uint32_t* words, int count))[8];

// --- shared memory -----------------------------------------------------------------------------------
// Addresses of 32 bits: an offset, and above it the number of the cluster's block plus one (0: one's own).
uint32_t shared_address(const void* p);
unsigned char* shared_bytes(uint32_t address, size_t bytes);
unsigned char* dynamic_shared();
void* variable_of(const void* key, size_t bytes);  // a block's variable, by what stands for its declaration
template <class T, class Site> T& shared_variable(Site) {
  static const char key = 0;
  return *static_cast<T*>(variable_of(&key, sizeof(T)));
}

// --- a grid ------------------------------------------------------------------------------------------
constexpr size_t kMostDynamic = 232448;  // bytes of shared memory that a kernel may ask for
int processors();                        // as many as EMULATOR_PROCESSORS says, 132 by default
bool launch(const cudaLaunchConfig_t& config, void (*run)(const void*), const void* kernel);
const char* error();  // of the last launch

}  // namespace emulator
