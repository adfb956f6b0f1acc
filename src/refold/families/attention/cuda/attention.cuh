// Attention: the host side, rf::attention.
#pragma once
#include "attention_sm90.cuh"
#include "packed.cuh"

namespace rf {

// What bodies have that say nothing else.
struct AttentionBody {
  rf_watch::Look look = rf_watch::take_look();  // see look.h
  static constexpr bool kMasked = false, kCausal = false;
  static constexpr bool kFilled = false;  // a mask that is not zero stands in a score's place, and is not added
  // weights are dropped: with which probability, and what those that are kept are multiplied by
  static constexpr bool kDropped = false;
  static constexpr float kDropProbability = 0.0f, kKeptScale = 1.0f;
  static constexpr int kPanels = 1;  // of 64 features, 1 or 2
  static constexpr long kPlaces = 1;  // sums are stored for a multiple of so many queries
  Drawn drawn() const { return {}; }
  float* sums() const { return nullptr; }
  float* destination() const { return nullptr; }
  static RF_FN float unseen() { return 0.0f; }  // what a query gets that sees no key
};

// How the queries of a call are dealt to blocks: three warpgroups hide each other's softmax best, two waste less where
// queries or blocks are few.
inline int attention_warpgroups(long heads, long queries, int panels, int processors) {
  if (panels == 2) return 2;
  const auto waves = [&](long warpgroups) {
    return blocks_of(heads * blocks_of(queries, 64 * warpgroups), processors) * warpgroups;
  };
  return 100 * waves(3) <= 115 * waves(2) ? 3 : 2;
}

// Of which weights are kept; 0 for a body that drops none.
template <class Body> size_t kept_bytes(long heads, long queries, long keys) {
  return Body::kDropped ? static_cast<size_t>(heads * queries * blocks_of(keys, kAttentionKeys)) * sizeof(uint64_t) : 0;
}

// Draws which weights are kept to `kept`, for a body that drops some.
template <class Body> Error draw(const Body& body, Attention& a, void* kept, cudaStream_t stream) {
  if constexpr (Body::kDropped) {
    auto* words = static_cast<uint64_t*>(kept);
    a.kept = words;
    unsigned grid;
    const long words_of_all = a.batches * a.heads * a.queries * blocks_of(a.keys, kAttentionKeys);
    RF_TRY(grid_of(blocks_of(words_of_all, 256), grid));
    return launch(draw_attention, grid, 256, 0, stream, LaunchMode::overlapping, "drawing what attention drops", a,
                  body.drawn(), Body::kDropProbability, words);
  }
  return nullptr;
}

struct AttentionBytes {
  size_t tiles, all;
  AttentionBytes(long heads, long keys, int panels) {
    const long count = heads * blocks_of(keys, kAttentionKeys);
    tiles = static_cast<size_t>(count) * panels * kAttentionTileBytes<1>;
    all = tiles + static_cast<size_t>(count) * sizeof(float2);
  }
};

template <class Body>
Error attention_workspace_size(WorkspaceSize& size, long batches, long queries, long keys, long heads, long, long, long,
                               long) {
  size.scratch = AttentionBytes(batches * heads, keys, Body::kPanels).all;
  size.scratch += kept_bytes<Body>(batches * heads, queries, keys);
  return nullptr;
}

template <class S, class Body>
Error launch_attention(const Body& body, const Attention& a, const Device& device, cudaStream_t stream) {
  static std::atomic<uint64_t> allowed{0};
  constexpr size_t shared = sizeof(AttentionStorage<S>) + kSwizzleAlignment;
  auto* kernel = attention_sm90<S, Body>;
  RF_TRY(allow_shared(kernel, shared, device, allowed));
  unsigned grid;
  RF_TRY(grid_of(a.batches * a.heads * blocks_of(a.queries, S::kQueries), grid));
  return launch(kernel, grid, S::kThreads, shared, stream, LaunchMode::overlapping, "launching attention", a, body);
}

template <int Panels, class Body>
Error split_and_launch(const Body& body, const Attention& a, unsigned char* tiles, float2* unscale, cudaStream_t stream) {
  Device device;
  RF_TRY(current_device(device));
  unsigned grid;
  RF_TRY(grid_of(a.batches * a.heads * blocks_of(a.keys, kAttentionKeys), grid));
  RF_TRY(launch(split_attention_tiles<Panels>, grid, 256, 0, stream, LaunchMode::overlapping,
                "splitting attention's keys and values", a, tiles, unscale));
  const int warpgroups = attention_warpgroups(a.batches * a.heads, a.queries, Panels, device.processors);
  if constexpr (Panels == 1)
    if (warpgroups == 3) return launch_attention<AttentionShape<1, 3>>(body, a, device, stream);
  return launch_attention<AttentionShape<Panels, 2>>(body, a, device, stream);
}

// q [batches, queries, heads, width], k and v [batches, keys, heads, width] -> body.destination(), as q, and body.sums(),
// both perhaps null. mask, sums: see Attention.
template <class Body>
Error attention(const Body& body, Tokens q, Tokens k, Tokens v, const float* mask, long batches,
                long queries, long keys, long heads, long width, long mask_batch, long mask_head, long mask_query,
                const Workspace& work, cudaStream_t stream) {
  if (batches * queries * heads * width == 0) return nullptr;
  constexpr long kMost = INT32_MAX / 2, kMostWidth = Body::kPanels * kPanelFeatures;
  if (keys <= 0 || keys > kMost || queries > kMost || width > kMostWidth)
    return error("attention of %ld queries and %ld keys of %ld features: keys and queries are at most 2^30, features %ld",
                 queries, keys, width, kMostWidth);
  const AttentionBytes bytes(batches * heads, keys, Body::kPanels);
  auto* tiles = static_cast<unsigned char*>(work.scratch);
  auto* unscale = reinterpret_cast<float2*>(tiles + bytes.tiles);
  Attention a{q, k, v, mask, body.destination(), batches, int(queries), int(keys), int(heads), int(width),
                    mask_batch, mask_head, mask_query, tiles, unscale, width % 4 == 0 && q.is_aligned() && k.is_aligned() && v.is_aligned(),
                    body.sums(), int(blocks_of(queries, Body::kPlaces) * Body::kPlaces),
                    float(restored(blocks_of(width, 16)) * Body::kScale * (Body::kMasked ? 1.0 : 1.4426950408889634)), nullptr};
  RF_TRY(draw(body, a, tiles + bytes.all, stream));
  return split_and_launch<Body::kPanels>(body, a, tiles, unscale, stream);
}

}  // namespace rf
