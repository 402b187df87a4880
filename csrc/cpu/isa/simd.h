// Sixteen float lanes in each instruction set's own registers. Included once per instruction set, inside an unnamed
// namespace, so that nothing compiled with special flags can be picked by the linker for other code.

#if defined(STRATA_SIMD_AVX512)

struct V { __m512 v; };
inline V load(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store(float* p, V a) { _mm512_storeu_ps(p, a.v); }
inline V set(float x) { return {_mm512_set1_ps(x)}; }
inline V fma(V a, V b, V c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
inline V add(V a, V b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V sub(V a, V b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V mul(V a, V b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V div(V a, V b) { return {_mm512_div_ps(a.v, b.v)}; }
inline V max_nan2(V a, V b) { return {_mm512_max_ps(a.v, b.v)}; }  // a > b ? a : b, so b when either is NaN
inline V min_nan2(V a, V b) { return {_mm512_min_ps(a.v, b.v)}; }
inline V pow2i(V n) {  // 2^n for an integral n in -126..127
  const __m512i i = _mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(i, 23))};
}
inline V load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
inline void store_f16(uint16_t* p, V a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
constexpr int kRowTile = 12;

#elif defined(STRATA_SIMD_AVX2)

struct V { __m256 a, b; };
inline V load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store(float* p, V x) { _mm256_storeu_ps(p, x.a); _mm256_storeu_ps(p + 8, x.b); }
inline V set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V fma(V x, V y, V z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
inline V add(V x, V y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline V sub(V x, V y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline V mul(V x, V y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline V div(V x, V y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline V max_nan2(V x, V y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline V min_nan2(V x, V y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline __m256 pow2i8(__m256 n) {
  const __m256i i = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_castsi256_ps(_mm256_slli_epi32(i, 23));
}
inline V pow2i(V n) { return {pow2i8(n.a), pow2i8(n.b)}; }
inline V load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
inline void store_f16(uint16_t* p, V x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
constexpr int kRowTile = 6;

#elif defined(STRATA_SIMD_NEON)

struct V { float32x4_t v[4]; };
#define STRATA_EACH(expr) \
  V r;                    \
  for (int i = 0; i < 4; ++i) r.v[i] = (expr); \
  return r
inline V load(const float* p) { STRATA_EACH(vld1q_f32(p + 4 * i)); }
inline void store(float* p, V a) { for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]); }
inline V set(float x) { STRATA_EACH(vdupq_n_f32(x)); }
inline V fma(V a, V b, V c) { STRATA_EACH(vfmaq_f32(c.v[i], a.v[i], b.v[i])); }
inline V add(V a, V b) { STRATA_EACH(vaddq_f32(a.v[i], b.v[i])); }
inline V sub(V a, V b) { STRATA_EACH(vsubq_f32(a.v[i], b.v[i])); }
inline V mul(V a, V b) { STRATA_EACH(vmulq_f32(a.v[i], b.v[i])); }
inline V div(V a, V b) { STRATA_EACH(vdivq_f32(a.v[i], b.v[i])); }
inline V max_nan2(V a, V b) { STRATA_EACH(vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i])); }
inline V min_nan2(V a, V b) { STRATA_EACH(vbslq_f32(vcltq_f32(a.v[i], b.v[i]), a.v[i], b.v[i])); }
inline V pow2i(V n) {
  STRATA_EACH(vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtq_s32_f32(n.v[i]), vdupq_n_s32(127)), 23)));
}
inline V load_f16(const uint16_t* p) { STRATA_EACH(vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p + 4 * i)))); }
inline void store_f16(uint16_t* p, V a) {
  for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
}
#undef STRATA_EACH
constexpr int kRowTile = 6;

#else  // portable: plain loops; fma through libm where the machine has none

struct V { float v[16]; };
#define STRATA_EACH(expr) \
  V r;                    \
  for (int i = 0; i < 16; ++i) r.v[i] = (expr); \
  return r
inline V load(const float* p) { STRATA_EACH(p[i]); }
inline void store(float* p, V a) { for (int i = 0; i < 16; ++i) p[i] = a.v[i]; }
inline V set(float x) { STRATA_EACH(x); }
inline V fma(V a, V b, V c) { STRATA_EACH(__builtin_fmaf(a.v[i], b.v[i], c.v[i])); }
inline V add(V a, V b) { STRATA_EACH(a.v[i] + b.v[i]); }
inline V sub(V a, V b) { STRATA_EACH(a.v[i] - b.v[i]); }
inline V mul(V a, V b) { STRATA_EACH(a.v[i] * b.v[i]); }
inline V div(V a, V b) { STRATA_EACH(a.v[i] / b.v[i]); }
inline V max_nan2(V a, V b) { STRATA_EACH(a.v[i] > b.v[i] ? a.v[i] : b.v[i]); }
inline V min_nan2(V a, V b) { STRATA_EACH(a.v[i] < b.v[i] ? a.v[i] : b.v[i]); }
inline float pow2i1(float n) {
  if (!(n >= -126.0F && n <= 127.0F)) return n;  // only NaN comes here; it stays one
  const uint32_t bits = static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23;
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}
inline V pow2i(V n) { STRATA_EACH(pow2i1(n.v[i])); }
inline V load_f16(const uint16_t* p) { STRATA_EACH(strata::quant::half_to_float(p[i])); }
inline void store_f16(uint16_t* p, V a) { for (int i = 0; i < 16; ++i) p[i] = strata::quant::float_to_half(a.v[i]); }
#undef STRATA_EACH
constexpr int kRowTile = 4;

#endif
