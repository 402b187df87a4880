// Hyper-parameters of a qwen4exp model, as checked numbers. Keys and meaning: docs/file-format.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gguf/gguf.h"

namespace strata::model {

struct NgramParams {           // the n-gram embedding (per-layer embedding, "PLE")
  int layer = -1;              // -1: the model has none
  int ngram = 0;               // N
  int heads_per_ngram = 0;
  int conv_taps = 0;
  uint32_t reset_token = 0;    // ple.eos_token_id: cuts the n-gram context
  int row_width = 0;           // values of a table row; heads() * row_width == hidden
  std::vector<uint64_t> multipliers;   // [>= N]
  std::vector<uint64_t> head_offset;   // [heads]
  std::vector<uint64_t> head_rows;     // [heads]
  int heads() const { return (ngram - 1) * heads_per_ngram; }
};

struct HParams {
  int n_layer = 0;             // without draft-head blocks
  int n_draft_block = 0;       // blocks at the end of the file that are a draft head, skipped
  int64_t context_length = 0;  // trained
  int hidden = 0;              // H
  int n_vocab = 0;
  float eps = 0;               // of every RMS norm
  // attention
  int n_head = 0, n_head_kv = 0, head_dim = 0;
  int n_rot = 0;               // rotated leading values of a head
  double rope_base = 10000;
  int index_heads = 0, index_dim = 0;
  int index_budget = 0;        // tokens
  std::vector<int> ratio;      // [n_layer] block size of the sparse attention, 0 = dense
  std::vector<uint8_t> recurrent;  // [n_layer] 1 = delta-net
  // delta-net
  int conv_taps = 0, state_dim = 0, n_key_head = 0, n_value_head = 0;
  // experts
  int n_expert = 0, n_expert_used = 0, expert_width = 0, shared_width = 0;
  // hyper-connections
  int n_stream = 0;            // S
  int mix_rank = 0;            // L
  NgramParams ple;

  int key_dim() const { return n_key_head * state_dim; }
  int value_dim() const { return n_value_head * state_dim; }
  int conv_channels() const { return 2 * key_dim() + value_dim(); }
  int wide() const { return n_stream * hidden; }  // S * H
};

// Reads and checks the hyper-parameters of a file of architecture qwen4exp. Every product that an accessor above forms
// fits an int. `ratio_override` as in Model::from_files; sentences for the user are appended to `warnings`.
// The vocabulary size is that of the tokenizer; 0 when the file has none. Throws ModelFormatError, ConfigError.
HParams read_hparams(const gguf::FileSet& files, int ratio_override, std::vector<std::string>& warnings);

}  // namespace strata::model
