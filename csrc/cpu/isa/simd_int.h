// Integer vectors of each instruction set: sums for 16 weight rows, one 32-bit lane (or two halves of it) a row. Included
// once per instruction set, inside the unnamed namespace, after simd.h.
//
//   W             32 int16: a pair of k of 16 rows
//   dot2(s, w, x) s + w.k0 * x.k0 + w.k1 * x.k1 for every row; *x is the pair of one activation row
//   whole(s)      the rows' sums as floats, rounded to nearest even
//
// Sums are added in place by assembly on x86: compilers else copy the tile's sums at every step (gcc 12: 158 instead of 250
// GMAC/s with AVX-512 VNNI), and do not fold the broadcast into the multiply-add.

#if defined(STRATA_SIMD_AVX512)

struct W { __m512i v; };
struct Sum { __m512i v; };
inline W load_w(const int16_t* p) { return {_mm512_load_si512(p)}; }
inline Sum no_sum() { return {_mm512_setzero_si512()}; }
inline Sum dot2(Sum s, W w, const uint32_t* x) {
#if defined(STRATA_SIMD_VNNI)
  __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(s.v) : "v"(w.v), "m"(*x));
#else
  const __m512i p = _mm512_madd_epi16(w.v, _mm512_set1_epi32(static_cast<int>(*x)));
  __asm__("vpaddd %1, %0, %0" : "+v"(s.v) : "v"(p));
#endif
  return s;
}
inline Sum plus(Sum a, Sum b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline V whole(Sum s) { return {_mm512_cvtepi32_ps(s.v)}; }
constexpr int kDotTile = 12;

#elif defined(STRATA_SIMD_AVX2)

struct W { __m256i a, b; };
struct Sum { __m256i a, b; };
inline W load_w(const int16_t* p) {
  return {_mm256_load_si256(reinterpret_cast<const __m256i*>(p)), _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 16))};
}
inline Sum no_sum() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline Sum dot2(Sum s, W w, const uint32_t* x) {
  const __m256i b = _mm256_set1_epi32(static_cast<int>(*x));
  const __m256i p = _mm256_madd_epi16(w.a, b), q = _mm256_madd_epi16(w.b, b);
  __asm__("vpaddd %1, %0, %0" : "+x"(s.a) : "x"(p));
  __asm__("vpaddd %1, %0, %0" : "+x"(s.b) : "x"(q));
  return s;
}
inline Sum plus(Sum x, Sum y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline V whole(Sum s) { return {_mm256_cvtepi32_ps(s.a), _mm256_cvtepi32_ps(s.b)}; }
constexpr int kDotTile = 6;

#elif defined(STRATA_SIMD_NEON)

struct W { int16x8_t v[4]; };
struct Sum { int32x4_t v[8]; };  // products of k0 and k1 side by side; joined in whole()
inline W load_w(const int16_t* p) {
  W w;
  for (int i = 0; i < 4; ++i) w.v[i] = vld1q_s16(p + 8 * i);
  return w;
}
inline Sum no_sum() {
  Sum s;
  for (int i = 0; i < 8; ++i) s.v[i] = vdupq_n_s32(0);
  return s;
}
inline Sum dot2(Sum s, W w, const uint32_t* x) {
  const int16x8_t b = vreinterpretq_s16_u32(vdupq_n_u32(*x));
  for (int i = 0; i < 4; ++i) {
    s.v[2 * i] = vmlal_s16(s.v[2 * i], vget_low_s16(w.v[i]), vget_low_s16(b));
    s.v[2 * i + 1] = vmlal_high_s16(s.v[2 * i + 1], w.v[i], b);
  }
  return s;
}
inline Sum plus(Sum a, Sum b) {
  for (int i = 0; i < 8; ++i) a.v[i] = vaddq_s32(a.v[i], b.v[i]);
  return a;
}
inline V whole(Sum s) {
  V r;
  for (int i = 0; i < 4; ++i) r.v[i] = vcvtq_f32_s32(vpaddq_s32(s.v[2 * i], s.v[2 * i + 1]));
  return r;
}
constexpr int kDotTile = 3;

#else

struct W { int16_t v[32]; };
struct Sum { int32_t v[16]; };
inline W load_w(const int16_t* p) {
  W w;
  __builtin_memcpy(w.v, p, sizeof w.v);
  return w;
}
inline Sum no_sum() { return {}; }
inline Sum dot2(Sum s, W w, const uint32_t* x) {
  const auto x0 = static_cast<int16_t>(*x & 0xffffU), x1 = static_cast<int16_t>(*x >> 16);
  for (int i = 0; i < 16; ++i) s.v[i] += w.v[2 * i] * x0 + w.v[2 * i + 1] * x1;
  return s;
}
inline Sum plus(Sum a, Sum b) {
  for (int i = 0; i < 16; ++i) a.v[i] += b.v[i];
  return a;
}
inline V whole(Sum s) {
  V r;
  for (int i = 0; i < 16; ++i) r.v[i] = static_cast<float>(s.v[i]);
  return r;
}
constexpr int kDotTile = 4;

#endif
