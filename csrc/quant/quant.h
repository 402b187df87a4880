// Block formats: stored bytes <-> float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/types.h"

namespace strata::quant {

// Decodes `n` values (a multiple of the type's block) from `src` (any alignment) into `dst`. Bit-exact by definition of
// the format, on every machine and in every floating-point mode (flush-to-zero, denormals-are-zero). The type must be
// one that type_info knows. Reads no byte past the last block. Throws InputError on another type or length.
void dequantize_row(uint32_t type, const void* src, float* dst, int64_t n);

// The routine behind dequantize_row, for loops that look it up once: `blocks` whole blocks. nullptr when strata cannot
// read the type.
using RowDecoder = void (*)(const uint8_t* src, float* dst, int64_t blocks);
RowDecoder row_decoder(uint32_t type);

// Encodes `n` finite values. For making test and synthetic files. Throws InputError when a scale does not fit.
void quantize_row(uint32_t type, const float* src, void* dst, int64_t n);

// Number of blocks of `n` values; throws InputError when `n` is negative or not a multiple of the type's block.
int64_t whole_blocks(const TypeInfo& t, int64_t n);

float half_to_float(uint16_t h);
uint16_t float_to_half(float f);  // round to nearest even

}  // namespace strata::quant
