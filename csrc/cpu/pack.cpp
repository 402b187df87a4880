// Q8_0 in panel order: per 16 rows and 32 values, eight quads (four neighbouring values of each row: 64 bytes), then the 16
// half scales. The same bytes as the rows, without their transposition at every use.
#include "cpu/pack.h"

#include <cstring>

#include "quant/quant.h"

namespace strata::cpu {

uint32_t packed_type(uint32_t type) { return type == kQ8_0 ? kPackedQ8 : type; }

uint64_t packed_bytes(const Matrix& w) {
  if (packed_type(w.type) == w.type) return static_cast<uint64_t>(w.rows) * w.row_bytes;
  return static_cast<uint64_t>((w.rows + kPanel - 1) / kPanel * kPanel) * w.row_bytes;
}

Matrix pack(const Matrix& w, std::byte* to) {
  auto* out = reinterpret_cast<uint8_t*>(to);
  for (int64_t row = 0; row < w.rows; row += kPanel)
    for (int64_t k = 0; k < w.cols; k += 32, out += kPanel * 34)
      for (int64_t r = 0; r < kPanel; ++r) {
        static constexpr uint8_t kZero[34] = {};
        const auto* b = row + r < w.rows
                            ? reinterpret_cast<const uint8_t*>(w.data) + static_cast<uint64_t>(row + r) * w.row_bytes + static_cast<uint64_t>(k / 32 * 34)
                            : kZero;
        for (int64_t q = 0; q < 8; ++q) std::memcpy(out + 64 * q + 4 * r, b + 2 + 4 * q, 4);
        std::memcpy(out + 512 + 2 * r, b, 2);
      }
  return {kPackedQ8, w.rows, w.cols, w.row_bytes, to};
}

}  // namespace strata::cpu
