// Ternary types: 256 values of -d, 0, d per block.
#include "quant/bytes.h"
#include "quant/decode.h"

namespace strata::quant {

namespace {

// A byte is a fraction of 256 whose base-3 digits are the codes, most significant first; any byte is legal.
// Digit r of the `run` bytes at q becomes values run * r ... run * r + run - 1.
template <int run, int digits>
inline void trits(const uint8_t* q, float d, float* y) {
  uint8_t t[run];
  std::memcpy(t, q, run);
  for (int r = 0; r < digits; ++r) {
    for (int i = 0; i < run; ++i) {
      y[run * r + i] = d * static_cast<float>(((3 * t[i]) >> 8) - 1);
      t[i] = static_cast<uint8_t>(3 * t[i]);  // modulo 256: the digit just read falls away
    }
  }
}

}  // namespace

// 54 bytes: 32 bytes of five digits, 16 bytes of five, 4 bytes of four, d half. y = d * (c - 1).
void decode_tq1_0(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 54, dst += 256) {
    const float d = load_half(src + 52);
    trits<32, 5>(src, d, dst);
    trits<16, 5>(src + 32, d, dst + 160);
    trits<4, 4>(src + 48, d, dst + 240);
  }
}

// 66 bytes: 64 bytes of 2-bit codes (a run of 32 bytes holds four runs of 32 values, lowest bits first), d half.
// y = d * (c - 1).
void decode_tq2_0(const uint8_t* __restrict src, float* __restrict dst, int64_t blocks) {
  for (; blocks > 0; --blocks, src += 66, dst += 256) {
    const float d = load_half(src + 64);
    for (int n = 0; n < 8; ++n) {
      const uint8_t* q = src + 32 * (n / 4);
      const int shift = 2 * (n % 4);
      for (int l = 0; l < 32; ++l) dst[32 * n + l] = d * static_cast<float>(((q[l] >> shift) & 3) - 1);
    }
  }
}

}  // namespace strata::quant
