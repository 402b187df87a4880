// All memory a loaded model will take, decided before any of it is taken.
#pragma once

#include "base/memory.h"
#include "model/model.h"
#include "program/program.h"
#include "stream/arena.h"
#include "window/config.h"

namespace strata::window {

inline constexpr const char* kProcessLine = "Python and tokenizer";
inline constexpr const char* kWeightLine = "resident weights";
inline constexpr const char* kStateLine = "session state (double)";
inline constexpr const char* kCacheLine = "KV cache";
inline constexpr const char* kSweepLine = "sweep buffers";
inline constexpr const char* kChunkLine = "chunk buffers";
inline constexpr const char* kScratchLine = "thread scratch";

struct Plan {
  EngineConfig config;        // automatic values filled in
  stream::ArenaPlan arena;
  MemoryPlan memory;
  uint64_t available = 0;     // bytes it was made for, 0 = unknown
  bool auto_sweep = false;    // prompt_sweep is what memory has room for; a sweep may be shorter to cost less time
  uint64_t ngram_row_bytes = 0;  // of one token's table rows, as they lie in the file
};

stream::ExpertTable expert_table(const model::Model& model);

// Checks the knobs against the model. Throws ConfigError (a value out of range), OutOfMemoryPlanError (the least that can
// work is more than `available`).
Plan make_plan(const model::Model& model, const program::Program& program, const EngineConfig& config, uint64_t available);

// Bytes of `rows` rows in all buffers of a scope (logits go to the caller's memory and count as nothing), each buffer aligned.
uint64_t buffer_bytes(const program::Program& program, program::Scope scope, int64_t rows);

}  // namespace strata::window
