// Types with 32, 64 or 128 values per block: one scale (and perhaps a minimum) for all of them, or one per 16.
// d, m: scale and minimum; c: integer code of a value.
#include "quant/bytes.h"
#include "quant/decode.h"
#include "quant/tables.h"

namespace strata::quant {

namespace {

// 16 bytes hold 32 codes of 4 bits: the low nibbles are values 0..15, the high nibbles values 16..31.
inline void nibbles32(const uint8_t* q, int32_t* c) {
  for (int i = 0; i < 16; ++i) {
    c[i] = q[i] & 15;
    c[i + 16] = q[i] >> 4;
  }
}

// Masks in a table, because not every vector unit can shift each lane by its own count.
struct Bits32 {
  uint32_t mask[32];
  constexpr Bits32() : mask{} {
    for (int i = 0; i < 32; ++i) mask[i] = uint32_t{1} << i;
  }
};
constexpr Bits32 kBits32;

// The fifth bit of value e is bit e of h.
inline void fifth_bits32(uint32_t h, int32_t* c) {
  for (int i = 0; i < 32; ++i) c[i] |= (h & kBits32.mask[i]) != 0 ? 16 : 0;
}

// MXFP4 values under the two scales that are float32 denormals, 2^-128 and 2^-127. Made at compile time, so that
// they do not depend on the flush-to-zero mode of the thread that decodes.
struct TinyFp4 {
  float value[2][16];
  constexpr TinyFp4() : value{} {
    for (int e = 0; e < 2; ++e) {
      for (int c = 0; c < 16; ++c) value[e][c] = static_cast<float>(kvalues_fp4[c]) * (e ? 0x1p-127f : 0x1p-128f);
    }
  }
};
constexpr TinyFp4 kTinyFp4;

}  // namespace

// 34 bytes: d half, 32 signed bytes. y = d * c.
void decode_q8_0(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 34, dst += 32) {
    const float d = load_half(src);
    int8_t q[32];
    std::memcpy(q, src + 2, 32);
    for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(q[i]);
  }
}

// 18 bytes: d half, 32 nibbles. y = d * (c - 8).
void decode_q4_0(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 18, dst += 32) {
    const float d = load_half(src);
    int32_t c[32];
    nibbles32(src + 2, c);
    for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(c[i] - 8);
  }
}

// 20 bytes: d half, m half, 32 nibbles. y = d * c + m.
void decode_q4_1(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 20, dst += 32) {
    const float d = load_half(src), m = load_half(src + 2);
    int32_t c[32];
    nibbles32(src + 4, c);
    for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(c[i]) + m;
  }
}

// 22 bytes: d half, 32 fifth bits, 32 nibbles. y = d * (c - 16).
void decode_q5_0(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 22, dst += 32) {
    const float d = load_half(src);
    int32_t c[32];
    nibbles32(src + 6, c);
    fifth_bits32(load_u32(src + 2), c);
    for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(c[i] - 16);
  }
}

// 24 bytes: d half, m half, 32 fifth bits, 32 nibbles. y = d * c + m.
void decode_q5_1(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 24, dst += 32) {
    const float d = load_half(src), m = load_half(src + 2);
    int32_t c[32];
    nibbles32(src + 8, c);
    fifth_bits32(load_u32(src + 4), c);
    for (int i = 0; i < 32; ++i) dst[i] = d * static_cast<float>(c[i]) + m;
  }
}

// 18 bytes: d half, 32 nibbles. y = d * iq4[c].
void decode_iq4_nl(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 18, dst += 32) {
    const float d = load_half(src);
    const uint8_t* q = src + 2;
    float level[16];
    for (int c = 0; c < 16; ++c) level[c] = d * kvalues_iq4_f32[c];
    for (int i = 0; i < 16; ++i) {
      dst[i] = level[q[i] & 15];
      dst[i + 16] = level[q[i] >> 4];
    }
  }
}

// 17 bytes: scale exponent s, 32 nibbles. y = 2^(s - 128) * fp4[c].
void decode_mxfp4(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 17, dst += 32) {
    const uint8_t* q = src + 1;
    float value[16];
    if (src[0] < 2) {
      std::memcpy(value, kTinyFp4.value[src[0]], sizeof value);
    } else {
      const float d = std::bit_cast<float>((uint32_t{src[0]} - 1) << 23);
      for (int c = 0; c < 16; ++c) value[c] = d * static_cast<float>(kvalues_fp4[c]);
    }
    for (int i = 0; i < 16; ++i) {
      dst[i] = value[q[i] & 15];
      dst[i + 16] = value[q[i] >> 4];
    }
  }
}

// 36 bytes: four UE4M3 scales, then 8 bytes for each sub-block of 16 (low nibbles values 0..7, high nibbles 8..15).
// y = ue4m3(s) / 2 * fp4[c], fp4 holding doubled values.
void decode_nvfp4(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 36, dst += 64) {
    for (int g = 0; g < 4; ++g) {
      const float d = std::bit_cast<float>(ue4m3_half[src[g]]);
      const uint8_t* q = src + 4 + 8 * g;
      float* y = dst + 16 * g;
      for (int i = 0; i < 8; ++i) {
        y[i] = d * kvalues_fp4_f32[q[i] & 15];
        y[i + 8] = d * kvalues_fp4_f32[q[i] >> 4];
      }
    }
  }
}

// 18 bytes: d half, 128 bits. y = bit ? d : -d.
void decode_q1_0(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 18, dst += 128) {
    const uint32_t d = std::bit_cast<uint32_t>(load_half(src));
    for (int i = 0; i < 16; ++i) {
      const uint32_t q = src[2 + i];
      uint32_t y[8];
      for (int j = 0; j < 8; ++j) y[j] = d ^ ((q & (1u << j)) ? 0u : 0x80000000u);
      std::memcpy(dst + 8 * i, y, sizeof y);
    }
  }
}

// 18 bytes: d half, 64 codes of 2 bits, four neighbours in a byte. y = d * (c - 1).
void decode_q2_0(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 18, dst += 64) {
    const float d = load_half(src);
    for (int i = 0; i < 16; ++i) {
      const int32_t q = src[2 + i];
      for (int j = 0; j < 4; ++j) dst[4 * i + j] = d * static_cast<float>(((q >> (2 * j)) & 3) - 1);
    }
  }
}

}  // namespace strata::quant
