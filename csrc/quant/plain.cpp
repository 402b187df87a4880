// F32, F16, BF16: one value per block.
#include <cstring>

#include "quant/bytes.h"
#include "quant/decode.h"
#include "quant/quant.h"

namespace strata::quant {

float half_to_float(uint16_t h) { return widen_half(h); }

uint16_t float_to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x03ffu));  // NaN
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);  // from 65520 on: rounds to infinity
  uint32_t half, rest, unit;  // the half below, what is cut off, and one unit of the half's last place
  if (magnitude >= 0x38800000u) {  // 2^-14: normal halves
    half = (magnitude - 0x38000000u) >> 13;
    unit = 1u << 13;
    rest = magnitude & (unit - 1);
  } else if (magnitude >= 0x33000000u) {  // 2^-25 ... 2^-14: the fraction is shifted into place
    const uint32_t shift = 126u - (magnitude >> 23);  // 14 ... 24
    const uint32_t fraction = (magnitude & 0x007fffffu) | 0x00800000u;
    half = fraction >> shift;
    unit = 1u << shift;
    rest = fraction & (unit - 1);
  } else {
    return static_cast<uint16_t>(sign);
  }
  if (rest > unit / 2 || (rest == unit / 2 && (half & 1u))) ++half;  // the carry may move to the next exponent
  return static_cast<uint16_t>(sign | half);
}

void decode_f32(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  if (blocks > 0) std::memcpy(dst, src, static_cast<size_t>(blocks) * 4);
}

void decode_f16(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (int64_t i = 0; i < blocks; ++i) dst[i] = load_half(src + 2 * i);
}

// The upper half of a float32.
void decode_bf16(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (int64_t i = 0; i < blocks; ++i) {
    const uint32_t bits = uint32_t{load_u16(src + 2 * i)} << 16;
    std::memcpy(dst + i, &bits, sizeof bits);  // as bits: a signalling NaN stays what it is
  }
}

}  // namespace strata::quant
