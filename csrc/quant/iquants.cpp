// Grid types: 256 values per block; vectors of 8 or 4 magnitudes come from a fixed grid, their signs separately.
// "Vector v" holds values 8v ... 8v + 7. d: scale of the block; S: small integer scale of a group.
#include "quant/bytes.h"
#include "quant/decode.h"
#include "quant/tables.h"

namespace strata::quant {

namespace {

// y[j] = scale * magnitude[j], negative where bit j of signs is set. Magnitudes are never zero.
inline void signed8(float scale, const uint8_t* magnitude, uint32_t signs, float* y) {
  int32_t v[8];
  for (int j = 0; j < 8; ++j) {
    const int32_t negative = (signs & (1u << j)) ? -1 : 0;
    v[j] = (static_cast<int32_t>(magnitude[j]) ^ negative) - negative;
  }
  for (int j = 0; j < 8; ++j) y[j] = scale * static_cast<float>(v[j]);
}

// The same with the magnitudes in two grid entries of four.
inline void signed4x2(float scale, const uint8_t* first, const uint8_t* second, uint32_t signs, float* y) {
  uint8_t magnitude[8];
  std::memcpy(magnitude, first, 4);
  std::memcpy(magnitude + 4, second, 4);
  signed8(scale, magnitude, signs, y);
}

// y[j] = scale * (grid[j] + delta), delta = -1/8 or 1/8.
inline void shifted8(float scale, const int8_t* grid, bool minus, float* y) {
  const float delta = minus ? -0.125f : 0.125f;
  for (int j = 0; j < 8; ++j) y[j] = scale * (static_cast<float>(grid[j]) + delta);
}

// Nibble g of a run of bytes, low nibble first.
inline int nibble(const uint8_t* s, int g) { return (s[g / 2] >> (4 * (g % 2))) & 15; }

}  // namespace

// 66 bytes: d half, then for each group of 32 four index bytes and a word: four 7-bit sign codes, 4-bit S.
// y = d * (0.5 + S) / 4 * sign * magnitude.
void decode_iq2_xxs(const uint8_t* src, float* dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 66, dst += 256) {
    const float d = load_half(src);
    for (int g = 0; g < 8; ++g) {
      const uint8_t* a = src + 2 + 8 * g;
      const uint32_t w = load_u32(a + 4);
      const float scale = d * (0.5f + static_cast<float>(w >> 28)) * 0.25f;
      for (int i = 0; i < 4; ++i) {
        signed8(scale, grid_iq2xxs[a[i]], ksigns[(w >> (7 * i)) & 127], dst + 32 * g + 8 * i);
      }
    }
  }
}

// 74 bytes: d half, 32 words (9-bit index, 7-bit sign code), 16 nibbles S for groups of 16.
// y = d * (0.5 + S) / 4 * sign * magnitude.
void decode_iq2_xs(const uint8_t* src, float* dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 74, dst += 256) {
    const float d = load_half(src);
    for (int g = 0; g < 16; ++g) {
      const float scale = d * (0.5f + static_cast<float>(nibble(src + 66, g))) * 0.25f;
      for (int v = 2 * g; v < 2 * g + 2; ++v) {
        const uint32_t c = load_u16(src + 2 + 2 * v);
        signed8(scale, grid_iq2xs[c & 511], ksigns[c >> 9], dst + 8 * v);
      }
    }
  }
}

// 82 bytes: d half, 32 low index bytes, 32 sign bytes, 32 x 2 high index bits, 16 nibbles S for groups of 16.
// y = d * (0.5 + S) / 4 * sign * magnitude.
void decode_iq2_s(const uint8_t* src, float* dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 82, dst += 256) {
    const float d = load_half(src);
    const uint8_t *a = src + 2, *signs = src + 34, *h = src + 66;
    for (int g = 0; g < 16; ++g) {
      const float scale = d * (0.5f + static_cast<float>(nibble(src + 74, g))) * 0.25f;
      for (int v = 2 * g; v < 2 * g + 2; ++v) {
        const int index = a[v] + 256 * ((h[v / 4] >> (2 * (v % 4))) & 3);
        signed8(scale, grid_iq2s[index], signs[v], dst + 8 * v);
      }
    }
  }
}

// 98 bytes: d half, 64 index bytes (four values each), 8 words: four 7-bit sign codes, 4-bit S.
// y = d * (0.5 + S) / 2 * sign * magnitude, groups of 32.
void decode_iq3_xxs(const uint8_t* src, float* dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 98, dst += 256) {
    const float d = load_half(src);
    for (int g = 0; g < 8; ++g) {
      const uint8_t* a = src + 2 + 8 * g;
      const uint32_t w = load_u32(src + 66 + 4 * g);
      const float scale = d * (0.5f + static_cast<float>(w >> 28)) * 0.5f;
      for (int i = 0; i < 4; ++i) {
        signed4x2(scale, grid_iq3xxs[a[2 * i]], grid_iq3xxs[a[2 * i + 1]], ksigns[(w >> (7 * i)) & 127],
                  dst + 32 * g + 8 * i);
      }
    }
  }
}

// 110 bytes: d half, 64 low index bytes (four values each), 64 high index bits, 32 sign bytes, 8 nibbles S.
// y = d * (1 + 2 S) * sign * magnitude, groups of 32.
void decode_iq3_s(const uint8_t* src, float* dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 110, dst += 256) {
    const float d = load_half(src);
    const uint8_t *a = src + 2, *h = src + 66, *signs = src + 74;
    for (int g = 0; g < 8; ++g) {
      const float scale = d * static_cast<float>(1 + 2 * nibble(src + 106, g));
      for (int i = 0; i < 4; ++i) {
        const int v = 4 * g + i;
        const int first = a[2 * v] + 256 * ((h[g] >> (2 * i)) & 1);
        const int second = a[2 * v + 1] + 256 * ((h[g] >> (2 * i + 1)) & 1);
        signed4x2(scale, grid_iq3s[first], grid_iq3s[second], signs[v], dst + 8 * v);
      }
    }
  }
}

// 50 bytes: d half, 32 low index bytes, 8 words: four 3-bit high index parts, 3-bit S, bit 15 for delta = -1/8.
// y = d * (2 S + 1) * (grid + delta), groups of 32.
void decode_iq1_s(const uint8_t* src, float* dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 50, dst += 256) {
    const float d = load_half(src);
    const uint8_t* a = src + 2;
    for (int g = 0; g < 8; ++g) {
      const uint32_t h = load_u16(src + 34 + 2 * g);
      const float scale = d * static_cast<float>(static_cast<int32_t>(2 * ((h >> 12) & 7) + 1));
      for (int i = 0; i < 4; ++i) {
        const int v = 4 * g + i;
        shifted8(scale, grid_iq1[a[v] + 256 * ((h >> (3 * i)) & 7)], (h & 0x8000u) != 0, dst + 8 * v);
      }
    }
  }
}

// 56 bytes: 32 low index bytes, 32 nibbles (3 high index bits, one for delta = -1/8), four words that hold sixteen
// 3-bit S in their low 12 bits and the half d in their top nibbles. y = d * (2 S + 1) * (grid + delta), groups of 16.
void decode_iq1_m(const uint8_t* src, float* dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 56, dst += 256) {
    uint32_t t[4], half = 0;
    for (int i = 0; i < 4; ++i) {
      t[i] = load_u16(src + 48 + 2 * i);
      half |= (t[i] >> 12) << (4 * i);
    }
    const float d = widen_half(static_cast<uint16_t>(half));
    for (int g = 0; g < 16; ++g) {
      const uint32_t s = (t[g / 4] >> (3 * (g % 4))) & 7;
      const float scale = d * static_cast<float>(static_cast<int32_t>(2 * s + 1));
      for (int v = 2 * g; v < 2 * g + 2; ++v) {
        const int p = nibble(src + 32, v);
        shifted8(scale, grid_iq1[src[v] + 256 * (p & 7)], (p & 8) != 0, dst + 8 * v);
      }
    }
  }
}

// 136 bytes: d half, 8 x 2 high scale bits, 8 nibbles of low scale bits, 128 bytes of nibbles (for each group of 32,
// 16 bytes: low nibbles values 0..15, high nibbles 16..31). y = d * (S - 32) * iq4[c].
void decode_iq4_xs(const uint8_t* src, float* dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 136, dst += 256) {
    const float d = load_half(src);
    const int high = load_u16(src + 2);
    for (int g = 0; g < 8; ++g) {
      const float scale = d * static_cast<float>(nibble(src + 4, g) + 16 * ((high >> (2 * g)) & 3) - 32);
      const uint8_t* q = src + 8 + 16 * g;
      float* y = dst + 32 * g;
      for (int i = 0; i < 16; ++i) {
        y[i] = scale * kvalues_iq4_f32[q[i] & 15];
        y[i + 16] = scale * kvalues_iq4_f32[q[i] >> 4];
      }
    }
  }
}

}  // namespace strata::quant
