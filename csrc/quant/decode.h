// Decoders of one type each: `blocks` whole blocks from `src` (any alignment) into `dst`. They read no byte outside
// the blocks. Every product below is exact in float32 and the types with a minimum round once, in the final
// subtraction or addition, so neither the order of the factors nor fused multiply-add can change a bit.
#pragma once

#include <cstdint>

namespace strata::quant {

void decode_f32(const uint8_t* src, float* dst, int64_t blocks);
void decode_f16(const uint8_t* src, float* dst, int64_t blocks);
void decode_bf16(const uint8_t* src, float* dst, int64_t blocks);

void decode_q4_0(const uint8_t* src, float* dst, int64_t blocks);
void decode_q4_1(const uint8_t* src, float* dst, int64_t blocks);
void decode_q5_0(const uint8_t* src, float* dst, int64_t blocks);
void decode_q5_1(const uint8_t* src, float* dst, int64_t blocks);
void decode_q8_0(const uint8_t* src, float* dst, int64_t blocks);
void decode_iq4_nl(const uint8_t* src, float* dst, int64_t blocks);
void decode_mxfp4(const uint8_t* src, float* dst, int64_t blocks);
void decode_nvfp4(const uint8_t* src, float* dst, int64_t blocks);
void decode_q1_0(const uint8_t* src, float* dst, int64_t blocks);
void decode_q2_0(const uint8_t* src, float* dst, int64_t blocks);

void decode_q2_k(const uint8_t* src, float* dst, int64_t blocks);
void decode_q3_k(const uint8_t* src, float* dst, int64_t blocks);
void decode_q4_k(const uint8_t* src, float* dst, int64_t blocks);
void decode_q5_k(const uint8_t* src, float* dst, int64_t blocks);
void decode_q6_k(const uint8_t* src, float* dst, int64_t blocks);

void decode_iq2_xxs(const uint8_t* src, float* dst, int64_t blocks);
void decode_iq2_xs(const uint8_t* src, float* dst, int64_t blocks);
void decode_iq2_s(const uint8_t* src, float* dst, int64_t blocks);
void decode_iq3_xxs(const uint8_t* src, float* dst, int64_t blocks);
void decode_iq3_s(const uint8_t* src, float* dst, int64_t blocks);
void decode_iq1_s(const uint8_t* src, float* dst, int64_t blocks);
void decode_iq1_m(const uint8_t* src, float* dst, int64_t blocks);
void decode_iq4_xs(const uint8_t* src, float* dst, int64_t blocks);

void decode_tq1_0(const uint8_t* src, float* dst, int64_t blocks);
void decode_tq2_0(const uint8_t* src, float* dst, int64_t blocks);

}  // namespace strata::quant
