// Portions on the host: what each slot does, in its order.
#include "portions.cuh"
using namespace rf;

// out: rows of (slot, tile, begin, end, before), at most `room` of them. Gives how many there are.
extern "C" long deal(long tiles, long slots, long steps, int share, int* out, long room) {
  const Portions portions(tiles, slots, steps, share != 0);
  long count = 0;
  for (long slot = 0; slot < slots; slot++) {
    Work w;
    for (int turn = 0; portions.work(slot, turn, static_cast<int>(slot + turn * slots), w); turn++) {
      if (count < room) {
        int* row = out + 5 * count;
        row[0] = static_cast<int>(slot), row[1] = w.tile, row[2] = w.begin, row[3] = w.end, row[4] = w.before;
      }
      count++;
    }
  }
  return count;
}

// The slots whose parts of a tile a slot adds that does its steps from `begin` on, nearest first, as join_parts does.
extern "C" long joined(long tiles, long slots, long steps, long slot, int begin, int* out) {
  const Portions portions(tiles, slots, steps, true);
  const unsigned tile = portions.begin(slot) - begin;
  long count = 0, from = slot;
  do out[count++] = static_cast<int>(--from);
  while (portions.begin(from) > tile);
  return count;
}

extern "C" int pays(long tiles, long slots, long steps, int dear) {
  return Portions::pay(tiles, slots, steps, dear != 0);
}
