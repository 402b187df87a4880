// Encoders of the non-linear and grid types. For each group a few trial scales t are tried; every vector goes to the
// nearest grid entry by squared distance |x - t g|^2 = |x|^2 - 2 t (x . g) + t^2 |g|^2. The best scale is rounded to
// what the block can store, and the entries are chosen again for the scale as stored.
#include <cmath>
#include <initializer_list>
#include <vector>

#include "quant/encode.h"
#include "quant/tables.h"

namespace strata::quant {

namespace {

constexpr int kLanes = 8;      // entries scored at once; divides the size of every grid
constexpr int kMaxEntries = 2048;

// A grid by columns, with the squared length of each entry + shift.
struct Grid {
  int entries, width;
  float largest;                   // magnitude
  std::vector<float> columns;      // [width][entries]
  std::vector<float> norms;        // [entries], entries shifted by +shift
  std::vector<float> norms_minus;  // the same for -shift

  template <typename T>
  Grid(const T* table, int entries_, int width_, float shift = 0.0f)
      : entries(entries_),
        width(width_),
        largest(0.0f),
        columns(static_cast<size_t>(entries_) * width_),
        norms(entries_),
        norms_minus(entries_) {
    for (int j = 0; j < entries; ++j) {
      for (int i = 0; i < width; ++i) {
        const float g = static_cast<float>(table[j * width + i]);
        columns[static_cast<size_t>(i) * entries + j] = g;
        norms[j] += (g + shift) * (g + shift);
        norms_minus[j] += (g - shift) * (g - shift);
        largest = std::max(largest, std::fabs(g));
      }
    }
  }

  // dots[j] = x . entry j
  void project(const float* x, float* dots) const {
    std::fill(dots, dots + entries, 0.0f);
    for (int i = 0; i < width; ++i) {
      const float* column = columns.data() + static_cast<size_t>(i) * entries;
      const float v = x[i];
      for (int j = 0; j < entries; ++j) dots[j] += v * column[j];
    }
  }
};

struct Nearest {
  int index;
  float score;  // squared distance less |x|^2
};

Nearest nearest(const std::vector<float>& norms, const float* dots, float t) {
  const int entries = static_cast<int>(norms.size());
  const float* n = norms.data();
  const float t2 = t * t, minus_2t = -2.0f * t;
  float score[kLanes];
  int32_t index[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    score[l] = t2 * n[l] + minus_2t * dots[l];
    index[l] = l;
  }
  for (int j = kLanes; j < entries; j += kLanes) {
    for (int l = 0; l < kLanes; ++l) {
      const float s = t2 * n[j + l] + minus_2t * dots[j + l];
      index[l] = s < score[l] ? j + l : index[l];
      score[l] = s < score[l] ? s : score[l];
    }
  }
  Nearest best{index[0], score[0]};
  for (int l = 1; l < kLanes; ++l) {
    if (score[l] < best.score || (score[l] == best.score && index[l] < best.index)) best = {index[l], score[l]};
  }
  return best;
}

// Group scales t[groups] as d * (base + step * code): picks d, then the nearest code for each. t becomes what the
// block stores.
uint16_t store_scales(float* t, int groups, float base, float step, int codes, uint8_t* code) {
  float most = t[0];
  for (int g = 1; g < groups; ++g) most = std::max(most, t[g]);
  const uint16_t half = scale_to_half(most / (base + step * static_cast<float>(codes - 1)));
  const float d = widen_half(half);
  for (int g = 0; g < groups; ++g) {
    int best = 0;
    for (int c = 1; c < codes; ++c) {
      const auto distance = [&](int k) { return std::fabs(d * (base + step * static_cast<float>(k)) - t[g]); };
      if (distance(c) < distance(best)) best = c;
    }
    code[g] = static_cast<uint8_t>(best);
    t[g] = d * (base + step * static_cast<float>(best));
  }
  return half;
}

struct GridFit {
  uint16_t d;          // half
  uint8_t scale[16];   // 4-bit code per group: scale = d * (base + step * code)
  uint16_t index[64];  // per vector of grid.width values
};

GridFit fit_grid(const float* magnitude, const Grid& grid, int groups, float base, float step) {
  GridFit f{};
  const int per_group = 256 / groups, vectors = per_group / grid.width;
  float t[16] = {}, dots[8 * 512];  // at most 4 x 256 or 2 x 1024 (width 8), 8 x 512 (width 4)
  for (int g = 0; g < groups; ++g) {
    const float* x = magnitude + per_group * g;
    for (int v = 0; v < vectors; ++v) grid.project(x + grid.width * v, dots + grid.entries * v);
    const float unit = magnitude_max(x, per_group) / grid.largest;
    float least = 0.0f;
    bool first = true;
    for (const float factor : {1.0f, 0.9f, 0.8f, 0.7f, 0.6f}) {
      float error = 0.0f;
      for (int v = 0; v < vectors; ++v) error += nearest(grid.norms, dots + grid.entries * v, unit * factor).score;
      if (first || error < least) {
        t[g] = unit * factor;
        least = error;
      }
      first = false;
    }
  }
  f.d = store_scales(t, groups, base, step, 16, f.scale);
  for (int g = 0; g < groups; ++g) {
    for (int v = 0; v < vectors; ++v) {
      grid.project(magnitude + per_group * g + grid.width * v, dots);
      f.index[vectors * g + v] = static_cast<uint16_t>(nearest(grid.norms, dots, t[g]).index);
    }
  }
  return f;
}

// Free signs: bit j of byte v set where value 8v + j is negative.
void free_signs(const float* x, float* magnitude, uint8_t* signs) {
  for (int v = 0; v < 32; ++v) {
    int bits = 0;
    for (int j = 0; j < 8; ++j) {
      magnitude[8 * v + j] = std::fabs(x[8 * v + j]);
      bits |= (x[8 * v + j] < 0.0f ? 1 : 0) << j;
    }
    signs[v] = static_cast<uint8_t>(bits);
  }
}

// Seven stored sign bits per vector; the eighth makes the number of minus signs even. Where it is odd, the weakest
// value takes the wrong sign and counts as negative in the search.
void even_signs(const float* x, float* magnitude, uint8_t* signs) {
  free_signs(x, magnitude, signs);
  for (int v = 0; v < 32; ++v) {
    if (std::popcount(signs[v]) % 2 != 0) {
      float* m = magnitude + 8 * v;
      const auto weak = std::min_element(m, m + 8) - m;
      m[weak] = -m[weak];
      signs[v] = static_cast<uint8_t>(signs[v] ^ (1 << weak));
    }
    signs[v] &= 127;
  }
}

// Four 7-bit sign codes and a 4-bit scale.
uint32_t signs_and_scale(const uint8_t* signs, uint8_t scale) {
  uint32_t w = uint32_t{scale} << 28;
  for (int i = 0; i < 4; ++i) w |= uint32_t{signs[i]} << (7 * i);
  return w;
}

struct Fit1 {
  uint16_t d;          // half
  uint8_t scale[16];   // 3-bit code per group: scale = d * (2 * code + 1)
  uint16_t index[32];  // per vector of 8
  bool minus[32];      // delta = -1/8
};

// groups = 8: one delta for the 32 values of a group (IQ1_S); groups = 16: one for each vector (IQ1_M).
Fit1 fit_iq1(const float* x, int groups) {
  static const Grid grid(grid_iq1[0], 2048, 8, 0.125f);
  Fit1 f{};
  const int per_group = 256 / groups, vectors = per_group / 8;
  float t[16] = {}, sums[4], dots[4 * kMaxEntries];
  const auto project = [&](int g) {
    for (int v = 0; v < vectors; ++v) {
      const float* p = x + per_group * g + 8 * v;
      grid.project(p, dots + kMaxEntries * v);
      sums[v] = 0.0f;
      for (int j = 0; j < 8; ++j) sums[v] += p[j];
    }
  };
  // Chooses entries and deltas of group g (its projections being in dots) for the scale; -> squared error less |x|^2.
  const auto choose = [&](int g, float scale) {
    Nearest plus[4], minus[4];
    float plus_error = 0.0f, minus_error = 0.0f, best_error = 0.0f;
    for (int v = 0; v < vectors; ++v) {
      plus[v] = nearest(grid.norms, dots + kMaxEntries * v, scale);
      minus[v] = nearest(grid.norms_minus, dots + kMaxEntries * v, scale);
      plus[v].score -= 0.25f * scale * sums[v];  // -2 t (x . delta)
      minus[v].score += 0.25f * scale * sums[v];
      plus_error += plus[v].score;
      minus_error += minus[v].score;
      best_error += std::min(plus[v].score, minus[v].score);
    }
    for (int v = 0; v < vectors; ++v) {
      const bool use_minus = groups == 8 ? minus_error < plus_error : minus[v].score < plus[v].score;
      f.minus[vectors * g + v] = use_minus;
      f.index[vectors * g + v] = static_cast<uint16_t>(use_minus ? minus[v].index : plus[v].index);
    }
    return groups == 8 ? std::min(plus_error, minus_error) : best_error;
  };
  for (int g = 0; g < groups; ++g) {
    project(g);
    const float unit = magnitude_max(x + per_group * g, per_group) / 1.125f;
    float least = 0.0f;
    bool first = true;
    for (const float factor : {0.9f, 0.7f, 0.55f, 0.42f}) {
      const float error = choose(g, unit * factor);
      if (first || error < least) {
        t[g] = unit * factor;
        least = error;
      }
      first = false;
    }
  }
  f.d = store_scales(t, groups, 1.0f, 2.0f, 8, f.scale);
  for (int g = 0; g < groups; ++g) {
    project(g);
    choose(g, t[g]);
  }
  return f;
}

// Codes of the levels of IQ4_NL, times t, that are nearest to n values; of equals the lowest. -> squared error.
float nearest_iq4(const float* x, int n, float t, uint8_t* q) {
  float total = 0.0f;
  for (int i = 0; i < n; ++i) {
    int best = 0;
    float least = std::fabs(x[i] - t * kvalues_iq4_f32[0]);
    for (int c = 1; c < 16; ++c) {
      const float distance = std::fabs(x[i] - t * kvalues_iq4_f32[c]);
      if (distance < least) {
        least = distance;
        best = c;
      }
    }
    q[i] = static_cast<uint8_t>(best);
    total += least * least;
  }
  return total;
}

// The scale among (largest value / end) that leaves the smallest error over 32 values.
float trial_iq4(const float* x, std::initializer_list<float> ends) {
  const float largest = signed_max(x, 32);
  float best = 0.0f, least = 0.0f;
  bool first = true;
  uint8_t q[32];
  for (const float end : ends) {
    const float t = largest / end, error = nearest_iq4(x, 32, t, q);
    if (first || error < least) {
      best = t;
      least = error;
    }
    first = false;
  }
  return best;
}

// Sixteen or eight 4-bit scales, low nibble first.
void pack_group_scales(const uint8_t* scale, int groups, uint8_t* out) {
  for (int g = 0; g < groups; g += 2) out[g / 2] = static_cast<uint8_t>(scale[g] | scale[g + 1] << 4);
}

}  // namespace

// The largest value is tried at either end of the table and a little inside.
void encode_iq4_nl(const float* x, uint8_t* out) {
  const uint16_t d = scale_to_half(trial_iq4(x, {-127.0f, -120.0f, -112.0f, 113.0f, 105.0f, 97.0f}));
  uint8_t q[32];
  nearest_iq4(x, 32, widen_half(d), q);
  store_u16(out, d);
  pack_nibbles(q, 32, 16, out + 2);
}

void encode_iq4_xs(const float* x, uint8_t* out) {
  float t[8] = {};
  for (int g = 0; g < 8; ++g) t[g] = trial_iq4(x + 32 * g, {-127.0f, -118.0f, 113.0f, 104.0f});
  const uint16_t half = scale_to_half(signed_max(t, 8) / -32.0f);
  const float d = widen_half(half), r = reciprocal(d);
  uint8_t q[256], low[8];
  int high = 0;
  for (int g = 0; g < 8; ++g) {
    const int s = limited(std::nearbyint(t[g] * r), -32, 31);
    nearest_iq4(x + 32 * g, 32, d * static_cast<float>(s), q + 32 * g);
    low[g] = static_cast<uint8_t>((s + 32) & 15);
    high |= ((s + 32) >> 4) << (2 * g);
  }
  store_u16(out, half);
  store_u16(out + 2, static_cast<uint16_t>(high));
  pack_group_scales(low, 8, out + 4);
  pack_nibbles(q, 256, 16, out + 8);
}

void encode_iq2_xxs(const float* x, uint8_t* out) {
  static const Grid grid(grid_iq2xxs[0], 256, 8);
  float magnitude[256];
  uint8_t signs[32];
  even_signs(x, magnitude, signs);
  const GridFit f = fit_grid(magnitude, grid, 8, 0.125f, 0.25f);
  store_u16(out, f.d);
  for (int g = 0; g < 8; ++g) {
    uint8_t* p = out + 2 + 8 * g;
    for (int i = 0; i < 4; ++i) p[i] = static_cast<uint8_t>(f.index[4 * g + i]);
    store_u32(p + 4, signs_and_scale(signs + 4 * g, f.scale[g]));
  }
}

void encode_iq2_xs(const float* x, uint8_t* out) {
  static const Grid grid(grid_iq2xs[0], 512, 8);
  float magnitude[256];
  uint8_t signs[32];
  even_signs(x, magnitude, signs);
  const GridFit f = fit_grid(magnitude, grid, 16, 0.125f, 0.25f);
  store_u16(out, f.d);
  for (int v = 0; v < 32; ++v) store_u16(out + 2 + 2 * v, static_cast<uint16_t>(f.index[v] | signs[v] << 9));
  pack_group_scales(f.scale, 16, out + 66);
}

void encode_iq2_s(const float* x, uint8_t* out) {
  static const Grid grid(grid_iq2s[0], 1024, 8);
  float magnitude[256];
  free_signs(x, magnitude, out + 34);
  const GridFit f = fit_grid(magnitude, grid, 16, 0.125f, 0.25f);
  uint8_t high[32];
  store_u16(out, f.d);
  for (int v = 0; v < 32; ++v) {
    out[2 + v] = static_cast<uint8_t>(f.index[v] & 255);
    high[v] = static_cast<uint8_t>(f.index[v] >> 8);
  }
  pack_pairs(high, 32, 1, out + 66);
  pack_group_scales(f.scale, 16, out + 74);
}

void encode_iq3_xxs(const float* x, uint8_t* out) {
  static const Grid grid(grid_iq3xxs[0], 256, 4);
  float magnitude[256];
  uint8_t signs[32];
  even_signs(x, magnitude, signs);
  const GridFit f = fit_grid(magnitude, grid, 8, 0.25f, 0.5f);
  store_u16(out, f.d);
  for (int i = 0; i < 64; ++i) out[2 + i] = static_cast<uint8_t>(f.index[i]);
  for (int g = 0; g < 8; ++g) store_u32(out + 66 + 4 * g, signs_and_scale(signs + 4 * g, f.scale[g]));
}

void encode_iq3_s(const float* x, uint8_t* out) {
  static const Grid grid(grid_iq3s[0], 512, 4);
  float magnitude[256];
  free_signs(x, magnitude, out + 74);
  const GridFit f = fit_grid(magnitude, grid, 8, 1.0f, 2.0f);
  uint8_t high[64];
  store_u16(out, f.d);
  for (int i = 0; i < 64; ++i) {
    out[2 + i] = static_cast<uint8_t>(f.index[i] & 255);
    high[i] = static_cast<uint8_t>(f.index[i] >> 8);
  }
  pack_bits(high, 64, 0, out + 66);
  pack_group_scales(f.scale, 8, out + 106);
}

void encode_iq1_s(const float* x, uint8_t* out) {
  const Fit1 f = fit_iq1(x, 8);
  store_u16(out, f.d);
  for (int v = 0; v < 32; ++v) out[2 + v] = static_cast<uint8_t>(f.index[v] & 255);
  for (int g = 0; g < 8; ++g) {
    int h = f.scale[g] << 12 | (f.minus[4 * g] ? 1 : 0) << 15;
    for (int i = 0; i < 4; ++i) h |= (f.index[4 * g + i] >> 8) << (3 * i);
    store_u16(out + 34 + 2 * g, static_cast<uint16_t>(h));
  }
}

void encode_iq1_m(const float* x, uint8_t* out) {
  const Fit1 f = fit_iq1(x, 16);
  uint8_t high[32];
  for (int v = 0; v < 32; ++v) {
    out[v] = static_cast<uint8_t>(f.index[v] & 255);
    high[v] = static_cast<uint8_t>(f.index[v] >> 8 | (f.minus[v] ? 8 : 0));
  }
  pack_group_scales(high, 32, out + 32);
  for (int k = 0; k < 4; ++k) {
    int w = ((f.d >> (4 * k)) & 15) << 12;
    for (int i = 0; i < 4; ++i) w |= f.scale[4 * k + i] << (3 * i);
    store_u16(out + 48 + 2 * k, static_cast<uint16_t>(w));
  }
}

}  // namespace strata::quant
