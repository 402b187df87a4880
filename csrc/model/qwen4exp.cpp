// One function per block of the architecture, in the order of execution; shapes are [rows, columns].
// T rows, H hidden, S residual streams, L rank of the mixing gate, E experts, K chosen, F expert width.
#include "model/qwen4exp.h"

#include <cmath>

namespace strata::model {

using program::Access;
using program::Buffer;
using program::BufferId;
using program::DType;
using program::Op;
using program::OpKind;
using program::Params;
using program::Program;
using program::Ref;
using program::Scope;
using program::Segment;

namespace {

class Builder {
 public:
  Builder(const Model& model, const ProgramOptions& options) : m_(model), hp_(model.hp), options_(options) {}

  Program build() {
    const int H = hp_.hidden, SH = hp_.wide();
    p_.residual = buffer("R", Scope::Sweep, SH);
    p_.moe_in = buffer("moe_in", Scope::Sweep, H);
    p_.moe_out = buffer("moe_out", Scope::Sweep, H);
    p_.ids = buffer("ids", Scope::Sweep, hp_.n_expert_used, DType::i32);
    p_.weights = buffer("wts", Scope::Sweep, hp_.n_expert_used);
    c_ffn_ = buffer("c_ffn", Scope::Sweep, hp_.n_stream);
    if (hp_.ple.layer >= 0) p_.ngram = buffer("ngram", Scope::Chunk, H);
    n_ = buffer("n", Scope::Chunk, SH);       // normalised streams
    gate_ = buffer("mix_gate", Scope::Chunk, SH);
    rank_ = buffer("mix_rank", Scope::Chunk, hp_.mix_rank);
    c_ = buffer("c", Scope::Chunk, hp_.n_stream);
    u_ = buffer("u", Scope::Chunk, H);
    o_ = buffer("o", Scope::Chunk, H);
    p_.logits = buffer("logits", Scope::Chunk, hp_.n_vocab);

    segment_ = &p_.embed;
    segment_->name = "embed";
    add(OpKind::Embed, {weight(m_.token_embd)}, {write(p_.residual)}, [&](Params& p) { p.streams = hp_.n_stream; });

    p_.mixer.resize(static_cast<size_t>(hp_.n_layer));
    p_.experts.resize(static_cast<size_t>(hp_.n_layer));
    for (layer_ = 0; layer_ < hp_.n_layer; ++layer_) {
      const Layer& w = m_.layers[static_cast<size_t>(layer_)];
      segment_ = &p_.mixer[static_cast<size_t>(layer_)];
      segment_->name = "mixer " + std::to_string(layer_);
      if (layer_ == hp_.ple.layer) ngram_block();
      mix(w.mix_attn, u_, c_);
      if (hp_.recurrent[static_cast<size_t>(layer_)])
        delta_net(w.delta);
      else
        attention(w.attn, hp_.ratio[static_cast<size_t>(layer_)]);
      tap("mix_out", o_);
      add(OpKind::Combine, {read(c_), read(o_)}, {update(p_.residual)}, [&](Params& p) { p.streams = hp_.n_stream; });
      tap("res_mix", p_.residual);
      mix(w.mix_ffn, p_.moe_in, c_ffn_);
      tap("moe_in", p_.moe_in);
      route(w);
      shared_expert(w);

      segment_ = &p_.experts[static_cast<size_t>(layer_)];
      segment_->name = "experts " + std::to_string(layer_);
      tap("moe_out", p_.moe_out);
      add(OpKind::Combine, {read(c_ffn_), read(p_.moe_out)}, {update(p_.residual)},
          [&](Params& p) { p.streams = hp_.n_stream; });
      tap("res_moe", p_.residual);
      if (layer_ == hp_.n_layer - 1) {
        tap("R_post", p_.residual);
        tap("inj", c_ffn_);
      }
    }

    segment_ = &p_.head;
    segment_->name = "head";
    layer_ = -1;
    mix(m_.mix_out, u_, -1);
    tap("final", u_);
    matmul(u_, m_.output, p_.logits);
    program::validate(p_, static_cast<int>(m_.weights.size()));
    return std::move(p_);
  }

 private:
  // u, n = mix(R): n = rms per stream, u = mean over streams of sigmoid(up silu(down n / S)) * n; c = 2 sigmoid(inject n / S).
  void mix(const MixWeights& w, BufferId u, BufferId c) {
    const auto S = static_cast<float>(hp_.n_stream);
    norm(p_.residual, w.norm, n_, hp_.n_stream, hp_.hidden);
    matmul(n_, w.down, rank_);
    add(OpKind::ScaledSilu, {}, {update(rank_)}, [&](Params& p) { p.scale = S; });
    matmul(rank_, w.up, gate_);
    add(OpKind::MixStreams, {read(gate_), read(n_)}, {write(u)}, [&](Params& p) { p.streams = hp_.n_stream; });
    if (c < 0) return;
    matmul(n_, w.inject, c);
    add(OpKind::InjectWeights, {}, {update(c)}, [&](Params& p) { p.scale = S; });
  }

  // y[s] = sigmoid(signed root of key[s] . query[s] / sqrt(H)) * value; R += y + silu(conv(rms(y)))
  void ngram_block() {
    const PleWeights& w = m_.ple;
    const int S = hp_.n_stream, H = hp_.hidden, SH = hp_.wide();
    const BufferId key = buffer("ple_key", Scope::Chunk, SH), value = buffer("ple_value", Scope::Chunk, H);
    const BufferId y = buffer("ple_y", Scope::Chunk, SH), z = buffer("ple_z", Scope::Chunk, SH);
    const BufferId history = state("ple_conv", int64_t{hp_.ple.conv_taps - 1} * hp_.ple.ngram, SH);
    matmul(p_.ngram, w.key, key);
    norm(key, w.norm_key, key, S, H);
    matmul(p_.ngram, w.value, value);
    norm(p_.residual, w.norm_query, n_, S, H);
    add(OpKind::PleGate, {read(key), read(n_), read(value)}, {write(y)}, [&](Params& p) { p.streams = S; });
    norm(y, w.norm_conv, z, S, H);
    add(OpKind::Conv, {read(z), weight(w.conv)}, {update(history), write(key)}, [&](Params& p) {
      p.taps = hp_.ple.conv_taps;
      p.dilation = hp_.ple.ngram;
    });
    add(OpKind::Add, {read(key)}, {update(y)});
    tap("ple_out", y);
    add(OpKind::Add, {read(y)}, {update(p_.residual)});
    tap("res_ple", p_.residual);
  }

  void delta_net(const DeltaWeights& w) {
    const int C = hp_.conv_channels(), Nv = hp_.n_value_head, D = hp_.state_dim;
    const BufferId qkv = shared("wide_a", C), conv = shared("wide_b", C), z = shared("wide_c", hp_.value_dim());
    const BufferId heads = shared("wide_d", hp_.value_dim());
    const BufferId alpha = buffer("alpha", Scope::Chunk, Nv), beta = buffer("beta", Scope::Chunk, Nv);
    matmul(u_, w.qkv, qkv);
    add(OpKind::Conv, {read(qkv, 0, C), weight(w.conv)}, {update(state("conv", hp_.conv_taps - 1, C)), write(conv, 0, C)},
        [&](Params& p) { p.taps = hp_.conv_taps; });
    matmul(u_, w.alpha, alpha);
    matmul(u_, w.beta, beta);
    const auto delta = [&](Params& p) {
      p.key_heads = hp_.n_key_head;
      p.heads = Nv;
      p.dim = D;
    };
    add(OpKind::DeltaPrep, {weight(w.dt), weight(w.a)}, {update(conv, 0, C), update(alpha), update(beta)}, delta);
    add(OpKind::DeltaScan, {read(conv, 0, C), read(alpha), read(beta)},
        {update(state("S", int64_t{Nv} * D, D)), write(heads, 0, hp_.value_dim())}, delta);
    matmul(u_, w.gate, z);
    add(OpKind::GatedNorm, {read(z, 0, hp_.value_dim()), weight(w.norm)}, {update(heads, 0, hp_.value_dim())}, [&](Params& p) {
      p.groups = Nv;
      p.width = D;
      p.eps = hp_.eps;
    });
    matmul(heads, w.out, o_, hp_.value_dim());
  }

  void attention(const AttentionWeights& w, int ratio) {
    const int nh = hp_.n_head, nkv = hp_.n_head_kv, hd = hp_.head_dim;
    const BufferId qg = shared("wide_a", int64_t{2} * nh * hd), q = shared("wide_b", int64_t{nh} * hd);
    const BufferId kv = shared("wide_c", int64_t{nkv} * hd), heads = shared("wide_d", int64_t{nh} * hd);
    const BufferId k_cache = cache("k", 1, int64_t{nkv} * hd, options_.kv_type);
    const BufferId v_cache = cache("v", 1, int64_t{nkv} * hd, options_.kv_type);
    matmul(u_, w.q, qg);  // per head: hd values of q, then hd of the gate
    head_norm_rope(qg, w.q_norm, q, nh, hd, 2 * hd);
    matmul(u_, w.k, kv);
    head_norm_rope(kv, w.k_norm, kv, nkv, hd, hd);
    add(OpKind::StoreRows, {read(kv, 0, int64_t{nkv} * hd)}, {write(k_cache)});
    matmul(u_, w.v, kv);
    add(OpKind::StoreRows, {read(kv, 0, int64_t{nkv} * hd)}, {write(v_cache)});
    std::vector<Ref> in = {read(q, 0, int64_t{nh} * hd), read(k_cache), read(v_cache)};
    const int kept = ratio ? hp_.index_budget / ratio : 0;
    if (ratio) {
      const int ih = hp_.index_heads, id = hp_.index_dim;
      const BufferId iq = buffer("index_q", Scope::Chunk, int64_t{ih} * id), ik = buffer("index_k", Scope::Chunk, id);
      const BufferId blocks = buffer("blocks", Scope::Chunk, 1 + kept, DType::i32);
      // Block keys stay float32: they choose blocks, and cost 1/16 of an F16 KV row on the published model.
      const BufferId keys = cache("index_blocks", ratio, id, DType::f32);
      matmul(u_, w.index_q, iq);
      head_norm_rope(iq, w.index_q_norm, iq, ih, id, id);
      matmul(u_, w.index_k, ik);
      add(OpKind::BlockKeys, {read(ik), weight(w.index_k_norm)}, {update(state("index_tail", ratio - 1, id)), write(keys)},
          [&](Params& p) {
            p.ratio = ratio;
            p.dim = id;
            rope(p);
          });
      add(OpKind::SelectBlocks, {read(iq), read(keys)}, {write(blocks)}, [&](Params& p) {
        p.heads = ih;
        p.dim = id;
        p.ratio = ratio;
        p.budget = kept;
      });
      tap("qsa_blocks", blocks);
      in.push_back(read(blocks));
    }
    add(OpKind::Attend, in, {write(heads, 0, int64_t{nh} * hd)}, [&](Params& p) {
      p.heads = nh;
      p.kv_heads = nkv;
      p.dim = hd;
      p.ratio = ratio;
      p.budget = kept;
      p.scale = 1.0F / std::sqrt(static_cast<float>(hd));
    });
    add(OpKind::SigmoidGate, {read(qg, 0, int64_t{2} * nh * hd)}, {update(heads, 0, int64_t{nh} * hd)}, [&](Params& p) {
      p.heads = nh;
      p.dim = hd;
      p.stride = 2 * hd;
    });
    matmul(heads, w.out, o_, int64_t{nh} * hd);
  }

  void route(const Layer& w) {
    const BufferId logits = buffer("router_logits", Scope::Chunk, hp_.n_expert);
    matmul(p_.moe_in, w.router, logits);
    add(OpKind::Router, {read(logits)}, {write(p_.ids), write(p_.weights)}, [&](Params& p) { p.k = hp_.n_expert_used; });
    tap("router_ids", p_.ids);
    tap("router_weights", p_.weights);
    if (!options_.lookahead || layer_ + 1 == hp_.n_layer) return;
    // A guess at the next layer's experts: its router on this layer's router input. It changes what is read ahead, never
    // what is computed.
    const BufferId unused = buffer("next_wts", Scope::Chunk, hp_.n_expert_used);
    p_.next_ids = buffer("next_ids", Scope::Chunk, hp_.n_expert_used, DType::i32);
    matmul(p_.moe_in, m_.layers[static_cast<size_t>(layer_) + 1].router, logits);
    add(OpKind::Router, {read(logits)}, {write(p_.next_ids), write(unused)}, [&](Params& p) { p.k = hp_.n_expert_used; });
    tap("next_ids", p_.next_ids);
  }

  // moe_out starts as sigmoid(gate) * shared expert; the routed experts are added in rising number.
  void shared_expert(const Layer& w) {
    const int F = hp_.shared_width;
    const BufferId g = buffer("shared_g", Scope::Chunk, F), up = buffer("shared_u", Scope::Chunk, F);
    const BufferId sgv = buffer("sgv", Scope::Chunk, 1);
    matmul(p_.moe_in, w.shared_gate, g);
    matmul(p_.moe_in, w.shared_up, up);
    add(OpKind::SwiGlu, {read(up)}, {update(g)});
    tap("hh", g);
    matmul(p_.moe_in, w.shared_gate_inp, sgv);
    add(OpKind::Sigmoid, {}, {update(sgv)});
    tap("sgv", sgv);
    matmul(g, w.shared_down, o_);
    add(OpKind::ScaleRows, {read(o_), read(sgv)}, {write(p_.moe_out)});
  }

  // ---- small words of the language above
  static Ref ref(BufferId b, int64_t col, int64_t cols, Access a) { return {Ref::Buf, b, col, cols, a}; }
  static Ref read(BufferId b, int64_t col = 0, int64_t cols = 0) { return ref(b, col, cols, Access::Read); }
  static Ref write(BufferId b, int64_t col = 0, int64_t cols = 0) { return ref(b, col, cols, Access::Write); }
  static Ref update(BufferId b, int64_t col = 0, int64_t cols = 0) { return ref(b, col, cols, Access::ReadWrite); }
  static Ref weight(WeightId w) { return {Ref::Weight, w, 0, 0, Access::Read}; }

  BufferId buffer(const std::string& name, Scope scope, int64_t cols, DType dtype = DType::f32, int64_t rows = 0) {
    const BufferId have = p_.find(name);
    if (have >= 0) return have;
    p_.buffers.push_back(Buffer{name, scope, dtype, cols, rows});
    return static_cast<BufferId>(p_.buffers.size()) - 1;
  }
  // Scratch that blocks of different kinds use in turn: as wide as the widest.
  BufferId shared(const std::string& name, int64_t cols) {
    const BufferId b = buffer(name, Scope::Chunk, cols);
    Buffer& have = p_.buffers[static_cast<size_t>(b)];
    have.cols = std::max(have.cols, cols);
    return b;
  }
  BufferId state(const char* name, int64_t rows, int64_t cols) {
    return buffer("L" + std::to_string(layer_) + "." + name, Scope::State, cols, DType::f32, rows);
  }
  BufferId cache(const char* name, int64_t positions_per_row, int64_t cols, DType dtype) {
    return buffer("L" + std::to_string(layer_) + "." + name, Scope::Cache, cols, dtype, positions_per_row);
  }
  template <class F>
  void add(OpKind kind, std::vector<Ref> in, std::vector<Ref> out, F&& set) {
    Op op{kind, std::move(in), std::move(out), {}};
    op.p.layer = layer_;
    set(op.p);
    segment_->ops.push_back(std::move(op));
  }
  void add(OpKind kind, std::vector<Ref> in, std::vector<Ref> out) {
    add(kind, std::move(in), std::move(out), [](Params&) {});
  }
  void matmul(BufferId x, WeightId w, BufferId y, int64_t x_cols = 0) {
    const Weight& m = m_.weights[static_cast<size_t>(w)];
    add(OpKind::MatMul, {read(x, 0, x_cols), weight(w)}, {write(y, 0, m.rows)});
  }
  void norm(BufferId x, WeightId gamma, BufferId y, int groups, int width) {
    add(OpKind::RmsNorm, {read(x), weight(gamma)}, {write(y)}, [&](Params& p) {
      p.groups = groups;
      p.width = width;
      p.eps = hp_.eps;
    });
  }
  void rope(Params& p) const {
    p.n_rot = hp_.n_rot;
    p.rope_base = hp_.rope_base;
    p.eps = hp_.eps;
  }
  void head_norm_rope(BufferId x, WeightId gamma, BufferId y, int heads, int dim, int stride) {
    add(OpKind::HeadNormRope, {read(x, 0, int64_t{heads} * stride), weight(gamma)}, {write(y, 0, int64_t{heads} * dim)},
        [&](Params& p) {
          p.heads = heads;
          p.dim = dim;
          p.stride = stride;
          rope(p);
        });
  }
  void tap(const char* name, BufferId b) {
    add(OpKind::Tap, {read(b)}, {}, [&](Params& p) { p.tap = name; });
  }

  const Model& m_;
  const HParams& hp_;
  ProgramOptions options_;
  Program p_;
  Segment* segment_ = nullptr;
  int layer_ = -1;
  BufferId n_ = -1, gate_ = -1, rank_ = -1, c_ = -1, c_ffn_ = -1, u_ = -1, o_ = -1;
};

}  // namespace

Program build_program(const Model& model, const ProgramOptions& options) { return Builder(model, options).build(); }

}  // namespace strata::model
