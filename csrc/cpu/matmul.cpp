// Products with resident weights.
#include <cstring>

#include "cpu/scratch.h"

namespace strata::cpu {

void Backend::matmul(const Call& c) {
  const program::Ref &xr = c.op.in[0], &yr = c.op.out[0];
  const auto id = static_cast<size_t>(c.op.in[1].id);
  const Matrix& w = matrix_[id];
  const float* x = c.f32(xr);
  float* y = c.f32(yr);
  const int64_t m = c.frame.rows, x_stride = c.stride(xr), y_stride = c.stride(yr);
  row_ptrs_.resize(static_cast<size_t>(m));
  for (int64_t t = 0; t < m; ++t) row_ptrs_[static_cast<size_t>(t)] = x + t * x_stride;
  const auto done = [&](int64_t r0, int64_t rows, int64_t n0, int n, const float* acc) {
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(y + (r0 + r) * y_stride + n0, acc + r * kPanel, static_cast<size_t>(n) * sizeof(float));
  };
  const auto products = [&](int thread) -> const ProductScratch& { return scratch(thread); };
  if (!integer(w) || exact_[id]) {
    product_f32(k_, pool_, products, w, row_ptrs_.data(), m, c.cancel, done);
    return;
  }
  const Quantised q = quantised_.rows(k_, 0, m, w.cols, form_of(k_, int8(), w.type), code_format(w.type)->m_group != 0);
  run_tasks(pool_, q.tiling.tiles, w.cols * k_.row_tile, c.cancel,
            [&](int64_t t, int) { quantise_tile(k_, q, row_ptrs_.data() + q.tiling.first(t), t); });
  product_int(k_, pool_, products, w, q, c.cancel, done);
}

}  // namespace strata::cpu
