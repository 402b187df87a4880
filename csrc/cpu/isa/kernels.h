// The vector kernels as a table of functions, one table per instruction set.
//
// Every kernel works on 16 lanes: a sum over n values is kept in 16 partial sums (value i in lane i mod 16), fma in rising
// i, and joined by a fixed tree. So a result is the same bits on every instruction set and whatever stands beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/isa/formats.h"

namespace strata::cpu {

inline constexpr int kPanel = 16;    // weight rows unpacked together
inline constexpr int kBlockK = 256;  // values of a row unpacked together
inline constexpr int kSums = 28;     // sums of a quantised row chunk: 16 of 16 values, 8 of 32, 4 of 64
inline constexpr int kStrip = 32;    // columns of a delta-net state run together

// 16 weight rows x 256 values as integers in the first-level cache, with their float scales. Four neighbouring k are split
// into the pairs (k0, k2), (k1, k3), which is what widening bytes in place gives; activations stand in the same order.
// What is in `w` is between `unpack` and `dot` of one instruction set: kernels with products of bytes keep bytes and S there.
struct alignas(64) CodePanel {
  int16_t w[kBlockK * kPanel];       // [pair of k][row][2], S folded in
  float scale[kBlockK / 16][kPanel]; // [span][row]
  float min[kBlockK / 16][kPanel];   // [group][row] added per unit of activation
};

// The same with the codes as bytes, for int8 activations: c + bias, unsigned, a quad of k (in the order of the activations'
// Form) of 16 rows after the other.
struct alignas(64) BytePanel {
  uint8_t c[kBlockK * kPanel];       // [quad][row][4]
  int32_t s[kBlockK / 16][kPanel];   // [group][row] S, as an instruction set wants it
  float scale[kBlockK / 16][kPanel]; // [span][row]
  float min[kBlockK / 16][kPanel];   // [group][row]
  int bias;
};
static_assert(sizeof(BytePanel) <= sizeof(CodePanel));  // they share memory

// 16 rows of up to 256 values on their way into a panel.
struct alignas(64) Rows {
  int8_t c[kPanel][kBlockK];   // codes in order of k
  uint8_t s[kPanel][16];       // S of a group, the bits of an int8
  uint8_t m[kPanel][16];       // M of a group
  uint16_t d[16][kPanel];      // [block of the chunk][row] half scales
  uint16_t dm[16][kPanel];     // half minimums
  float df[16][kPanel];        // [span][row] float scales (ScaleKind::Float)
};

// Quantised activations: value = q * scale, one scale per row and 256 values.
//
// Rows are laid out in tiles of at most `row_tile` rows of nearly equal height; a tile's pairs are interleaved
// ([pair][row of the tile]), so that the inner loop reads one stream.
struct Tiling {
  int64_t rows = 0, tiles = 0;
  Tiling() = default;
  Tiling(int64_t m, int tile) : rows(m), tiles((m + tile - 1) / tile) {}
  int64_t first(int64_t t) const { return t * (rows / tiles) + (t < rows % tiles ? t : rows % tiles); }
  int height(int64_t t) const { return static_cast<int>(rows / tiles + (t < rows % tiles ? 1 : 0)); }
};

// Rows of a cache that a position sees: at[0..n) of them, `stride` values apart, `dim` values each.
template <class T>
struct Attended {
  const T* rows;
  int64_t stride;
  const int32_t* at;
  int n, dim;
};

struct Kernels {
  const char* name;
  int row_tile;  // rows of activations a tile of `dot` takes at most

  // Products with integer activations. `x` rows, `kn` values from k0 (a multiple of 32, at most 256), quantised into one
  // tile: q [kn / 2 pairs][rows], scale [rows]; when `sums`, sum [rows][kSums]: of q over groups of 16 values, then over
  // groups of 32, and for bytes over groups of 64. A value that is not finite makes the row's scale NaN. One row alone is laid
  // out as `direct`, `dot_packed` and `row8` of this instruction set want it. Bytes: q [kn / 4 quads][rows].
  void (*quantise)(const float* const* x, int rows, int64_t k0, int kn, Form form, bool sums, uint32_t* q, float* scale, float* sum);
  // Panel of `rows` <= 16 rows (the others 0) of kn values; w: the chunk's first block of the first row. By type.
  void (*unpack[kCodeTypes])(const uint8_t* w, uint64_t row_bytes, int rows, int kn, Rows& scratch, CodePanel& panel);
  // unpack + dot for m <= 3 rows in one step; panel takes what of the weights is needed more than once.
  void (*direct[kCodeTypes])(const uint8_t* w, uint64_t row_bytes, int rows, int kn, Rows& scratch, CodePanel& panel, const uint32_t* q,
                             const float* scale, const float* sum, int m, bool first, float* acc);
  // acc[r][j] = fma(t, scale[r], acc[r][j]) (first: from zero), where t adds in rising k, each with one fma,
  // min[group] * sum for the groups of a span, then float(integer sum of the span) * scale[span]. rows <= row_tile.
  void (*dot)(const CodePanel& panel, int kn, int span, int m_group, const uint32_t* q, const float* scale, const float* sum,
              int rows, bool first, float* acc);
  // The same sums as unpack + dot of kPackedQ8, straight from the packed weights. rows <= 4.
  void (*dot_packed)(const uint8_t* w, int kn, const uint32_t* q, const float* scale, const float* sum, int rows, bool first, float* acc);

  // The same sums with activations of form8[type], Bytes or Strided; null where this instruction set has no such kernels (then
  // the activations are of Form Int8). row8: one row, w as in `direct`.
  Form form8[kCodeTypes];
  void (*unpack8[kCodeTypes])(const uint8_t* w, uint64_t row_bytes, int rows, int kn, BytePanel& panel);
  void (*row8[kCodeTypes])(const uint8_t* w, uint64_t row_bytes, int rows, int kn, const uint32_t* q, const float* scale, const float* sum,
                           bool first, float* acc);
  void (*dot8)(const BytePanel& panel, int kn, const CodeFormat& format, const uint32_t* q, const float* scale, const float* sum, int rows,
               bool first, float* acc);

  // rows [16][kn] -> panel [kn][16]
  void (*transpose_panel)(const float* rows, int64_t stride, int kn, float* panel);
  // The same panel from 16 rows of Q8_0; null where there is none.
  void (*panel_q8)(const uint8_t* w, uint64_t row_bytes, int kn, float* panel);
  // acc[r][j] (+)= sum over k of panel[k][j] * x[r][k], k rising from a zero sum; first: = instead of +=.  acc is [m][16].
  void (*panel_mac)(const float* panel, int kn, const float* const* x, int64_t k0, int m, bool first, float* acc);

  // Attention of heads that share a key and value head, dim % 16 == 0: out[h][i] = scale * dot(q[h], row i); then
  // o[h] = sum over i, rising, of w[h][i] * row i, one fma each.
  void (*scores_f32)(const Attended<float>& keys, const float* q, int64_t q_stride, int heads, float scale, float* out, int64_t out_stride);
  void (*scores_f16)(const Attended<uint16_t>& keys, const float* q, int64_t q_stride, int heads, float scale, float* out,
                     int64_t out_stride);
  void (*mix_f32)(const Attended<float>& values, const float* w, int64_t w_stride, int heads, float* o, int64_t o_stride);
  void (*mix_f16)(const Attended<uint16_t>& values, const float* w, int64_t w_stride, int heads, float* o, int64_t o_stride);

  float (*dot_f32)(const float* a, const float* b, int n);
  float (*dot_f16)(const float* a, const uint16_t* b, int n);
  void (*axpy)(float* y, float a, const float* x, int n);  // y = fma(a, x, y)
  void (*axpy_f16)(float* y, float a, const uint16_t* x, int n);
  void (*to_f16)(const float* x, uint16_t* y, int n);      // round to nearest even

  // y = x / sqrt(mean(x^2) + eps) * gamma
  void (*rms_norm)(const float* x, const float* gamma, float* y, int n, float eps);
  void (*scale)(float* x, float s, int n);
  void (*add)(float* y, const float* x, int n);
  float (*max)(const float* x, int n);
  float (*exp_sum)(float* x, float shift, int n);          // x = exp(x - shift), returns the sum
  void (*silu_scaled)(float* x, float s, int n);           // x = silu(x / s)
  void (*sigmoid_scaled)(float* x, float s, float m, int n);  // x = m * sigmoid(x / s)
  void (*sigmoid_gate)(float* x, const float* gate, int n);   // x *= sigmoid(gate)
  void (*swiglu)(const float* g, const float* u, float* h, int n);
  void (*mix_streams)(const float* w, const float* x, float* u, int streams, int n);
  // y[c] = silu(sum over k of w[k][c] * x[k][c]), k rising; x: `taps` row pointers
  void (*conv)(const float* const* x, const float* w, float* y, int taps, int n);

  // Delta rule over `tokens` tokens on columns of one head's state, strip [dim][kStrip] in and out. Per token:
  // S *= decay; e = beta (v - S^T k); S += k e^T; o = S^T q.  Strides in floats from token to token. Columns past `columns` are 0
  // and stay so.
  void (*delta_scan)(float* strip, int dim, int64_t tokens, const float* q, const float* k, int64_t qk_stride, const float* v,
                     int64_t v_stride, const float* decay, const float* beta, int64_t gate_stride, float* o, int64_t o_stride,
                     int columns);
  // The same for one token and all of a head's state [dim][dim], from `from` to `to` (64-byte aligned), when dim is a multiple of
  // step_columns. next: a state that will be wanted soon, or null.
  void (*delta_step)(const float* from, float* to, int dim, const float* next, const float* q, const float* k, const float* v,
                     float decay, float beta, float* o);
  int step_columns;
};

// "auto", "portable", "avx2", "avx512", "avx512vnni" (with VBMI), "neon", "neon_dotprod", "neon_i8mm". Throws ConfigError for a
// name this machine cannot run.
const Kernels& select_kernels(const char* isa);
// Those this machine can run, plainest first.
std::vector<const char*> isa_names();

extern const Kernels kPortable;
#if defined(STRATA_X86)
extern const Kernels kAvx2, kAvx512, kAvx512Vnni;
#elif defined(STRATA_ARM64)
extern const Kernels kNeon, kNeonDotprod, kNeonI8mm;
#endif

}  // namespace strata::cpu
