// Encoders of the k-quants. A group's scale comes from its range (Q2_K, Q4_K, Q5_K) or its largest value (Q3_K, Q6_K)
// and is rounded to a small multiple of the block's half; values are then rounded against the scale as stored.
#include "quant/encode.h"

namespace strata::quant {

namespace {

// y = d * scale * c - m * minimum
struct WithMinimum {
  uint16_t d, m;                   // halves
  uint8_t scale[16], minimum[16];  // per group
  uint8_t code[256];
};

// Groups of `group` values, codes up to `top`, scale and minimum codes up to `stop`.
WithMinimum fit_with_minimum(const float* x, int group, int top, int stop) {
  WithMinimum f{};
  const int groups = 256 / group;
  float scale[16], minimum[16];
  for (int g = 0; g < groups; ++g) {
    const auto [low, high] = std::minmax_element(x + group * g, x + group * (g + 1));
    minimum[g] = *low < 0.0f ? -*low : 0.0f;
    scale[g] = (*high + minimum[g]) / static_cast<float>(top);
    scale[g] = std::max(scale[g], 0.0f);
  }
  f.d = scale_to_half(*std::max_element(scale, scale + groups) / static_cast<float>(stop));
  f.m = scale_to_half(*std::max_element(minimum, minimum + groups) / static_cast<float>(stop));
  const float d = widen_half(f.d), m = widen_half(f.m), rd = reciprocal(d), rm = reciprocal(m);
  for (int g = 0; g < groups; ++g) {
    const int s = limited(std::nearbyint(scale[g] * rd), 0, stop);
    const int b = limited(std::nearbyint(minimum[g] * rm), 0, stop);
    f.scale[g] = static_cast<uint8_t>(s);
    f.minimum[g] = static_cast<uint8_t>(b);
    const float r = reciprocal(d * static_cast<float>(s)), shift = m * static_cast<float>(b);
    for (int i = group * g; i < group * (g + 1); ++i) {
      f.code[i] = static_cast<uint8_t>(limited(std::nearbyint((x[i] + shift) * r), 0, top));
    }
  }
  return f;
}

// y = d * scale * (c - levels), groups of 16
struct Signed {
  uint16_t d;  // half
  int8_t scale[16];
  uint8_t code[256];
};

// Codes 0 ... 2 * levels - 1, scales -stop ... stop - 1.
Signed fit_signed(const float* x, int levels, int stop) {
  Signed f{};
  float scale[16];
  for (int g = 0; g < 16; ++g) scale[g] = signed_max(x + 16 * g, 16) / static_cast<float>(-levels);
  f.d = scale_to_half(signed_max(scale, 16) / static_cast<float>(-stop));
  const float d = widen_half(f.d), rd = reciprocal(d);
  for (int g = 0; g < 16; ++g) {
    const int s = limited(std::nearbyint(scale[g] * rd), -stop, stop - 1);
    f.scale[g] = static_cast<int8_t>(s);
    const float r = reciprocal(d * static_cast<float>(s));
    for (int i = 16 * g; i < 16 * g + 16; ++i) {
      f.code[i] = static_cast<uint8_t>(limited(std::nearbyint(x[i] * r), -levels, levels - 1) + levels);
    }
  }
  return f;
}

// Eight 6-bit scales and minimums in 12 bytes.
void pack_scales(const WithMinimum& f, uint8_t* out) {
  for (int j = 0; j < 4; ++j) {
    out[j] = static_cast<uint8_t>(f.scale[j] | (f.scale[j + 4] >> 4) << 6);
    out[j + 4] = static_cast<uint8_t>(f.minimum[j] | (f.minimum[j + 4] >> 4) << 6);
    out[j + 8] = static_cast<uint8_t>((f.scale[j + 4] & 15) | (f.minimum[j + 4] & 15) << 4);
  }
}

// Bit `bit` of 256 codes: bit g of byte l belongs to value 32 g + l.
void pack_planes(const uint8_t* q, int bit, uint8_t* out) {
  for (int l = 0; l < 32; ++l) {
    int byte = 0;
    for (int g = 0; g < 8; ++g) byte |= ((q[32 * g + l] >> bit) & 1) << g;
    out[l] = static_cast<uint8_t>(byte);
  }
}

}  // namespace

void encode_q2_k(const float* x, uint8_t* out) {
  const WithMinimum f = fit_with_minimum(x, 16, 3, 15);
  for (int g = 0; g < 16; ++g) out[g] = static_cast<uint8_t>(f.scale[g] | f.minimum[g] << 4);
  pack_pairs(f.code, 256, 32, out + 16);
  store_u16(out + 80, f.d);
  store_u16(out + 82, f.m);
}

void encode_q3_k(const float* x, uint8_t* out) {
  const Signed f = fit_signed(x, 4, 32);
  int s[16];
  for (int g = 0; g < 16; ++g) s[g] = f.scale[g] + 32;
  pack_planes(f.code, 2, out);
  pack_pairs(f.code, 256, 32, out + 32);
  for (int j = 0; j < 8; ++j) out[96 + j] = static_cast<uint8_t>((s[j] & 15) | (s[j + 8] & 15) << 4);
  for (int j = 0; j < 4; ++j) {
    const int high = s[j] >> 4 | (s[j + 4] >> 4) << 2 | (s[j + 8] >> 4) << 4 | (s[j + 12] >> 4) << 6;
    out[104 + j] = static_cast<uint8_t>(high);
  }
  store_u16(out + 108, f.d);
}

void encode_q4_k(const float* x, uint8_t* out) {
  const WithMinimum f = fit_with_minimum(x, 32, 15, 63);
  store_u16(out, f.d);
  store_u16(out + 2, f.m);
  pack_scales(f, out + 4);
  pack_nibbles(f.code, 256, 32, out + 16);
}

void encode_q5_k(const float* x, uint8_t* out) {
  const WithMinimum f = fit_with_minimum(x, 32, 31, 63);
  store_u16(out, f.d);
  store_u16(out + 2, f.m);
  pack_scales(f, out + 4);
  pack_planes(f.code, 4, out + 16);
  pack_nibbles(f.code, 256, 32, out + 48);
}

void encode_q6_k(const float* x, uint8_t* out) {
  const Signed f = fit_signed(x, 32, 128);
  pack_nibbles(f.code, 256, 64, out);
  uint8_t high[256];
  for (int i = 0; i < 256; ++i) high[i] = static_cast<uint8_t>(f.code[i] >> 4);
  pack_pairs(high, 256, 32, out + 128);
  for (int g = 0; g < 16; ++g) out[192 + g] = static_cast<uint8_t>(f.scale[g]);
  store_u16(out + 208, f.d);
}

}  // namespace strata::quant
