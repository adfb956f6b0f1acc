// Planes: convolutions of few features a group, such as each channel by itself. The product of panels (convolution.h)
// would copy more than it computes.
//
// A task is a band of rows of a group's results. The rows of the image that it sees are laid out once, with padding at
// their ends, elements that are as many apart as the stride next to each other: then each tap of a vector of places is
// one load. Sums of kHigh rows are in registers, so that a load serves all of them that see it.
#pragma once
#include "image.h"
#include "parallel.h"
#include "rows.h"

namespace rf {

template <class Body> class PlaneConvolution {
  using W = typename Body::Window;
  using Deep = typename W::Deep;
  using High = typename W::High;
  using Wide = typename W::Wide;
  static constexpr long kFeatures = W::kFeatures, kChannels = W::kChannels, kGroups = W::kGroups;
  static constexpr long kHigh = kFeatures <= 2 ? 4 : 2;
  static constexpr long kReach = (kHigh - 1) * High::kStride + High::kSpan;  // rows that kHigh rows see
  static constexpr long kLaid = 24 << 10;                                    // numbers that are laid out

 public:
  PlaneConvolution(const Body& body, const Real* x, const Real* w, long count, long deep, long high, long wide)
      : body_(body), x_(x), w_(w), count_(count), deep_(axis_of<Deep, false>(deep)), high_(axis_of<High, false>(high)),
        wide_(axis_of<Wide, false>(wide)),
        phase_(round_up(wide_.made + (Wide::kSpan - 1) / Wide::kStride + 1, kLanes) + 2 * kLanes),
        pitch_(phase_ * Wide::kStride) {
    const long each = kChannels * Deep::kKernel * pitch_;
    const long fit = (kLaid / each - High::kSpan) / High::kStride + 1;
    band_ = std::clamp(fit / kHigh * kHigh, kHigh, std::max(round_up(high_.made, kHigh), kHigh));
    laid_ = (band_ - 1) * High::kStride + High::kSpan;
  }

  void run() {
    if (count_ * deep_.made * high_.made * wide_.made <= 0) return;
    const long bands = pieces(high_.made, band_), tasks = bands * deep_.made * kGroups * count_;
    const long work = W::kDepth * kFeatures * wide_.made * std::min(band_, high_.made);
    parallel_for(0, tasks, std::max(1L, (1L << 17) / work), [&](long begin, long end) {
      const Buffer rows = buffer(kChannels * Deep::kKernel * laid_ * pitch_ + 4 * kLanes);
      for (long t = begin; t < end; t++) {
        const long band = t % bands, d = t / bands % deep_.made, group = t / (bands * deep_.made) % kGroups;
        compute(t / (bands * deep_.made * kGroups), group, d, band * band_, rows.get());
      }
    });
  }

 private:
  void compute(long image, long group, long d, long top, Real* rows) const {
    const long count = std::min(band_, high_.made - top);
    for (long c = 0; c < kChannels; c++)
      for (long i = 0; i < Deep::kKernel; i++) {
        const long in_d = d * Deep::kStride + i * Deep::kDilation - Deep::kPadding;
        for (long r = 0; r < (round_up(count, kHigh) - 1) * High::kStride + High::kSpan; r++)
          lay((image * kGroups + group) * kChannels + c, in_d, top * High::kStride - High::kPadding + r,
              rows + ((c * Deep::kKernel + i) * laid_ + r) * pitch_);
      }
    for (long h = 0; h < count; h += kHigh) {
      const Real* from = rows + h * High::kStride * pitch_;
      const long left = std::min(kHigh, count - h);
      long w = 0;
      for (; w + kLanes < wide_.made; w += 2 * kLanes) take<2>(image, group, d, top + h, left, w, from + w);
      if (w < wide_.made) take<1>(image, group, d, top + h, left, w, from + w);
    }
  }

  // A row of the image, which may lie outside of it.
  void lay(long plane, long d, long h, Real* to) const {
    if (d < 0 || d >= deep_.given || h < 0 || h >= high_.given) {
      std::fill(to, to + pitch_, Real(0));
      return;
    }
    const Real* from = x_ + ((plane * deep_.given + d) * high_.given + h) * wide_.given;
    for (long p = 0; p < Wide::kStride; p++, to += phase_) {
      // to[u] = from[u * stride + p - padding]
      const long begin = std::max((Wide::kPadding - p + Wide::kStride - 1) / Wide::kStride, 0L);
      const long past = wide_.given + Wide::kPadding - p;
      const long end = std::clamp((past + Wide::kStride - 1) / Wide::kStride, begin, phase_);
      std::fill(to, to + begin, Real(0));
      if constexpr (Wide::kStride == 1) std::copy(from, from + (end - begin), to + begin);
      else
        for (long u = begin; u < end; u++) to[u] = from[u * Wide::kStride + p - Wide::kPadding];
      std::fill(to + end, to + phase_, Real(0));
    }
  }

  // kHigh rows of all features by V vectors of places.
  template <int V>
  RF_FN void take(long image, long group, long d, long h, long count, long w, const Real* from) const {
    Vec sum[kFeatures][kHigh][V];
    for (long f = 0; f < kFeatures; f++)
      for (long i = 0; i < kHigh; i++)
        for (long v = 0; v < V; v++) sum[f][i][v] = Vec(Real(0));
    for (long c = 0; c < kChannels; c++)
#pragma GCC unroll 4
      for (long z = 0; z < Deep::kKernel; z++) {
        const Real* plane = from + (c * Deep::kKernel + z) * laid_ * pitch_;
        const Real* kernel = w_ + group * kFeatures * W::kDepth + (c * Deep::kKernel + z) * High::kKernel * Wide::kKernel;
#pragma GCC unroll 16
        for (long r = 0; r < kReach; r++)
#pragma GCC unroll 8
          for (long s = 0; s < Wide::kKernel; s++) {
            constexpr long kStride = Wide::kStride;
            const long at = s * Wide::kDilation;
            const Real* p = plane + r * pitch_ + at % kStride * phase_ + at / kStride;
            Vec x[V];
#pragma GCC unroll 2
            for (int v = 0; v < V; v++) x[v] = Vec::loadu(p + v * kLanes);
#pragma GCC unroll 4
            for (long i = 0; i < kHigh; i++) {
              const long apart = r - i * High::kStride, tap = apart / High::kDilation;
              if (apart < 0 || apart % High::kDilation != 0 || tap >= High::kKernel) continue;
#pragma GCC unroll 4
              for (long f = 0; f < kFeatures; f++) {
                const Vec k(kernel[f * W::kDepth + tap * Wide::kKernel + s]);
#pragma GCC unroll 2
                for (int v = 0; v < V; v++) sum[f][i][v] = fmadd(x[v], k, sum[f][i][v]);
              }
            }
          }
      }
#pragma GCC unroll 4
    for (long f = 0; f < kFeatures; f++)
#pragma GCC unroll 4
      for (long i = 0; i < kHigh; i++) {
        if (i == count) break;
        const long feature = group * kFeatures + f, row = image * kGroups * kFeatures + feature;
        const long start = (d * high_.made + h + i) * wide_.made;
#pragma GCC unroll 2
        for (long v = 0; v < V; v++) {
          const long at = w + v * kLanes;
          const auto put = [&](auto col) {
            body_.store(row, col, body_.template value<Vec>(sum[f][i][v], row, feature, col));
          };
          if (wide_.made - at >= kLanes) put(FullVec{start + at});
          else put(TailVec{start + at, wide_.made - at});
        }
      }
  }

  const Body& body_;
  const Real *x_, *w_;
  const long count_;
  const Axis deep_, high_, wide_;
  const long phase_, pitch_;  // numbers of a row of one phase, of all: what is laid out
  long band_, laid_;          // rows of the result in a band, of the image that it sees
};

}  // namespace rf
