// Every kernel on every instruction set of this machine against the portable ones: the same bits, for all types, 1 to 33
// rows, ragged sizes and unaligned weights. Runs where Python does not: under an emulator of another processor.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>
#include <vector>

#include "cpu/backend.h"
#include "cpu/pack.h"
#include "cpu/product.h"
#include "quant/quant.h"

using namespace strata;
using namespace strata::cpu;

namespace {

int failures = 0;

bool same(const std::vector<float>& a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (std::memcmp(&a[i], &b[i], 4) != 0 && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
  return a.size() == b.size();
}
void check(bool ok, const std::string& what) {
  if (ok) return;
  ++failures;
  std::printf("differs: %s\n", what.c_str());
}

float* aligned(std::vector<float>& v, uint64_t floats) {
  v.assign(floats + 32, 0.0F);
  return v.data() + (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64 / 4;
}

const char* name(Activations mode) { return mode == Activations::F32 ? " f32" : mode == Activations::Int16 ? " int16" : " int8"; }

std::vector<float> product(const Kernels& k, Matrix w, int64_t m, const std::vector<float>& x, Activations mode, bool packed, int threads) {
  const bool exact = mode == Activations::F32, int8 = mode == Activations::Int8;
  std::vector<float> room, floats, y(static_cast<size_t>(m * w.rows));
  std::vector<std::byte> bytes;
  if (packed && !exact && packed_type(w.type) != w.type) {
    bytes.resize(packed_bytes(w) + 64);
    w = pack(w, bytes.data() + (64 - reinterpret_cast<uintptr_t>(bytes.data()) % 64) % 64);
  }
  ThreadPool pool(threads);
  float* p = aligned(room, static_cast<uint64_t>(threads) * ProductScratch::floats());
  std::vector<ProductScratch> scratch(static_cast<size_t>(threads));
  for (ProductScratch& s : scratch) p = s.take(p);
  const auto of = [&](int t) -> const ProductScratch& { return scratch[static_cast<size_t>(t)]; };
  const auto done = [&](int64_t r0, int64_t n, int64_t c0, int count, const float* acc) {
    for (int64_t r = 0; r < n; ++r) std::memcpy(&y[static_cast<size_t>((r0 + r) * w.rows + c0)], acc + r * kPanel, static_cast<size_t>(count) * 4);
  };
  std::vector<const float*> rows;
  for (int64_t r = 0; r < m; ++r) rows.push_back(x.data() + r * w.cols);
  const CodeFormat* f = code_format(w.type);
  if (exact || !f) {
    product_f32(k, pool, of, w, rows.data(), m, nullptr, done);
    return y;
  }
  const auto chunks = static_cast<uint64_t>(m * chunks_of(w.cols));
  const Quantised q = QuantisedPool(aligned(floats, chunks * Quantised::floats()), chunks).rows(k, 0, m, w.cols, form_of(k, int8, w.type), f->m_group != 0);
  for (int64_t t = 0; t < q.tiling.tiles; ++t) quantise_tile(k, q, rows.data() + q.tiling.first(t), t);
  product_int(k, pool, of, w, q, nullptr, done);
  return y;
}

void products(const std::vector<const Kernels*>& sets, std::mt19937& rng) {
  std::normal_distribution<float> normal;
  for (uint32_t type = 0; type < quant::kTypeIds; ++type) {
    const quant::TypeInfo* info = quant::type_info(type);
    if (!info) continue;
    for (const int64_t want : {300, 608, 1024}) {
      const auto block = static_cast<int64_t>(info->block_values);
      const int64_t cols = std::max(block, want / block * block), n = 35, m = 33;
      const uint64_t row_bytes = quant::row_bytes(*info, static_cast<uint64_t>(cols));
      std::vector<float> row(static_cast<size_t>(cols)), x(static_cast<size_t>(m * cols));
      for (float& v : x) v = normal(rng);
      x[3] = 1000;
      for (const uint64_t offset : {0, 2, 18, 66}) {
        std::vector<std::byte> raw(row_bytes * n + offset);
        for (int64_t r = 0; r < n; ++r) {
          for (float& v : row) v = normal(rng);
          quant::quantize_row(type, row.data(), raw.data() + offset + static_cast<uint64_t>(r) * row_bytes, cols);
        }
        const Matrix w{type, n, cols, row_bytes, raw.data() + offset};
        for (const Activations mode : {Activations::F32, Activations::Int16, Activations::Int8}) {
          if (mode == Activations::Int8 && !takes_int8(type)) continue;
          const std::vector<float> reference = product(kPortable, w, m, x, mode, false, 1);
          for (const Kernels* k : sets)
            for (const bool packed : {false, true}) {
              const std::string what = std::string(info->name) + " " + k->name + name(mode) + (packed ? " packed " : " ") +
                                       std::to_string(cols) + " at " + std::to_string(offset);
              check(same(product(*k, w, m, x, mode, packed, 2), reference), what);
              for (const int64_t few : {1, 2, 3, 4, 5, 8, 13, 24}) {
                const std::vector<float> got = product(*k, w, few, x, mode, packed, 1);
                check(same(got, {reference.begin(), reference.begin() + few * n}), what + ", rows " + std::to_string(few));
              }
            }
        }
      }
    }
  }
}

// The largest codes and integer scales with the largest activations; rows of zeros, tiny values, NaN and infinity. Bytes of one
// value, chosen so that half scales are finite; and random ones.
void extremes(const std::vector<const Kernels*>& sets, std::mt19937& rng) {
  constexpr int64_t cols = 512, kinds = 7;
  std::vector<float> x(kinds * cols, 1.0F);
  for (size_t i = 0; i < cols; ++i) {
    x[cols + i] = -1;
    x[2 * cols + i] = 0;
    x[3 * cols + i] *= 1e-38F;
    x[4 * cols + i] = i % 2 != 0 ? 1.0F : -1.0F;
  }
  x[5 * cols + 300] = std::nanf("");
  x[6 * cols + 5] = -INFINITY;
  for (uint32_t type = 0; type < quant::kTypeIds; ++type) {
    const quant::TypeInfo* info = quant::type_info(type);
    if (!info || !code_format(type)) continue;
    const uint64_t row_bytes = quant::row_bytes(*info, cols);
    for (const int fill : {0x00, 0x3f, 0x5a, 0x7b, 0x80, 0xbb, 0xf7, -1}) {
      for (const int64_t n : {16, 5}) {
        std::vector<std::byte> raw(row_bytes * static_cast<uint64_t>(n));
        for (std::byte& v : raw) v = static_cast<std::byte>(fill < 0 ? rng() & 255 : static_cast<uint32_t>(fill));
        const Matrix w{type, n, cols, row_bytes, raw.data()};
        for (const Activations mode : {Activations::Int16, Activations::Int8}) {
          if (mode == Activations::Int8 && !takes_int8(type)) continue;
          const std::vector<float> reference = product(kPortable, w, kinds, x, mode, false, 1);
          for (const Kernels* k : sets)
            for (const bool packed : {false, true})
              for (const int64_t m : {1, 2, 3, 7})
                for (int64_t r = 0; r + m <= kinds; ++r) {
                  const std::vector<float> got = product(*k, w, m, {x.begin() + r * cols, x.begin() + (r + m) * cols}, mode, packed, 1);
                  check(same(got, {reference.begin() + r * n, reference.begin() + (r + m) * n}),
                        std::string(info->name) + " " + k->name + name(mode) + " bytes " + std::to_string(fill) + ", rows " + std::to_string(r) + " + " +
                            std::to_string(m));
                }
        }
      }
    }
  }
}

// Vector ops over all lengths up to 70.
void vectors(const Kernels& k, std::mt19937& rng) {
  std::normal_distribution<float> normal(0, 3);
  const Kernels& p = kPortable;
  for (int n = 1; n <= 70; ++n) {
    std::vector<float> a(static_cast<size_t>(n)), b(a), c(a);
    std::vector<uint16_t> h(a.size()), h2(a.size());
    for (float& v : a) v = normal(rng);
    for (float& v : b) v = normal(rng);
    if (n > 4) a[3] = -200, a[4] = 150;
    p.to_f16(b.data(), h.data(), n);
    k.to_f16(b.data(), h2.data(), n);
    const std::string at = std::string(k.name) + " length " + std::to_string(n);
    check(h == h2, "to_f16 " + at);
    const auto value = [&](const char* what, auto&& f) { check(same({f(k)}, {f(p)}), what + (" " + at)); };
    const auto array = [&](const char* what, auto&& f) {
      std::vector<float> y1 = a, y2 = a;
      f(k, y1.data());
      f(p, y2.data());
      check(same(y1, y2), what + (" " + at));
    };
    value("dot", [&](const Kernels& q) { return q.dot_f32(a.data(), b.data(), n); });
    value("dot_f16", [&](const Kernels& q) { return q.dot_f16(a.data(), h.data(), n); });
    value("max", [&](const Kernels& q) { return q.max(a.data(), n); });
    array("axpy", [&](const Kernels& q, float* y) { q.axpy(y, 0.3F, b.data(), n); });
    array("axpy_f16", [&](const Kernels& q, float* y) { q.axpy_f16(y, 0.3F, h.data(), n); });
    array("rms_norm", [&](const Kernels& q, float* y) { q.rms_norm(y, b.data(), y, n, 1e-6F); });
    array("exp_sum", [&](const Kernels& q, float* y) { y[0] = q.exp_sum(y, 1.5F, n); });
    array("silu", [&](const Kernels& q, float* y) { q.silu_scaled(y, 4, n); });
    array("sigmoid", [&](const Kernels& q, float* y) { q.sigmoid_scaled(y, 4, 2, n); });
    array("gate", [&](const Kernels& q, float* y) { q.sigmoid_gate(y, b.data(), n); });
    array("swiglu", [&](const Kernels& q, float* y) { q.swiglu(y, b.data(), y, n); });
    array("scale", [&](const Kernels& q, float* y) { q.scale(y, 0.7F, n); });
    array("add", [&](const Kernels& q, float* y) { q.add(y, b.data(), n); });
  }
  // Delta rule on 48 rows of state and all widths of a strip.
  for (int columns = 1; columns <= kStrip; ++columns) {
    constexpr int dim = 48, tokens = 7;
    std::vector<float> strip(dim * kStrip), q(dim * tokens), key(q), v(kStrip * tokens), gate(tokens, 0.9F), o(kStrip * tokens);
    for (auto* x : {&strip, &q, &key, &v})
      for (float& f : *x) f = normal(rng) * 0.1F;
    // Columns past the last are 0, as the backend has them; whether a kernel computes with them is its own affair.
    for (int i = 0; i < dim; ++i) std::fill(strip.begin() + i * kStrip + columns, strip.begin() + (i + 1) * kStrip, 0.0F);
    std::vector<float> strip2 = strip, o2 = o;
    k.delta_scan(strip.data(), dim, tokens, q.data(), key.data(), dim, v.data(), kStrip, gate.data(), gate.data(), 1, o.data(), kStrip, columns);
    p.delta_scan(strip2.data(), dim, tokens, q.data(), key.data(), dim, v.data(), kStrip, gate.data(), gate.data(), 1, o2.data(), kStrip, columns);
    check(same(strip, strip2) && same(o, o2), std::string("delta_scan ") + k.name + " columns " + std::to_string(columns));
  }
}

}  // namespace

// As arguments: the instruction sets to test, instead of all.
int main(int argc, char** argv) {
  const std::vector<const char*> names = argc > 1 ? std::vector<const char*>(argv + 1, argv + argc) : isa_names();
  std::vector<const Kernels*> sets;
  for (const char* name : names) sets.push_back(&select_kernels(name));
  std::mt19937 rng(7);
  products(sets, rng);
  extremes(sets, rng);
  for (const Kernels* k : sets) {
    vectors(*k, rng);
    std::printf("%s: done, %d failures so far\n", k->name, failures);
  }
  return failures ? 1 : 0;
}
