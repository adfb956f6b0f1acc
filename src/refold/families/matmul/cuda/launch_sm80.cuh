// Launch: the host side of the product on sm_80 and later, rf::matmul<Generic<Mode, split-K>>.
#pragma once
#include "matmul_sm80.cuh"
#include "operand.cuh"

namespace rf {

template <class M, int SplitK, class Body> struct Product<Generic<M, SplitK>, Body> {
  using S = Generic<M, SplitK>;

  struct Grid : Partition<Body> {
    long tile_rows, tile_cols;
    Grid(long rows, long cols, long batches)
        : Partition<Body>(rows, cols, 64 * S::kMI, 32 * S::kG),
          tile_rows(batches * blocks_of(rows / batches, S::kTileRows)),
          tile_cols(blocks_of(cols, S::kTileCols)) {}
    size_t split_bytes() const {
      return S::kSplitK == 1 ? 0
                             : size_t(tile_rows) * tile_cols * S::kSplitK * S::kTileRows * S::kTileCols * sizeof(float);
    }
    size_t splitk_arrivals() const { return S::kSplitK == 1 ? 0 : size_t(tile_rows) * tile_cols; }
  };

  static Error bytes(long rows, long cols, long, size_t& scratch, size_t& arrivals, long batches) {
    const Grid grid(rows, cols, batches);
    scratch = grid.bytes() + grid.split_bytes();
    arrivals = (grid.arrivals() + grid.splitk_arrivals()) * sizeof(unsigned);
    return nullptr;
  }

  static Rows rows_of(const Operand& side, long elements) {
    return {static_cast<const unsigned char*>(side.data), 2 * side.pitch, static_cast<int>(side.rows),
            static_cast<int>(2 * elements)};
  }

  static bool aligned(const Operand& side) {
    return reinterpret_cast<uintptr_t>(side.data) % 16 == 0 && side.pitch % 8 == 0;
  }

  static Error run(const Body& body, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
                   cudaStream_t stream) {
    if (a.data == nullptr || b.data == nullptr) return error("an operand of the generic product is not split");
    if (aligned(a) && aligned(b)) return run_as<true>(body, a, b, depth, workspace, stream);
    if constexpr (M::kScaled) return error("split operands must be aligned by 16 bytes");
    else return run_as<false>(body, a, b, depth, workspace, stream);
  }

  template <bool Aligned>
  static Error run_as(const Body& body, const Operand& a, const Operand& b, long depth, const Workspace& workspace,
                   cudaStream_t stream) {
    Device device;
    RF_TRY(current_device(device));
    if (device.major < 8)
      return error("the device has compute capability %d.%d; this kernel is for 8.0 and later", device.major,
                   device.minor);
    const Grid grid(a.rows, b.rows / b.batches, b.batches);
    GenericLaunch l{};
    l.problem = grid.problem(a, b, depth, workspace);
    l.problem.batch_tiles = static_cast<int>(grid.tile_rows / b.batches);
    l.a = rows_of(a, a_elements<M>(depth)), l.b = rows_of(b, b_elements<M>(depth));
    l.stages = static_cast<int>(blocks_of(l.b.bytes, S::kRowBytes));
    l.a_stages = static_cast<int>(blocks_of(l.a.bytes, S::kRowBytes));
    l.tile_rows = static_cast<int>(grid.tile_rows), l.tile_cols = static_cast<int>(grid.tile_cols);
    l.splitk_partials = reinterpret_cast<float4*>(static_cast<char*>(workspace.scratch) + grid.bytes());
    l.splitk_arrivals = workspace.arrivals + grid.arrivals();
    const long blocks = grid.tile_rows * grid.tile_cols * S::kSplitK;
    if (blocks > INT32_MAX) return error("a product of %ld x %ld has too many tiles", a.rows, b.rows);

    static std::atomic<uint64_t> allowed{0};
    constexpr size_t shared = sizeof(GenericSharedStorage<S, Body>);
    constexpr size_t kMostShared = 99 << 10;  // what a block of sm_86 and sm_89 can have: least of all
    static_assert(shared <= kMostShared, "more shared memory than a block of sm_86 or sm_89 can have");
    auto* kernel = matmul_sm80<S, Aligned, Body>;
    RF_TRY(allow_shared(kernel, shared, device, allowed));
    RF_TRY(launch(kernel, static_cast<unsigned>(blocks), S::kThreads, shared, stream, LaunchMode::overlapping,
                  "launching the product", l, body));
    return grid.finalize(body, l.problem, stream);
  }
};

}  // namespace rf
