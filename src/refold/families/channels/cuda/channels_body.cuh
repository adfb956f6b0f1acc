// Channels body: what bodies of channels are made from, and what they know of a place.
#pragma once
#include "block.cuh"
#include "device.cuh"
#include "monoid.cuh"

namespace rf {

// What a body of channels is unless it says otherwise. kResults: that it stores of a channel.
struct ChannelsBody {
  static constexpr bool kStores = true, kFinalizes = false;
  static constexpr int kKept = -1, kReused = 0, kResults = 1;
  rf_watch::Look look = rf_watch::take_look();  // see look.h
};

}  // namespace rf
