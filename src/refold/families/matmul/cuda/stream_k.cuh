// Stream-K: how tiles are dealt out to slots that work side by side.
//
// Slots take tile after tile while there is one for every slot (data-parallel tiles). The tiles that are left over
// would keep some slots waiting for the others: their K, one tile's after another's, is cut into steps and dealt out
// evenly instead. What a slot gets of it ends one tile and may begin the next, whose steps come first: whoever has a
// tile's last steps waits for the others, and they are done by then.
//
//   3 slots, 4 tiles of 6 steps       slot 0   tile 0        | tile 3, steps 0 1
//   (1 tile is left over: 6 steps,    slot 1   tile 1        | tile 3, steps 2 3
//   2 a slot)                         slot 2   tile 2        | tile 3, steps 4 5, reduces all, epilogue
//
// Plain arithmetic: the host decides by it, and it is tested there.
#pragma once
#include "functor.cuh"

namespace rf {

// What a slot does next: steps begin to end of a tile.
struct WorkTile {
  int tile, begin, end;
  int before;  // steps that the slot has done
};

struct StreamK {
  int steps = 0;  // that cover K
  int data_parallel_tiles = 0;       // that slots take alone
  int data_parallel_iterations = 0;  // of a slot, for those
  unsigned steps_per_slot = 0,
           longer_slots = 0;  // steps of the others that each slot takes, the first `longer` one more

  // Whether `tiles` on `slots` slots leave some over that are worth sharing out: few slots share one then, and an
  // eighth of a tile or more is spared, which takes longer than reducing its partial sums. dear: all tiles cost more if
  // some are shared, 3% where it was measured; a sixteenth of the time must be spared.
  static bool pays(long tiles, long slots, long steps, bool dear = false) {
    constexpr long kReductionSteps = 8;  // what a reduction takes
    const long left = tiles % slots, spared = slots - left;
    if (dear && 16 * spared < (tiles / slots + 1) * slots) return false;
    return 4 * left >= slots && 8 * left <= 7 * slots && spared * steps >= kReductionSteps * slots;
  }
  StreamK() = default;
  StreamK(long tiles, long slots, long steps, bool shared)
      : steps(static_cast<int>(steps)), data_parallel_tiles(static_cast<int>(shared ? tiles - tiles % slots : tiles)) {
    data_parallel_iterations = static_cast<int>((data_parallel_tiles + slots - 1) / slots);
    const long left = (tiles - data_parallel_tiles) * steps;
    steps_per_slot = static_cast<unsigned>(left / slots), longer_slots = static_cast<unsigned>(left % slots);
  }

  // What a slot does in an iteration, tile t if that is its alone; false: nothing any more.
  RF_FN bool next(unsigned slot, int iteration, int t, WorkTile& w) const {
    w.tile = t, w.begin = 0, w.end = steps, w.before = iteration * steps;
    if (iteration < data_parallel_iterations) return t < data_parallel_tiles;
    const unsigned all = steps, from = begin(slot), to = begin(slot + 1), first = from / all;
    const unsigned end = to - first * all, next = end > all ? end - all : 0;  // steps of the tile after the first
    const bool is_next = next > 0 && iteration == data_parallel_iterations;
    w.tile = data_parallel_tiles + first + is_next;
    w.begin = is_next ? 0 : from - first * all, w.end = is_next ? next : end - next;
    w.before = data_parallel_iterations * steps + (is_next ? 0 : next);
    return from < to && iteration <= data_parallel_iterations + (next > 0);
  }
  // Where a slot's steps begin, among those of the tiles left over.
  RF_FN unsigned begin(unsigned slot) const {
    return steps_per_slot * slot + (slot < longer_slots ? slot : longer_slots);
  }
};

}  // namespace rf
