// Encoders of the plain types, the types with 32, 64 or 128 values per block, and the ternary types: the scale follows
// from the largest value (Q4_1, Q5_1: from the range), each value goes to the nearest level.
#include <cstring>
#include <string>

#include "base/error.h"
#include "quant/encode.h"
#include "quant/quant.h"
#include "quant/tables.h"

namespace strata::quant {

uint16_t scale_to_half(float scale) {
  const uint16_t h = float_to_half(scale);
  if ((h & 0x7c00u) == 0x7c00u) {
    throw InputError("a scale of " + std::to_string(scale) + " does not fit a half (largest 65504)");
  }
  return h;
}

namespace {

// Codes 0 ... 2 * levels - 1 for d * (c - levels); the largest value gets code 0, so d has the opposite sign.
uint16_t symmetric(const float* x, int levels, uint8_t* q) {
  const float d = signed_max(x, 32) / static_cast<float>(-levels), r = reciprocal(d);
  for (int i = 0; i < 32; ++i) {
    const float c = std::trunc(x[i] * r + (static_cast<float>(levels) + 0.5f));
    q[i] = static_cast<uint8_t>(limited(c, 0, 2 * levels - 1));
  }
  return scale_to_half(d);
}

// Codes 0 ... top for d * c + m, the minimum gets code 0. Writes the two halves.
void asymmetric(const float* x, int top, uint8_t* q, uint8_t* halves) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  const float m = *low, d = (*high - m) / static_cast<float>(top), r = reciprocal(d);
  store_u16(halves, scale_to_half(d));
  store_u16(halves + 2, scale_to_half(m));
  for (int i = 0; i < 32; ++i) q[i] = static_cast<uint8_t>(limited(std::trunc((x[i] - m) * r + 0.5f), 0, top));
}

// Codes 0, 1, 2 for -d, 0, d.
uint16_t ternary(const float* x, uint8_t* q) {
  const float d = magnitude_max(x, 256), r = reciprocal(d);
  for (int i = 0; i < 256; ++i) q[i] = static_cast<uint8_t>(limited(round_away(x[i] * r) + 1.0f, 0, 2));
  return scale_to_half(d);
}

// The code whose value d * fp4 is nearest to x; of equals the lowest.
uint8_t nearest_fp4(float x, float d) {
  int best = 0;
  float distance = std::fabs(d * kvalues_fp4_f32[0] - x);
  for (int c = 1; c < 16; ++c) {
    const float v = std::fabs(d * kvalues_fp4_f32[c] - x);
    if (v < distance) {
      distance = v;
      best = c;
    }
  }
  return static_cast<uint8_t>(best);
}

// The UE4M3 byte of v >= 0, at most 0x7e (448): the fraction is rounded half up.
uint8_t to_ue4m3(float v) {
  v = std::min(v, 448.0f);
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  const int exponent = static_cast<int>(bits >> 23) - 120;
  if (exponent <= 0) return static_cast<uint8_t>(std::min(static_cast<int>(v * 512.0f + 0.5f), 7));
  const int fraction = static_cast<int>(((bits >> 20) & 7) + ((bits >> 19) & 1));
  return static_cast<uint8_t>(std::min((exponent << 3) + fraction, 0x7e));
}

}  // namespace

void encode_f32(const float* x, uint8_t* out) { std::memcpy(out, x, 4); }

void encode_f16(const float* x, uint8_t* out) {
  const uint16_t h = float_to_half(*x);
  if ((h & 0x7c00u) == 0x7c00u) {
    throw InputError("a value of " + std::to_string(*x) + " does not fit a half (largest 65504)");
  }
  store_u16(out, h);
}

// Rounds to nearest even.
void encode_bf16(const float* x, uint8_t* out) {
  const uint32_t bits = std::bit_cast<uint32_t>(*x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1)) >> 16;
  if ((rounded & 0x7f80u) == 0x7f80u) throw InputError("a value of " + std::to_string(*x) + " does not fit bf16");
  store_u16(out, static_cast<uint16_t>(rounded));
}

void encode_q4_0(const float* x, uint8_t* out) {
  uint8_t q[32];
  store_u16(out, symmetric(x, 8, q));
  pack_nibbles(q, 32, 16, out + 2);
}

void encode_q4_1(const float* x, uint8_t* out) {
  uint8_t q[32];
  asymmetric(x, 15, q, out);
  pack_nibbles(q, 32, 16, out + 4);
}

void encode_q5_0(const float* x, uint8_t* out) {
  uint8_t q[32];
  store_u16(out, symmetric(x, 16, q));
  pack_bits(q, 32, 4, out + 2);
  pack_nibbles(q, 32, 16, out + 6);
}

void encode_q5_1(const float* x, uint8_t* out) {
  uint8_t q[32];
  asymmetric(x, 31, q, out);
  pack_bits(q, 32, 4, out + 4);
  pack_nibbles(q, 32, 16, out + 8);
}

void encode_q8_0(const float* x, uint8_t* out) {
  const float d = magnitude_max(x, 32) / 127.0f, r = reciprocal(d);
  store_u16(out, scale_to_half(d));
  for (int i = 0; i < 32; ++i) {
    const int8_t c = static_cast<int8_t>(limited(round_away(x[i] * r), -127, 127));
    out[2 + i] = static_cast<uint8_t>(c);
  }
}

// The scale is the power of two that puts the largest value into [4, 8) of the E2M1 range -6 ... 6.
void encode_mxfp4(const float* x, uint8_t* out) {
  const float largest = magnitude_max(x, 32);
  int exponent = 0;
  if (largest > 0.0f) {
    std::frexp(largest, &exponent);
    exponent = std::clamp(exponent - 1 - 2 + 127, 0, 252);
  }
  const float d = std::ldexp(1.0f, exponent - 128);
  uint8_t q[32];
  for (int i = 0; i < 32; ++i) q[i] = nearest_fp4(x[i], d);
  out[0] = static_cast<uint8_t>(exponent);
  pack_nibbles(q, 32, 16, out + 1);
}

void encode_nvfp4(const float* x, uint8_t* out) {
  uint8_t q[64];
  for (int g = 0; g < 4; ++g) {
    out[g] = to_ue4m3(magnitude_max(x + 16 * g, 16) / 6.0f);
    const float d = std::bit_cast<float>(ue4m3_half[out[g]]);
    for (int i = 16 * g; i < 16 * g + 16; ++i) q[i] = nearest_fp4(x[i], d);
  }
  pack_nibbles(q, 64, 8, out + 4);
}

// d is the mean magnitude.
void encode_q1_0(const float* x, uint8_t* out) {
  uint8_t q[128];
  float sum = 0.0f;
  for (int i = 0; i < 128; ++i) {
    sum += std::fabs(x[i]);
    q[i] = x[i] >= 0.0f;
  }
  store_u16(out, scale_to_half(sum / 128.0f));
  pack_bits(q, 128, 0, out + 2);
}

void encode_q2_0(const float* x, uint8_t* out) {
  const float d = magnitude_max(x, 64), r = reciprocal(d);
  store_u16(out, scale_to_half(d));
  uint8_t q[64];
  for (int i = 0; i < 64; ++i) q[i] = static_cast<uint8_t>(limited(round_away(x[i] * r) + 1.0f, 0, 3));
  pack_pairs(q, 64, 1, out + 2);
}

// Digits t0 ... t4 as the byte ceil(256 * (81 t0 + 27 t1 + 9 t2 + 3 t3 + t4) / 243).
void encode_tq1_0(const float* x, uint8_t* out) {
  uint8_t q[256];
  store_u16(out + 52, ternary(x, q));
  struct Part {
    int first, run, digits;
  };
  for (const auto [first, run, digits] : {Part{0, 32, 5}, Part{160, 16, 5}, Part{240, 4, 4}}) {
    for (int i = 0; i < run; ++i) {
      int n = 0, weight = 81;
      for (int r = 0; r < digits; ++r, weight /= 3) n += weight * q[first + run * r + i];
      *out++ = static_cast<uint8_t>((n * 256 + 242) / 243);
    }
  }
}

void encode_tq2_0(const float* x, uint8_t* out) {
  uint8_t q[256];
  store_u16(out + 64, ternary(x, q));
  pack_pairs(q, 256, 32, out);
}

}  // namespace strata::quant
