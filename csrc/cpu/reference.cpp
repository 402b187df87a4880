#include "cpu/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "cpu/scratch.h"
#include "quant/quant.h"

namespace strata::cpu::reference {

using program::OpKind;
using program::Params;
using program::Ref;

namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }

void rms(const float* x, const float* gamma, float* y, int n, float eps) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const double root = std::sqrt(sum / n + eps);
  for (int i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] / root * gamma[i]);
}

// Rotation with the float32 angles of the model's definition.
void rope(float* x, const Params& p, int64_t position) {
  const int half = p.n_rot / 2;
  for (int i = 0; i < half; ++i) {
    const auto f = static_cast<float>(std::pow(p.rope_base, -2.0 * i / p.n_rot));
    const double angle = static_cast<float>(position) * f, a = x[i], b = x[half + i];
    x[i] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
    x[half + i] = static_cast<float>(b * std::cos(angle) + a * std::sin(angle));
  }
}

struct Rows {  // rows of a chunk or sweep buffer
  float* base;
  int64_t stride, cols;
  float* operator[](int64_t t) const { return base + t * stride; }
};

class Run {
 public:
  Run(const program::Op& op, const program::Frame& f, const program::Program& prog, const Bindings& b, const std::vector<Matrix>& m,
      const std::vector<const float*>& v)
      : op_(op), p_(op.p), f_(f), prog_(prog), bind_(b), matrix_(m), vector_(v) {}

  bool run() {
    const auto& in = op_.in;
    const auto& out = op_.out;
    const int64_t T = f_.rows;
    switch (op_.kind) {
      case OpKind::Embed:
      case OpKind::StoreRows:
      case OpKind::Tap: return false;
      case OpKind::MatMul:
        for (int64_t t = 0; t < T; ++t) matvec(matrix_[static_cast<size_t>(in[1].id)], rows(in[0])[t], rows(out[0])[t]);
        return true;
      case OpKind::RmsNorm:
        for (int64_t t = 0; t < T; ++t)
          for (int g = 0; g < p_.groups; ++g) {
            const int64_t at = int64_t{g} * p_.width;
            rms(rows(in[0])[t] + at, vec(in[1]) + at, rows(out[0])[t] + at, p_.width, p_.eps);
          }
        return true;
      case OpKind::HeadNormRope:
        for (int64_t t = 0; t < T; ++t)
          for (int h = 0; h < p_.heads; ++h) {
            float* y = rows(out[0])[t] + int64_t{h} * p_.dim;
            rms(rows(in[0])[t] + int64_t{h} * p_.stride, vec(in[1]), y, p_.dim, p_.eps);
            rope(y, p_, f_.position + t);
          }
        return true;
      case OpKind::ScaledSilu:
        each(out[0], [&](float& x) { x = static_cast<float>(silu(static_cast<double>(x) / p_.scale)); });
        return true;
      case OpKind::InjectWeights:
        each(out[0], [&](float& x) { x = static_cast<float>(2 * sigmoid(static_cast<double>(x) / p_.scale)); });
        return true;
      case OpKind::Sigmoid:
        each(out[0], [&](float& x) { x = static_cast<float>(sigmoid(x)); });
        return true;
      case OpKind::MixStreams:
        for (int64_t t = 0; t < T; ++t) {
          const Rows u = rows(out[0]);
          for (int64_t d = 0; d < u.cols; ++d) {
            double sum = 0;
            for (int s = 0; s < p_.streams; ++s) sum += sigmoid(rows(in[0])[t][s * u.cols + d]) * rows(in[1])[t][s * u.cols + d];
            u[t][d] = static_cast<float>(sum / p_.streams);
          }
        }
        return true;
      case OpKind::Combine:
        for (int64_t t = 0; t < T; ++t) {
          const Rows o = rows(in[1]);
          for (int s = 0; s < p_.streams; ++s)
            for (int64_t d = 0; d < o.cols; ++d) rows(out[0])[t][s * o.cols + d] += rows(in[0])[t][s] * o[t][d];
        }
        return true;
      case OpKind::Add:
        for (int64_t t = 0; t < T; ++t)
          for (int64_t d = 0; d < rows(in[0]).cols; ++d) rows(out[0])[t][d] += rows(in[0])[t][d];
        return true;
      case OpKind::PleGate: ple_gate(); return true;
      case OpKind::Conv: conv(); return true;
      case OpKind::DeltaPrep: delta_prep(); return true;
      case OpKind::DeltaScan: delta_scan(); return true;
      case OpKind::GatedNorm:
        for (int64_t t = 0; t < T; ++t) {
          float* o = rows(out[0])[t];
          for (int g = 0; g < p_.groups; ++g) rms(o + int64_t{g} * p_.width, vec(in[1]), o + int64_t{g} * p_.width, p_.width, p_.eps);
          for (int64_t i = 0; i < int64_t{p_.groups} * p_.width; ++i) o[i] = static_cast<float>(o[i] * sigmoid(rows(in[0])[t][i]));
        }
        return true;
      case OpKind::BlockKeys: block_keys(); return true;
      case OpKind::SelectBlocks: select_blocks(); return true;
      case OpKind::Attend: attend(); return true;
      case OpKind::SigmoidGate:
        for (int64_t t = 0; t < T; ++t)
          for (int h = 0; h < p_.heads; ++h)
            for (int i = 0; i < p_.dim; ++i) {
              float& o = rows(out[0])[t][int64_t{h} * p_.dim + i];
              o = static_cast<float>(o * sigmoid(rows(in[0])[t][int64_t{h} * p_.stride + p_.dim + i]));
            }
        return true;
      case OpKind::Router: router(); return true;
      case OpKind::SwiGlu:
        for (int64_t t = 0; t < T; ++t)
          for (int64_t i = 0; i < rows(out[0]).cols; ++i)
            rows(out[0])[t][i] = static_cast<float>(silu(rows(out[0])[t][i]) * rows(in[0])[t][i]);
        return true;
      case OpKind::ScaleRows:
        for (int64_t t = 0; t < T; ++t)
          for (int64_t i = 0; i < rows(out[0]).cols; ++i) rows(out[0])[t][i] = rows(in[0])[t][i] * rows(in[1])[t][0];
        return true;
    }
    return false;
  }

 private:
  const program::Buffer& buffer(const Ref& r) const { return prog_.buffers[static_cast<size_t>(r.id)]; }
  std::byte* base(const Ref& r) const {
    const program::Buffer& b = buffer(r);
    return bind_.base[static_cast<size_t>(r.id)] +
           (b.scope == program::Scope::Sweep ? static_cast<uint64_t>(f_.row0) * b.row_bytes() : 0);
  }
  Rows rows(const Ref& r) const {
    return {reinterpret_cast<float*>(base(r)) + r.col, buffer(r).cols, r.cols ? r.cols : buffer(r).cols};
  }
  const float* vec(const Ref& r) const { return vector_[static_cast<size_t>(r.id)]; }
  const float* before(const Ref& r) const {
    const auto i = static_cast<size_t>(r.id);
    return reinterpret_cast<const float*>(f_.first_chunk ? bind_.before[i] : bind_.base[i]);
  }
  float* after(const Ref& r) const { return reinterpret_cast<float*>(bind_.base[static_cast<size_t>(r.id)]); }
  float cached(const Ref& r, int64_t at) const {
    if (buffer(r).dtype == program::DType::f16) return quant::half_to_float(reinterpret_cast<uint16_t*>(base(r))[at]);
    return reinterpret_cast<float*>(base(r))[at];
  }
  template <class F>
  void each(const Ref& r, F&& f) {
    for (int64_t t = 0; t < f_.rows; ++t)
      for (int64_t i = 0; i < rows(r).cols; ++i) f(rows(r)[t][i]);
  }

  void ple_gate() {
    const Rows key = rows(op_.in[0]), query = rows(op_.in[1]), value = rows(op_.in[2]), y = rows(op_.out[0]);
    const int64_t H = value.cols;
    for (int64_t t = 0; t < f_.rows; ++t)
      for (int s = 0; s < p_.streams; ++s) {
        double d = 0;
        for (int64_t i = 0; i < H; ++i) d += static_cast<double>(key[t][s * H + i]) * query[t][s * H + i];
        d /= std::sqrt(static_cast<double>(H));
        const double sign = d > 0 ? 1 : d < 0 ? -1 : 0;
        const double gate = std::isnan(d) ? d : sigmoid(sign * std::sqrt(std::max(std::fabs(d), 1e-6)));
        for (int64_t i = 0; i < H; ++i) y[t][s * H + i] = static_cast<float>(gate * value[t][i]);
      }
  }

  void conv() {
    const Rows x = rows(op_.in[0]), y = rows(op_.out[1]);
    const float* w = vec(op_.in[1]);
    const int64_t C = y.cols, past = int64_t{p_.taps - 1} * p_.dilation, T = f_.rows;
    std::vector<float> all(static_cast<size_t>((past + T) * C));
    std::memcpy(all.data(), before(op_.out[0]), static_cast<size_t>(past * C) * sizeof(float));
    for (int64_t t = 0; t < T; ++t) std::memcpy(&all[static_cast<size_t>((past + t) * C)], x[t], static_cast<size_t>(C) * sizeof(float));
    for (int64_t t = 0; t < T; ++t)
      for (int64_t i = 0; i < C; ++i) {
        double sum = 0;
        for (int k = 0; k < p_.taps; ++k) sum += static_cast<double>(w[k * C + i]) * all[static_cast<size_t>((t + int64_t{k} * p_.dilation) * C + i)];
        y[t][i] = static_cast<float>(silu(sum));
      }
    std::memcpy(after(op_.out[0]), &all[static_cast<size_t>(T * C)], static_cast<size_t>(past * C) * sizeof(float));
  }

  void delta_prep() {
    const Rows qkv = rows(op_.out[0]), alpha = rows(op_.out[1]), beta = rows(op_.out[2]);
    const float *dt = vec(op_.in[0]), *a = vec(op_.in[1]);
    for (int64_t t = 0; t < f_.rows; ++t) {
      for (int h = 0; h < 2 * p_.key_heads; ++h) {
        float* v = qkv[t] + int64_t{h} * p_.dim;
        double sum = 1e-6;
        for (int i = 0; i < p_.dim; ++i) sum += static_cast<double>(v[i]) * v[i];
        const double by = std::sqrt(sum) * (h < p_.key_heads ? std::sqrt(static_cast<double>(p_.dim)) : 1.0);
        for (int i = 0; i < p_.dim; ++i) v[i] = static_cast<float>(v[i] / by);
      }
      for (int h = 0; h < p_.heads; ++h) {
        const double x = static_cast<double>(alpha[t][h]) + dt[h];
        alpha[t][h] = static_cast<float>(std::exp(a[h] * (x > 20 ? x : std::log1p(std::exp(x)))));
        beta[t][h] = static_cast<float>(sigmoid(beta[t][h]));
      }
    }
  }

  void delta_scan() {
    const Rows qkv = rows(op_.in[0]), decay = rows(op_.in[1]), beta = rows(op_.in[2]), o = rows(op_.out[1]);
    const int64_t D = p_.dim, K = int64_t{p_.key_heads} * D;
    float* state = after(op_.out[0]);
    if (before(op_.out[0]) != state)
      std::memcpy(state, before(op_.out[0]), static_cast<size_t>(p_.heads * D * D) * sizeof(float));
    std::vector<double> e(static_cast<size_t>(D));
    for (int64_t t = 0; t < f_.rows; ++t)
      for (int64_t h = 0; h < p_.heads; ++h) {
        const float *q = qkv[t] + h % p_.key_heads * D, *k = q + K, *v = qkv[t] + 2 * K + h * D;
        float* M = state + h * D * D;
        for (int64_t i = 0; i < D * D; ++i) M[i] *= decay[t][h];
        for (int64_t j = 0; j < D; ++j) {
          double sum = 0;
          for (int64_t i = 0; i < D; ++i) sum += static_cast<double>(M[i * D + j]) * k[i];
          e[static_cast<size_t>(j)] = beta[t][h] * (v[j] - sum);
        }
        for (int64_t i = 0; i < D; ++i)
          for (int64_t j = 0; j < D; ++j) M[i * D + j] = static_cast<float>(M[i * D + j] + k[i] * e[static_cast<size_t>(j)]);
        for (int64_t j = 0; j < D; ++j) {
          double sum = 0;
          for (int64_t i = 0; i < D; ++i) sum += static_cast<double>(M[i * D + j]) * q[i];
          o[t][h * D + j] = static_cast<float>(sum);
        }
      }
  }

  void block_keys() {
    const Rows raw = rows(op_.in[0]);
    const int64_t r = p_.ratio, n = p_.dim, pos = f_.position, T = f_.rows, first = pos / r;
    std::vector<float> all;  // raw keys from position first * r on
    all.assign(before(op_.out[0]), before(op_.out[0]) + (pos - first * r) * n);
    for (int64_t t = 0; t < T; ++t) all.insert(all.end(), raw[t], raw[t] + n);
    const int64_t done = (pos + T) / r;
    for (int64_t b = first; b < done; ++b) {
      float* key = reinterpret_cast<float*>(base(op_.out[1])) + b * n;
      for (int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < r; ++j) sum += all[static_cast<size_t>(((b - first) * r + j) * n + i)];
        key[i] = static_cast<float>(sum / static_cast<double>(r));
      }
      rms(key, vec(op_.in[1]), key, static_cast<int>(n), p_.eps);
      rope(key, p_, b * r);
    }
    std::copy(all.begin() + (done - first) * r * n, all.end(), after(op_.out[0]));
  }

  void select_blocks() {
    const Rows q = rows(op_.in[0]);
    const float* keys = reinterpret_cast<const float*>(base(op_.in[1]));
    for (int64_t t = 0; t < f_.rows; ++t) {
      int32_t* ids = reinterpret_cast<int32_t*>(base(op_.out[0])) + t * buffer(op_.out[0]).cols;
      std::fill(ids, ids + buffer(op_.out[0]).cols, 0);
      const auto blocks = static_cast<int32_t>((f_.position + t + 1) / p_.ratio);
      std::vector<double> score(static_cast<size_t>(blocks), 0);
      for (int32_t b = 0; b < blocks; ++b)
        for (int h = 0; h < p_.heads; ++h) {
          double d = 0;
          for (int i = 0; i < p_.dim; ++i) d += static_cast<double>(q[t][h * p_.dim + i]) * keys[b * p_.dim + i];
          score[static_cast<size_t>(b)] += d < 0 ? 0 : d;
        }
      std::vector<int32_t> order(static_cast<size_t>(blocks));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return better(score[static_cast<size_t>(a)], score[static_cast<size_t>(b)]); });
      order.resize(static_cast<size_t>(std::min(blocks, p_.budget)));
      std::sort(order.begin(), order.end());
      ids[0] = static_cast<int32_t>(order.size());
      std::copy(order.begin(), order.end(), ids + 1);
    }
  }

  static bool better(double a, double b) { return std::isnan(b) ? !std::isnan(a) : a > b; }

  void attend() {
    const Rows q = rows(op_.in[0]), o = rows(op_.out[0]);
    const int64_t width = buffer(op_.in[1]).cols;
    for (int64_t t = 0; t < f_.rows; ++t) {
      const int64_t pos = f_.position + t;
      std::vector<int64_t> see;
      int64_t tail = 0;
      if (op_.in.size() > 3) {
        const int32_t* ids = reinterpret_cast<int32_t*>(base(op_.in[3])) + t * buffer(op_.in[3]).cols;
        for (int32_t b = 0; b < ids[0]; ++b)
          for (int j = 0; j < p_.ratio; ++j) see.push_back(int64_t{ids[1 + b]} * p_.ratio + j);
        tail = (pos + 1) / p_.ratio * p_.ratio;
      }
      for (int64_t i = tail; i <= pos; ++i) see.push_back(i);
      for (int h = 0; h < p_.heads; ++h) {
        const int64_t at = h / (p_.heads / p_.kv_heads) * int64_t{p_.dim};
        std::vector<double> w(see.size());
        double top = -INFINITY, sum = 0;
        for (size_t i = 0; i < see.size(); ++i) {
          double d = 0;
          for (int j = 0; j < p_.dim; ++j) d += static_cast<double>(q[t][h * p_.dim + j]) * cached(op_.in[1], see[i] * width + at + j);
          w[i] = d * p_.scale;
          top = std::max(top, w[i]);
        }
        for (double& x : w) sum += x = std::exp(x - top);
        for (int j = 0; j < p_.dim; ++j) {
          double v = 0;
          for (size_t i = 0; i < see.size(); ++i) v += w[i] / sum * cached(op_.in[2], see[i] * width + at + j);
          o[t][h * p_.dim + j] = static_cast<float>(v);
        }
      }
    }
  }

  void router() {
    const Rows logits = rows(op_.in[0]), w = rows(op_.out[1]);
    const int64_t E = logits.cols;
    for (int64_t t = 0; t < f_.rows; ++t) {
      int32_t* ids = reinterpret_cast<int32_t*>(base(op_.out[0])) + t * buffer(op_.out[0]).cols;
      double top = -INFINITY, sum = 0, chosen = 0;
      for (int64_t i = 0; i < E; ++i) top = std::max(top, static_cast<double>(logits[t][i]));
      std::vector<float> p(static_cast<size_t>(E));
      for (int64_t i = 0; i < E; ++i) sum += std::exp(logits[t][i] - top);
      for (int64_t i = 0; i < E; ++i) p[static_cast<size_t>(i)] = static_cast<float>(std::exp(logits[t][i] - top) / sum);
      std::vector<int32_t> order(static_cast<size_t>(E));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return better(p[static_cast<size_t>(a)], p[static_cast<size_t>(b)]); });
      for (int i = 0; i < p_.k; ++i) chosen += p[static_cast<size_t>(ids[i] = order[static_cast<size_t>(i)])];
      for (int i = 0; i < p_.k; ++i) w[t][i] = static_cast<float>(p[static_cast<size_t>(ids[i])] / chosen);
    }
  }

  const program::Op& op_;
  const Params& p_;
  const program::Frame& f_;
  const program::Program& prog_;
  const Bindings& bind_;
  const std::vector<Matrix>& matrix_;
  const std::vector<const float*>& vector_;
};

}  // namespace

bool run(const program::Op& op, const program::Frame& frame, const program::Program& program, const Bindings& bindings,
         const std::vector<Matrix>& matrix, const std::vector<const float*>& vector) {
  return Run(op, frame, program, bindings, matrix, vector).run();
}

void matvec(const Matrix& w, const float* x, float* y) {
  std::vector<float> row(static_cast<size_t>(w.cols));
  for (int64_t i = 0; i < w.rows; ++i) {
    quant::dequantize_row(w.type, w.data + static_cast<uint64_t>(i) * w.row_bytes, row.data(), w.cols);
    double sum = 0;
    for (int64_t k = 0; k < w.cols; ++k) sum += static_cast<double>(row[static_cast<size_t>(k)]) * x[k];
    y[i] = static_cast<float>(sum);
  }
}

void expert_gate_up(const ExpertPass& pass, const ExpertRun& run) {
  std::vector<float> g(static_cast<size_t>(pass.width)), u(static_cast<size_t>(pass.width));
  for (int64_t r = 0; r < run.rows; ++r) {
    const float* x = pass.x + run.slots[r] / pass.k * pass.hidden;
    matvec(run.gate, x, g.data());
    matvec(run.up, x, u.data());
    for (int64_t i = 0; i < pass.width; ++i)
      pass.h[run.slots[r] * pass.width + i] = static_cast<float>(silu(g[static_cast<size_t>(i)]) * u[static_cast<size_t>(i)]);
  }
}

void expert_down(const ExpertPass& pass, const ExpertRun& run) {
  std::vector<float> y(static_cast<size_t>(pass.hidden));
  for (int64_t r = 0; r < run.rows; ++r) {
    const int64_t slot = run.slots[r];
    matvec(run.down, pass.h + slot * pass.width, y.data());
    for (int64_t i = 0; i < pass.hidden; ++i) pass.out[slot / pass.k * pass.hidden + i] += pass.weights[slot] * y[static_cast<size_t>(i)];
    if (pass.rows_out) std::memcpy(pass.rows_out + slot * pass.hidden, y.data(), y.size() * sizeof(float));
  }
}

}  // namespace strata::cpu::reference
