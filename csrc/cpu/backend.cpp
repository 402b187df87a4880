// Weights in the backend's own memory, scratch, and the loop over a segment's ops.
#include "cpu/backend.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "cpu/pack.h"
#include "cpu/reference.h"
#include "cpu/rope.h"
#include "cpu/scratch.h"
#include "quant/quant.h"

namespace strata::cpu {

using program::Op;
using program::OpKind;
using program::Params;
using program::Ref;

namespace {

enum class Use : uint8_t { None, Rows, Product, Vector, Taps };

// How each weight is used, from the ops that name it. Embeddings read block rows, products rows or panels; the rest wants
// floats. A matrix used both ways (tied embeddings) stays in rows.
std::vector<Use> uses(const model::Model& model, const program::Program& p) {
  std::vector<Use> use(model.weights.size(), Use::None);
  const auto note = [](Use& have, Use now) { have = have == Use::Rows || now == Use::Rows ? Use::Rows : now; };
  const auto scan = [&](const program::Segment& s) {
    for (const Op& op : s.ops)
      for (const Ref& r : op.in)
        if (r.space == Ref::Weight)
          note(use[static_cast<size_t>(r.id)], op.kind == OpKind::MatMul  ? Use::Product
                                               : op.kind == OpKind::Embed ? Use::Rows
                                               : op.kind == OpKind::Conv  ? Use::Taps
                                                                          : Use::Vector);
  };
  scan(p.embed);
  for (const auto& s : p.mixer) scan(s);
  for (const auto& s : p.experts) scan(s);
  scan(p.head);
  return use;
}

uint64_t stored_bytes(const model::Weight& w, Use u) {
  if (u == Use::None) return 0;
  if (u == Use::Rows) return aligned(w.where.bytes);
  if (u == Use::Product) return aligned(std::max(w.where.bytes, packed_bytes({w.type, w.rows, w.cols, w.row_bytes, nullptr})));
  return aligned(static_cast<uint64_t>(w.rows * w.cols) * sizeof(float));
}

uint64_t scratch_floats(const model::Model& model, int64_t context) {
  const auto dim = static_cast<uint64_t>(std::max(model.hp.state_dim, 1));
  const uint64_t scores = aligned(static_cast<uint64_t>(context) * 4) / 4;
  return ProductScratch::floats() + (kHeads + 1) * scores + dim * kStrip;
}

// Row chunks of 256 values that the largest product of a chunk, or a batch of experts, quantises.
uint64_t quantised_chunks(const model::Model& model, const program::Program& p, int64_t rows) {
  int64_t most = kBatchRows * chunks_of(std::max(model.hp.hidden, model.hp.expert_width));
  const std::vector<Use> use = uses(model, p);
  for (size_t i = 0; i < use.size(); ++i)
    if (use[i] == Use::Rows || use[i] == Use::Product) most = std::max(most, rows * chunks_of(model.weights[i].cols));
  return static_cast<uint64_t>(most);
}

// Weights whose product stays in float32 whatever their type: what decides between experts or positions, and what a
// small error would feed back (spec: precision).
std::vector<uint8_t> exact_weights(const model::Model& m) {
  std::vector<uint8_t> exact(m.weights.size(), 0);
  const auto mark = [&](model::WeightId w) {
    if (w >= 0) exact[static_cast<size_t>(w)] = 1;
  };
  for (const model::Layer& l : m.layers) {
    for (const model::WeightId w : {l.router, l.shared_gate_inp, l.mix_attn.inject, l.mix_ffn.inject, l.delta.alpha, l.delta.beta}) mark(w);
  }
  return exact;
}

}  // namespace

Backend::Backend(const model::Model& model, const program::Program& program, const Kernels& kernels, int threads,
                 Activations activations, bool reference)
    : model_(model),
      program_(program),
      k_(kernels),
      reference_(reference),
      activations_(reference ? Activations::F32 : activations),
      pool_(threads),
      exact_(exact_weights(model)) {}

Backend::~Backend() = default;

uint64_t Backend::weight_bytes(const model::Model& model, const program::Program& program) {
  const std::vector<Use> use = uses(model, program);
  uint64_t sum = 0;
  for (size_t i = 0; i < use.size(); ++i) sum += stored_bytes(model.weights[i], use[i]);
  return sum;
}

uint64_t Backend::scratch_bytes(const model::Model& model, const program::Program& program, int threads, int64_t chunk, int64_t context) {
  return (static_cast<uint64_t>(threads) * scratch_floats(model, context) + quantised_chunks(model, program, chunk) * Quantised::floats()) *
         sizeof(float);
}

void Backend::load(MemoryPlan& plan, const ReadWeight& read, Cancel* cancel) {
  const std::vector<Use> use = uses(model_, program_);
  weights_ = plan.take("resident weights", weight_bytes(model_, program_));
  matrix_.assign(use.size(), {});
  vector_.assign(use.size(), nullptr);
  std::byte* p = weights_.data();
  std::vector<std::byte> raw;
  std::vector<float> row;
  for (size_t i = 0; i < use.size(); ++i) {
    const model::Weight& w = model_.weights[i];
    if (cancel) cancel->poll();
    if (use[i] == Use::Product && activations_ != Activations::F32 && !exact_[i] && packed_type(w.type) != w.type) {
      raw.resize(w.where.bytes);
      read(w, raw.data());
      matrix_[i] = pack({w.type, w.rows, w.cols, w.row_bytes, raw.data()}, p);
    } else if (use[i] == Use::Rows || use[i] == Use::Product) {
      read(w, p);
      matrix_[i] = {w.type, w.rows, w.cols, w.row_bytes, p};
    } else if (use[i] != Use::None) {
      raw.resize(w.where.bytes);
      read(w, raw.data());
      auto* f = reinterpret_cast<float*>(p);
      if (use[i] == Use::Vector) {
        for (int64_t r = 0; r < w.rows; ++r)
          quant::dequantize_row(w.type, raw.data() + static_cast<uint64_t>(r) * w.row_bytes, f + r * w.cols, w.cols);
      } else {  // a convolution [channels][taps] -> [taps][channels], so that lanes are channels
        row.resize(static_cast<size_t>(w.cols));
        for (int64_t r = 0; r < w.rows; ++r) {
          quant::dequantize_row(w.type, raw.data() + static_cast<uint64_t>(r) * w.row_bytes, row.data(), w.cols);
          for (int64_t t = 0; t < w.cols; ++t) f[t * w.rows + r] = row[static_cast<size_t>(t)];
        }
      }
      vector_[i] = f;
    }
    p += stored_bytes(w, use[i]);
  }
}

void Backend::set_scratch(MemoryPlan& plan, int64_t chunk, int64_t context) {
  const uint64_t each = scratch_floats(model_, context);
  scratch_pages_ = plan.take("thread scratch", scratch_bytes(model_, program_, threads(), chunk, context));
  scratch_.assign(static_cast<size_t>(threads()), {});
  auto* p = reinterpret_cast<float*>(scratch_pages_.data());
  const uint64_t scores = aligned(static_cast<uint64_t>(context) * 4) / 4;
  for (Scratch& s : scratch_) {
    s.strip = s.take(p);
    s.scores = s.strip + std::max(model_.hp.state_dim, 1) * kStrip;
    s.context = static_cast<int64_t>(scores);
    s.order = reinterpret_cast<int32_t*>(s.scores + kHeads * scores);
    p += each;
  }
  const uint64_t chunks = quantised_chunks(model_, program_, chunk);
  quantised_ = QuantisedPool(p, chunks);
}

Backend::Scratch& Backend::scratch(int thread) { return scratch_[static_cast<size_t>(thread)]; }

void Backend::run(const program::Segment& segment, const program::Frame& frame, const Bindings& bindings, TapSink* taps,
                  Cancel* cancel) {
  for (const Op& op : segment.ops) {
    if (cancel) cancel->poll();
    const Call c{program_, op, frame, bindings, taps, cancel};
    timed(
        profile_.get(),
        [&] {
          if (!reference_ || !reference::run(c.op, c.frame, program_, bindings, matrix_, vector_)) run_op(c);
        },
        [&](double seconds) { note(c, seconds); });
  }
}

// Name of the kernel that multiplies with w.
std::string Backend::kernel_name(const Matrix& w, bool exact, Form form) const {
  const char* type = w.type == kPackedQ8 ? "Q8_0 packed" : quant::type_info(w.type)->name;
  const char* activations = !integer(w) || exact ? " f32 " : form == Form::Int16 ? " int16 " : " int8 ";
  return std::string(type) + activations + k_.name;
}

void Backend::note(const Call& c, double seconds) {
  double macs = 0, bytes = 0;
  std::string kernel = k_.name;
  if (c.op.kind == OpKind::MatMul) {
    const auto id = static_cast<size_t>(c.op.in[1].id);
    const Matrix& w = matrix_[id];
    bytes = static_cast<double>(w.row_bytes) * static_cast<double>(w.rows);
    macs = static_cast<double>(c.frame.rows) * static_cast<double>(w.rows) * static_cast<double>(w.cols);
    kernel = kernel_name(w, exact_[id] != 0, form_of(k_, int8(), w.type));
  }
  profile_->add(program::op_name(c.op.kind), kernel, seconds, macs, bytes);
}

void Backend::note_experts(const char* kind, const ExpertPass& pass, const std::vector<ExpertRun>& group, bool down, double seconds) {
  if (group.empty()) return;
  double macs = 0, bytes = 0;
  for (const ExpertRun& run : group) {
    const Matrix& w = down ? run.down : run.gate;
    const double matrices = down ? 1 : 2;
    bytes += matrices * static_cast<double>(w.row_bytes) * static_cast<double>(w.rows);
    macs += matrices * static_cast<double>(run.rows) * static_cast<double>(pass.hidden) * static_cast<double>(pass.width);
  }
  const ExpertRun& any = group[0];
  const Form form = down ? form_of(k_, int8(), any.down.type) : form_of(k_, int8(), any.gate.type, any.up.type);
  profile_->add(kind, kernel_name(down ? any.down : any.gate, false, form), seconds, macs, bytes);
}

void Backend::experts_gate_up(const ExpertPass& pass, const std::vector<ExpertRun>& group, Cancel* cancel) {
  timed(
      profile_.get(), [&] { gate_up(pass, group, cancel); },
      [&](double seconds) { note_experts("ExpertsGateUp", pass, group, false, seconds); });
}

void Backend::experts_down(const ExpertPass& pass, const std::vector<ExpertRun>& group, Cancel* cancel) {
  timed(
      profile_.get(), [&] { down(pass, group, cancel); },
      [&](double seconds) { note_experts("ExpertsDown", pass, group, true, seconds); });
}

bool Backend::all_finite(const float* x, int64_t n) {
  constexpr int64_t kPiece = 1 << 16;
  std::atomic<bool> finite{true};
  pool_.run((n + kPiece - 1) / kPiece, [&](int64_t task, int) {
    uint32_t bad = 0;  // without an early way out, so that it vectorises
    for (int64_t i = task * kPiece, end = std::min(n, i + kPiece); i < end; ++i)
      bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(x[i]) & 0x7f800000u) == 0x7f800000u);
    if (bad) finite = false;
  });
  return finite;
}

void Backend::run_op(const Call& c) {
  const Params& p = c.op.p;
  const std::vector<Ref>&in = c.op.in, &out = c.op.out;
  const int64_t T = c.frame.rows;
  // Rows are independent: fn(first, end) may run on any thread.
  const auto each_block = [&](const std::function<void(int64_t, int64_t)>& fn) {
    const int64_t block = std::max<int64_t>(1, T / (4 * threads()));
    pool_.run((T + block - 1) / block, [&](int64_t task, int) { fn(task * block, std::min(T, (task + 1) * block)); }, c.cancel);
  };
  const auto each_row = [&](auto&& fn) {
    each_block([&](int64_t first, int64_t end) {
      for (int64_t t = first; t < end; ++t) fn(t);
    });
  };
  switch (c.op.kind) {
    case OpKind::MatMul: matmul(c); break;
    case OpKind::Conv: conv(c); break;
    case OpKind::DeltaScan: delta_scan(c); break;
    case OpKind::BlockKeys: block_keys(c); break;
    case OpKind::SelectBlocks: select_blocks(c); break;
    case OpKind::Attend: attend(c); break;
    case OpKind::Router: router(c); break;

    case OpKind::Embed: {
      const Matrix& w = matrix_[static_cast<size_t>(in[0].id)];
      float* R = c.f32(out[0]);
      each_row([&](int64_t t) {
        float* row = R + t * c.stride(out[0]);
        quant::dequantize_row(w.type, w.data + static_cast<uint64_t>(c.frame.tokens[t]) * w.row_bytes, row, w.cols);
        for (int s = 1; s < p.streams; ++s) std::memcpy(row + s * w.cols, row, static_cast<size_t>(w.cols) * sizeof(float));
      });
      break;
    }
    case OpKind::RmsNorm: {
      const float *x = c.f32(in[0]), *gamma = vector_[static_cast<size_t>(in[1].id)];
      float* y = c.f32(out[0]);
      each_row([&](int64_t t) {
        for (int g = 0; g < p.groups; ++g)
          k_.rms_norm(x + t * c.stride(in[0]) + int64_t{g} * p.width, gamma + int64_t{g} * p.width,
                      y + t * c.stride(out[0]) + int64_t{g} * p.width, p.width, p.eps);
      });
      break;
    }
    case OpKind::HeadNormRope: {
      const float *x = c.f32(in[0]), *gamma = vector_[static_cast<size_t>(in[1].id)];
      float* y = c.f32(out[0]);
      const Rope rope(p.n_rot, p.rope_base);
      each_block([&](int64_t first, int64_t end) {
        std::vector<float> turn(static_cast<size_t>(p.n_rot));
        for (int64_t t = first; t < end; ++t) {
          rope.angles(c.frame.position + t, turn.data());
          for (int h = 0; h < p.heads; ++h) {
            float* head = y + t * c.stride(out[0]) + int64_t{h} * p.dim;
            k_.rms_norm(x + t * c.stride(in[0]) + int64_t{h} * p.stride, gamma, head, p.dim, p.eps);
            rotate(head, p.n_rot, turn.data());
          }
        }
      });
      break;
    }
    case OpKind::ScaledSilu:
      each_row([&](int64_t t) { k_.silu_scaled(c.f32(out[0]) + t * c.stride(out[0]), p.scale, static_cast<int>(c.cols(out[0]))); });
      break;
    case OpKind::MixStreams: {
      const int n = static_cast<int>(c.cols(out[0]));
      each_row([&](int64_t t) {
        k_.mix_streams(c.f32(in[0]) + t * c.stride(in[0]), c.f32(in[1]) + t * c.stride(in[1]), c.f32(out[0]) + t * c.stride(out[0]),
                       p.streams, n);
      });
      break;
    }
    case OpKind::InjectWeights:
      each_row([&](int64_t t) {
        k_.sigmoid_scaled(c.f32(out[0]) + t * c.stride(out[0]), p.scale, 2.0F, static_cast<int>(c.cols(out[0])));
      });
      break;
    case OpKind::Combine: {
      const int n = static_cast<int>(c.cols(in[1]));
      each_row([&](int64_t t) {
        for (int s = 0; s < p.streams; ++s)
          k_.axpy(c.f32(out[0]) + t * c.stride(out[0]) + int64_t{s} * n, c.f32(in[0])[t * c.stride(in[0]) + s],
                  c.f32(in[1]) + t * c.stride(in[1]), n);
      });
      break;
    }
    case OpKind::Add:
      each_row([&](int64_t t) {
        k_.add(c.f32(out[0]) + t * c.stride(out[0]), c.f32(in[0]) + t * c.stride(in[0]), static_cast<int>(c.cols(in[0])));
      });
      break;
    case OpKind::PleGate: {
      const int H = static_cast<int>(c.cols(in[2]));
      const float root = std::sqrt(static_cast<float>(H));
      each_row([&](int64_t t) {
        const float *key = c.f32(in[0]) + t * c.stride(in[0]), *query = c.f32(in[1]) + t * c.stride(in[1]);
        const float* value = c.f32(in[2]) + t * c.stride(in[2]);
        float* y = c.f32(out[0]) + t * c.stride(out[0]);
        for (int s = 0; s < p.streams; ++s) {
          const float d = k_.dot_f32(key + int64_t{s} * H, query + int64_t{s} * H, H) / root;
          const float a = std::fabs(d);
          float g = d == 0 ? 0.0F : std::copysign(std::sqrt(a > 1e-6F ? a : 1e-6F), d);
          if (std::isnan(d)) g = d;
          k_.sigmoid_scaled(&g, 1.0F, 1.0F, 1);
          std::memcpy(y + int64_t{s} * H, value, static_cast<size_t>(H) * sizeof(float));
          k_.scale(y + int64_t{s} * H, g, H);
        }
      });
      break;
    }
    case OpKind::DeltaPrep: {
      const float *dt = vector_[static_cast<size_t>(in[0].id)], *a = vector_[static_cast<size_t>(in[1].id)];
      const float root = std::sqrt(static_cast<float>(p.dim));
      each_row([&](int64_t t) {
        float* row = c.f32(out[0]) + t * c.stride(out[0]);
        for (int h = 0; h < 2 * p.key_heads; ++h) {  // q heads, then k heads
          float* v = row + int64_t{h} * p.dim;
          const float norm = std::sqrt(k_.dot_f32(v, v, p.dim) + 1e-6F);
          k_.scale(v, 1.0F / norm, p.dim);
          if (h < p.key_heads) k_.scale(v, 1.0F / root, p.dim);
        }
        float *alpha = c.f32(out[1]) + t * c.stride(out[1]), *beta = c.f32(out[2]) + t * c.stride(out[2]);
        for (int h = 0; h < p.heads; ++h) {
          const float x = alpha[h] + dt[h];
          // In double: nearly always the correctly rounded float, whichever libm computes it.
          const double soft = x > 20.0F ? static_cast<double>(x) : std::log1p(std::exp(static_cast<double>(x)));
          alpha[h] = static_cast<float>(std::exp(static_cast<double>(a[h] * static_cast<float>(soft))));
        }
        k_.sigmoid_scaled(beta, 1.0F, 1.0F, p.heads);
      });
      break;
    }
    case OpKind::GatedNorm:
      each_row([&](int64_t t) {
        float* o = c.f32(out[0]) + t * c.stride(out[0]);
        for (int g = 0; g < p.groups; ++g)
          k_.rms_norm(o + int64_t{g} * p.width, vector_[static_cast<size_t>(in[1].id)], o + int64_t{g} * p.width, p.width, p.eps);
        k_.sigmoid_gate(o, c.f32(in[0]) + t * c.stride(in[0]), p.groups * p.width);
      });
      break;
    case OpKind::StoreRows: {
      const program::Buffer& cache = c.buffer(out[0]);
      const int n = static_cast<int>(cache.cols);
      each_row([&](int64_t t) {
        const float* x = c.f32(in[0]) + t * c.stride(in[0]);
        const int64_t at = (c.frame.position + t) * cache.cols;
        if (cache.dtype == program::DType::f16)
          k_.to_f16(x, c.at<uint16_t>(out[0]) + at, n);
        else
          std::memcpy(c.at<float>(out[0]) + at, x, static_cast<size_t>(n) * sizeof(float));
      });
      break;
    }
    case OpKind::SigmoidGate:
      each_row([&](int64_t t) {
        for (int h = 0; h < p.heads; ++h)
          k_.sigmoid_gate(c.f32(out[0]) + t * c.stride(out[0]) + int64_t{h} * p.dim,
                          c.f32(in[0]) + t * c.stride(in[0]) + int64_t{h} * p.stride + p.dim, p.dim);
      });
      break;
    case OpKind::SwiGlu:
      each_row([&](int64_t t) {
        float* g = c.f32(out[0]) + t * c.stride(out[0]);
        k_.swiglu(g, c.f32(in[0]) + t * c.stride(in[0]), g, static_cast<int>(c.cols(out[0])));
      });
      break;
    case OpKind::Sigmoid:
      each_row([&](int64_t t) {
        k_.sigmoid_scaled(c.f32(out[0]) + t * c.stride(out[0]), 1.0F, 1.0F, static_cast<int>(c.cols(out[0])));
      });
      break;
    case OpKind::ScaleRows:
      each_row([&](int64_t t) {
        float* y = c.f32(out[0]) + t * c.stride(out[0]);
        std::memcpy(y, c.f32(in[0]) + t * c.stride(in[0]), static_cast<size_t>(c.cols(out[0])) * sizeof(float));
        k_.scale(y, c.f32(in[1])[t * c.stride(in[1])], static_cast<int>(c.cols(out[0])));
      });
      break;
    case OpKind::Tap:
      if (c.taps && c.taps->wants(p.tap, p.layer)) {
        const program::Buffer& b = c.buffer(in[0]);
        c.taps->rows(p.tap, p.layer, c.frame.position, T, c.cols(in[0]), b.dtype, c.at<std::byte>(in[0]), b.row_bytes());
      }
      break;
  }
}

}  // namespace strata::cpu
