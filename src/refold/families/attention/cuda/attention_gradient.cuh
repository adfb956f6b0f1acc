// Gradients of attention: the host side, rf::attention_gradient.
#pragma once
#include "attention.cuh"
#include "attention_gradient_sm90.cuh"

namespace rf {

// What bodies have that say nothing else.
struct AttentionGradientBody : AttentionBody {
  static constexpr int kGradients = 0;  // which of them it has: no kernel is compiled for others
  float* of_queries() const { return nullptr; }
  float* of_keys() const { return nullptr; }
  float* of_values() const { return nullptr; }
};

struct GradientBytes {
  size_t pairs, unscale, all;
  GradientBytes(long heads, long queries, long keys, int panels) {
    const long of_queries = heads * blocks_of(queries, kAttentionKeys), of_keys = heads * blocks_of(keys, kAttentionKeys);
    pairs = static_cast<size_t>(of_queries + of_keys) * panels * kAttentionTileBytes<1>;
    unscale = static_cast<size_t>(of_queries + of_keys) * sizeof(float2);
    unscale += 8 * (unscale % 16 != 0);  // facts are copied 16 bytes at a time
    all = pairs + unscale + static_cast<size_t>(of_queries) * kAttentionKeys * sizeof(float2);
  }
};

template <class Body>
Error attention_gradient_workspace_size(WorkspaceSize& size, long batches, long queries, long keys, long heads, long, long,
                                        long, long, long) {
  size.scratch = GradientBytes(batches * heads, queries, keys, Body::kPanels).all;
  size.scratch += kept_bytes<Body>(batches * heads, queries, keys);
  return nullptr;
}

template <int What, class Body>
Error launch_gradient(const Body& body, const AttentionGradient& a, const Device& device, cudaStream_t stream) {
  using S = GradientShape<Body::kPanels, What>;
  static std::atomic<uint64_t> allowed{0};
  constexpr size_t shared = sizeof(GradientStorage<S>) + kSwizzleAlignment;
  static_assert(shared <= 232448);  // of a block, on Hopper
  auto* kernel = attention_gradient_sm90<S, Body>;
  RF_TRY(allow_shared(kernel, shared, device, allowed));
  unsigned grid;
  RF_TRY(grid_of(a.batches * a.heads * blocks_of(S::kOfQueries ? a.queries : a.keys, S::kRows), grid));
  return launch(kernel, grid, S::kThreads, shared, stream, LaunchMode::overlapping, "launching attention's gradient", a, body);
}

// gradient and result as q, and q [batches, queries, heads, width], k and v [batches, keys, heads, width], sums as
// attention gave them, [batches, heads, places] -> body.of_queries(), of_keys() and of_values(), each perhaps null.
// mask: see Attention.
template <class Body>
Error attention_gradient(const Body& body, Tokens gradient, Tokens q, Tokens k, Tokens v, Tokens result,
                         const float* sums, const float* mask, long batches, long queries, long keys, long heads, long width,
                         long mask_batch, long mask_head, long mask_query, long places,
                         const Workspace& work, cudaStream_t stream) {
  if (batches * queries * heads * width == 0) return nullptr;
  constexpr long kMost = INT32_MAX / 2, kMostWidth = Body::kPanels * kPanelFeatures;
  if (keys <= 0 || keys > kMost || queries > kMost || width > kMostWidth)
    return error("attention of %ld queries and %ld keys of %ld features: keys and queries are at most 2^30, features %ld",
                 queries, keys, width, kMostWidth);
  const GradientBytes bytes(batches * heads, queries, keys, Body::kPanels);
  AttentionGradient a{};
  a.q = q, a.k = k, a.v = v, a.mask = mask, a.gradient = gradient, a.result = result, a.given_sums = sums;
  a.batches = batches, a.queries = int(queries), a.keys = int(keys), a.heads = int(heads), a.width = int(width);
  a.mask_batch = mask_batch, a.mask_head = mask_head, a.mask_query = mask_query;
  a.aligned = width % 4 == 0 && q.is_aligned() && k.is_aligned() && v.is_aligned() && gradient.is_aligned() &&
              result.is_aligned();
  a.places = int(places);
  a.restored_features = float(restored(blocks_of(width, 16)));
  a.score_scale = float(restored(blocks_of(width, 16)) * Body::kScale);
  a.dq = body.of_queries(), a.dk = body.of_keys(), a.dv = body.of_values();
  a.pairs = static_cast<unsigned char*>(work.scratch);
  a.pair_unscale = reinterpret_cast<float2*>(a.pairs + bytes.pairs);
  a.row_facts = reinterpret_cast<float2*>(a.pairs + bytes.pairs + bytes.unscale);
  RF_TRY(draw(body, a, a.pairs + bytes.all, stream));
  Device device;
  RF_TRY(current_device(device));
  unsigned grid;
  const long tiles = blocks_of(queries, kAttentionKeys) + blocks_of(keys, kAttentionKeys);
  RF_TRY(grid_of(batches * heads * tiles, grid));
  auto* split = split_gradient_tiles<Body, Body::kPanels>;
  RF_TRY(launch(split, grid, 256, 0, stream, LaunchMode::overlapping, "splitting what attention's gradient multiplies", a));
  constexpr int kOfKeys = Body::kGradients & kKeyGradient, kOfValues = Body::kGradients & kValueGradient;
  if constexpr (Body::kGradients & kQueryGradient) RF_TRY(launch_gradient<kQueryGradient>(body, a, device, stream));
  if constexpr (Body::kPanels == 1 && (kOfKeys | kOfValues)) {  // registers hold both
    RF_TRY(launch_gradient<kOfKeys | kOfValues>(body, a, device, stream));
  } else {
    if constexpr (kOfKeys) RF_TRY(launch_gradient<kOfKeys>(body, a, device, stream));
    if constexpr (kOfValues) RF_TRY(launch_gradient<kOfValues>(body, a, device, stream));
  }
  return nullptr;
}

}  // namespace rf
