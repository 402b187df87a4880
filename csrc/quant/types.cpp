// The 28 tensor types that strata reads, and the dispatch of row decoding and encoding.
#include "quant/types.h"

#include <cmath>
#include <cstring>
#include <string>

#include "base/error.h"
#include "quant/decode.h"
#include "quant/encode.h"
#include "quant/quant.h"

namespace strata::quant {

namespace {

struct Entry {
  TypeInfo info;
  RowDecoder decode;
  void (*encode)(const float* x, uint8_t* out);  // one block
};

constexpr Entry kEntries[] = {
    {{0, "F32", 1, 4}, decode_f32, encode_f32},
    {{1, "F16", 1, 2}, decode_f16, encode_f16},
    {{2, "Q4_0", 32, 18}, decode_q4_0, encode_q4_0},
    {{3, "Q4_1", 32, 20}, decode_q4_1, encode_q4_1},
    {{6, "Q5_0", 32, 22}, decode_q5_0, encode_q5_0},
    {{7, "Q5_1", 32, 24}, decode_q5_1, encode_q5_1},
    {{8, "Q8_0", 32, 34}, decode_q8_0, encode_q8_0},
    {{10, "Q2_K", 256, 84}, decode_q2_k, encode_q2_k},
    {{11, "Q3_K", 256, 110}, decode_q3_k, encode_q3_k},
    {{12, "Q4_K", 256, 144}, decode_q4_k, encode_q4_k},
    {{13, "Q5_K", 256, 176}, decode_q5_k, encode_q5_k},
    {{14, "Q6_K", 256, 210}, decode_q6_k, encode_q6_k},
    {{16, "IQ2_XXS", 256, 66}, decode_iq2_xxs, encode_iq2_xxs},
    {{17, "IQ2_XS", 256, 74}, decode_iq2_xs, encode_iq2_xs},
    {{18, "IQ3_XXS", 256, 98}, decode_iq3_xxs, encode_iq3_xxs},
    {{19, "IQ1_S", 256, 50}, decode_iq1_s, encode_iq1_s},
    {{20, "IQ4_NL", 32, 18}, decode_iq4_nl, encode_iq4_nl},
    {{21, "IQ3_S", 256, 110}, decode_iq3_s, encode_iq3_s},
    {{22, "IQ2_S", 256, 82}, decode_iq2_s, encode_iq2_s},
    {{23, "IQ4_XS", 256, 136}, decode_iq4_xs, encode_iq4_xs},
    {{29, "IQ1_M", 256, 56}, decode_iq1_m, encode_iq1_m},
    {{30, "BF16", 1, 2}, decode_bf16, encode_bf16},
    {{34, "TQ1_0", 256, 54}, decode_tq1_0, encode_tq1_0},
    {{35, "TQ2_0", 256, 66}, decode_tq2_0, encode_tq2_0},
    {{39, "MXFP4", 32, 17}, decode_mxfp4, encode_mxfp4},
    {{40, "NVFP4", 64, 36}, decode_nvfp4, encode_nvfp4},
    {{41, "Q1_0", 128, 18}, decode_q1_0, encode_q1_0},
    {{42, "Q2_0", 64, 18}, decode_q2_0, encode_q2_0},
};

// Position in kEntries by id, -1 for the ids that strata cannot read.
struct Index {
  int8_t at[kTypeIds];
  constexpr Index() : at{} {
    for (auto& a : at) a = -1;
    int8_t i = 0;
    for (const Entry& e : kEntries) at[e.info.id] = i++;
  }
};
constexpr Index kIndex;

const Entry* find(uint32_t id) { return id < kTypeIds && kIndex.at[id] >= 0 ? &kEntries[kIndex.at[id]] : nullptr; }

const Entry& known(uint32_t id) {
  const Entry* e = find(id);
  if (!e) throw InputError("tensor type " + std::to_string(id) + " is not one that strata reads");
  return *e;
}

}  // namespace

const TypeInfo* type_info(uint32_t id) {
  const Entry* e = find(id);
  return e ? &e->info : nullptr;
}

const TypeInfo* type_by_name(const char* name) {
  for (const Entry& e : kEntries) {
    if (std::strcmp(e.info.name, name) == 0) return &e.info;
  }
  return nullptr;
}

RowDecoder row_decoder(uint32_t type) {
  const Entry* e = find(type);
  return e ? e->decode : nullptr;
}

int64_t whole_blocks(const TypeInfo& t, int64_t n) {
  if (n < 0 || n % t.block_values != 0) {
    throw InputError(std::to_string(n) + " values are not a whole number of " + t.name + " blocks of " +
                     std::to_string(t.block_values));
  }
  return n / t.block_values;
}

void dequantize_row(uint32_t type, const void* src, float* dst, int64_t n) {
  const Entry& e = known(type);
  e.decode(static_cast<const uint8_t*>(src), dst, whole_blocks(e.info, n));
}

void quantize_row(uint32_t type, const float* src, void* dst, int64_t n) {
  const Entry& e = known(type);
  const int64_t blocks = whole_blocks(e.info, n);
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(src[i])) throw InputError("value " + std::to_string(i) + " to be encoded is not finite");
  }
  auto* out = static_cast<uint8_t*>(dst);
  for (int64_t b = 0; b < blocks; ++b) e.encode(src + b * e.info.block_values, out + b * e.info.block_bytes);
}

}  // namespace strata::quant
