// Encoders of one type each: one block of finite values to its bytes, by plain searches without importance weights.
// They serve tests and synthetic files; the blocks are valid, the quality is that of round-to-nearest.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "quant/bytes.h"

namespace strata::quant {

void encode_f32(const float* x, uint8_t* out);
void encode_f16(const float* x, uint8_t* out);
void encode_bf16(const float* x, uint8_t* out);

void encode_q4_0(const float* x, uint8_t* out);
void encode_q4_1(const float* x, uint8_t* out);
void encode_q5_0(const float* x, uint8_t* out);
void encode_q5_1(const float* x, uint8_t* out);
void encode_q8_0(const float* x, uint8_t* out);
void encode_mxfp4(const float* x, uint8_t* out);
void encode_nvfp4(const float* x, uint8_t* out);
void encode_q1_0(const float* x, uint8_t* out);
void encode_q2_0(const float* x, uint8_t* out);
void encode_tq1_0(const float* x, uint8_t* out);
void encode_tq2_0(const float* x, uint8_t* out);

void encode_q2_k(const float* x, uint8_t* out);
void encode_q3_k(const float* x, uint8_t* out);
void encode_q4_k(const float* x, uint8_t* out);
void encode_q5_k(const float* x, uint8_t* out);
void encode_q6_k(const float* x, uint8_t* out);

void encode_iq2_xxs(const float* x, uint8_t* out);
void encode_iq2_xs(const float* x, uint8_t* out);
void encode_iq2_s(const float* x, uint8_t* out);
void encode_iq3_xxs(const float* x, uint8_t* out);
void encode_iq3_s(const float* x, uint8_t* out);
void encode_iq1_s(const float* x, uint8_t* out);
void encode_iq1_m(const float* x, uint8_t* out);
void encode_iq4_nl(const float* x, uint8_t* out);
void encode_iq4_xs(const float* x, uint8_t* out);

// The half nearest to a scale; throws InputError when that is not finite.
uint16_t scale_to_half(float scale);

// 1 / d, or 0 when that is not finite: a block of zeros, or of values too small for the scale, encodes as zeros.
inline float reciprocal(float d) {
  const float r = 1.0f / d;
  return std::isfinite(r) ? r : 0.0f;
}

// Rounds half away from zero.
inline float round_away(float v) { return std::trunc(v + std::copysign(0.5f, v)); }

// An integral float limited to [low, high] before it becomes an integer.
inline int limited(float v, int low, int high) {
  return static_cast<int>(std::clamp(v, static_cast<float>(low), static_cast<float>(high)));
}

// The first value whose magnitude is the largest, with its sign.
inline float signed_max(const float* x, int n) {
  float best = x[0];
  for (int i = 1; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(best)) best = x[i];
  }
  return best;
}

inline float magnitude_max(const float* x, int n) { return std::fabs(signed_max(x, n)); }

// Packs n nibbles: of each 2 * run codes the first `run` go to the low nibbles of `run` bytes, the others to the high.
inline void pack_nibbles(const uint8_t* q, int n, int run, uint8_t* out) {
  for (int i = 0; i < n; i += 2 * run) {
    for (int j = 0; j < run; ++j) *out++ = static_cast<uint8_t>((q[i + j] & 15) | (q[i + run + j] & 15) << 4);
  }
}

// Packs n 2-bit codes: of each 4 * run codes, every run of `run` takes two more bits of the same `run` bytes.
inline void pack_pairs(const uint8_t* q, int n, int run, uint8_t* out) {
  for (int i = 0; i < n; i += 4 * run) {
    for (int j = 0; j < run; ++j) {
      int byte = 0;
      for (int k = 0; k < 4; ++k) byte |= (q[i + k * run + j] & 3) << (2 * k);
      *out++ = static_cast<uint8_t>(byte);
    }
  }
}

// Packs bit `bit` of n codes, eight neighbours in a byte, lowest bit first.
inline void pack_bits(const uint8_t* q, int n, int bit, uint8_t* out) {
  for (int i = 0; i < n; i += 8) {
    int byte = 0;
    for (int j = 0; j < 8; ++j) byte |= ((q[i + j] >> bit) & 1) << j;
    *out++ = static_cast<uint8_t>(byte);
  }
}

}  // namespace strata::quant
