#include "window/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "model/qwen4exp.h"
#include "quant/quant.h"
#include "window/damage.h"
#include "window/dump.h"

namespace strata::window {

using program::Buffer;
using program::DType;
using program::Frame;
using program::Scope;

namespace {

constexpr double kUsualShare = 0.4;    // of the machine's peak, before a prompt was timed
constexpr int64_t kTimedRows = 256;    // fewer rows say little about the speed of a long prompt

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

cpu::Matrix as_matrix(const model::ExpertMatrix& m, const std::byte* data) { return {m.type, m.rows, m.cols, m.row_bytes, data}; }

// Hands rows to a dump and to the caller's sink.
class Taps : public cpu::TapSink {
 public:
  Taps(cpu::TapSink* a, cpu::TapSink* b) : sinks_{a, b} {}
  bool wants(const char* tap, int layer) const override {
    return std::any_of(std::begin(sinks_), std::end(sinks_), [&](const cpu::TapSink* s) { return s && s->wants(tap, layer); });
  }
  void rows(const char* tap, int layer, int64_t first, int64_t rows, int64_t cols, DType dtype, const std::byte* data,
            uint64_t stride) override {
    for (cpu::TapSink* s : sinks_)
      if (s && s->wants(tap, layer)) s->rows(tap, layer, first, rows, cols, dtype, data, stride);
  }

 private:
  cpu::TapSink* sinks_[2];
};

}  // namespace

struct Engine::Sweep {
  std::span<const int32_t> tokens;
  int64_t position = 0;
  std::vector<int64_t> ngram_rows;  // [tokens, heads]
  bool ngrams_there = false;
  std::vector<int32_t> slots;       // row map: (row * K + rank) sorted by expert, rising inside
  std::vector<int64_t> first;       // [E + 1] where an expert's slots start
  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

namespace {

program::Program program_of(const model::Model& m, const EngineConfig& c) {
  const bool f16 = c.kv_type == "f16" || (c.kv_type == "auto" && c.activations != "f32");
  return model::build_program(m, {f16 ? DType::f16 : DType::f32, c.prompt_pred == 1});
}

uint64_t memory_for(const EngineConfig& c) { return c.ram_gb > 0 ? static_cast<uint64_t>(c.ram_gb * 1e9) : available_memory(); }

}  // namespace

Plan Engine::plan_only(const std::string& path, const EngineConfig& config) {
  const gguf::FileSet files = gguf::FileSet::open(path);
  const model::Model m = model::Model::from_files(files, config.qsa_ratio);
  return make_plan(m, program_of(m, config), config, memory_for(config));
}

Engine::Engine(const std::string& path, const EngineConfig& config, Cancel* cancel) {
  const cpu::Kernels& kernels = cpu::select_kernels(config.isa.c_str());
  files_ = gguf::FileSet::open(path);
  model_ = model::Model::from_files(files_, config.qsa_ratio);
  program_ = program_of(model_, config);
  plan_ = make_plan(model_, program_, config, memory_for(config));
  const EngineConfig& c = plan_.config;
  table_ = expert_table(model_);

  stream::Faults faults;
  faults.delay_us = c.fault_delay_us;
  faults.eio_at = c.fault_eio_at;
  faults.short_reads = static_cast<uint64_t>(std::max<int64_t>(0, c.fault_short_reads));
  source_ = std::make_unique<stream::Source>(files_.files(), c.direct_io != "off", faults);
  if (c.direct_io == "on" && !source_->warnings().empty()) throw ConfigError("direct_io", "on", "auto or off here: " + source_->warnings()[0]);
  backend_ = std::make_unique<cpu::Backend>(model_, program_, kernels, c.threads,
                                            c.activations == "f32"    ? cpu::Activations::F32
                                            : c.activations == "int8" ? cpu::Activations::Int8
                                                                      : cpu::Activations::Int16,
                                            c.backend == "reference");
  backend_->set_profile(c.profile);
  backend_->load(
      plan_.memory,
      [&](const model::Weight& w, std::byte* dst) {
        constexpr uint64_t kPiece = 16 << 20;  // a request to stop does not wait for a whole matrix
        for (uint64_t done = 0; done < w.where.bytes; done += kPiece) {
          if (cancel) cancel->poll();
          files_.files()[w.where.file].read_exact(dst + done, std::min(kPiece, w.where.bytes - done), w.where.offset + done);
        }
      },
      cancel);
  backend_->set_scratch(plan_.memory, c.prompt_chunk, c.context);
  bindings_.base.assign(program_.buffers.size(), nullptr);
  allocate(Scope::Chunk);
  allocate(Scope::Sweep);
  if (model_.hp.ple.layer >= 0) gather_ = std::make_unique<NgramGather>(files_.files(), model_.ple_table);

  stream::StreamConfig sc;
  sc.io_threads = c.io_threads;
  sc.guess = static_cast<stream::Guess>(c.prompt_pred);
  sc.guess_min = c.prompt_pred_min;
  sc.fake = c.stream_fake;
  if (!c.trace.empty()) trace_ = std::make_unique<Trace>(c.trace, c.io_threads);
  stream_ = std::make_unique<stream::Stream>(*source_, table_, plan_.arena, plan_.memory, sc, trace_.get());
}

// The scope's buffers, one after another in one piece of memory.
void Engine::allocate(Scope scope) {
  const EngineConfig& c = plan_.config;
  const bool sweep = scope == Scope::Sweep;
  Pages& pages = sweep ? sweep_pages_ : chunk_pages_;
  pages = plan_.memory.take_all(sweep ? kSweepLine : kChunkLine);
  const int64_t rows = sweep ? c.prompt_sweep : c.prompt_chunk;
  std::byte* p = pages.data();
  const auto next = [&p](uint64_t bytes) {
    std::byte* at = p;
    p += aligned(bytes);
    return at;
  };
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& b = program_.buffers[i];
    if (b.scope == scope && static_cast<program::BufferId>(i) != program_.logits)
      bindings_.base[i] = next(static_cast<uint64_t>(rows) * b.row_bytes());
  }
  if (sweep) {
    const auto slots = static_cast<uint64_t>(rows * model_.hp.n_expert_used);
    h_ = reinterpret_cast<float*>(next(slots * static_cast<uint64_t>(model_.hp.expert_width) * sizeof(float)));
    if (!c.dump_moe.empty()) yr_ = reinterpret_cast<float*>(next(slots * static_cast<uint64_t>(model_.hp.hidden) * sizeof(float)));
    ngram_raw_ = next(static_cast<uint64_t>(rows) * plan_.ngram_row_bytes);
  }
  if (p > pages.data() + pages.size()) throw std::logic_error("the memory plan has too little for its sweep or chunk buffers");
}

std::vector<std::string> Engine::warnings() const {
  std::vector<std::string> all = model_.warnings;
  all.insert(all.end(), source_->warnings().begin(), source_->warnings().end());
  const model::HParams& hp = model_.hp;
  const int64_t token = int64_t{hp.n_layer} * hp.n_expert_used, slots = stream_->slots();
  if (slots < token && !stream_->fake())
    all.push_back("the arena holds " + std::to_string(slots) + " experts, one token uses " + std::to_string(token) +
                  ": every token reads most of its experts again; more memory (arena_gb, ram_gb) helps decoding most");
  const auto fewer = [&](const char* knob, int asked, int got) {
    if (got < asked) all.push_back(std::string(knob) + " = " + std::to_string(asked) + ", but the system gives no more than " + std::to_string(got));
  };
  fewer("threads", plan_.config.threads, backend_->threads());
  if (stream_->fake())
    all.push_back("STREAM_FAKE: no expert is read; times are real, every result is meaningless");
  else
    fewer("io_threads", plan_.config.io_threads, stream_->readers());
  return all;
}

void Engine::set_popularity(const std::vector<double>& shares) {
  const size_t n = static_cast<size_t>(model_.hp.n_layer) * static_cast<size_t>(model_.hp.n_expert);
  if (shares.size() != n) throw InputError("popularity has " + std::to_string(shares.size()) + " values; the model has " + std::to_string(n) + " experts");
  if (!std::all_of(shares.begin(), shares.end(), [](double s) { return s >= 0 && s <= 1; })) throw InputError("a popularity is not between 0 and 1");
  stream_->set_popularity(shares);
}

std::unique_ptr<Session> Engine::new_session() {
  return std::make_unique<Session>(program_, model_.hp, plan_.memory, plan_.config.context);
}

// The chunk's n-gram rows, which were gathered for the whole sweep, as floats.
void Engine::decode_ngrams(const Sweep& sweep, const Frame& f, cpu::TapSink* taps, PrefillStats& stats) {
  const model::NgramParams& ple = model_.hp.ple;
  const model::Weight& table = model_.ple_table;
  const auto heads = static_cast<size_t>(ple.heads());
  const size_t first = static_cast<size_t>(f.row0) * heads, n = static_cast<size_t>(f.rows) * heads;
  auto* e = buffer<float>(program_.ngram);
  for (size_t i = 0; i < n; ++i)
    quant::dequantize_row(table.type, ngram_raw_ + (first + i) * table.row_bytes, e + i * static_cast<size_t>(table.cols), table.cols);
  if (!backend_->all_finite(e, static_cast<int64_t>(n) * table.cols))
    for (size_t i = 0; i < n; ++i) check_table_row(files_, table, sweep.ngram_rows[first + i], e + i * static_cast<size_t>(table.cols));
  stats.table_rows += n;
  if (taps && taps->wants("ple_rows", ple.layer)) {
    const std::vector<int32_t> narrow(sweep.ngram_rows.begin() + static_cast<std::ptrdiff_t>(first),
                                      sweep.ngram_rows.begin() + static_cast<std::ptrdiff_t>(first + n));
    taps->rows("ple_rows", ple.layer, f.position, f.rows, static_cast<int64_t>(heads), DType::i32,
               reinterpret_cast<const std::byte*>(narrow.data()), heads * sizeof(int32_t));
  }
}

// All rows of the sweep through the layer's chosen experts.
void Engine::expert_pass(Sweep& sweep, int layer, int64_t next_rows, cpu::TapSink* taps, Cancel& cancel) {
  const model::HParams& hp = model_.hp;
  const model::Experts& experts = model_.layers[static_cast<size_t>(layer)].experts;
  const auto* ids = buffer<int32_t>(program_.ids);
  const auto n = static_cast<size_t>(sweep.rows() * hp.n_expert_used);

  // Row map: (row, rank) by expert, by counting.
  sweep.first.assign(static_cast<size_t>(hp.n_expert) + 1, 0);
  for (size_t i = 0; i < n; ++i) ++sweep.first[static_cast<size_t>(ids[i]) + 1];
  std::partial_sum(sweep.first.begin(), sweep.first.end(), sweep.first.begin());
  sweep.slots.resize(n);
  std::vector<int64_t> at(sweep.first.begin(), sweep.first.end() - 1);
  for (size_t i = 0; i < n; ++i) sweep.slots[static_cast<size_t>(at[static_cast<size_t>(ids[i])]++)] = static_cast<int32_t>(i);

  cpu::ExpertPass pass;
  pass.layer = layer;
  pass.k = hp.n_expert_used;
  pass.hidden = hp.hidden;
  pass.width = hp.expert_width;
  pass.x = buffer<float>(program_.moe_in);
  pass.weights = buffer<float>(program_.weights);
  pass.out = buffer<float>(program_.moe_out);
  pass.h = h_;
  pass.rows_out = yr_;

  // Gate and up run as experts land; down runs in rising expert number, so that a token's experts are added in that order
  // whatever landed first.
  const std::unique_ptr<stream::Groups> groups = stream_->at_layer(layer, next_rows, &cancel);
  stream::Step step;
  std::vector<cpu::ExpertRun> runs;
  for (groups->next(step); step.kind != stream::Step::End; groups->next(step)) {
    runs.clear();
    for (const stream::Expert& x : step.experts) {
      cpu::ExpertRun run;
      run.expert = x.id;
      run.gate = as_matrix(experts.gate, x.part[0]);
      run.up = as_matrix(experts.up, x.part[1]);
      run.down = as_matrix(experts.down, x.part[2]);
      const int64_t first = sweep.first[static_cast<size_t>(x.id)];
      run.slots = sweep.slots.data() + first;
      run.rows = sweep.first[static_cast<size_t>(x.id) + 1] - first;
      runs.push_back(run);
    }
    if (step.kind == stream::Step::GateUp)
      backend_->experts_gate_up(pass, runs, &cancel);
    else
      backend_->experts_down(pass, runs, &cancel);
  }
  if (yr_) {
    const int64_t cols = int64_t{hp.n_expert_used} * hp.hidden;
    taps->rows("expert_rows", layer, sweep.position, sweep.rows(), cols, DType::f32, reinterpret_cast<const std::byte*>(yr_),
               static_cast<uint64_t>(cols) * sizeof(float));
  }
}

// The first time that one of n results is not finite, the weights they came from are searched for the cause. When they are
// sound, it is an overflow, which is only noted, then and later.
void Engine::look_for_damage(const Sweep& sweep, int layer, const float* x, int64_t n, PrefillStats& stats, Cancel& cancel) {
  if (stats.not_finite_layer >= 0 || stats.fake || backend_->all_finite(x, n)) return;
  stats.not_finite_layer = layer;
  if (searched_) return;
  std::vector<int> experts;
  for (int e = 0; e < model_.hp.n_expert && layer < model_.hp.n_layer; ++e)
    if (sweep.first[static_cast<size_t>(e)] < sweep.first[static_cast<size_t>(e) + 1]) experts.push_back(e);
  find_damage(files_, model_, layer, experts, cancel);
  searched_ = true;
}

// One sweep: all layers, each chunk by chunk through the mixer, then all rows through the layer's experts.
void Engine::run_sweep(Session& session, Sweep& sweep, int64_t next_rows, const std::function<void(int, int64_t)>& report,
                       cpu::TapSink* taps, PrefillStats& stats, Cancel& cancel) {
  const model::HParams& hp = model_.hp;
  const int64_t chunk_rows = plan_.config.prompt_chunk;
  const auto each_chunk = [&](auto&& fn) {
    int64_t chunk = 0;
    for (int64_t row0 = 0; row0 < sweep.rows(); row0 += chunk_rows) {
      Frame f;
      f.rows = std::min(chunk_rows, sweep.rows() - row0);
      f.row0 = row0;
      f.position = sweep.position + row0;
      f.first_chunk = row0 == 0;
      f.tokens = sweep.tokens.data() + row0;
      fn(f, ++chunk);
    }
  };
  Frame whole;
  whole.rows = sweep.rows();
  whole.position = sweep.position;

  session.bind(bindings_);
  stream_->begin_sweep(sweep.rows());
  if (gather_) {
    sweep.ngram_rows = ngram_rows(hp.ple, session.recent(), sweep.tokens);
    if (plan_.config.ple_async) gather_->start(sweep.ngram_rows, ngram_raw_);
  }
  each_chunk([&](const Frame& f, int64_t chunk) {
    const Trace::Span span(trace_.get(), "embed", -1, static_cast<int>(chunk - 1));
    backend_->run(program_.embed, f, bindings_, taps, &cancel);
  });
  for (int layer = 0; layer < hp.n_layer; ++layer) {
    if (layer == hp.ple.layer) {  // joined where the rows are needed
      const Trace::Span span(trace_.get(), "n-gram rows", layer);
      if (!plan_.config.ple_async) gather_->start(sweep.ngram_rows, ngram_raw_);
      gather_->join(cancel);
      stats.table_reads += gather_->reads();
      stats.table_bytes += gather_->bytes();
      stats.table_wait_seconds += gather_->waited_seconds();
    }
    each_chunk([&](const Frame& f, int64_t chunk) {
      const Trace::Span span(trace_.get(), "mixer", layer, static_cast<int>(chunk - 1));
      if (layer == hp.ple.layer) decode_ngrams(sweep, f, taps, stats);
      backend_->run(program_.mixer[static_cast<size_t>(layer)], f, bindings_, taps, &cancel);
      const auto n = static_cast<size_t>(f.rows * hp.n_expert_used);
      const auto* ids = buffer<int32_t>(program_.ids) + f.row0 * hp.n_expert_used;
      std::span<const int32_t> guesses;
      if (program_.next_ids >= 0 && layer + 1 < hp.n_layer) guesses = {buffer<int32_t>(program_.next_ids), n};
      stream_->note(layer, f.rows, {ids, n}, guesses);
      report(layer, chunk);
    });
    const Trace::Span span(trace_.get(), "experts", layer);
    expert_pass(sweep, layer, layer + 1 == hp.n_layer ? next_rows : 0, taps, cancel);
    look_for_damage(sweep, layer, buffer<float>(program_.moe_out), sweep.rows() * hp.hidden, stats, cancel);
    backend_->run(program_.experts[static_cast<size_t>(layer)], whole, bindings_, taps, &cancel);
    report(layer + 1, 0);
  }
}

// Rows of the next sweep. A sweep that is given up is work lost, so an automatic one takes a minute or two at most, however
// much memory there is.
int64_t Engine::sweep_rows(int64_t left) {
  const EngineConfig& c = plan_.config;
  int64_t rows = std::min(c.prompt_sweep, left);
  if (!plan_.auto_sweep || rows <= c.prompt_chunk) return rows;
  if (rows_per_second_ == 0) {
    const model::HParams& hp = model_.hp;
    double macs = 0;  // of a row: each resident matrix once, and its experts
    for (size_t i = 0; i < model_.weights.size(); ++i)
      if (static_cast<int>(i) != model_.token_embd && static_cast<int>(i) != model_.output)
        macs += static_cast<double>(model_.weights[i].rows) * static_cast<double>(model_.weights[i].cols);
    macs += 3.0 * hp.n_layer * hp.n_expert_used * static_cast<double>(hp.hidden) * static_cast<double>(hp.expert_width);
    rows_per_second_ = kUsualShare * 1e9 * backend_->quick_integer_peak() / macs;
  }
  const auto affordable = static_cast<int64_t>(rows_per_second_ * c.sweep_seconds) / c.prompt_chunk * c.prompt_chunk;
  return std::min(rows, std::max(affordable, c.prompt_chunk));
}

PrefillStats Engine::prefill(Session& session, std::span<const int32_t> tokens, LogitsMode mode, float* logits,
                             const std::function<void(const Progress&)>& progress, cpu::TapSink* caller_taps, Cancel& cancel) {
  if (owner_.load() == std::this_thread::get_id())
    throw InputError("the engine is running: it cannot be called from its own progress callback");
  const std::lock_guard<std::mutex> lock(lock_);
  struct Owner {
    std::atomic<std::thread::id>& id;
    explicit Owner(std::atomic<std::thread::id>& i) : id(i) { id.store(std::this_thread::get_id()); }
    ~Owner() { id.store(std::thread::id{}); }
  } const owner(owner_);

  const model::HParams& hp = model_.hp;
  const auto total = static_cast<int64_t>(tokens.size());
  if (total == 0) throw InputError("the prompt is empty");
  for (int64_t i = 0; i < total; ++i)
    if (tokens[static_cast<size_t>(i)] < 0 || tokens[static_cast<size_t>(i)] >= hp.n_vocab)
      throw InputError("token " + std::to_string(i) + " is " + std::to_string(tokens[static_cast<size_t>(i)]) +
                       "; the vocabulary has ids 0 to " + std::to_string(hp.n_vocab - 1));
  if (total > session.context() - session.position())
    throw InputError("the prompt has " + std::to_string(total) + " tokens; the session holds " + std::to_string(session.position()) +
                     " of a context of " + std::to_string(session.context()));

  const EngineConfig& c = plan_.config;
  const auto start = std::chrono::steady_clock::now();
  const stream::Counters before = stream_->counters();
  const std::vector<double> exposed_before = stream_->exposed_by_layer();
  PrefillStats stats;
  stats.fake = stream_->fake();
  std::unique_ptr<Dump> dump;
  if (!c.dump_moe.empty()) dump = std::make_unique<Dump>(c.dump_moe, session.position(), hp.n_layer, hp.n_expert_used);
  Taps both(dump.get(), caller_taps);
  cpu::TapSink* taps = dump || caller_taps ? &both : nullptr;

  try {
    for (int64_t done = 0; done < total;) {
      Sweep sweep;
      sweep.tokens = tokens.subspan(static_cast<size_t>(done), static_cast<size_t>(sweep_rows(total - done)));
      sweep.position = session.position();
      const auto sweep_start = std::chrono::steady_clock::now();
      const double waited = stream_->counters().exposed_seconds;
      const int64_t after = done + sweep.rows(), n_chunk = (sweep.rows() + c.prompt_chunk - 1) / c.prompt_chunk;
      const auto report = [&](int layer, int64_t chunk) {
        cancel.poll();
        if (!progress) return;
        progress({layer, hp.n_layer, chunk, n_chunk, done, total, sweep.rows(), seconds_since(start), stream_->counters() - before});
      };
      run_sweep(session, sweep, total > after ? sweep_rows(total - after) : 0, report, taps, stats, cancel);
      if (sweep.rows() >= std::min(kTimedRows, c.prompt_chunk))
        rows_per_second_ = static_cast<double>(sweep.rows()) /
                           std::max(1e-6, seconds_since(sweep_start) - (stream_->counters().exposed_seconds - waited));

      // The head runs on the rows whose logits are wanted, and writes to the caller's memory.
      int64_t row = mode == LogitsMode::All ? 0 : mode == LogitsMode::Last && after == total ? sweep.rows() - 1 : sweep.rows();
      while (row < sweep.rows()) {
        Frame f;
        f.rows = std::min(c.prompt_chunk, sweep.rows() - row);
        f.row0 = row;
        f.position = sweep.position + row;
        float* to = mode == LogitsMode::All ? logits + (done + row) * hp.n_vocab : logits;
        bindings_.base[static_cast<size_t>(program_.logits)] = reinterpret_cast<std::byte*>(to);
        const Trace::Span span(trace_.get(), "head");
        backend_->run(program_.head, f, bindings_, taps, &cancel);
        look_for_damage(sweep, hp.n_layer, to, f.rows * hp.n_vocab, stats, cancel);
        row += f.rows;
      }
      if (trace_) trace_->flush();  // may fail: then the sweep counts as not run
      session.commit(sweep.tokens.data(), sweep.rows());
      stats.chunks += n_chunk;
      ++stats.sweeps;
      done = after;
      if (dump) dump->commit(done);
    }
  } catch (...) {
    stream_->abandon();
    if (gather_) gather_->abandon();
    if (trace_) {
      try {
        trace_->flush();
      } catch (const Error&) {
        // The error that is on its way says more.
      }
    }
    throw;
  }
  if (total > kTimedRows) {  // a prompt's memory goes back to the system; single tokens need next to nothing of it
    sweep_pages_.discard();
    chunk_pages_.discard();
  }
  stats.tokens = total;
  stats.seconds = seconds_since(start);
  stats.experts = stream_->counters() - before;
  stats.exposed_by_layer = stream_->exposed_by_layer();
  for (size_t l = 0; l < exposed_before.size(); ++l) stats.exposed_by_layer[l] -= exposed_before[l];
  return stats;
}

}  // namespace strata::window
