// Contents: what is known of the memory of a parameter: a few words of it, which every call compares, and a digest of
// each block, which one call of many does.
#pragma once
#ifndef __CUDACC_RTC__
#include <cstdint>
#include <cstring>

namespace rf_watch {

struct Content {
  const char* address;
  uint64_t bytes, samples, digests;  // where in memory: what was read of it, and a digest of each block
};

constexpr uint64_t kWhole = 2048, kSamples = 32, kBlock = 1024;  // bytes; words; bytes
constexpr uint64_t kMany = 512, kFewer = 16;  // contents, from which on fewer words of each are read

static inline uint64_t sampled(uint64_t k, uint64_t words) {  // evenly spread, whatever the sizes of rows
  return static_cast<uint64_t>((static_cast<unsigned __int128>(k * 0x9E3779B97F4A7C15ul) * words) >> 64);
}
static inline uint64_t samples_bytes(uint64_t bytes, uint64_t words) {
  return bytes <= kWhole ? (bytes + 7) / 8 * 8 : words * 4;
}
static inline uint64_t blocks_of(uint64_t bytes) { return bytes <= kWhole ? 0 : (bytes + kBlock - 1) / kBlock; }

// Words are read in pairs: a pair costs one line of the cache and one number of its place.
static void sample(const Content& c, uint64_t words, char* to) {
  if (c.bytes <= kWhole) {
    std::memcpy(to, c.address, c.bytes);
    return;
  }
  for (uint64_t k = 0; k < words / 2; k++) std::memcpy(to + 8 * k, c.address + 8 * sampled(k, c.bytes / 8), 8);
}
static inline bool as_sampled(const Content& c, uint64_t words, const char* was) {
  if (c.bytes <= kWhole) return std::memcmp(was, c.address, c.bytes) == 0;
  uint64_t differs = 0;
  for (uint64_t k = 0; k < words / 2; k++) {
    uint64_t now, then;
    std::memcpy(&now, c.address + 8 * sampled(k, c.bytes / 8), 8);
    std::memcpy(&then, was + 8 * k, 8);
    differs |= now ^ then;
  }
  return differs == 0;
}
// Each step is one to one, so two blocks that differ in one word never have the same digest.
static uint64_t digest(const char* p, uint64_t bytes) {
  constexpr int kLanes = 16;
  uint32_t lane[kLanes], word[kLanes];
  for (int l = 0; l < kLanes; l++) lane[l] = 0x85EBCA6Bu * (l + 1);
  const auto mix = [&] {
    for (int l = 0; l < kLanes; l++) {
      lane[l] = (lane[l] ^ word[l]) * 0x9E3779B1u;
      lane[l] ^= lane[l] >> 15;
    }
  };
  uint64_t i = 0;
  for (; i + sizeof word <= bytes; i += sizeof word) {
    std::memcpy(word, p + i, sizeof word);
    mix();
  }
  if (i < bytes) {
    std::memset(word, 0, sizeof word);
    std::memcpy(word, p + i, bytes - i);
    mix();
  }
  uint64_t all = bytes;
  for (int l = 0; l < kLanes; l++) {
    all = (all ^ lane[l]) * 0x9E3779B97F4A7C15ul;
    all ^= all >> 29;
  }
  return all;
}
static uint64_t block_digest(const Content& c, uint64_t b) {
  const uint64_t from = b * kBlock, left = c.bytes - from;
  return digest(c.address + from, left < kBlock ? left : kBlock);
}

}  // namespace rf_watch
#endif
