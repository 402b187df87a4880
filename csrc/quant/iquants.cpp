// Grid types: 256 values per block; vectors of 8 or 4 magnitudes come from a fixed grid, their signs separately.
// "Vector v" holds values 8v ... 8v + 7. d: scale of the block; S: small integer scale of a group.
#include "quant/bytes.h"
#include "quant/decode.h"
#include "quant/tables.h"

namespace strata::quant {

namespace {

// Eight signed bytes at a time in a 64-bit word, value j in byte j.
constexpr uint64_t kOnes = 0x0101010101010101u, kTops = 0x8080808080808080u;

// Entry s has byte j 0xff where bit j of s is set.
struct SignBytes {
  uint64_t of[256];
  constexpr SignBytes() : of{} {
    for (int s = 0; s < 256; ++s) {
      for (int j = 0; j < 8; ++j) of[s] |= ((s >> j) & 1) != 0 ? uint64_t{0xff} << (8 * j) : 0;
    }
  }
};
constexpr SignBytes kSignBytes;

// Magnitudes made negative where their sign bit is set: ~m + 1. No magnitude is zero, so nothing is carried on.
inline void signed8(uint64_t magnitudes, int signs, int8_t* c) {
  const uint64_t s = kSignBytes.of[signs];
  const uint64_t v = (magnitudes ^ s) + (s & kOnes);
  std::memcpy(c, &v, sizeof v);
}

// The same with the magnitudes in two grid entries of four.
inline void signed4x2(const uint8_t* first, const uint8_t* second, int signs, int8_t* c) {
  signed8(load_u32(first) | uint64_t{load_u32(second)} << 32, signs, c);
}

// 8 * (grid + delta), delta = -1/8 or 1/8, for grid values -1, 0, 1.
inline void shifted8(const int8_t* grid, bool minus, int8_t* c) {
  uint64_t g;
  std::memcpy(&g, grid, sizeof g);
  g = (g << 3) & (kOnes * 0xf8);
  const uint64_t v = minus ? ((g | kTops) - kOnes) ^ (~g & kTops) : g | kOnes;
  std::memcpy(c, &v, sizeof v);
}

// y = scale * c for a whole block, one scale for each group. Decoders first collect all codes of a block and then come
// here: a loop over bytes in memory vectorises, bytes fresh from 64-bit words do not.
template <int group>
inline void scale_block(const float* scale, const int8_t* c, float* y) {
  for (int g = 0; g < 256 / group; ++g) {
    for (int i = group * g; i < group * (g + 1); ++i) y[i] = scale[g] * static_cast<float>(c[i]);
  }
}

// Nibble g of a run of bytes, low nibble first.
inline int nibble(const uint8_t* s, int g) { return (s[g / 2] >> (4 * (g % 2))) & 15; }

}  // namespace

// 66 bytes: d half, then for each group of 32 four index bytes and a word: four 7-bit sign codes, 4-bit S.
// y = d * (0.5 + S) / 4 * sign * magnitude.
void decode_iq2_xxs(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 66, dst += 256) {
    const float d = load_half(src);
    int8_t c[256];
    float scale[8];
    for (int g = 0; g < 8; ++g) {
      const uint8_t* a = src + 2 + 8 * g;
      const uint32_t w = load_u32(a + 4);
      scale[g] = d * (0.5f + static_cast<float>(w >> 28)) * 0.25f;
      for (int i = 0; i < 4; ++i) {
        signed8(load_u64(grid_iq2xxs[a[i]]), ksigns[(w >> (7 * i)) & 127], c + 32 * g + 8 * i);
      }
    }
    scale_block<32>(scale, c, dst);
  }
}

// 74 bytes: d half, 32 words (9-bit index, 7-bit sign code), 16 nibbles S for groups of 16.
// y = d * (0.5 + S) / 4 * sign * magnitude.
void decode_iq2_xs(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 74, dst += 256) {
    const float d = load_half(src);
    int8_t c[256];
    float scale[16];
    for (int g = 0; g < 16; ++g) {
      scale[g] = d * (0.5f + static_cast<float>(nibble(src + 66, g))) * 0.25f;
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = load_u16(src + 2 + 4 * g + 2 * i);
        signed8(load_u64(grid_iq2xs[word & 511]), ksigns[word >> 9], c + 16 * g + 8 * i);
      }
    }
    scale_block<16>(scale, c, dst);
  }
}

// 82 bytes: d half, 32 low index bytes, 32 sign bytes, 32 x 2 high index bits, 16 nibbles S for groups of 16.
// y = d * (0.5 + S) / 4 * sign * magnitude.
void decode_iq2_s(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 82, dst += 256) {
    const float d = load_half(src);
    const uint8_t *a = src + 2, *signs = src + 34, *h = src + 66;
    int8_t c[256];
    float scale[16];
    for (int g = 0; g < 16; ++g) {
      scale[g] = d * (0.5f + static_cast<float>(nibble(src + 74, g))) * 0.25f;
      for (int i = 0; i < 2; ++i) {
        const int v = 2 * g + i;
        const int index = a[v] + 256 * ((h[v / 4] >> (2 * (v % 4))) & 3);
        signed8(load_u64(grid_iq2s[index]), signs[v], c + 16 * g + 8 * i);
      }
    }
    scale_block<16>(scale, c, dst);
  }
}

// 98 bytes: d half, 64 index bytes (four values each), 8 words: four 7-bit sign codes, 4-bit S.
// y = d * (0.5 + S) / 2 * sign * magnitude, groups of 32.
void decode_iq3_xxs(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 98, dst += 256) {
    const float d = load_half(src);
    int8_t c[256];
    float scale[8];
    for (int g = 0; g < 8; ++g) {
      const uint8_t* a = src + 2 + 8 * g;
      const uint32_t w = load_u32(src + 66 + 4 * g);
      scale[g] = d * (0.5f + static_cast<float>(w >> 28)) * 0.5f;
      for (int i = 0; i < 4; ++i) {
        signed4x2(grid_iq3xxs[a[2 * i]], grid_iq3xxs[a[2 * i + 1]], ksigns[(w >> (7 * i)) & 127], c + 32 * g + 8 * i);
      }
    }
    scale_block<32>(scale, c, dst);
  }
}

// 110 bytes: d half, 64 low index bytes (four values each), 64 high index bits, 32 sign bytes, 8 nibbles S.
// y = d * (1 + 2 S) * sign * magnitude, groups of 32.
void decode_iq3_s(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 110, dst += 256) {
    const float d = load_half(src);
    const uint8_t *a = src + 2, *h = src + 66, *signs = src + 74;
    int8_t c[256];
    float scale[8];
    for (int g = 0; g < 8; ++g) {
      scale[g] = d * static_cast<float>(1 + 2 * nibble(src + 106, g));
      for (int i = 0; i < 4; ++i) {
        const int v = 4 * g + i;
        const int first = a[2 * v] + 256 * ((h[g] >> (2 * i)) & 1);
        const int second = a[2 * v + 1] + 256 * ((h[g] >> (2 * i + 1)) & 1);
        signed4x2(grid_iq3s[first], grid_iq3s[second], signs[v], c + 32 * g + 8 * i);
      }
    }
    scale_block<32>(scale, c, dst);
  }
}

// 50 bytes: d half, 32 low index bytes, 8 words: four 3-bit high index parts, 3-bit S, bit 15 for delta = -1/8.
// y = d * (2 S + 1) * (grid + delta), groups of 32.
void decode_iq1_s(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 50, dst += 256) {
    const float d = load_half(src);
    const uint8_t* a = src + 2;
    int8_t c[256];
    float scale[8];
    for (int g = 0; g < 8; ++g) {
      const uint32_t h = load_u16(src + 34 + 2 * g);
      scale[g] = d * static_cast<float>(static_cast<int32_t>(2 * ((h >> 12) & 7) + 1)) * 0.125f;
      for (int i = 0; i < 4; ++i) {
        shifted8(grid_iq1[a[4 * g + i] + 256 * ((h >> (3 * i)) & 7)], (h & 0x8000u) != 0, c + 32 * g + 8 * i);
      }
    }
    scale_block<32>(scale, c, dst);
  }
}

// 56 bytes: 32 low index bytes, 32 nibbles (3 high index bits, one for delta = -1/8), four words that hold sixteen
// 3-bit S in their low 12 bits and the half d in their top nibbles. y = d * (2 S + 1) * (grid + delta), groups of 16.
void decode_iq1_m(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 56, dst += 256) {
    uint32_t t[4], half = 0;
    for (int i = 0; i < 4; ++i) {
      t[i] = load_u16(src + 48 + 2 * i);
      half |= (t[i] >> 12) << (4 * i);
    }
    const float d = widen_half(static_cast<uint16_t>(half));
    int8_t c[256];
    float scale[16];
    for (int g = 0; g < 16; ++g) {
      const uint32_t s = (t[g / 4] >> (3 * (g % 4))) & 7;
      scale[g] = d * static_cast<float>(static_cast<int32_t>(2 * s + 1)) * 0.125f;
      for (int i = 0; i < 2; ++i) {
        const int v = 2 * g + i, p = nibble(src + 32, v);
        shifted8(grid_iq1[src[v] + 256 * (p & 7)], (p & 8) != 0, c + 16 * g + 8 * i);
      }
    }
    scale_block<16>(scale, c, dst);
  }
}

// 136 bytes: d half, 8 x 2 high scale bits, 8 nibbles of low scale bits, 128 bytes of nibbles (for each group of 32,
// 16 bytes: low nibbles values 0..15, high nibbles 16..31). y = d * (S - 32) * iq4[c].
void decode_iq4_xs(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 136, dst += 256) {
    const float d = load_half(src);
    const int high = load_u16(src + 2);
    for (int g = 0; g < 8; ++g) {
      const float scale = d * static_cast<float>(nibble(src + 4, g) + 16 * ((high >> (2 * g)) & 3) - 32);
      const uint8_t* q = src + 8 + 16 * g;
      float level[16];
      for (int c = 0; c < 16; ++c) level[c] = scale * kvalues_iq4_f32[c];
      float* y = dst + 32 * g;
      for (int i = 0; i < 16; ++i) {
        y[i] = level[q[i] & 15];
        y[i + 16] = level[q[i] >> 4];
      }
    }
  }
}

}  // namespace strata::quant
