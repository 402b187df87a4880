// Products with resident weights.
//
// 16 weight rows x 256 values are unpacked once into a panel in the first-level cache (lane = weight row) and used for all
// rows of a task. The sums of an output, in rising k, are the same for any number of rows, tile, block and thread:
//   integers  kernels.h, `dot`: exact sums per span, one fma per span, one per 256 values
//   float32   a chain of fma within 256 values, the partial sums added
#include "cpu/matmul.h"

#include "quant/quant.h"

namespace strata::cpu {

void Backend::unpack(const Matrix& w, int64_t row, int64_t k0, int kn, Scratch& s) const {
  const int64_t n = std::min<int64_t>(kPanel, w.rows - row);
  const quant::TypeInfo& type = *quant::type_info(w.type);
  const uint64_t skip = quant::row_bytes(type, static_cast<uint64_t>(k0));
  for (int64_t j = 0; j < n; ++j)
    quant::dequantize_row(w.type, w.data + static_cast<uint64_t>(row + j) * w.row_bytes + skip, s.rows + j * kBlockK, kn);
  for (int64_t j = n; j < kPanel; ++j) std::memset(s.rows + j * kBlockK, 0, sizeof(float) * static_cast<size_t>(kn));
  k_.transpose_panel(s.rows, kn, s.panel);
}

// s.acc[r][j] = w[row + j] . x[r]
void Backend::panel_f32(const Matrix& w, int64_t row, const float* const* x, int64_t m, Scratch& s) const {
  for (int64_t k0 = 0; k0 < w.cols; k0 += kBlockK) {
    const int kn = static_cast<int>(std::min<int64_t>(kBlockK, w.cols - k0));
    unpack(w, row, k0, kn, s);
    k_.panel_mac(s.panel, kn, x, k0, static_cast<int>(m), k0 == 0, s.acc);
  }
}

// s.acc[r][j] = w[row + j] . x[r] for the rows of tiles tile0 .. tile1 - 1
void Backend::panel_int(const Matrix& w, int64_t row, const Quantised& x, int64_t tile0, int64_t tile1, Scratch& s) const {
  const CodeFormat& f = *code_format(w.type);
  const bool packed = w.type == kPackedQ8;
  const auto* data = reinterpret_cast<const uint8_t*>(w.data) + static_cast<uint64_t>(row) * w.row_bytes;
  const int rows = static_cast<int>(std::min<int64_t>(kPanel, w.rows - row));
  const bool direct = packed && x.tiling.rows <= std::min(4, k_.row_tile);
  for (int64_t k0 = 0, c = 0; k0 < w.cols; k0 += kBlockK, ++c) {
    const int kn = static_cast<int>(std::min<int64_t>(kBlockK, w.cols - k0));
    const uint8_t* from = data + static_cast<uint64_t>(k0 / f.block * f.bytes) * (packed ? kPanel : 1);
    if (direct) {
      const int64_t at = x.at(c, 0);
      k_.dot_packed(from, kn, x.q + at * (kBlockK / 2), x.scale + at, static_cast<int>(x.tiling.rows), c == 0, s.acc);
      continue;
    }
    k_.unpack[w.type](from, w.row_bytes, rows, kn, *s.code_rows, *s.codes);
    float* acc = s.acc;
    for (int64_t t = tile0; t < tile1; ++t) {
      const int64_t at = x.at(c, x.tiling.first(t));
      const int h = x.tiling.height(t);
      k_.dot(*s.codes, kn, f.span, f.m_group, x.q + at * (kBlockK / 2), x.scale + at, x.sum + at * kSums, h, c == 0, acc);
      acc += h * kPanel;
    }
  }
}

// Room for `rows` quantised rows after the first `first` ones.
Backend::Quantised Backend::quantised(int64_t first, int64_t rows, int64_t cols, bool sums) const {
  Quantised x;
  x.tiling = Tiling(rows, k_.row_tile);
  x.cols = cols;
  x.sums = sums;
  const int64_t at = first * chunks_of(cols);
  x.q = q_ + at * (kBlockK / 2);
  x.scale = q_scale_ + at;
  x.sum = q_sum_ + at * kSums;
  return x;
}

// x: the tile's rows
void Backend::quantise_tile(const Quantised& to, const float* const* x, int64_t tile) const {
  const int64_t first = to.tiling.first(tile);
  for (int64_t k0 = 0, c = 0; k0 < to.cols; k0 += kBlockK, ++c) {
    const int64_t at = to.at(c, first);
    k_.quantise(x, to.tiling.height(tile), k0, static_cast<int>(std::min<int64_t>(kBlockK, to.cols - k0)), to.sums,
                to.q + at * (kBlockK / 2), to.scale + at, to.sum + at * kSums);
  }
}

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
  if (!integer(w) || exact_[id]) {
    product_f32(w, row_ptrs_.data(), m, c.cancel, done);
    return;
  }
  const Quantised q = quantised(0, m, w.cols, code_format(w.type)->m_group != 0);
  run_tasks(pool_, q.tiling.tiles, w.cols * k_.row_tile, c.cancel,
            [&](int64_t t, int) { quantise_tile(q, row_ptrs_.data() + q.tiling.first(t), t); });
  product_int(w, q, c.cancel, done);
}

}  // namespace strata::cpu
