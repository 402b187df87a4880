// Block formats as small integers, for exact products with integer activations.
//
// Every type but the plain floats has the form
//   y[k] = d * S * c[k] - m * M
// with float scales d, m per block and small integers c (code of a value), S and M (of a group of values). S is folded
// into the code, so a span of values that share d is one integer sum: sum over k of (S c[k]) q[k], where q are the
// quantised activations. `span` is chosen so that this sum cannot leave 32 bits.
#pragma once

#include <cstdint>

#include "quant/types.h"

namespace strata::cpu {

inline constexpr int kLimit = 16383;          // largest |q| of an int16 activation
inline constexpr int kLimit8 = 127;           // and of an int8 one
inline constexpr uint32_t kPackedQ8 = 43;     // Q8_0 in panel order (pack.cpp): not a type of files
inline constexpr uint32_t kCodeTypes = 44;
static_assert(kPackedQ8 == quant::kTypeIds);

enum TypeId : uint32_t {
  kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8, kQ2_K = 10, kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14,
  kIQ2_XXS = 16, kIQ2_XS = 17, kIQ3_XXS = 18, kIQ1_S = 19, kIQ4_NL = 20, kIQ3_S = 21, kIQ2_S = 22, kIQ4_XS = 23,
  kIQ1_M = 29, kTQ1_0 = 34, kTQ2_0 = 35, kMXFP4 = 39, kNVFP4 = 40, kQ1_0 = 41, kQ2_0 = 42
};

enum class ScaleKind : uint8_t { Half, Float };  // how a block's d is kept until the panel is complete

// How the activations of a product are rounded and laid out. What is rounded to 127 gives the same sums in any layout.
//   Int16    |q| <= kLimit, pairs
//   Int8     |q| <= kLimit8, laid out as Int16, for the same kernels: where an instruction set has none for bytes
//   Bytes    |q| <= kLimit8, quads of neighbouring values
//   Strided  |q| <= kLimit8, quad s of 16 values is s, s + 4, s + 8, s + 12: the bits 2 s of four bytes of 2-bit codes
enum class Form : uint8_t { Int16, Int8, Bytes, Strided };

struct CodeFormat {
  uint32_t type;
  int block, bytes;   // values and bytes of a block
  int span;           // values summed as integers before one float multiply-add
  int s_group;        // values that share an S; 0: no S
  int m_group;        // values that share a minimum; 0: no minimum
  bool m_codes;       // the minimum is -m * M; else +m, as it is
  int largest;        // largest |S c|
  float unit;         // y = unit * d * S * c
  ScaleKind kind;
};

inline constexpr CodeFormat kFormats[] = {
    {kQ4_0, 32, 18, 32, 0, 0, false, 8, 1, ScaleKind::Half},
    {kQ4_1, 32, 20, 32, 0, 32, false, 15, 1, ScaleKind::Half},
    {kQ5_0, 32, 22, 32, 0, 0, false, 16, 1, ScaleKind::Half},
    {kQ5_1, 32, 24, 32, 0, 32, false, 31, 1, ScaleKind::Half},
    {kQ8_0, 32, 34, 32, 0, 0, false, 128, 1, ScaleKind::Half},
    {kQ2_K, 256, 84, 256, 16, 16, true, 15 * 3, 1, ScaleKind::Half},
    {kQ3_K, 256, 110, 256, 16, 0, false, 32 * 4, 1, ScaleKind::Half},
    {kQ4_K, 256, 144, 128, 32, 32, true, 63 * 15, 1, ScaleKind::Half},
    {kQ5_K, 256, 176, 64, 32, 32, true, 63 * 31, 1, ScaleKind::Half},
    {kQ6_K, 256, 210, 32, 16, 0, false, 128 * 32, 1, ScaleKind::Half},
    {kIQ2_XXS, 256, 66, 64, 32, 0, false, 31 * 43, 0.125F, ScaleKind::Half},
    {kIQ2_XS, 256, 74, 64, 16, 0, false, 31 * 43, 0.125F, ScaleKind::Half},
    {kIQ3_XXS, 256, 98, 64, 32, 0, false, 31 * 62, 0.25F, ScaleKind::Half},
    {kIQ1_S, 256, 50, 256, 32, 0, false, 15 * 9, 0.125F, ScaleKind::Half},
    {kIQ4_NL, 32, 18, 32, 0, 0, false, 127, 1, ScaleKind::Half},
    {kIQ3_S, 256, 110, 256, 32, 0, false, 31 * 15, 1, ScaleKind::Half},
    {kIQ2_S, 256, 82, 64, 16, 0, false, 31 * 43, 0.125F, ScaleKind::Half},
    {kIQ4_XS, 256, 136, 32, 32, 0, false, 32 * 127, 1, ScaleKind::Half},
    {kIQ1_M, 256, 56, 256, 16, 0, false, 15 * 9, 0.125F, ScaleKind::Half},
    {kTQ1_0, 256, 54, 256, 0, 0, false, 1, 1, ScaleKind::Half},
    {kTQ2_0, 256, 66, 256, 0, 0, false, 2, 1, ScaleKind::Half},
    {kMXFP4, 32, 17, 32, 0, 0, false, 12, 1, ScaleKind::Float},
    {kNVFP4, 64, 36, 16, 0, 0, false, 12, 1, ScaleKind::Float},
    {kQ1_0, 128, 18, 128, 0, 0, false, 1, 1, ScaleKind::Half},
    {kQ2_0, 64, 18, 64, 0, 0, false, 2, 1, ScaleKind::Half},
    {kPackedQ8, 32, 34, 32, 0, 0, false, 128, 1, ScaleKind::Half},
};

constexpr bool sums_fit() {
  for (const CodeFormat& f : kFormats)
    if (int64_t{f.largest} * f.span * kLimit > INT32_MAX || 256 % f.span != 0) return false;
  return true;
}
static_assert(sums_fit(), "a span's integer sum must fit 32 bits");

// Types whose products take int8 activations when the mode asks for it: where some instruction set is measured to gain from it.
constexpr bool takes_int8(uint32_t type) {
  return type == kQ2_0 || type == kQ4_0 || type == kQ4_K || type == kQ8_0 || type == kPackedQ8 || type == kIQ4_NL;
}

// nullptr for the plain float types, whose products are float products.
constexpr const CodeFormat* code_format(uint32_t type) {
  for (const CodeFormat& f : kFormats)
    if (f.type == type) return &f;
  return nullptr;
}

}  // namespace strata::cpu
