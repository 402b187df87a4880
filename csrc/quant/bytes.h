// Loads of little-endian fields from blocks at any alignment, and the half-precision conversions.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace strata::quant {

static_assert(std::endian::native == std::endian::little, "block fields are little-endian and are loaded as they lie");

inline uint16_t load_u16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline uint32_t load_u32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline uint64_t load_u64(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

inline void store_u16(uint8_t* p, uint16_t v) { std::memcpy(p, &v, sizeof v); }
inline void store_u32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, sizeof v); }

// IEEE 754 binary16 -> binary32, exact for all 65536 patterns. No operand or result of the arithmetic is a float32
// denormal, so the value does not depend on a thread's flush-to-zero mode. Without branches, so that loops vectorise.
inline float widen_half(uint16_t h) {
  const uint32_t sign = (uint32_t{h} & 0x8000u) << 16;
  const uint32_t magnitude = uint32_t{h} & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + 0x38000000u + (magnitude >= 0x7c00u ? 0x38000000u : 0u);
  // A half below 2^-14 is its 10-bit fraction times 2^-24, the last place of 0.5: 0.5 + value, less 0.5.
  const uint32_t denormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude | 0x3f000000u) - 0.5f);
  const uint32_t is_denormal = 0u - static_cast<uint32_t>(magnitude < 0x0400u);  // all ones or zero
  return std::bit_cast<float>(sign | (denormal & is_denormal) | (normal & ~is_denormal));
}

inline float load_half(const uint8_t* p) { return widen_half(load_u16(p)); }

}  // namespace strata::quant
