// How strips of rows are cut and launched, the host's side of convolution_strips.cuh.
#pragma once
#include "strip_channels.cuh"
#include "strip_rows.cuh"

namespace rf {

template <class Body, class Given>
StripLaunch strip_launch_of(Given, const ConvolutionLaunch& of, long count, const Device& device) {
  using W = typename Body::Window;
  using S = ChosenStrips<Given, Body>;
  using Shape = StripShape<S, W>;
  StripLaunch l{};
  l.of = of;
  l.count = static_cast<int>(count), l.pitch_log = kAlone;
  constexpr int kTogether = Shape::kTogether;
  const int wide = of.images.made_wide, most_shift = wide % 4 == 0 ? 0 : wide % 2 == 0 ? 2 : kMargin;
  constexpr int kOfStrip = Shape::kStripPlaces * kTogether;  // elements of a row
  const int shifted = static_cast<int>(blocks_of(wide + most_shift, kOfStrip));
  l.columns = static_cast<int>(blocks_of(wide, kOfStrip));
  // rows are moved by whole places; of two phases together a block more is less than the exchanges of rows that are not
  l.of.in_fours = of.in_fours && wide % kTogether == 0 && (kTogether == 2 || shifted == l.columns);
  if constexpr (S::kSectors) l.of.in_fours = false;  // rows lie as they are
  if constexpr (S::kJoined) {  // refold/convolve.py has it as well (Convolution.joined)
    for (int log = kAlone - 1; log >= 5 && l.of.in_fours; log--)
      if (wide + (most_shift > Shape::kReach ? most_shift : Shape::kReach) <= 1 << log) l.pitch_log = log;
    l.of.in_fours = l.pitch_log != kAlone;
  }
  if (l.of.in_fours) l.columns = shifted;
  l.shifts = l.of.in_fours && most_shift != 0;
  const long images = blocks_of(count, 128 >> l.pitch_log) * (W::kPlaces > 2 ? of.images.made_deep : 1);
  const int tiles = W::kGroups * of.feature_tiles;
  int high = static_cast<int>(blocks_of(of.images.made_high, Shape::High::kPhases));
  constexpr int kPool = Body::kPoolHigh;  // whole windows, whose places lie where they are
  if constexpr (kPool * Body::kPoolWide > 1) {
    high = Body::kPooledHigh * kPool;
    l.columns = static_cast<int>(blocks_of(Body::kPooledWide * Body::kPoolWide, 128));
    l.of.in_fours = l.shifts = false;
  }
  if constexpr (kReducesChannels<Body>) {  // a number a place, which its lanes store
    l.columns = static_cast<int>(blocks_of(wide, 128));
    l.of.in_fours = l.shifts = false;
  }
  const long share = device.processors / tiles, most = share < 1 ? 1 : share;
  // strips are as long as gives each block four; a strip's first rows are read again by its neighbour
  const long wanted = blocks_of(4 * most, images * l.columns), least = 4 * Shape::kSpan * kPool;
  const long rows = blocks_of(blocks_of(high, wanted), kPool) * kPool;
  l.step = Shape::kStripPlaces;
  if (S::kSectors && of.aligned && l.columns > 1 && (wide % kSector != 0 || of.images.places % kSector != 0)) {
    const long overlapping = blocks_of(wide - kSector, l.step - kSector);
    if ((overlapping - l.columns) * kTilesMore <= l.columns) l.step -= kSector, l.columns = static_cast<int>(overlapping);
  }
  l.high = high;
  l.rows = static_cast<int>(rows < least ? (least < high ? least : high) : rows);
  l.strips = static_cast<int>(blocks_of(high, l.rows));
  l.units = images * l.columns * l.strips;
  l.strips_of_image = l.units / blocks_of(count, 128 >> l.pitch_log);
  l.blocks = static_cast<int>(l.units < most ? l.units : most);
  return l;
}

}  // namespace rf
