// A loaded model and the loops that run it: sweep > layer > chunk. The room that knows all others.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/memory.h"
#include "cpu/backend.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "program/program.h"
#include "stream/stream.h"
#include "window/session.h"

namespace strata::window {

struct EngineConfig {
  std::string activations = "auto";  // "auto" (= "int16"), "int16", "f32"
  std::string kv_type = "auto";      // "auto", "f16", "f32"
  std::string backend = "cpu";       // "cpu", "reference"
  std::string isa = "auto";
  int64_t context = 0;               // 0 = automatic
  int64_t prompt_chunk = 1024;
  double arena_gb = 0;               // 0 = automatic; in units of 1e9 bytes
  int64_t arena_slots = 0;           // 0 = from arena_gb
  int threads = 0;                   // 0 = the cores this process may use
  int qsa_ratio = 0;                 // 0 = as the file says
  std::string dump_moe;              // folder, "" = no dump
};

enum class LogitsMode { None, Last, All };

struct Progress {
  int layer = 0, n_layer = 0;
  int64_t chunk = 0, n_chunk = 0;
  int64_t tokens_done = 0, tokens = 0;
  double seconds = 0;
  const stream::Counters* counters = nullptr;  // since the call began
};

struct PrefillStats {
  int64_t tokens = 0, chunks = 0, sweeps = 0;
  double seconds = 0;
  stream::Counters experts;      // of this call
  uint64_t table_rows = 0, table_bytes = 0;  // n-gram rows read
};

class Engine {
 public:
  // Opens, checks, plans, loads the resident weights. Throws ModelFormatError, ConfigError, OutOfMemoryPlanError,
  // StreamIOError, Cancelled.
  Engine(const std::string& path, const EngineConfig& config, Cancel* cancel);

  std::unique_ptr<Session> new_session();

  // Adds tokens to a session. `logits` takes [1, vocab] or [n, vocab] floats, by mode. On an error the session is where
  // the sweep began, its first tokens (those of finished sweeps) kept.
  PrefillStats prefill(Session& session, std::span<const int32_t> tokens, LogitsMode mode, float* logits,
                       const std::function<void(const Progress&)>& progress, cpu::TapSink* taps, Cancel& cancel);

  const model::Model& model() const { return model_; }
  const gguf::FileSet& files() const { return files_; }
  const MemoryPlan& plan() const { return plan_; }
  const program::Program& program() const { return program_; }
  const EngineConfig& effective() const { return config_; }  // automatic values filled in
  int arena_slots() const { return stream_->arena().slots(); }
  uint64_t slot_bytes() const { return stream::Arena::slot_bytes(table_); }
  const char* isa() const { return backend_->kernels().name; }
  int threads() const { return backend_->threads(); }
  const cpu::Backend& backend() const { return *backend_; }

 private:
  struct Sweep;  // one sweep being run

  void make_plan();
  void gather_ngrams(const Session& session, Sweep& sweep, int64_t row0, int64_t rows, cpu::TapSink* taps, PrefillStats& stats);
  void expert_pass(Sweep& sweep, int layer, cpu::TapSink* taps, Cancel& cancel);

  EngineConfig config_;
  gguf::FileSet files_;
  model::Model model_;
  program::Program program_;
  stream::ExpertTable table_;
  MemoryPlan plan_;
  std::unique_ptr<cpu::Backend> backend_;
  std::unique_ptr<stream::Stream> stream_;
  Pages sweep_pages_, chunk_pages_;
  cpu::Bindings bindings_;
  float* h_ = nullptr;   // [sweep rows * K, width]
  float* yr_ = nullptr;  // [sweep rows * K, hidden] each chosen expert's output row; only when dumping
  std::mutex lock_;
  std::atomic<std::thread::id> owner_{};
};

}  // namespace strata::window
