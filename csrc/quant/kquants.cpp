// k-quants: 256 values per block, a half times a small integer scale for each group of 16 or 32.
// d, m: scale and minimum of the block; c: integer code of a value.
#include "quant/bytes.h"
#include "quant/decode.h"

namespace strata::quant {

namespace {

// The 12 packed bytes of Q4_K and Q5_K: eight 6-bit scales and eight 6-bit minimums.
inline void unpack_scales(const uint8_t* s, int32_t* scale, int32_t* minimum) {
  for (int j = 0; j < 4; ++j) {
    scale[j] = s[j] & 63;
    minimum[j] = s[j + 4] & 63;
    scale[j + 4] = (s[j + 8] & 15) | (s[j] >> 6) << 4;
    minimum[j + 4] = (s[j + 8] >> 4) | (s[j + 4] >> 6) << 4;
  }
}

// Quarter k of half a block of Q3_K: 32 values in two groups with the scales d[0], d[1]. The plane of the third bit is
// a parameter so that all shifts are constants.
template <int k, int plane>
inline void quarter_q3(const uint8_t* q, const uint8_t* h, const float* d, float* y) {
  for (int g = 0; g < 2; ++g) {
    for (int l = 16 * g; l < 16 * g + 16; ++l) {
      const int32_t c = ((q[l] >> (2 * k)) & 3) + 4 * ((h[l] >> plane) & 1) - 4;
      y[l] = d[g] * static_cast<float>(c);
    }
  }
}

// Quarter k of half a block of Q6_K: 32 values in two groups with the scales d[0], d[1].
template <int k>
inline void quarter_q6(const uint8_t* low, const uint8_t* high, const float* d, float* y) {
  constexpr int shift = k < 2 ? 0 : 4;
  low += 32 * (k % 2);
  for (int g = 0; g < 2; ++g) {
    for (int l = 16 * g; l < 16 * g + 16; ++l) {
      const int32_t c = ((low[l] >> shift) & 15) + 16 * ((high[l] >> (2 * k)) & 3) - 32;
      y[l] = d[g] * static_cast<float>(c);
    }
  }
}

}  // namespace

// 84 bytes: 16 x (4-bit scale, 4-bit minimum), 64 bytes of 2-bit codes, d half, m half.
// y = d * S * c - m * M, groups of 16; a run of 32 code bytes holds four runs of 32 values, lowest bits first.
void decode_q2_k(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 84, dst += 256) {
    const float d = load_half(src + 80), m = load_half(src + 82);
    for (int j = 0; j < 16; ++j) {
      const float scale = d * static_cast<float>(src[j] & 15), minimum = m * static_cast<float>(src[j] >> 4);
      const uint8_t* q = src + 16 + 32 * (j / 8) + 16 * (j % 2);
      const int shift = 2 * (j / 2 % 4);
      float* y = dst + 16 * j;
      for (int i = 0; i < 16; ++i) y[i] = scale * static_cast<float>((q[i] >> shift) & 3) - minimum;
    }
  }
}

// 110 bytes: 32 bytes of third bits, 64 bytes of 2-bit codes, 12 bytes of 6-bit scales, d half.
// y = d * (S - 32) * (c - 4), groups of 16.
void decode_q3_k(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 110, dst += 256) {
    const float d = load_half(src + 108);
    const uint8_t* s = src + 96;
    float scale[16];
    for (int j = 0; j < 16; ++j) {
      const int32_t low = j < 8 ? s[j] & 15 : s[j - 8] >> 4;
      const int32_t high = (s[8 + j % 4] >> (2 * (j / 4))) & 3;
      scale[j] = d * static_cast<float>(low + 16 * high - 32);
    }
    const uint8_t* q = src + 32;
    quarter_q3<0, 0>(q, src, scale, dst);
    quarter_q3<1, 1>(q, src, scale + 2, dst + 32);
    quarter_q3<2, 2>(q, src, scale + 4, dst + 64);
    quarter_q3<3, 3>(q, src, scale + 6, dst + 96);
    quarter_q3<0, 4>(q + 32, src, scale + 8, dst + 128);
    quarter_q3<1, 5>(q + 32, src, scale + 10, dst + 160);
    quarter_q3<2, 6>(q + 32, src, scale + 12, dst + 192);
    quarter_q3<3, 7>(q + 32, src, scale + 14, dst + 224);
  }
}

// 144 bytes: d half, m half, 12 bytes of scales, 128 bytes of nibbles (32 bytes: low nibbles group 2n, high 2n + 1).
// y = d * S * c - m * M, groups of 32.
void decode_q4_k(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 144, dst += 256) {
    const float d = load_half(src), m = load_half(src + 2);
    int32_t scale[8], minimum[8];
    unpack_scales(src + 4, scale, minimum);
    for (int n = 0; n < 4; ++n) {
      const uint8_t* q = src + 16 + 32 * n;
      const float d0 = d * static_cast<float>(scale[2 * n]), m0 = m * static_cast<float>(minimum[2 * n]);
      const float d1 = d * static_cast<float>(scale[2 * n + 1]), m1 = m * static_cast<float>(minimum[2 * n + 1]);
      float* y = dst + 64 * n;
      for (int l = 0; l < 32; ++l) y[l] = d0 * static_cast<float>(q[l] & 15) - m0;
      for (int l = 0; l < 32; ++l) y[l + 32] = d1 * static_cast<float>(q[l] >> 4) - m1;
    }
  }
}

// 176 bytes: as Q4_K with 32 bytes of fifth bits between the scales and the nibbles; bit j of byte l: group j, value l.
void decode_q5_k(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 176, dst += 256) {
    const float d = load_half(src), m = load_half(src + 2);
    const uint8_t* h = src + 16;
    int32_t scale[8], minimum[8];
    unpack_scales(src + 4, scale, minimum);
    for (int n = 0; n < 4; ++n) {
      const uint8_t* q = src + 48 + 32 * n;
      const float d0 = d * static_cast<float>(scale[2 * n]), m0 = m * static_cast<float>(minimum[2 * n]);
      const float d1 = d * static_cast<float>(scale[2 * n + 1]), m1 = m * static_cast<float>(minimum[2 * n + 1]);
      float* y = dst + 64 * n;
      for (int l = 0; l < 32; ++l) {
        y[l] = d0 * static_cast<float>((q[l] & 15) + 16 * ((h[l] >> (2 * n)) & 1)) - m0;
      }
      for (int l = 0; l < 32; ++l) {
        y[l + 32] = d1 * static_cast<float>((q[l] >> 4) + 16 * ((h[l] >> (2 * n + 1)) & 1)) - m1;
      }
    }
  }
}

// 210 bytes: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, d half.
// y = d * S * (c - 32), groups of 16. For each half n of the block: nibbles of byte 64n + 32(k % 2) + l (high ones
// for k >= 2) and bits 2k of byte 32n + l belong to value 128n + 32k + l.
void decode_q6_k(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 210, dst += 256) {
    const float d = load_half(src + 208);
    int8_t s[16];
    std::memcpy(s, src + 192, 16);
    float scale[16];
    for (int j = 0; j < 16; ++j) scale[j] = d * static_cast<float>(s[j]);
    for (int n = 0; n < 2; ++n) {
      const uint8_t *low = src + 64 * n, *high = src + 128 + 32 * n;
      quarter_q6<0>(low, high, scale + 8 * n, dst + 128 * n);
      quarter_q6<1>(low, high, scale + 8 * n + 2, dst + 128 * n + 32);
      quarter_q6<2>(low, high, scale + 8 * n + 4, dst + 128 * n + 64);
      quarter_q6<3>(low, high, scale + 8 * n + 6, dst + 128 * n + 96);
    }
  }
}

}  // namespace strata::quant
