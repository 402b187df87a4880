// Products with weights in their block formats: what a task works on, and the loops over tasks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/pool.h"
#include "cpu/isa/kernels.h"

namespace strata::cpu {

// A matrix as the backend reads it: rows in their block format, or (type kPackedQ8) panels of 16 rows.
struct Matrix {
  uint32_t type = 0;
  int64_t rows = 0, cols = 0;
  uint64_t row_bytes = 0;
  const std::byte* data = nullptr;
};

// Rows of a product taken by one task at most: their sums stay in the second-level cache.
inline constexpr int64_t kRowBlock = 512;

inline constexpr int64_t chunks_of(int64_t cols) { return (cols + kBlockK - 1) / kBlockK; }

// One thread's memory for products.
struct ProductScratch {
  CodePanel* codes = nullptr;
  Rows* code_rows = nullptr;
  float* rows = nullptr;      // [16][kBlockK] decoded weight rows
  float* panel = nullptr;     // [kBlockK][16]
  float* acc = nullptr;       // [kRowBlock][16]
  float* up = nullptr;        // [kRowBlock][16]
  const float** x = nullptr;  // [kRowBlock] rows of a float32 product

  // Takes its parts from `floats` floats at p (64-byte aligned); returns where they end.
  float* take(float* p);
  static constexpr uint64_t floats() {
    return (sizeof(CodePanel) + sizeof(Rows) + kRowBlock * sizeof(float*)) / sizeof(float) + 2 * kPanel * kBlockK + 2 * kRowBlock * kPanel;
  }
};

// Rows of one product as integers: [chunk of 256 values][tile], the layout of kernels.h inside a tile.
struct Quantised {
  Tiling tiling;
  int64_t cols = 0;
  Form form = Form::Int16;
  bool sums = false;       // of q over groups, for weights with minimums and bytes with a bias
  uint32_t* q = nullptr;   // [chunk][row][words]
  float* scale = nullptr;  // [chunk][row]
  float* sum = nullptr;    // [chunk][row][kSums]

  bool bytes() const { return form == Form::Bytes || form == Form::Strided; }
  int64_t words() const { return bytes() && tiling.rows > 1 ? kBlockK / 4 : kBlockK / 2; }  // one row has a layout of its own
  int64_t at(int64_t chunk, int64_t row) const { return chunk * tiling.rows + row; }
  const uint32_t* q_at(int64_t at) const { return q + at * words(); }
  // Row chunks times this are the floats of a pool for them.
  static constexpr uint64_t floats() { return kBlockK / 2 + 1 + kSums; }
};

// Memory for quantised rows, handed out by row.
struct QuantisedPool {
  uint32_t* q = nullptr;
  float *scale = nullptr, *sum = nullptr;
  QuantisedPool() = default;
  QuantisedPool(float* p, uint64_t chunks)
      : q(reinterpret_cast<uint32_t*>(p)), scale(p + chunks * (kBlockK / 2)), sum(scale + chunks) {}
  // `rows` rows after the first `first` ones, all of `cols` values.
  Quantised rows(const Kernels& k, int64_t first, int64_t rows, int64_t cols, Form form, bool minimums) const;
};

// How products with weights of this type take integer activations when the mode is int8, or int16.
Form form_of(const Kernels& k, bool int8, uint32_t type);
// The one form for two matrices that share them: int8 only when both take it.
Form form_of(const Kernels& k, bool int8, uint32_t a, uint32_t b);

// x: the tile's rows.
void quantise_tile(const Kernels& k, const Quantised& to, const float* const* x, int64_t tile);

// The panel that this thread takes next: asked for in small parts while the current one is multiplied, so that it stands in
// the second-level cache when its turn comes. (Weights are used once; what the processor fetches by itself starts anew at
// every row and page: 10 rows of Q8_0, 80 -> 134 GMAC/s.) Always inline: a compiler drops calls of a function that does
// nothing but prefetch.
struct Ahead {
  const std::byte* at = nullptr;
  int64_t bytes = 0;
  Ahead() = default;
  Ahead(const Matrix& w, int64_t row)
      : at(w.data + static_cast<uint64_t>(row) * w.row_bytes),
        bytes(std::min<int64_t>(kPanel, w.rows - row) * static_cast<int64_t>(w.row_bytes)) {}
  // Part i of n.
  __attribute__((always_inline)) inline void part(int64_t i, int64_t n) const {
    for (int64_t b = bytes * i / n & ~int64_t{63}, end = bytes * (i + 1) / n & ~int64_t{63}; b < end; b += 64)
      __builtin_prefetch(at + b, 0, 3);
  }
};

// s.acc[r][j] = w[row + j] . x[r], j < 16: float32 activations; or integer ones, for the rows of tiles tile0 .. tile1 - 1.
void panel_f32(const Kernels& k, const Matrix& w, int64_t row, const float* const* x, int64_t m, const ProductScratch& s);
void panel_int(const Kernels& k, const Matrix& w, int64_t row, const Quantised& x, int64_t tile0, int64_t tile1, const ProductScratch& s,
               Ahead next);

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

// Rows of a block: all of them at best, so that weights are unpacked once; fewer when their activations (of `bytes` a row)
// would leave the second-level cache, or when there are too few panels for the threads.
inline int64_t rows_per_block(int64_t m, int64_t bytes, int64_t panels, int threads) {
  const int64_t cached = std::clamp<int64_t>((int64_t{1} << 19) / bytes, 96, kRowBlock);
  const int64_t want = std::max<int64_t>(1, 4 * threads / panels);
  return std::clamp<int64_t>((m + want - 1) / want, std::min<int64_t>(m, 16), cached);
}

// Neighbouring panels that one task takes in turn.
inline int64_t panels_per_task(int64_t panels, int threads) { return std::clamp<int64_t>(panels / (8 * threads), 1, 8); }

// Whole products: done(first row, rows, first output, count, acc [rows][16]) is called per panel of outputs and block of
// rows, on any thread. scratch(thread) is that thread's ProductScratch.
template <class Scratch, class Done>
void product_f32(const Kernels& k, ThreadPool& pool, Scratch&& scratch, const Matrix& w, const float* const* x, int64_t m, Cancel* cancel,
                 Done&& done) {
  const int64_t n_panel = (w.rows + kPanel - 1) / kPanel;
  const int64_t block = rows_per_block(m, 4 * w.cols, n_panel, pool.size());
  const int64_t n_block = (m + block - 1) / block;
  pool.run(n_panel * n_block,
           [&](int64_t task, int thread) {
             const int64_t row = task % n_panel * kPanel, r0 = task / n_panel * block;
             const int64_t rows = std::min(block, m - r0);
             const ProductScratch& s = scratch(thread);
             panel_f32(k, w, row, x + r0, rows, s);
             done(r0, rows, row, static_cast<int>(std::min<int64_t>(kPanel, w.rows - row)), s.acc);
           },
           cancel);
}

template <class Scratch, class Done>
void product_int(const Kernels& k, ThreadPool& pool, Scratch&& scratch, const Matrix& w, const Quantised& x, Cancel* cancel, Done&& done) {
  const int64_t n_panel = (w.rows + kPanel - 1) / kPanel;
  const int64_t block = std::max<int64_t>(1, rows_per_block(x.tiling.rows, 2 * w.cols, n_panel, pool.size()) / k.row_tile);  // tiles
  const int64_t n_block = (x.tiling.tiles + block - 1) / block;
  const int64_t run = panels_per_task(n_panel * n_block, pool.size()), n_run = (n_panel + run - 1) / run;
  pool.run(n_run * n_block,
           [&](int64_t task, int thread) {
             const int64_t t0 = task / n_run * block, t1 = std::min(t0 + block, x.tiling.tiles), r0 = x.tiling.first(t0);
             const int64_t end = std::min(w.rows, (task % n_run + 1) * run * kPanel);
             const ProductScratch& s = scratch(thread);
             for (int64_t row = task % n_run * run * kPanel; row < end; row += kPanel) {
               panel_int(k, w, row, x, t0, t1, s, row + kPanel < end ? Ahead(w, row + kPanel) : Ahead());
               done(r0, x.tiling.first(t1) - r0, row, static_cast<int>(std::min<int64_t>(kPanel, w.rows - row)), s.acc);
             }
           },
           cancel);
}

}  // namespace strata::cpu
