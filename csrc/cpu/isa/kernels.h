// The vector kernels as a table of functions, one table per instruction set.
//
// Every kernel works on 16 lanes: a sum over n values is kept in 16 partial sums (value i in lane i mod 16), fma in rising
// i, and joined by a fixed tree. So a result is the same bits on every instruction set and whatever stands beside it.
#pragma once

#include <cstdint>

namespace strata::cpu {

inline constexpr int kPanel = 16;    // weight rows unpacked together
inline constexpr int kBlockK = 256;  // values of a row unpacked together
inline constexpr int kStrip = 32;    // columns of a delta-net state run together

struct Kernels {
  const char* name;

  // rows [16][kn] at stride kBlockK -> panel [kn][16]
  void (*transpose_panel)(const float* rows, int kn, float* panel);
  // acc[r][j] (+)= sum over k of panel[k][j] * x[r][k], k rising from a zero sum; first: = instead of +=.  acc is [m][16].
  void (*panel_mac)(const float* panel, int kn, const float* const* x, int64_t k0, int m, bool first, float* acc);

  float (*dot)(const float* a, const float* b, int n);
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
  // S *= decay; e = beta (v - S^T k); S += k e^T; o = S^T q.  Strides in floats from token to token.
  void (*delta_scan)(float* strip, int dim, int64_t tokens, const float* q, const float* k, int64_t qk_stride, const float* v,
                     int64_t v_stride, const float* decay, const float* beta, int64_t gate_stride, float* o, int64_t o_stride,
                     int columns);
};

// "auto", "portable", "avx2", "avx512", "neon". Throws ConfigError for a name this machine cannot run.
const Kernels& select_kernels(const char* isa);

extern const Kernels kPortable;
#if defined(STRATA_X86)
extern const Kernels kAvx2, kAvx512;
#elif defined(STRATA_ARM64)
extern const Kernels kNeon;
#endif

}  // namespace strata::cpu
