// The forward pass of qwen4exp as a Program.
#pragma once

#include "model/model.h"
#include "program/program.h"

namespace strata::model {

struct ProgramOptions {
  program::DType kv_type = program::DType::f16;
  bool lookahead = false;  // after each router, the next layer's router on the same input (Program::next_ids)
};

// Segments for all layers. Formulas: docs/file-format.md ("The forward pass").
program::Program build_program(const Model& model, const ProgramOptions& options);

}  // namespace strata::model
