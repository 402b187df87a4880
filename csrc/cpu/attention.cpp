// Sparse attention: block keys, the choice of blocks, attention over the chosen positions.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "cpu/rope.h"
#include "cpu/router_api.h"
#include "cpu/scratch.h"

namespace strata::cpu {

void top_k(const float* p, int n, int k, int32_t* ids) {
  // A heap of the k best so far with the worst on top; `before` is the order of choice.
  const auto before = [p](int32_t a, int32_t b) {
    const float x = p[a], y = p[b];
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(y);
    return x != y ? x > y : a < b;
  };
  k = std::min(k, n);
  if (k <= 0) return;
  for (int32_t i = 0; i < k; ++i) ids[i] = i;
  std::make_heap(ids, ids + k, before);
  for (int32_t i = k; i < n; ++i)
    if (before(i, ids[0])) {
      std::pop_heap(ids, ids + k, before);
      ids[k - 1] = i;
      std::push_heap(ids, ids + k, before);
    }
  std::sort_heap(ids, ids + k, before);
}

// A block's key: mean of its raw keys, norm, rotation at the block's first position. Raw keys of an unfinished block are
// kept in the tail state.
void Backend::block_keys(const Call& c) {
  const program::Params& p = c.op.p;
  const program::Ref &kr = c.op.in[0], &tr = c.op.out[0], &br = c.op.out[1];
  const int64_t T = c.frame.rows, pos = c.frame.position, r = p.ratio, n = p.dim, first = pos / r;
  const float *raw = c.f32(kr), *gamma = vector_[static_cast<size_t>(c.op.in[1].id)];
  const float* before = c.state_before(tr);
  float *after = c.state_after(tr), *keys = c.f32(br);
  // Raw key of position t >= first * r.
  const auto key = [&](int64_t t) { return t < pos ? before + (t - first * r) * n : raw + (t - pos) * c.stride(kr); };
  const int64_t done = (pos + T) / r;
  const Rope rope(p.n_rot, p.rope_base);
  const int64_t run = std::max<int64_t>(1, (done - first) / (4 * threads()));
  pool_.run((done - first + run - 1) / run,
            [&](int64_t task, int) {
              std::vector<float> mean(static_cast<size_t>(n)), turn(static_cast<size_t>(p.n_rot));
              for (int64_t block = first + task * run; block < std::min(done, first + (task + 1) * run); ++block) {
                std::fill(mean.begin(), mean.end(), 0.0F);
                for (int64_t j = 0; j < r; ++j) k_.add(mean.data(), key(block * r + j), static_cast<int>(n));
                k_.scale(mean.data(), 1.0F / static_cast<float>(r), static_cast<int>(n));
                float* out = keys + block * n;
                k_.rms_norm(mean.data(), gamma, out, static_cast<int>(n), p.eps);
                rope.angles(block * r, turn.data());
                rotate(out, p.n_rot, turn.data());
              }
            },
            c.cancel);
  // The tail that is left; when no block was finished its old part stays where it is.
  const int64_t tail = (pos + T) % r;
  for (int64_t j = 0; j < tail; ++j) {
    const float* from = key(done * r + j);
    if (from != after + j * n) std::memmove(after + j * n, from, static_cast<size_t>(n) * sizeof(float));
  }
}

// [count, block ids rising]: all complete blocks while they fit the budget, else the best by
// sum over heads of max(0, q_h . key) (larger first, lower block first among equals).
void Backend::select_blocks(const Call& c) {
  const program::Params& p = c.op.p;
  const program::Ref &qr = c.op.in[0], &out = c.op.out[0];
  const float *q = c.f32(qr), *keys = c.f32(c.op.in[1]);
  pool_.run(c.frame.rows,
            [&](int64_t t, int thread) {
              int32_t* ids = c.at<int32_t>(out) + t * c.stride(out);
              const auto blocks = static_cast<int32_t>((c.frame.position + t + 1) / p.ratio);
              const int32_t kept = std::min(blocks, p.budget);
              std::memset(ids, 0, static_cast<size_t>(c.cols(out)) * sizeof(int32_t));
              ids[0] = kept;
              if (blocks <= p.budget) {
                for (int32_t i = 0; i < kept; ++i) ids[1 + i] = i;
                return;
              }
              Scratch& s = scratch(thread);
              for (int32_t b = 0; b < blocks; ++b) {
                float score = 0;
                for (int h = 0; h < p.heads; ++h) {
                  const float d = k_.dot_f32(q + t * c.stride(qr) + int64_t{h} * p.dim, keys + int64_t{b} * p.dim, p.dim);
                  score += d < 0 ? 0.0F : d;  // a NaN stays one
                }
                s.scores[b] = score;
              }
              top_k(s.scores, blocks, kept, s.order);
              std::sort(s.order, s.order + kept);
              std::memcpy(ids + 1, s.order, static_cast<size_t>(kept) * sizeof(int32_t));
            },
            c.cancel);
}

void Backend::attend(const Call& c) {
  const program::Params& p = c.op.p;
  const program::Ref &qr = c.op.in[0], &kr = c.op.in[1], &vr = c.op.in[2], &outr = c.op.out[0];
  const bool half = c.buffer(kr).dtype == program::DType::f16;
  const int64_t width = c.stride(kr), group = p.heads / p.kv_heads;
  pool_.run(c.frame.rows * p.kv_heads,
            [&](int64_t task, int thread) {
              const int64_t t = task / p.kv_heads, g = task % p.kv_heads, pos = c.frame.position + t;
              const int32_t* blocks = c.op.in.size() > 3 ? c.at<int32_t>(c.op.in[3]) + t * c.stride(c.op.in[3]) : nullptr;
              Scratch& s = scratch(thread);
              int32_t* at = s.order;  // visible positions, rising
              int n = 0;
              int64_t tail = 0;
              if (blocks) {
                for (int32_t b = 0; b < blocks[0]; ++b)
                  for (int32_t j = 0; j < p.ratio; ++j) at[n++] = blocks[1 + b] * p.ratio + j;
                tail = (pos + 1) / p.ratio * p.ratio;
              }
              for (int64_t i = tail; i <= pos; ++i) at[n++] = static_cast<int32_t>(i);
              const float* q = c.f32(qr) + t * c.stride(qr) + g * group * p.dim;
              float* o = c.f32(outr) + t * c.stride(outr) + g * group * p.dim;
              const auto heads = [&](auto* keys, auto* values, auto* score, auto* mix) {
                using T = std::remove_cvref_t<decltype(*keys)>;
                const Attended<T> ks{keys + g * p.dim, width, at, n, p.dim}, vs{values + g * p.dim, width, at, n, p.dim};
                for (int64_t h = 0; h < group; h += kHeads) {
                  const int some = static_cast<int>(std::min<int64_t>(kHeads, group - h));
                  score(ks, q + h * p.dim, p.dim, some, p.scale, s.scores, s.context);
                  float sum[kHeads];
                  for (int j = 0; j < some; ++j) {
                    float* e = s.scores + j * s.context;
                    sum[j] = k_.exp_sum(e, k_.max(e, n), n);
                  }
                  mix(vs, s.scores, s.context, some, o + h * p.dim, p.dim);
                  for (int j = 0; j < some; ++j) k_.scale(o + (h + j) * p.dim, 1.0F / sum[j], p.dim);
                }
              };
              if (p.dim % 16 == 0) {
                if (half)
                  heads(c.at<const uint16_t>(kr), c.at<const uint16_t>(vr), k_.scores_f16, k_.mix_f16);
                else
                  heads(c.at<const float>(kr), c.at<const float>(vr), k_.scores_f32, k_.mix_f32);
                return;
              }
              for (int64_t h = 0; h < group; ++h, q += p.dim, o += p.dim) {
                for (int i = 0; i < n; ++i) {
                  const int64_t row = at[i] * width + g * p.dim;
                  s.scores[i] = p.scale * (half ? k_.dot_f16(q, c.at<uint16_t>(kr) + row, p.dim) : k_.dot_f32(q, c.f32(kr) + row, p.dim));
                }
                const float sum = k_.exp_sum(s.scores, k_.max(s.scores, n), n);
                std::memset(o, 0, static_cast<size_t>(p.dim) * sizeof(float));
                for (int i = 0; i < n; ++i) {
                  const int64_t row = at[i] * width + g * p.dim;
                  if (half)
                    k_.axpy_f16(o, s.scores[i], c.at<uint16_t>(vr) + row, p.dim);
                  else
                    k_.axpy(o, s.scores[i], c.f32(vr) + row, p.dim);
                }
                k_.scale(o, 1.0F / sum, p.dim);
              }
            },
            c.cancel);
}

// p = softmax over all experts; the k largest, in falling order; weights normalised over the chosen.
void Backend::router(const Call& c) {
  const program::Params& p = c.op.p;
  const program::Ref& lr = c.op.in[0];
  const int n = static_cast<int>(c.cols(lr));
  const int64_t T = c.frame.rows, block = std::max<int64_t>(1, T / (4 * threads()));
  pool_.run((T + block - 1) / block,
            [&](int64_t task, int) {
              for (int64_t t = task * block; t < std::min(T, (task + 1) * block); ++t) {
                float* logits = c.f32(lr) + t * c.stride(lr);
                int32_t* ids = c.at<int32_t>(c.op.out[0]) + t * c.stride(c.op.out[0]);
                float* w = c.f32(c.op.out[1]) + t * c.stride(c.op.out[1]);
                route(k_, logits, n, p.k, ids, w);
              }
            },
            c.cancel);
}

}  // namespace strata::cpu
