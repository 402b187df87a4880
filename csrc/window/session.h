// One sequence: its position and everything needed to continue it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "cpu/backend.h"
#include "model/hparams.h"
#include "program/program.h"

namespace strata::window {

class Session {
 public:
  static uint64_t state_bytes(const program::Program& program);
  static uint64_t cache_bytes(const program::Program& program, int64_t context);

  Session(const program::Program& program, const model::HParams& hp, MemoryPlan& plan, int64_t context);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int64_t position() const { return position_; }
  int64_t context() const { return context_; }

  // Addresses of the session's buffers: caches, the state before the sweep and the one it writes.
  void bind(cpu::Bindings& bindings) const;
  // The sweep is done: what it wrote becomes the state, `tokens` were added.
  void commit(const int32_t* tokens, int64_t n);
  // The last ngram-1 token ids before the next one; before the start of the sequence, the reset token.
  const std::vector<int32_t>& recent() const { return recent_; }

  // The current state buffer, or nullptr when `name` is none.
  const float* state(const std::string& name, int64_t& rows, int64_t& cols) const;

 private:
  struct Place {
    program::BufferId id;
    uint64_t offset;
  };
  const program::Program& program_;
  MemoryPlan& plan_;
  int64_t context_ = 0, position_ = 0;
  Pages current_, next_, cache_;
  std::vector<Place> states_, caches_;
  std::vector<int32_t> recent_;
};

}  // namespace strata::window
