// Resident weights in the order in which panels read them.
#pragma once

#include "cpu/product.h"

namespace strata::cpu {

// The type in which a matrix of `type` is kept: kPackedQ8 for Q8_0, else itself.
uint32_t packed_type(uint32_t type);
// Bytes of a packed matrix: whole panels of 16 rows.
uint64_t packed_bytes(const Matrix& w);
// Packs w into `to` (64-byte aligned). Missing rows of the last panel are zero.
Matrix pack(const Matrix& w, std::byte* to);

}  // namespace strata::cpu
