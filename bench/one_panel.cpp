// Products of one panel (16 weight rows of 256 values) with ROWS rows of activations, REPEATS times over: for counting the
// instructions of kernels under an emulator (bench/README.md). one_panel ISA TYPE ROWS REPEATS; TYPE "packed" is Q8_0 in panel order.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cpu/pack.h"
#include "cpu/product.h"
#include "quant/quant.h"

using namespace strata;
using namespace strata::cpu;

namespace {

float* aligned(std::vector<float>& v, uint64_t floats) {
  v.assign(floats + 32, 0.0F);
  return v.data() + (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64 / 4;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const Kernels& k = select_kernels(argv[1]);
  const bool packed = std::strcmp(argv[2], "packed") == 0;
  const quant::TypeInfo* info = quant::type_by_name(packed ? "Q8_0" : argv[2]);
  if (!info || !code_format(info->id)) return 2;
  const uint32_t type = info->id;
  const int64_t m = std::atoi(argv[3]);
  std::vector<float> x(static_cast<size_t>(m * kBlockK)), room, floats, packed_room;
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 15) - 7;
  const uint64_t row_bytes = quant::row_bytes(*info, kBlockK);
  std::vector<std::byte> raw(row_bytes * kPanel);  // any bytes: no kernel looks at what it multiplies
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<std::byte>(37 * i);
  Matrix w{type, kPanel, kBlockK, row_bytes, raw.data()};
  if (packed) w = pack(w, reinterpret_cast<std::byte*>(aligned(packed_room, packed_bytes(w) / 4)));
  ProductScratch s;
  s.take(aligned(room, ProductScratch::floats()));
  const auto chunks = static_cast<uint64_t>(m);
  const Quantised q = QuantisedPool(aligned(floats, chunks * Quantised::floats()), chunks).rows(k, 0, m, kBlockK, Form::Int16, code_format(w.type)->m_group != 0);
  std::vector<const float*> rows;
  for (int64_t r = 0; r < m; ++r) rows.push_back(x.data() + r * kBlockK);
  for (int64_t t = 0; t < q.tiling.tiles; ++t) quantise_tile(k, q, rows.data() + q.tiling.first(t), t);
  for (int i = 0; i < std::atoi(argv[4]); ++i) panel_int(k, w, 0, q, 0, q.tiling.tiles, s, Ahead());
  std::printf("%g\n", static_cast<double>(s.acc[0]));
}
