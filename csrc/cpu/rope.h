// Rotary positions. x_i' = x_i cos - x_{i+n/2} sin, x_{i+n/2}' = x_{i+n/2} cos + x_i sin, angle = position * base^(-2i/n);
// frequencies and angles in float32 as in the reference, cosine and sine rounded from double.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace strata::cpu {

// One op's frequencies, made once for all its rows.
struct Rope {
  int n;
  std::vector<float> frequency;
  Rope(int n_rot, double base) : n(n_rot), frequency(static_cast<size_t>(n_rot / 2)) {
    for (int i = 0; i < n / 2; ++i) frequency[static_cast<size_t>(i)] = static_cast<float>(std::pow(base, -2.0 * i / n));
  }
  // turn: n values, cos at [i], sin at [n/2 + i].
  void angles(int64_t position, float* turn) const {
    for (int i = 0; i < n / 2; ++i) {
      const float angle = static_cast<float>(position) * frequency[static_cast<size_t>(i)];
      turn[i] = static_cast<float>(std::cos(static_cast<double>(angle)));
      turn[n / 2 + i] = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
};

inline void rotate(float* x, int n, const float* turn) {
  const int half = n / 2;
  for (int i = 0; i < half; ++i) {
    const float a = x[i], b = x[half + i];
    x[i] = a * turn[i] - b * turn[half + i];
    x[half + i] = b * turn[i] + a * turn[half + i];
  }
}

}  // namespace strata::cpu
