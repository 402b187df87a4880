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
#include "base/trace.h"
#include "cpu/backend.h"
#include "gguf/gguf.h"
#include "model/model.h"
#include "program/program.h"
#include "stream/source.h"
#include "stream/stream.h"
#include "window/config.h"
#include "window/ngram.h"
#include "window/plan.h"
#include "window/session.h"

namespace strata::window {

enum class LogitsMode { None, Last, All };

struct Progress {
  int layer = 0, n_layer = 0;            // layers of the sweep that are done
  int64_t chunk = 0, n_chunk = 0;        // chunks of the sweep that went through the present layer's mixer
  int64_t tokens_done = 0, tokens = 0;   // of finished sweeps; of the call
  int64_t sweep_tokens = 0;              // of the sweep being run
  double seconds = 0;
  stream::Counters experts;              // since the call began
};

struct PrefillStats {
  int64_t tokens = 0, chunks = 0, sweeps = 0;
  double seconds = 0;
  stream::Counters experts;              // of this call
  std::vector<double> exposed_by_layer;  // seconds
  uint64_t table_rows = 0, table_reads = 0, table_bytes = 0;  // n-gram rows wanted, system reads, bytes they moved
  double table_wait_seconds = 0;
  int not_finite_layer = -1;             // first layer whose experts' sum held NaN or infinity, n_layer: the logits; -1 none
  bool fake = false;                     // experts were not read: the numbers mean nothing
};

class Engine {
 public:
  // Opens, checks, plans, loads the resident weights. Throws ModelFormatError, ConfigError, OutOfMemoryPlanError,
  // StreamIOError, Cancelled.
  Engine(const std::string& path, const EngineConfig& config, Cancel* cancel);
  // Reads the file's header only: the memory that a load would take.
  static Plan plan_only(const std::string& path, const EngineConfig& config);

  std::unique_ptr<Session> new_session();

  // Adds tokens to a session. `logits` takes [1, vocab] or [n, vocab] floats, by mode. On an error the session is where
  // the sweep began, its first tokens (those of finished sweeps) kept.
  PrefillStats prefill(Session& session, std::span<const int32_t> tokens, LogitsMode mode, float* logits,
                       const std::function<void(const Progress&)>& progress, cpu::TapSink* taps, Cancel& cancel);

  // Share of rows that use each expert, [layers, experts]: of what this engine ran, and of what it was given before that.
  // Throws InputError for another size, or values outside 0 to 1.
  std::vector<double> popularity() const { return stream_->popularity(); }
  void set_popularity(const std::vector<double>& shares);

  const model::Model& model() const { return model_; }
  const gguf::FileSet& files() const { return files_; }
  const Plan& plan() const { return plan_; }
  cpu::Backend& backend() { return *backend_; }
  const program::Program& program() const { return program_; }
  const EngineConfig& effective() const { return plan_.config; }  // automatic values filled in
  std::vector<std::string> warnings() const;
  const char* isa() const { return backend_->kernels().name; }
  int threads() const { return backend_->threads(); }

 private:
  struct Sweep;  // one sweep being run

  template <class T>
  T* buffer(program::BufferId id) const { return reinterpret_cast<T*>(bindings_.base[static_cast<size_t>(id)]); }
  void allocate(program::Scope scope);
  void decode_ngrams(const Sweep& sweep, const program::Frame& frame, cpu::TapSink* taps, PrefillStats& stats);
  void expert_pass(Sweep& sweep, int layer, int64_t next_rows, cpu::TapSink* taps, Cancel& cancel);
  int64_t sweep_rows(int64_t left);
  void look_for_damage(const Sweep& sweep, int layer, const float* x, int64_t n, PrefillStats& stats, Cancel& cancel);
  void run_sweep(Session& session, Sweep& sweep, int64_t next_rows, const std::function<void(int, int64_t)>& report, cpu::TapSink* taps,
                 PrefillStats& stats, Cancel& cancel);

  gguf::FileSet files_;
  model::Model model_;
  program::Program program_;
  stream::ExpertTable table_;
  Plan plan_;
  std::unique_ptr<cpu::Backend> backend_;
  std::unique_ptr<Trace> trace_;  // outlives the stream, whose readers write to it
  std::unique_ptr<stream::Source> source_;
  std::unique_ptr<stream::Stream> stream_;
  std::unique_ptr<NgramGather> gather_;
  Pages sweep_pages_, chunk_pages_;
  cpu::Bindings bindings_;
  float* h_ = nullptr;             // [sweep rows * K, width]
  float* yr_ = nullptr;            // [sweep rows * K, hidden] each chosen expert's output row; only when dumping
  std::byte* ngram_raw_ = nullptr; // [sweep rows, heads] rows of the n-gram table in the file's format
  double rows_per_second_ = 0;     // of the computation; 0 = no prompt was run yet
  std::mutex lock_;
  std::atomic<std::thread::id> owner_{};
};

}  // namespace strata::window
