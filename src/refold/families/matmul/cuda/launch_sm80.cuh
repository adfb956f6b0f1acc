// Launch: the host side of the product on sm_80 and later, rf::matmul<Generic<Mode, splits>>.
#pragma once
#include "matmul_sm80.cuh"
#include "operand.cuh"

namespace rf {

template <class M, int InParts, class Body> struct Product<Generic<M, InParts>, Body> {
  using S = Generic<M, InParts>;

  struct Grid : Cut<Body> {
    long tile_rows, tile_cols;
    Grid(long rows, long cols, long batches)
        : Cut<Body>(rows, cols, 64 * S::kMI, 32 * S::kG), tile_rows(batches * blocks_of(rows / batches, S::kTileRows)),
          tile_cols(blocks_of(cols, S::kTileCols)) {}
    size_t split_bytes() const {
      return S::kSplits == 1 ? 0 : size_t(tile_rows) * tile_cols * S::kSplits * S::kTileRows * S::kTileCols * sizeof(float);
    }
    size_t split_turns() const { return S::kSplits == 1 ? 0 : size_t(tile_rows) * tile_cols; }
  };

  static Error bytes(long rows, long cols, long, size_t& parts, size_t& turns, long batches) {
    const Grid grid(rows, cols, batches);
    parts = grid.bytes() + grid.split_bytes();
    turns = (grid.turns() + grid.split_turns()) * sizeof(unsigned);
    return nullptr;
  }

  static Rows rows_of(const Side& side, long elements) {
    return {static_cast<const unsigned char*>(side.data), 2 * side.pitch, static_cast<int>(side.rows),
            static_cast<int>(2 * elements)};
  }

  static bool aligned(const Side& side) {
    return reinterpret_cast<uintptr_t>(side.data) % 16 == 0 && side.pitch % 8 == 0;
  }

  static Error run(const Body& body, const Side& a, const Side& b, long depth, const Workspace& workspace,
                   cudaStream_t stream) {
    if (a.data == nullptr || b.data == nullptr) return error("an operand of the generic product is not split");
    if (aligned(a) && aligned(b)) return run_as<true>(body, a, b, depth, workspace, stream);
    if constexpr (M::kScaled) return error("split operands must be aligned by 16 bytes");
    else return run_as<false>(body, a, b, depth, workspace, stream);
  }

  template <bool Aligned>
  static Error run_as(const Body& body, const Side& a, const Side& b, long depth, const Workspace& workspace,
                   cudaStream_t stream) {
    Device device;
    RF_TRY(current_device(device));
    if (device.major < 8)
      return error("the device has compute capability %d.%d; this kernel is for 8.0 and later", device.major, device.minor);
    const Grid grid(a.rows, b.rows / b.batches, b.batches);
    GenericLaunch l{};
    l.problem = grid.problem(a, b, depth, workspace);
    l.problem.batch_tiles = static_cast<int>(grid.tile_rows / b.batches);
    l.a = rows_of(a, a_elements<M>(depth)), l.b = rows_of(b, b_elements<M>(depth));
    l.stages = static_cast<int>(blocks_of(l.b.bytes, S::kRowBytes));
    l.a_stages = static_cast<int>(blocks_of(l.a.bytes, S::kRowBytes));
    l.tile_rows = static_cast<int>(grid.tile_rows), l.tile_cols = static_cast<int>(grid.tile_cols);
    l.split_parts = reinterpret_cast<float4*>(static_cast<char*>(workspace.parts) + grid.bytes());
    l.split_turns = workspace.turns + grid.turns();
    const long blocks = grid.tile_rows * grid.tile_cols * S::kSplits;
    if (blocks > INT32_MAX) return error("a product of %ld x %ld has too many tiles", a.rows, b.rows);

    static std::atomic<uint64_t> allowed{0};
    constexpr size_t shared = sizeof(GenericShared<S, Body>);
    static_assert(shared <= 101376, "more shared memory than a block of sm_86 or sm_89 can have");
    auto* kernel = matmul_sm80<S, Aligned, Body>;
    RF_TRY(allow_shared(kernel, shared, device, allowed));
    RF_TRY(launch(kernel, static_cast<unsigned>(blocks), S::kThreads, shared, stream, Start::overlapping,
                  "launching the product", l, body));
    return grid.finish(body, l.problem, stream);
  }
};

}  // namespace rf
