// Loops over panels of outputs and blocks of rows, shared by the resident products and the experts.
#pragma once

#include <algorithm>
#include <cstring>

#include "cpu/scratch.h"

namespace strata::cpu {

// Runs fn(task, thread) for all tasks; on the calling thread alone when all of them are too little work to wake others for.
// `work`: values a task touches, about.
template <class F>
void run_tasks(ThreadPool& pool, int64_t n, int64_t work, Cancel* cancel, F&& fn) {
  constexpr int64_t kWorthWaking = 64 * 1024;
  if (n * work >= kWorthWaking) {
    pool.run(n, fn, cancel);
    return;
  }
  for (int64_t i = 0; i < n; ++i) fn(i, 0);
}

// Rows of a block: all of them at best, so that weights are unpacked once; fewer when their activations would leave the
// second-level cache, or when there are too few panels for the threads.
inline int64_t rows_per_block(int64_t m, int64_t cols, int64_t panels, int threads) {
  const int64_t cached = std::clamp<int64_t>((int64_t{1} << 19) / (2 * cols), 96, kRowBlock);
  const int64_t want = std::max<int64_t>(1, 4 * threads / panels);
  return std::clamp<int64_t>((m + want - 1) / want, std::min<int64_t>(m, 16), cached);
}

template <class Done>
void Backend::product_f32(const Matrix& w, const float* const* x, int64_t m, Cancel* cancel, Done&& done) {
  const int64_t n_panel = (w.rows + kPanel - 1) / kPanel;
  const int64_t want = std::max<int64_t>(1, 4 * threads() / n_panel);
  const int64_t block = std::clamp<int64_t>((m + want - 1) / want, std::min<int64_t>(m, 16), kRowBlock);
  const int64_t n_block = (m + block - 1) / block;
  pool_.run(n_panel * n_block,
            [&](int64_t task, int thread) {
              const int64_t row = task / n_block * kPanel, r0 = task % n_block * block;
              const int64_t rows = std::min(block, m - r0);
              Scratch& s = scratch(thread);
              panel_f32(w, row, x + r0, rows, s);
              done(r0, rows, row, static_cast<int>(std::min<int64_t>(kPanel, w.rows - row)), s.acc);
            },
            cancel);
}

template <class Done>
void Backend::product_int(const Matrix& w, const Quantised& x, Cancel* cancel, Done&& done) {
  const int64_t n_panel = (w.rows + kPanel - 1) / kPanel;
  const int64_t block = std::max<int64_t>(1, rows_per_block(x.tiling.rows, w.cols, n_panel, threads()) / k_.row_tile);  // tiles
  const int64_t n_block = (x.tiling.tiles + block - 1) / block;
  pool_.run(n_panel * n_block,
            [&](int64_t task, int thread) {
              const int64_t row = task % n_panel * kPanel, t0 = task / n_panel * block;
              const int64_t t1 = std::min(t0 + block, x.tiling.tiles), r0 = x.tiling.first(t0);
              Scratch& s = scratch(thread);
              panel_int(w, row, x, t0, t1, s);
              done(r0, x.tiling.first(t1) - r0, row, static_cast<int>(std::min<int64_t>(kPanel, w.rows - row)), s.acc);
            },
            cancel);
}

}  // namespace strata::cpu
