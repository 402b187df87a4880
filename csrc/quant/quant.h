// Block formats: stored bytes <-> float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/types.h"

namespace strata::quant {

// Decodes `n` values (a multiple of the type's block) from `src` (any alignment) into `dst`. Bit-exact by definition of
// the format, on every machine. The type must be one that type_info knows.
void dequantize_row(uint32_t type, const void* src, float* dst, int64_t n);

// Encodes `n` finite values. For making test and synthetic files. Throws InputError when a scale does not fit.
void quantize_row(uint32_t type, const float* src, void* dst, int64_t n);

float half_to_float(uint16_t h);
uint16_t float_to_half(float f);  // round to nearest even

}  // namespace strata::quant
