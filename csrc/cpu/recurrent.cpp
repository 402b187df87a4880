// Ops with a history: the causal convolutions and the gated delta rule.
#include <algorithm>
#include <cstring>

#include "cpu/scratch.h"

namespace strata::cpu {

void Backend::conv(const Call& c) {
  const program::Params& p = c.op.p;
  const program::Ref &xr = c.op.in[0], &hr = c.op.out[0], &yr = c.op.out[1];
  const int64_t T = c.frame.rows, C = c.cols(yr), past = int64_t{p.taps - 1} * p.dilation;
  const float *x = c.f32(xr), *w = vector_[static_cast<size_t>(c.op.in[1].id)], *before = c.state_before(hr);
  float *y = c.f32(yr), *after = c.state_after(hr);
  // Row t of (history | x), counted from the oldest history row.
  const auto row = [&](int64_t t) { return t < past ? before + t * C : x + (t - past) * c.stride(xr); };
  const int64_t block = std::max<int64_t>(1, T / (4 * threads()));
  pool_.run((T + block - 1) / block,
            [&](int64_t task, int) {
              std::vector<const float*> taps(static_cast<size_t>(p.taps));
              for (int64_t t = task * block; t < std::min(T, (task + 1) * block); ++t) {
                for (int k = 0; k < p.taps; ++k) taps[static_cast<size_t>(k)] = row(t + int64_t{k} * p.dilation);
                k_.conv(taps.data(), w, y + t * c.stride(yr), p.taps, static_cast<int>(C));
              }
            },
            c.cancel);
  // Rising order: within one sweep `before` is `after`, and every row is read before it is overwritten.
  for (int64_t i = 0; i < past; ++i)
    if (after + i * C != row(i + T)) std::memmove(after + i * C, row(i + T), static_cast<size_t>(C) * sizeof(float));
}

void Backend::delta_scan(const Call& c) {
  const program::Params& p = c.op.p;
  const program::Ref &xr = c.op.in[0], &sr = c.op.out[0], &or_ = c.op.out[1];
  const int64_t D = p.dim, keys = int64_t{p.key_heads} * D, stride = c.stride(xr);
  const float *x = c.f32(xr), *decay = c.f32(c.op.in[1]), *beta = c.f32(c.op.in[2]), *before = c.state_before(sr);
  float *o = c.f32(or_), *after = c.state_after(sr);
  const int64_t strips = (D + kStrip - 1) / kStrip;
  if (c.frame.rows == 1 && before != after && D % k_.step_columns == 0 && reinterpret_cast<uintptr_t>(after) % 64 == 0) {
    const int64_t run = std::max<int64_t>(1, p.heads / (4 * threads()));  // heads in turn: the next one is asked for ahead
    pool_.run((p.heads + run - 1) / run,
              [&](int64_t task, int) {
                const int64_t end = std::min<int64_t>(p.heads, (task + 1) * run);
                for (int64_t head = task * run; head < end; ++head) {
                  const int64_t key = head % p.key_heads, at = head * D * D;
                  k_.delta_step(before + at, after + at, static_cast<int>(D), head + 1 < end ? before + at + D * D : nullptr, x + key * D,
                                x + keys + key * D, x + 2 * keys + head * D, decay[head], beta[head], o + head * D);
                }
              },
              c.cancel);
    return;
  }
  pool_.run(p.heads * strips,
            [&](int64_t task, int thread) {
              const int64_t head = task / strips, column = task % strips * kStrip, key = head % p.key_heads;
              const int n = static_cast<int>(std::min<int64_t>(kStrip, D - column));
              float* strip = scratch(thread).strip;
              for (int64_t i = 0; i < D; ++i) {
                std::memset(strip + i * kStrip, 0, kStrip * sizeof(float));
                std::memcpy(strip + i * kStrip, before + (head * D + i) * D + column, static_cast<size_t>(n) * sizeof(float));
              }
              k_.delta_scan(strip, static_cast<int>(D), c.frame.rows, x + key * D, x + keys + key * D, stride,
                            x + 2 * keys + head * D + column, stride, decay + head, beta + head, c.stride(c.op.in[1]),
                            o + head * D + column, c.stride(or_), n);
              for (int64_t i = 0; i < D; ++i)
                std::memcpy(after + (head * D + i) * D + column, strip + i * kStrip, static_cast<size_t>(n) * sizeof(float));
            },
            c.cancel);
}

}  // namespace strata::cpu
