// StreamK on the host: what each slot does, in its order.
#include "stream_k.cuh"
using namespace rf;

// out: rows of (slot, tile, begin, end, before), at most `room` of them. Gives how many there are.
extern "C" long deal(long tiles, long slots, long steps, int shared, int* out, long room) {
  const StreamK stream_k(tiles, slots, steps, shared != 0);
  long count = 0;
  for (long slot = 0; slot < slots; slot++) {
    WorkTile w;
    for (int iteration = 0; stream_k.next(slot, iteration, static_cast<int>(slot + iteration * slots), w); iteration++) {
      if (count < room) {
        int* row = out + 5 * count;
        row[0] = static_cast<int>(slot), row[1] = w.tile, row[2] = w.begin, row[3] = w.end, row[4] = w.before;
      }
      count++;
    }
  }
  return count;
}

// The slots whose parts of a tile a slot adds that does its steps from `begin` on, nearest first, as reduce_partials does.
extern "C" long joined(long tiles, long slots, long steps, long slot, int begin, int* out) {
  const StreamK stream_k(tiles, slots, steps, true);
  const unsigned tile = stream_k.begin(slot) - begin;
  long count = 0, from = slot;
  do out[count++] = static_cast<int>(--from);
  while (stream_k.begin(from) > tile);
  return count;
}

extern "C" int pays(long tiles, long slots, long steps, int dear) {
  return StreamK::pays(tiles, slots, steps, dear != 0);
}
