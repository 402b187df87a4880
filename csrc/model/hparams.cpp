#include "model/hparams.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "gguf/text.h"
#include "model/meta.h"

namespace strata::model {

namespace {

constexpr int kMaxBlocks = 1024;
constexpr int kMaxExperts = 4096;
constexpr int kMaxRatio = 64;
constexpr int kMaxNgram = 8;
constexpr int kMaxNgramHeads = 64;

class HParamReader {
 public:
  HParamReader(const gguf::FileSet& files, int ratio_override, std::vector<std::string>& warnings)
      : meta_(files), override_(ratio_override), warnings_(warnings) {}

  HParams read() {
    sizes();
    attention();
    refuse_variants();
    delta_net();
    experts();
    layer_kinds();
    ratios();
    vocabulary();
    ngram();
    return std::move(hp_);
  }

 private:
  int size(std::string_view key, int low = 1, int high = INT_MAX) const {
    return static_cast<int>(meta_.integer(key, low, high));
  }
  int size_or(std::string_view key, int absent, int low = 1, int high = INT_MAX) const {
    return static_cast<int>(meta_.integer_or(key, absent, low, high));
  }

  // Sizes are ints everywhere; their products are checked once, here.
  int product(int64_t a, int64_t b, std::string_view key) const {
    if (a * b > INT_MAX) meta_.fail(key, "gives a width of " + std::to_string(a * b) + ", more than 2^31");
    return static_cast<int>(a * b);
  }

  void sizes() {
    const int blocks = size("block_count", 1, kMaxBlocks);
    hp_.n_draft_block = size_or("nextn_predict_layers", 0, 0);
    if (hp_.n_draft_block >= blocks)
      meta_.fail(
          "nextn_predict_layers",
          "is " + std::to_string(hp_.n_draft_block) + " of " + std::to_string(blocks) +
              " blocks: the file holds a draft head only, which runs beside the model it belongs to, not by itself");
    hp_.n_layer = blocks - hp_.n_draft_block;
    hp_.context_length = meta_.integer("context_length", 1);
    hp_.hidden = size("embedding_length");
    const double eps = meta_.number("attention.layer_norm_rms_epsilon");
    hp_.eps = static_cast<float>(eps);
    if (!(hp_.eps > 0) || !std::isfinite(hp_.eps))
      meta_.fail("attention.layer_norm_rms_epsilon", "is " + std::to_string(eps) + ", must be above 0");
    hp_.n_stream = size("hyper_connection.count", 2);
    hp_.mix_rank = size("hyper_connection.low_rank");
    product(hp_.n_stream, hp_.hidden, "hyper_connection.count");
  }

  void attention() {
    hp_.n_head = size("attention.head_count");
    hp_.n_head_kv = size_or("attention.head_count_kv", hp_.n_head);
    if (hp_.n_head % hp_.n_head_kv != 0)
      meta_.fail("attention.head_count_kv",
                 "is " + std::to_string(hp_.n_head_kv) + ", must divide the " + std::to_string(hp_.n_head) + " heads");
    if (!meta_.has("attention.key_length") && hp_.hidden < hp_.n_head)
      meta_.fail("attention.key_length", "is missing, and embedding_length / head_count is 0");
    hp_.head_dim = size_or("attention.key_length", hp_.hidden / hp_.n_head);
    const int value_length = size_or("attention.value_length", hp_.head_dim);
    if (value_length != hp_.head_dim)
      meta_.fail("attention.value_length",
                 "is " + std::to_string(value_length) + ", must be the key length " + std::to_string(hp_.head_dim));
    product(product(2, hp_.head_dim, "attention.key_length"), int64_t{hp_.n_head} + hp_.n_head_kv,
            "attention.head_count");
    hp_.index_heads = size("attention.indexer.head_count");
    hp_.index_dim = size("attention.indexer.key_length");
    hp_.index_budget = size("attention.indexer.top_k");
    product(hp_.index_heads, hp_.index_dim, "attention.indexer.head_count");
    hp_.n_rot = size_or("rope.dimension_count", hp_.head_dim);
    if (hp_.n_rot % 2 != 0 || hp_.n_rot > hp_.head_dim || hp_.n_rot > hp_.index_dim)
      meta_.fail("rope.dimension_count",
                 "is " + std::to_string(hp_.n_rot) + (meta_.has("rope.dimension_count") ? "" : " (default)") +
                     ", must be even and at most the head size " + std::to_string(hp_.head_dim) +
                     " and the indexer's " + std::to_string(hp_.index_dim));
    const double base = meta_.number_or("rope.freq_base", 10000);
    hp_.rope_base = base;
    if (!(base > 0)) meta_.fail("rope.freq_base", "is " + std::to_string(base) + ", must be above 0");
    const auto sections = meta_.integers_if("rope.dimension_sections", 0);  // images only: no effect on text
    if (!sections) meta_.fail("rope.dimension_sections", "is missing from the metadata");
    if (sections->size() != 4)
      meta_.fail("rope.dimension_sections", "has " + std::to_string(sections->size()) + " entries, must have 4");
  }

  // Keys that nothing writes for this architecture, but that would ask for another forward pass.
  void refuse_variants() {
    const std::string scaling = meta_.text_if("rope.scaling.type").value_or("none");
    if (meta_.has("rope.scaling.factor")) {
      if (const double factor = meta_.number("rope.scaling.factor"); factor != 1)
        meta_.fail("rope.scaling.factor", "is " + std::to_string(factor) + ": rope scaling is not supported");
    } else if (scaling != "none") {
      meta_.fail("rope.scaling.type", "is " + gguf::quote(scaling) + ": rope scaling is not supported");
    }
    for (const char* key : {"rope.scale_linear", "rope.scaling.attn_factor"})
      if (meta_.number_or(key, 1) != 1) meta_.fail(key, "is not 1: rope scaling is not supported");
    const double scale = meta_.number_or("attention.scale", 0),
                 usual = 1 / std::sqrt(static_cast<double>(hp_.head_dim));
    if (scale != 0 && std::abs(scale - usual) > 1e-6 * usual)
      meta_.fail("attention.scale", "is " + std::to_string(scale) + "; only 1/sqrt(head size) is supported");
    const double weights = meta_.number_or("expert_weights_scale", 1);
    if (weights != 0 && weights != 1)
      meta_.fail("expert_weights_scale", "is " + std::to_string(weights) + "; only 1 is supported");
    if (!meta_.boolean_or("expert_weights_norm", true))
      meta_.fail("expert_weights_norm", "is false: only normalised expert weights are supported");
    if (meta_.integer_or("expert_gating_func", 1, 0) != 1)
      meta_.fail("expert_gating_func", "is not 1 (softmax): no other function is supported");
    for (const char* key : {"expert_group_count", "expert_group_used_count"})
      if (meta_.integer_or(key, 1, 0) > 1) meta_.fail(key, "is above 1: expert groups are not supported");
  }

  void delta_net() {
    hp_.conv_taps = size("ssm.conv_kernel", 2);
    hp_.state_dim = size("ssm.state_size");
    hp_.n_key_head = size("ssm.group_count");
    hp_.n_value_head = size("ssm.time_step_rank");
    if (hp_.n_value_head % hp_.n_key_head != 0)
      meta_.fail("ssm.time_step_rank", "is " + std::to_string(hp_.n_value_head) + ", must be a multiple of the " +
                                           std::to_string(hp_.n_key_head) + " key heads (ssm.group_count)");
    const int inner = size("ssm.inner_size");
    if (inner != product(hp_.n_value_head, hp_.state_dim, "ssm.time_step_rank"))
      meta_.fail("ssm.inner_size", "is " + std::to_string(inner) + ", must be " + std::to_string(hp_.n_value_head) +
                                       " heads of " + std::to_string(hp_.state_dim));
    product(int64_t{2} * hp_.n_key_head + hp_.n_value_head, hp_.state_dim, "ssm.state_size");
  }

  void experts() {
    hp_.n_expert = size("expert_count", 1, kMaxExperts);
    hp_.n_expert_used = size("expert_used_count", 1, hp_.n_expert);
    hp_.expert_width = expert_width();
    product(2, hp_.expert_width, "expert_feed_forward_length");
    hp_.shared_width = size("expert_shared_feed_forward_length");
  }

  // One number, or one per block if all are equal.
  int expert_width() const {
    constexpr std::string_view key = "expert_feed_forward_length";
    const gguf::Value* v = meta_.find(key);
    if (!v || v->kind != gguf::Kind::array) return size(key);
    const auto widths = meta_.integers_if(key, 1);
    if (widths->empty()) meta_.fail(key, "is an empty array");
    if (std::any_of(widths->begin(), widths->end(), [&](int64_t w) { return w != widths->front(); }))
      meta_.fail(key, "differs from layer to layer: only one width is supported");
    return static_cast<int>(widths->front());
  }

  void layer_kinds() {
    const auto n = static_cast<size_t>(hp_.n_layer);
    if (const auto flags = meta_.flags_if("attention.recurrent_layers")) {
      if (flags->size() < n)
        meta_.fail("attention.recurrent_layers",
                   "has " + std::to_string(flags->size()) + " entries for " + std::to_string(n) + " layers");
      hp_.recurrent.assign(flags->begin(), flags->begin() + hp_.n_layer);
      return;
    }
    const int64_t interval = meta_.integer_or("full_attention_interval", 4, 1);
    for (int i = 0; i < hp_.n_layer; ++i) hp_.recurrent.push_back((i + int64_t{1}) % interval != 0);
  }

  void ratios() {
    constexpr std::string_view key = "attention.compress_ratios";
    if (override_ < 0 || override_ > kMaxRatio || (override_ > 0 && hp_.index_budget % override_ != 0))
      throw ConfigError("qsa_ratio", std::to_string(override_),
                        "0 (follow the file), or 1 to " + std::to_string(kMaxRatio) +
                            " and a divisor of the file's budget " + std::to_string(hp_.index_budget));
    const auto n = static_cast<size_t>(hp_.n_layer);
    hp_.ratio.assign(n, 0);
    if (const auto in_file = meta_.integers_if(key, 0, kMaxRatio)) {
      if (in_file->size() < n)
        meta_.fail(key, "has " + std::to_string(in_file->size()) + " entries for " + std::to_string(n) + " layers");
      for (const int64_t r : *in_file)
        if (r > 0 && hp_.index_budget % r != 0)
          meta_.fail(key, "has the ratio " + std::to_string(r) + ", which does not divide the indexer's budget of " +
                              std::to_string(hp_.index_budget) + " tokens");
      for (size_t i = 0; i < n; ++i)
        if (!hp_.recurrent[i]) hp_.ratio[i] = static_cast<int>((*in_file)[i]);
    }
    bool attention = false, sparse = false;
    for (size_t i = 0; i < n; ++i) attention |= !hp_.recurrent[i], sparse |= hp_.ratio[i] > 0;
    if (override_ > 0) {
      for (size_t i = 0; i < n; ++i)
        if (!hp_.recurrent[i] && hp_.ratio[i] == 0) hp_.ratio[i] = override_;
    } else if (attention && !sparse) {
      warnings_.push_back(
          "All block ratios of the sparse attention are 0 in this file, so attention is dense: results differ from the "
          "original "
          "model's beyond " +
          std::to_string(hp_.index_budget) +
          " tokens, and long prompts are slow. Some converters write zeros by mistake; "
          "if the model was trained with ratio 4, set qsa_ratio = 4.");
    }
    int common = 0;
    for (const int r : hp_.ratio) {
      if (r > 0 && common > 0 && r != common) {
        warnings_.push_back("The block ratio of the sparse attention differs between layers (" +
                            std::to_string(common) + " and " + std::to_string(r) + ").");
        break;
      }
      common = r > 0 ? r : common;
    }
  }

  void vocabulary() {
    const auto tokens = meta_.strings_if("tokenizer.ggml.tokens");
    if (!tokens) {
      warnings_.push_back("The file holds no tokenizer: it takes and gives token ids only.");
      return;
    }
    if (*tokens == 0 || *tokens > INT_MAX)
      meta_.fail("tokenizer.ggml.tokens", "has " + std::to_string(*tokens) + " entries");
    hp_.n_vocab = static_cast<int>(*tokens);
    if (const auto kinds = meta_.integers_if("tokenizer.ggml.token_type", INT_MIN); kinds && kinds->size() != *tokens)
      meta_.fail("tokenizer.ggml.token_type",
                 "has " + std::to_string(kinds->size()) + " entries for " + std::to_string(*tokens) + " tokens");
    meta_.strings_if("tokenizer.ggml.merges");
  }

  void ngram() {
    const auto layers = meta_.integers_if("ple.layers", 0);
    NgramParams& p = hp_.ple;
    if (!layers || layers->empty()) {
      for (const char* key : {"ple.ngram_size", "ple.heads_per_ngram", "ple.conv_kernel", "ple.eos_token_id",
                              "ple.layer_multipliers", "ple.head_offsets", "ple.head_vocab_sizes"})
        if (meta_.has(key)) meta_.fail(key, "is there, but ple.layers names no layer for the n-gram embedding");
      return;
    }
    if (layers->size() > 1)
      meta_.fail("ple.layers", "names " + std::to_string(layers->size()) +
                                   " layers: the format holds the constants of one n-gram embedding only");
    if (layers->front() >= hp_.n_layer)
      meta_.fail("ple.layers", "names layer " + std::to_string(layers->front()) + " of " + std::to_string(hp_.n_layer));
    p.layer = static_cast<int>(layers->front());
    if (!hp_.recurrent[static_cast<size_t>(p.layer)])
      meta_.fail("ple.layers", "names layer " + std::to_string(p.layer) +
                                   ", an attention layer: the n-gram embedding must be on a delta-net layer");
    p.ngram = size("ple.ngram_size", 2, kMaxNgram);
    p.heads_per_ngram = size("ple.heads_per_ngram", 1, kMaxNgramHeads / (p.ngram - 1));
    p.conv_taps = size("ple.conv_kernel");
    product(p.conv_taps, product(p.ngram, hp_.wide(), "ple.conv_kernel"), "ple.conv_kernel");  // its history
    p.reset_token = static_cast<uint32_t>(meta_.integer("ple.eos_token_id", 0));
    p.row_width = size("embedding_length_per_layer_input");
    if (int64_t{p.row_width} * p.heads() != hp_.hidden)
      meta_.fail("embedding_length_per_layer_input",
                 "is " + std::to_string(p.row_width) + ": times " + std::to_string(p.heads()) +
                     " heads (ple.ngram_size, ple.heads_per_ngram) it must be embedding_length = " +
                     std::to_string(hp_.hidden));
    p.multipliers = meta_.unsigneds("ple.layer_multipliers");
    expect_entries("ple.layer_multipliers", p.multipliers, p.ngram);
    const auto heads = static_cast<size_t>(p.heads());
    p.head_offset = meta_.unsigneds("ple.head_offsets");
    p.head_rows = meta_.unsigneds("ple.head_vocab_sizes");
    expect_entries("ple.head_offsets", p.head_offset, p.heads());
    expect_entries("ple.head_vocab_sizes", p.head_rows, p.heads());
    p.head_offset.resize(heads);
    p.head_rows.resize(heads);
    for (size_t i = 0; i < heads; ++i)
      if (p.head_rows[i] == 0)
        meta_.fail("ple.head_vocab_sizes", "has a head without rows (head " + std::to_string(i) + ")");
  }

  void expect_entries(std::string_view key, const std::vector<uint64_t>& v, int least) const {
    if (v.size() < static_cast<size_t>(least))
      meta_.fail(key, "has " + std::to_string(v.size()) + " entries, needs " + std::to_string(least));
  }

  Meta meta_;
  int override_;
  std::vector<std::string>& warnings_;
  HParams hp_;
};

}  // namespace

HParams read_hparams(const gguf::FileSet& files, int ratio_override, std::vector<std::string>& warnings) {
  return HParamReader(files, ratio_override, warnings).read();
}

}  // namespace strata::model
