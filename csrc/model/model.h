// What a model file holds, as facts: which tensor is which weight, where it lies, and how it is to be kept. No I/O.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "gguf/gguf.h"
#include "model/hparams.h"

namespace strata::model {

using WeightId = int;  // index into Model::weights; -1 = the model has none

// A matrix of `rows` rows of `cols` values, each row contiguous in its block format; a vector is one row.
struct Weight {
  std::string name;       // of the tensor it comes from
  uint32_t type = 0;
  int64_t rows = 0, cols = 0;
  gguf::Extent where;
  uint64_t row_bytes = 0;
};

enum class Placement {
  Resident,  // in memory as long as the model is loaded
  Streamed,  // routed experts: read when the router asks
  ByRow,     // n-gram table: single rows read by id
  Unused,    // a tensor this program does not need (draft head, unknown names)
};
const char* placement_name(Placement p);

struct MixWeights {  // one hyper-connection
  WeightId norm = -1, down = -1, up = -1, inject = -1;  // inject: -1 for the output mixer
};
struct DeltaWeights {
  WeightId qkv = -1, gate = -1, alpha = -1, beta = -1, conv = -1, dt = -1, a = -1, norm = -1, out = -1;
};
struct AttentionWeights {  // index_*: -1 where the layer's ratio is 0
  WeightId q = -1, k = -1, v = -1, out = -1, q_norm = -1, k_norm = -1;
  WeightId index_q = -1, index_k = -1, index_q_norm = -1, index_k_norm = -1;
};
struct PleWeights {
  WeightId key = -1, value = -1, norm_key = -1, norm_query = -1, norm_conv = -1, conv = -1;
};

// One of an expert's three matrices: expert e lies at first.offset + e * stride.
struct ExpertMatrix {
  std::string name;
  uint32_t type = 0;
  int64_t rows = 0, cols = 0;
  uint64_t row_bytes = 0;
  gguf::Extent first;       // expert 0's matrix
  uint64_t stride = 0;      // bytes from one expert to the next
  gguf::Extent of(int expert) const { return {first.file, first.offset + stride * static_cast<uint64_t>(expert), first.bytes}; }
};
struct Experts {
  ExpertMatrix gate, up, down;  // gate and up share a tensor when the file has them fused
  uint64_t bytes() const { return gate.first.bytes + up.first.bytes + down.first.bytes; }  // of one expert
};

struct Layer {
  MixWeights mix_attn, mix_ffn;
  DeltaWeights delta;      // when hp.recurrent[i]
  AttentionWeights attn;   // otherwise
  WeightId router = -1, shared_gate_inp = -1, shared_gate = -1, shared_up = -1, shared_down = -1;
  Experts experts;
};

class Model {
 public:
  // Checks the architecture, all hyper-parameters and every tensor (present, shape, readable type). Throws
  // ModelFormatError. `ratio_override` > 0 replaces a ratio of 0 on attention layers (files converted with all ratios 0).
  static Model from_files(const gguf::FileSet& files, int ratio_override = 0);

  HParams hp;
  std::vector<Weight> weights;      // resident ones
  std::vector<Layer> layers;
  WeightId token_embd = -1, output = -1;  // equal when tied
  MixWeights mix_out;
  PleWeights ple;                   // of layer hp.ple.layer
  Weight ple_table;                 // by row; rows == 0 when there is none
  std::vector<Placement> placement; // of FileSet::tensors, same order
  std::vector<std::string> warnings;  // sentences for the user
};

}  // namespace strata::model
