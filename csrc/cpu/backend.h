// Runs segments on the CPU. It is given addresses; it does not know where bytes come from.
//
// Every op computes each row from that row alone (and the session's history), in a fixed order, so the number of rows,
// the number of threads and the tiling never change a bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/cancel.h"
#include "base/memory.h"
#include "base/pool.h"
#include "cpu/isa/kernels.h"
#include "cpu/product.h"
#include "cpu/profile.h"
#include "model/model.h"
#include "program/program.h"

namespace strata::cpu {

// Where each buffer's rows start, by BufferId.
struct Bindings {
  std::vector<std::byte*> base;        // Chunk, Sweep, Cache; State: after the sweep
  std::vector<const std::byte*> before;  // State: before the sweep
};

// How a product with quantised weights sees its activations. Weights in plain floats, and the small products that
// decide (router, injection, delta-net gates), always take them as they are. Int8: only with weights of types that
// takes_int8 names, all others as Int16.
enum class Activations : uint8_t { F32, Int16, Int8 };

// Rows that an op hands out (dumps, tests). Called on the thread that runs the segment.
class TapSink {
 public:
  virtual ~TapSink() = default;
  virtual bool wants(const char* tap, int layer) const = 0;
  // rows x cols values of `dtype` (4 bytes each), row stride in bytes.
  virtual void rows(const char* tap, int layer, int64_t first_position, int64_t rows, int64_t cols, program::DType dtype,
                    const std::byte* data, uint64_t stride) = 0;
};

// The routed experts of one layer and the rows each is for.
struct ExpertRun {
  int expert = 0;
  Matrix gate, up, down;
  const int32_t* slots = nullptr;  // [rows] index row * K + rank, rising
  int64_t rows = 0;
};
struct ExpertPass {
  int layer = 0, k = 0;            // K chosen experts a row
  int64_t hidden = 0, width = 0;
  const float* x = nullptr;        // [T, hidden]
  const float* weights = nullptr;  // [T, K]
  float* h = nullptr;              // [T * K, width] SwiGLU outputs
  float* out = nullptr;            // [T, hidden], added to
  float* rows_out = nullptr;       // [T * K, hidden] or null: each expert's row before its weight (dumps)
};

class Backend {
 public:
  Backend(const model::Model& model, const program::Program& program, const Kernels& kernels, int threads, Activations activations,
          bool reference);
  ~Backend();

  // Memory it needs for weights (own layout) and for its threads' scratch, when a chunk has `chunk` rows of a context
  // of `context` positions.
  static uint64_t weight_bytes(const model::Model& model, const program::Program& program);
  static uint64_t scratch_bytes(const model::Model& model, const program::Program& program, int threads, int64_t chunk, int64_t context);

  // Takes over the weights: `read(extent, dst)` fills dst with the bytes of a weight. Called once.
  using ReadWeight = std::function<void(const model::Weight&, std::byte* dst)>;
  void load(MemoryPlan& plan, const ReadWeight& read, Cancel* cancel);
  void set_scratch(MemoryPlan& plan, int64_t chunk, int64_t context);

  void run(const program::Segment& segment, const program::Frame& frame, const Bindings& bindings, TapSink* taps, Cancel* cancel);
  // h = silu(gate x) * up x for all rows of the given experts, in any order.
  void experts_gate_up(const ExpertPass& pass, const std::vector<ExpertRun>& group, Cancel* cancel);
  // out += w * down h; experts must be given in rising number, over all calls for a layer.
  void experts_down(const ExpertPass& pass, const std::vector<ExpertRun>& group, Cancel* cancel);

  // No NaN and no infinity among n values.
  bool all_finite(const float* x, int64_t n);

  int threads() const { return pool_.size(); }
  const Kernels& kernels() const { return k_; }
  bool reference() const { return reference_; }
  Activations activations() const { return activations_; }

  void set_profile(bool on) { profile_ = on ? std::make_unique<Profile>() : nullptr; }
  Profile* profile() { return profile_.get(); }
  Peak peak() { return measure_peak(k_, pool_); }
  double quick_integer_peak() { return cpu::quick_integer_peak(k_, pool_); }

 private:
  struct Scratch;  // one thread's
  struct Call;     // an op being run: resolves refs to rows
  struct Segment;  // rows of one expert taken together

  std::string kernel_name(const Matrix& w, bool exact, Form form) const;
  void note(const Call& c, double seconds);
  void note_experts(const char* kind, const ExpertPass& pass, const std::vector<ExpertRun>& group, bool down, double seconds);
  void gate_up(const ExpertPass& pass, const std::vector<ExpertRun>& group, Cancel* cancel);
  void down(const ExpertPass& pass, const std::vector<ExpertRun>& group, Cancel* cancel);
  void run_op(const Call& c);
  void matmul(const Call& c);
  void conv(const Call& c);
  void delta_scan(const Call& c);
  void block_keys(const Call& c);
  void select_blocks(const Call& c);
  void attend(const Call& c);
  void router(const Call& c);

  bool integer(const Matrix& w) const { return activations_ != Activations::F32 && code_format(w.type) != nullptr; }
  bool int8() const { return activations_ == Activations::Int8; }
  template <class Row>
  void quantise_segments(const std::vector<Segment>& segments, int64_t cols, Form form, bool minimums, std::vector<Quantised>& out,
                         Cancel* cancel, Row&& row);
  Scratch& scratch(int thread);

  const model::Model& model_;
  const program::Program& program_;
  const Kernels& k_;
  const bool reference_;
  const Activations activations_;
  ThreadPool pool_;
  Pages weights_, scratch_pages_;
  std::vector<Matrix> matrix_;            // by WeightId, raw rows
  std::vector<const float*> vector_;      // by WeightId, decoded (norms, biases; convolutions as [taps][channels])
  std::vector<Scratch> scratch_;
  std::vector<const float*> row_ptrs_;
  std::unique_ptr<Profile> profile_;
  std::vector<uint8_t> exact_;            // by WeightId: products that stay in float32
  QuantisedPool quantised_;               // rows of the product being run
};

// Chooses the k largest of p[0..n): larger first, lower index first among equals, NaN below everything.
void top_k(const float* p, int n, int k, int32_t* ids);

}  // namespace strata::cpu
