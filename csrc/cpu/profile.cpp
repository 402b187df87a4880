#include "cpu/profile.h"

#include <algorithm>
#include <vector>

#include "cpu/product.h"

namespace strata::cpu {

namespace {

// Best rate of several runs of fn(thread) on all threads, each doing `work`.
template <class F>
double best_rate(ThreadPool& pool, double work, F&& fn) {
  double best = 0;
  for (int i = 0; i < 7; ++i) {
    const auto start = std::chrono::steady_clock::now();
    pool.run(pool.size(), [&](int64_t task, int) { fn(static_cast<size_t>(task)); });
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(pool.size()) * work / seconds * 1e-9);
  }
  return best;
}

// Buffers of one thread, in its first-level cache.
struct alignas(64) Work {
  CodePanel codes{};
  float panel[kBlockK * kPanel] = {};
  uint32_t q[kBlockK / 2 * 64] = {};
  float scale[64] = {}, sum[64 * kSums] = {}, acc[64 * kPanel] = {}, x[kBlockK] = {};
};

double macs_of(const Kernels& k, int runs) { return 1.0 * runs * kBlockK * kPanel * k.row_tile; }

double integer_rate(const Kernels& k, ThreadPool& pool, std::vector<Work>& work, int runs) {
  return best_rate(pool, macs_of(k, runs), [&](size_t i) {
    Work& w = work[i];
    for (int n = 0; n < runs; ++n) k.dot(w.codes, kBlockK, 64, 0, w.q, w.scale, w.sum, k.row_tile, true, w.acc);
  });
}

}  // namespace

double quick_integer_peak(const Kernels& k, ThreadPool& pool) {
  std::vector<Work> work(static_cast<size_t>(pool.size()));
  return integer_rate(k, pool, work, 500);
}

Peak measure_peak(const Kernels& k, ThreadPool& pool) {
  const auto threads = static_cast<size_t>(pool.size());
  const int rows = k.row_tile;
  std::vector<Work> work(threads);
  constexpr int kRuns = 20000;
  Peak peak;
  peak.integer = integer_rate(k, pool, work, kRuns);
  peak.f32 = best_rate(pool, macs_of(k, kRuns / 4), [&](size_t i) {
    Work& w = work[i];
    const float* x[64];
    for (int r = 0; r < rows; ++r) x[r] = w.x;
    for (int n = 0; n < kRuns / 4; ++n) k.panel_mac(w.panel, kBlockK, x, 0, rows, true, w.acc);
  });
  constexpr size_t kFloats = size_t{1} << 24;  // 64 MiB a thread
  std::vector<float> big(threads * kFloats, 1.0F);
  std::vector<float> sums(threads);
  for (const bool ahead : {false, true})  // with and without asking for the next 16 KiB: which is better differs by machine
    peak.memory = std::max(peak.memory, best_rate(pool, 4.0 * kFloats, [&](size_t i) {
                             const float* p = big.data() + i * kFloats;
                             for (size_t n = 0; n < kFloats; n += 4096) {
                               for (size_t j = n + 4096; ahead && j < std::min(n + 8192, kFloats); j += 16) __builtin_prefetch(p + j);
                               sums[i] += k.dot_f32(p + n, p + n, 4096);
                             }
                           }));
  return peak;
}

}  // namespace strata::cpu
