// Products with weights in their block formats.
//
// 16 weight rows x 256 values are unpacked once into a panel in the first-level cache (lane = weight row) and used for all
// rows of a task. The sums of an output, in rising k, are the same for any number of rows, tile, block and thread:
//   integers  kernels.h, `dot`: exact sums per span, one fma per span, one per 256 values
//   float32   a chain of fma within 256 values, the partial sums added
#include "cpu/product.h"

#include <cstring>

#include "quant/quant.h"

namespace strata::cpu {

float* ProductScratch::take(float* p) {
  codes = reinterpret_cast<CodePanel*>(p);
  code_rows = reinterpret_cast<Rows*>(codes + 1);
  rows = reinterpret_cast<float*>(code_rows + 1);
  panel = rows + kPanel * kBlockK;
  acc = panel + kPanel * kBlockK;
  up = acc + kRowBlock * kPanel;
  x = reinterpret_cast<const float**>(up + kRowBlock * kPanel);
  return reinterpret_cast<float*>(x + kRowBlock);
}

Form form_of(const Kernels& k, bool int8, uint32_t type) {
  if (!int8 || !takes_int8(type)) return Form::Int16;
  return k.unpack8[type] ? k.form8[type] : Form::Int8;
}

Form form_of(const Kernels& k, bool int8, uint32_t a, uint32_t b) {
  const Form x = form_of(k, int8, a), y = form_of(k, int8, b);
  if (x == y) return x;
  return x == Form::Int16 || y == Form::Int16 ? Form::Int16 : Form::Int8;
}

Quantised QuantisedPool::rows(const Kernels& k, int64_t first, int64_t rows, int64_t cols, Form form, bool minimums) const {
  Quantised x;
  x.tiling = Tiling(rows, k.row_tile);
  x.cols = cols;
  x.form = form;
  x.sums = minimums || x.bytes();
  const int64_t at = first * chunks_of(cols);
  x.q = q + at * (kBlockK / 2);
  x.scale = scale + at;
  x.sum = sum + at * kSums;
  return x;
}

void quantise_tile(const Kernels& k, const Quantised& to, const float* const* x, int64_t tile) {
  const int64_t first = to.tiling.first(tile);
  for (int64_t k0 = 0, c = 0; k0 < to.cols; k0 += kBlockK, ++c) {
    const int64_t at = to.at(c, first);
    k.quantise(x, to.tiling.height(tile), k0, static_cast<int>(std::min<int64_t>(kBlockK, to.cols - k0)), to.form, to.sums,
               to.q + at * to.words(), to.scale + at, to.sum + at * kSums);
  }
}

void panel_f32(const Kernels& k, const Matrix& w, int64_t row, const float* const* x, int64_t m, const ProductScratch& s) {
  const int64_t n = std::min<int64_t>(kPanel, w.rows - row);
  const quant::TypeInfo& type = *quant::type_info(w.type);
  const std::byte* first = w.data + static_cast<uint64_t>(row) * w.row_bytes;
  const bool floats = w.type == quant::kF32 && n == kPanel && reinterpret_cast<uintptr_t>(first) % sizeof(float) == 0;
  for (int64_t k0 = 0; k0 < w.cols; k0 += kBlockK) {
    const int kn = static_cast<int>(std::min<int64_t>(kBlockK, w.cols - k0));
    if (floats) {
      k.transpose_panel(reinterpret_cast<const float*>(first) + k0, w.cols, kn, s.panel);
    } else if (k.panel_q8 && w.type == kQ8_0 && n == kPanel) {
      k.panel_q8(reinterpret_cast<const uint8_t*>(first) + k0 / 32 * 34, w.row_bytes, kn, s.panel);
    } else {
      const uint64_t skip = quant::row_bytes(type, static_cast<uint64_t>(k0));
      for (int64_t j = 0; j < n; ++j)
        quant::dequantize_row(w.type, first + static_cast<uint64_t>(j) * w.row_bytes + skip, s.rows + j * kBlockK, kn);
      for (int64_t j = n; j < kPanel; ++j) std::memset(s.rows + j * kBlockK, 0, sizeof(float) * static_cast<size_t>(kn));
      k.transpose_panel(s.rows, kBlockK, kn, s.panel);
    }
    k.panel_mac(s.panel, kn, x, k0, static_cast<int>(m), k0 == 0, s.acc);
  }
}

void panel_int(const Kernels& k, const Matrix& w, int64_t row, const Quantised& x, int64_t tile0, int64_t tile1, const ProductScratch& s,
               Ahead next) {
  const CodeFormat& f = *code_format(w.type);
  const bool packed = w.type == kPackedQ8;
  const auto* data = reinterpret_cast<const uint8_t*>(w.data) + static_cast<uint64_t>(row) * w.row_bytes;
  const int rows = static_cast<int>(std::min<int64_t>(kPanel, w.rows - row));
  const int64_t m = x.tiling.rows;
  const bool few = m <= (x.bytes() ? 1 : packed ? std::min(4, k.row_tile) : 3);  // without a panel
  auto& bytes = *reinterpret_cast<BytePanel*>(s.codes);
  const int64_t chunks = chunks_of(w.cols);
  for (int64_t k0 = 0, c = 0; k0 < w.cols; k0 += kBlockK, ++c) {
    const int kn = static_cast<int>(std::min<int64_t>(kBlockK, w.cols - k0));
    const uint64_t chunk = static_cast<uint64_t>(kBlockK / f.block * f.bytes) * (packed ? kPanel : 1);
    const uint8_t* from = data + chunk * static_cast<uint64_t>(c);
    if (few) {
      next.part(c, chunks);
      const int64_t at = x.at(c, 0);
      const uint32_t* q = x.q_at(at);
      const float *scale = x.scale + at, *sum = x.sum + at * kSums;
      if (x.bytes())
        k.row8[w.type](from, w.row_bytes, rows, kn, q, scale, sum, c == 0, s.acc);
      else if (packed)
        k.dot_packed(from, kn, q, scale, sum, static_cast<int>(m), c == 0, s.acc);
      else
        k.direct[w.type](from, w.row_bytes, rows, kn, *s.code_rows, *s.codes, q, scale, sum, static_cast<int>(m), c == 0, s.acc);
      continue;
    }
    if (x.bytes())
      k.unpack8[w.type](from, w.row_bytes, rows, kn, bytes);
    else
      k.unpack[w.type](from, w.row_bytes, rows, kn, *s.code_rows, *s.codes);
    float* acc = s.acc;
    for (int64_t t = tile0; t < tile1; ++t) {
      next.part(c * (tile1 - tile0) + t - tile0, chunks * (tile1 - tile0));
      const int64_t at = x.at(c, x.tiling.first(t));
      const int h = x.tiling.height(t);
      const uint32_t* q = x.q_at(at);
      const float *scale = x.scale + at, *sum = x.sum + at * kSums;
      if (x.bytes())
        k.dot8(bytes, kn, f, q, scale, sum, h, c == 0, acc);
      else
        k.dot(*s.codes, kn, f.span, f.m_group, q, scale, sum, h, c == 0, acc);
      acc += h * kPanel;
    }
  }
}

}  // namespace strata::cpu
