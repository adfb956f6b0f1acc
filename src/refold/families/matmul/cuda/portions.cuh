// Portions: how tiles are dealt out to slots that work side by side.
//
// Slots take tile after tile while there is one for every slot. The tiles that are left over would keep some
// slots waiting for the others: their K, one tile's after another's, is cut into steps and dealt out evenly
// instead. A portion of it ends one tile and may begin the next, whose part comes first: whoever has a tile's
// last part waits for the others, and they are done by then.
//
// Plain arithmetic: the host decides by it, and it is tested there.
#pragma once
#include "functor.cuh"

namespace rf {

// What a slot does next: steps begin to end of a tile.
struct Work {
  int tile, begin, end;
  int before;  // steps that the slot has done
};

struct Portions {
  int steps = 0;  // that cover K
  int whole = 0;  // tiles that slots take alone
  int turns = 0;  // of a slot, for those
  unsigned portion = 0, longer = 0;  // steps of the others that each slot takes, the first `longer` one more

  // Whether `tiles` on `slots` slots leave some over that are worth sharing out: few slots share one then, and an
  // eighth of a tile or more is spared, which takes longer than joining its parts. dear: all tiles cost more if some
  // are shared, 3% where it was measured; a sixteenth of the time must be spared.
  static bool pay(long tiles, long slots, long steps, bool dear = false) {
    constexpr long kJoining = 8;  // steps
    const long left = tiles % slots, spared = slots - left;
    if (dear && 16 * spared < (tiles / slots + 1) * slots) return false;
    return 4 * left >= slots && 8 * left <= 7 * slots && spared * steps >= kJoining * slots;
  }
  Portions() = default;
  Portions(long tiles, long slots, long steps, bool share)
      : steps(static_cast<int>(steps)), whole(static_cast<int>(share ? tiles - tiles % slots : tiles)) {
    turns = static_cast<int>((whole + slots - 1) / slots);
    const long left = (tiles - whole) * steps;
    portion = static_cast<unsigned>(left / slots), longer = static_cast<unsigned>(left % slots);
  }

  // The turn-th work of a slot, tile t if that is its alone; false: there is none any more.
  RF_FN bool work(unsigned slot, int turn, int t, Work& w) const {
    w.tile = t, w.begin = 0, w.end = steps, w.before = turn * steps;
    if (turn < turns) return t < whole;
    const unsigned all = steps, from = begin(slot), to = begin(slot + 1), first = from / all;
    const unsigned end = to - first * all, next = end > all ? end - all : 0;  // steps of the tile after the first
    const bool is_next = next > 0 && turn == turns;
    w.tile = whole + first + is_next;
    w.begin = is_next ? 0 : from - first * all, w.end = is_next ? next : end - next;
    w.before = turns * steps + (is_next ? 0 : next);
    return from < to && turn <= turns + (next > 0);
  }
  // Where a slot's portion begins, in steps of the tiles left over.
  RF_FN unsigned begin(unsigned slot) const {
    return portion * slot + (slot < longer ? slot : longer);
  }
};

}  // namespace rf
