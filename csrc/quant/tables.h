// Constant tables of the block formats: the grids, and the value tables of the 4-bit types also as float32.
#pragma once

#include <cstdint>

namespace strata::quant {

#include "quant/tables.inc"

// Float copies of the two 16-entry value tables, so that a lookup needs no conversion.
struct Values16 {
  float v[16];
  constexpr explicit Values16(const int8_t (&k)[16]) : v{} {
    for (int i = 0; i < 16; ++i) v[i] = static_cast<float>(k[i]);
  }
  constexpr float operator[](int i) const { return v[i]; }
};
inline constexpr Values16 kvalues_iq4_f32{kvalues_iq4};
inline constexpr Values16 kvalues_fp4_f32{kvalues_fp4};

}  // namespace strata::quant
