// From the tensor directory to weights with roles. Names and shapes: docs/file-format.md.
#include "model/model.h"

#include <climits>

#include "base/error.h"
#include "gguf/text.h"
#include "model/claims.h"
#include "model/kinds.h"
#include "model/meta.h"

namespace strata::model {

const char* placement_name(Placement p) {
  switch (p) {
    case Placement::Resident:
      return "resident";
    case Placement::Streamed:
      return "streamed";
    case Placement::ByRow:
      return "by row";
    case Placement::Unused:
      return "unused";
  }
  return "unused";
}

namespace {

class Builder {
 public:
  Builder(const gguf::FileSet& files, Model& model) : files_(files), m_(model), hp_(model.hp), claims_(files, model) {}

  void build() {
    embedding();
    m_.layers.resize(static_cast<size_t>(hp_.n_layer));
    for (int i = 0; i < hp_.n_layer; ++i) {
      Layer& l = m_.layers[static_cast<size_t>(i)];
      const std::string blk = "blk." + std::to_string(i) + ".";
      l.mix_attn = mix(blk + "hc_attn", true);
      l.mix_ffn = mix(blk + "hc_ffn", true);
      if (hp_.recurrent[static_cast<size_t>(i)]) l.delta = delta(blk);
      else l.attn = attention(blk, hp_.ratio[static_cast<size_t>(i)] > 0);
      experts(blk, l);
    }
    m_.mix_out = mix("output_hc", false);
    ngram();
    claims_.finish();
    expect_table_covers_heads();
    expect_ids_in_vocabulary();
  }

 private:
  void embedding() {
    if (hp_.n_vocab == 0) {  // no tokenizer: the embedding tells
      if (const auto* t = files_.find("token_embd.weight")) {
        if (t->ne[1] > INT_MAX) claims_.fail(*t, "has " + std::to_string(t->ne[1]) + " rows, more than 2^31");
        hp_.n_vocab = static_cast<int>(t->ne[1]);
      }
    }
    m_.token_embd = claims_.matrix("token_embd.weight", hp_.hidden, hp_.n_vocab);
    m_.output = claims_.has("output.weight") ? claims_.matrix("output.weight", hp_.hidden, hp_.n_vocab) : m_.token_embd;
  }

  MixWeights mix(const std::string& name, bool inject) {
    MixWeights w;
    w.norm = claims_.float_vector(name + "_norm.weight", hp_.wide());
    w.down = claims_.matrix(name + "_down.weight", hp_.wide(), hp_.mix_rank);
    w.up = claims_.matrix(name + "_up.weight", hp_.mix_rank, hp_.wide());
    if (inject) w.inject = claims_.matrix(name + "_inject.weight", hp_.wide(), hp_.n_stream);
    return w;
  }

  DeltaWeights delta(const std::string& blk) {
    DeltaWeights w;
    w.qkv = claims_.matrix(blk + "attn_qkv.weight", hp_.hidden, hp_.conv_channels());
    w.gate = claims_.matrix(blk + "attn_gate.weight", hp_.hidden, hp_.value_dim());
    w.alpha = claims_.matrix(blk + "ssm_alpha.weight", hp_.hidden, hp_.n_value_head);
    w.beta = claims_.matrix(blk + "ssm_beta.weight", hp_.hidden, hp_.n_value_head);
    w.conv = claims_.float_rows(blk + "ssm_conv1d.weight", hp_.conv_taps, hp_.conv_channels());
    w.dt = claims_.float_vector(blk + "ssm_dt.bias", hp_.n_value_head);
    w.a = claims_.float_vector(blk + "ssm_a", hp_.n_value_head);
    w.norm = claims_.float_vector(blk + "ssm_norm.weight", hp_.state_dim);
    w.out = claims_.matrix(blk + "ssm_out.weight", hp_.value_dim(), hp_.hidden);
    return w;
  }

  AttentionWeights attention(const std::string& blk, bool sparse) {
    AttentionWeights w;
    const int64_t q_rows = int64_t{2} * hp_.head_dim * hp_.n_head, kv_rows = int64_t{hp_.head_dim} * hp_.n_head_kv;
    if (!claims_.has(blk + "attn_q.weight") && claims_.has(blk + "attn_qkv.weight")) {
      const auto ids = claims_.stacked(blk + "attn_qkv.weight", hp_.hidden, {q_rows, kv_rows, kv_rows});
      w.q = ids[0], w.k = ids[1], w.v = ids[2];
    } else {
      w.q = claims_.matrix(blk + "attn_q.weight", hp_.hidden, q_rows);
      w.k = claims_.matrix(blk + "attn_k.weight", hp_.hidden, kv_rows);
      w.v = claims_.matrix(blk + "attn_v.weight", hp_.hidden, kv_rows);
    }
    w.out = claims_.matrix(blk + "attn_output.weight", int64_t{hp_.head_dim} * hp_.n_head, hp_.hidden);
    w.q_norm = claims_.float_vector(blk + "attn_q_norm.weight", hp_.head_dim);
    w.k_norm = claims_.float_vector(blk + "attn_k_norm.weight", hp_.head_dim);
    if (sparse) {
      w.index_q = claims_.matrix(blk + "indexer.q_proj.weight", hp_.hidden, int64_t{hp_.index_heads} * hp_.index_dim);
      w.index_k = claims_.matrix(blk + "indexer.k_proj.weight", hp_.hidden, hp_.index_dim);
      w.index_q_norm = claims_.float_vector(blk + "indexer.q_norm.weight", hp_.index_dim);
      w.index_k_norm = claims_.float_vector(blk + "indexer.k_norm.weight", hp_.index_dim);
    }
    return w;
  }

  void experts(const std::string& blk, Layer& l) {
    const int64_t H = hp_.hidden, F = hp_.expert_width, Fs = hp_.shared_width, E = hp_.n_expert;
    l.router = claims_.matrix(blk + "ffn_gate_inp.weight", H, E);
    if (!claims_.has(blk + "ffn_gate_exps.weight") && claims_.has(blk + "ffn_gate_up_exps.weight")) {
      const auto parts = claims_.experts(blk + "ffn_gate_up_exps.weight", H, F, E, 2);
      l.experts.gate = parts[0], l.experts.up = parts[1];
    } else {
      l.experts.gate = claims_.experts(blk + "ffn_gate_exps.weight", H, F, E)[0];
      l.experts.up = claims_.experts(blk + "ffn_up_exps.weight", H, F, E)[0];
    }
    l.experts.down = claims_.experts(blk + "ffn_down_exps.weight", F, H, E)[0];
    l.shared_gate_inp = claims_.matrix(blk + "ffn_gate_inp_shexp.weight", H, 1);
    l.shared_gate = claims_.matrix(blk + "ffn_gate_shexp.weight", H, Fs);
    l.shared_up = claims_.matrix(blk + "ffn_up_shexp.weight", H, Fs);
    l.shared_down = claims_.matrix(blk + "ffn_down_shexp.weight", Fs, H);
  }

  void ngram() {
    constexpr const char* kTable = "per_layer_token_embd.weight";
    if (hp_.ple.layer < 0) {
      if (const auto* t = files_.find(kTable))
        claims_.fail(*t,
                     "is a table of the n-gram embedding, but the key qwen4exp.ple.layers names no layer that uses it");
      return;
    }
    const std::string blk = "blk." + std::to_string(hp_.ple.layer) + ".";
    PleWeights& w = m_.ple;
    m_.ple_table = claims_.table(kTable, hp_.ple.row_width);
    w.key = claims_.matrix(blk + "ple_key.weight", hp_.hidden, hp_.wide());
    w.value = claims_.matrix(blk + "ple_value.weight", hp_.hidden, hp_.hidden);
    w.norm_key = claims_.float_vector(blk + "ple_norm_key.weight", hp_.wide());
    w.norm_query = claims_.float_vector(blk + "ple_norm_query.weight", hp_.wide());
    w.norm_conv = claims_.float_vector(blk + "ple_norm_conv.weight", hp_.wide());
    w.conv = claims_.float_rows(blk + "ple_conv1d.weight", hp_.ple.conv_taps, hp_.wide());
  }

  void expect_table_covers_heads() const {
    if (hp_.ple.layer < 0) return;
    const auto rows = static_cast<uint64_t>(m_.ple_table.rows);
    for (size_t i = 0; i < hp_.ple.head_rows.size(); ++i) {
      const uint64_t offset = hp_.ple.head_offset[i], n = hp_.ple.head_rows[i];
      if (offset > rows || n > rows - offset)
        Meta(files_).fail("ple.head_offsets", "head " + std::to_string(i) + " takes " + std::to_string(n) +
                                                  " rows from row " + std::to_string(offset) + ", the table " +
                                                  gguf::quote(m_.ple_table.name) + " has " + std::to_string(rows));
    }
  }

  // Token ids are used as row numbers; every key that holds one is checked.
  void expect_ids_in_vocabulary() const {
    const Meta meta(files_);
    const int64_t last = hp_.n_vocab - 1;
    for (const auto& key : files_.keys()) {
      if (!key.starts_with("tokenizer.ggml.")) continue;
      if (key.ends_with("_token_id")) meta.integer(key, 0, last);
      if (key.ends_with("_token_ids")) meta.integers_if(key, 0, last);
    }
    if (hp_.ple.layer >= 0) meta.integer("ple.eos_token_id", 0, last);
    meta.integer_or("ple.image_token_id", 0, 0, last);
  }

  const gguf::FileSet& files_;
  Model& m_;
  HParams& hp_;
  Claims claims_;
};

}  // namespace

Model Model::from_files(const gguf::FileSet& files, int ratio_override) {
  refuse_other_kinds(files);
  Model m;
  m.hp = read_hparams(files, ratio_override, m.warnings);
  refuse_scales(files, m.hp);
  Builder(files, m).build();
  warn_unused(files, m);
  return m;
}

}  // namespace strata::model
