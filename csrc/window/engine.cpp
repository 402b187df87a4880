#include "window/engine.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "model/qwen4exp.h"
#include "quant/quant.h"
#include "window/dump.h"

namespace strata::window {

using program::Buffer;
using program::DType;
using program::Frame;
using program::Scope;

namespace {

constexpr const char* kSweepLine = "sweep buffers";
constexpr const char* kChunkLine = "chunk buffers";
constexpr int64_t kAutoContext = 32768;

uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

stream::Counters minus(const stream::Counters& a, const stream::Counters& b) {
  stream::Counters c;
  c.lookups = a.lookups - b.lookups;
  c.resident = a.resident - b.resident;
  c.ahead = a.ahead - b.ahead;
  c.missed = a.missed - b.missed;
  c.issued = a.issued - b.issued;
  c.used = a.used - b.used;
  c.wasted = a.wasted - b.wasted;
  c.cancelled = a.cancelled - b.cancelled;
  c.reads = a.reads - b.reads;
  c.bytes = a.bytes - b.bytes;
  c.exposed_seconds = a.exposed_seconds - b.exposed_seconds;
  return c;
}

stream::ExpertTable expert_table(const model::Model& m) {
  stream::ExpertTable t;
  t.n_expert = m.hp.n_expert;
  for (const model::Layer& l : m.layers) {
    stream::ExpertTable::LayerParts parts;
    const model::ExpertMatrix* matrices[stream::kParts] = {&l.experts.gate, &l.experts.up, &l.experts.down};
    for (size_t i = 0; i < stream::kParts; ++i) {
      parts.first[i] = {matrices[i]->first.file, matrices[i]->first.offset, matrices[i]->first.bytes};
      parts.stride[i] = matrices[i]->stride;
    }
    t.layers.push_back(parts);
  }
  return t;
}

cpu::Matrix as_matrix(const model::ExpertMatrix& m, const std::byte* data) { return {m.type, m.rows, m.cols, m.row_bytes, data}; }

void one_of(const char* knob, const std::string& value, std::initializer_list<const char*> allowed) {
  std::string list;
  for (const char* a : allowed) {
    if (value == a) return;
    list += (list.empty() ? "" : ", ") + std::string(a);
  }
  throw ConfigError(knob, value, list);
}

void in_range(const char* knob, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high)
    throw ConfigError(knob, std::to_string(value), std::to_string(low) + " to " + std::to_string(high));
}

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
  const int32_t* tokens;
  int64_t rows = 0, position = 0;
  std::vector<int32_t> slots;       // row map: (row * K + rank) sorted by expert, rising inside
  std::vector<int64_t> first;       // [E + 1] where an expert's slots start
};

Engine::Engine(const std::string& path, const EngineConfig& config, Cancel* cancel) : config_(config) {
  one_of("activations", config_.activations, {"auto", "int16", "f32"});
  one_of("kv_type", config_.kv_type, {"auto", "f16", "f32"});
  one_of("backend", config_.backend, {"cpu", "reference"});
  in_range("prompt_chunk", config_.prompt_chunk, 1, 65536);
  in_range("context", config_.context, 0, int64_t{1} << 31);
  in_range("threads", config_.threads, 0, 1024);
  in_range("arena_slots", config_.arena_slots, 0, int64_t{1} << 30);
  in_range("qsa_ratio", config_.qsa_ratio, 0, 1 << 20);
  if (!(config_.arena_gb >= 0 && config_.arena_gb < 1e6)) throw ConfigError("arena_gb", std::to_string(config_.arena_gb), "0 to 1000000");
  const cpu::Kernels& kernels = cpu::select_kernels(config_.isa.c_str());
  if (config_.threads == 0) config_.threads = allowed_cpus();
  if (config_.kv_type == "auto") config_.kv_type = config_.activations == "f32" ? "f32" : "f16";

  files_ = gguf::FileSet::open(path);
  model_ = model::Model::from_files(files_, config_.qsa_ratio);
  if (config_.context == 0) config_.context = std::min(model_.hp.context_length, kAutoContext);
  in_range("context", config_.context, 1, model_.hp.context_length);
  config_.prompt_chunk = std::min(config_.prompt_chunk, config_.context);
  program_ = model::build_program(model_, {config_.kv_type == "f16" ? DType::f16 : DType::f32});
  table_ = expert_table(model_);
  backend_ = std::make_unique<cpu::Backend>(model_, program_, kernels, config_.threads,
                                            config_.activations == "f32" ? cpu::Activations::F32 : cpu::Activations::Int16,
                                            config_.backend == "reference");
  make_plan();

  backend_->load(
      plan_,
      [&](const model::Weight& w, std::byte* dst) {
        files_.files()[w.where.file].read_exact(dst, w.where.bytes, w.where.offset);
      },
      cancel);
  backend_->set_scratch(plan_, config_.prompt_chunk, config_.context);
  stream_ = std::make_unique<stream::Stream>(files_.files(), table_, plan_, static_cast<int>(config_.arena_slots));

  // Chunk and sweep buffers, one after another in two pieces of memory.
  bindings_.base.assign(program_.buffers.size(), nullptr);
  for (const Scope scope : {Scope::Chunk, Scope::Sweep}) {
    Pages& pages = scope == Scope::Chunk ? chunk_pages_ : sweep_pages_;
    const char* line = scope == Scope::Chunk ? kChunkLine : kSweepLine;
    for (const MemoryPlan::Line& l : plan_.lines())
      if (l.name == line) pages = plan_.take(line, l.bytes);
    std::byte* p = pages.data();
    for (size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& b = program_.buffers[i];
      if (b.scope != scope || static_cast<program::BufferId>(i) == program_.logits) continue;
      bindings_.base[i] = p;
      p += aligned(static_cast<uint64_t>(config_.prompt_chunk) * b.row_bytes());
    }
    if (scope == Scope::Sweep) {
      h_ = reinterpret_cast<float*>(p);
      if (!config_.dump_moe.empty()) yr_ = h_ + config_.prompt_chunk * model_.hp.n_expert_used * model_.hp.expert_width;
    }
  }
}

void Engine::make_plan() {
  const model::HParams& hp = model_.hp;
  const int64_t rows = config_.prompt_chunk;
  uint64_t chunk = 0, sweep = 0;
  for (size_t i = 0; i < program_.buffers.size(); ++i) {
    const Buffer& b = program_.buffers[i];
    if (static_cast<program::BufferId>(i) == program_.logits) continue;  // written to the caller's memory
    if (b.scope == Scope::Chunk) chunk += aligned(static_cast<uint64_t>(rows) * b.row_bytes());
    if (b.scope == Scope::Sweep) sweep += aligned(static_cast<uint64_t>(rows) * b.row_bytes());
  }
  const auto slots_per_row = static_cast<uint64_t>(rows * hp.n_expert_used);
  sweep += slots_per_row * static_cast<uint64_t>(hp.expert_width) * sizeof(float);
  // Each chosen expert's row, kept only for dumps; never part of a normal run.
  const uint64_t yr = config_.dump_moe.empty() ? 0 : slots_per_row * static_cast<uint64_t>(hp.hidden) * sizeof(float);

  plan_.add("resident weights", cpu::Backend::weight_bytes(model_, program_));
  plan_.add(kStateLine, Session::state_bytes(program_));
  plan_.add(kCacheLine, Session::cache_bytes(program_, config_.context));
  plan_.add(kSweepLine, sweep + yr);
  plan_.add(kChunkLine, chunk);
  plan_.add("thread scratch", cpu::Backend::scratch_bytes(model_, program_, config_.threads, rows, config_.context));

  const auto total = static_cast<int64_t>(hp.n_expert) * hp.n_layer;
  const auto least = static_cast<int64_t>(hp.n_expert_used);
  const uint64_t slot = stream::Arena::slot_bytes(table_), have = available_memory();
  const auto slots_in = [&](double bytes) { return static_cast<int64_t>(bytes / static_cast<double>(slot)); };
  if (config_.arena_slots == 0) {
    if (config_.arena_gb > 0)
      config_.arena_slots = slots_in(config_.arena_gb * 1e9);
    else  // what is free now, less the other lines and a tenth as headroom
      config_.arena_slots = have ? std::max(least, slots_in(0.9 * static_cast<double>(have) - static_cast<double>(plan_.total()))) : total;
    if (config_.arena_slots < least)
      throw ConfigError("arena_gb", std::to_string(config_.arena_gb),
                        "at least " + std::to_string(static_cast<double>(slot * static_cast<uint64_t>(least)) / 1e9) +
                            " (one token's " + std::to_string(least) + " experts of " + std::to_string(slot) + " bytes)");
  }
  if (config_.arena_slots < least)
    throw ConfigError("arena_slots", std::to_string(config_.arena_slots), "at least " + std::to_string(least) + " (one token's experts)");
  config_.arena_slots = std::min(config_.arena_slots, total);
  plan_.add("expert arena", slot * static_cast<uint64_t>(config_.arena_slots));
  if (have && plan_.total() > have)
    throw OutOfMemoryPlanError("the memory plan needs " + std::to_string(plan_.total()) + " bytes, " + std::to_string(have) +
                                   " are free; smaller: arena_gb, context, prompt_chunk",
                               plan_.to_text(), plan_.total(), have);
}

std::unique_ptr<Session> Engine::new_session() { return std::make_unique<Session>(program_, model_.hp, plan_, config_.context); }

// Row numbers of the n-gram table for the chunk's tokens, and the rows themselves, decoded.
// Per order o = 2..N and head: m = xor over j < o of context[j] * multiplier[j]; row = m mod rows[q] + offset[q].
void Engine::gather_ngrams(const Session& session, Sweep& sweep, int64_t row0, int64_t rows, cpu::TapSink* taps, PrefillStats& stats) {
  const model::NgramParams& ple = model_.hp.ple;
  const auto heads = static_cast<size_t>(ple.heads());
  const auto past = static_cast<int64_t>(session.recent().size());
  const auto token = [&](int64_t row) {  // row of the sweep; before it, what the session remembers
    return static_cast<uint32_t>(row >= 0 ? sweep.tokens[row] : session.recent()[static_cast<size_t>(past + row)]);
  };
  std::vector<int64_t> ids(static_cast<size_t>(rows) * heads);
  std::vector<uint64_t> context(static_cast<size_t>(ple.ngram));
  for (int64_t t = 0; t < rows; ++t) {
    context[0] = token(row0 + t);
    bool cut = false;
    for (int j = 1; j < ple.ngram; ++j) {
      cut = cut || token(row0 + t - j) == ple.reset_token;
      context[static_cast<size_t>(j)] = cut ? ple.reset_token : token(row0 + t - j);
    }
    for (int o = 2; o <= ple.ngram; ++o) {
      uint64_t m = 0;
      for (int j = 0; j < o; ++j) m ^= context[static_cast<size_t>(j)] * ple.multipliers[static_cast<size_t>(j)];
      for (int e = 0; e < ple.heads_per_ngram; ++e) {
        const auto q = static_cast<size_t>((o - 2) * ple.heads_per_ngram + e);
        ids[static_cast<size_t>(t) * heads + q] = static_cast<int64_t>(m % ple.head_rows[q] + ple.head_offset[q]);
      }
    }
  }
  const model::Weight& table = model_.ple_table;
  std::vector<std::byte> raw(table.row_bytes);
  auto* e = reinterpret_cast<float*>(bindings_.base[static_cast<size_t>(program_.ngram)]);
  for (size_t i = 0; i < ids.size(); ++i) {
    files_.files()[table.where.file].read_exact(raw.data(), table.row_bytes,
                                                table.where.offset + static_cast<uint64_t>(ids[i]) * table.row_bytes);
    quant::dequantize_row(table.type, raw.data(), e + i * static_cast<size_t>(table.cols), table.cols);
  }
  stats.table_rows += ids.size();
  stats.table_bytes += ids.size() * table.row_bytes;
  if (taps && taps->wants("ple_rows", ple.layer)) {
    std::vector<int32_t> narrow(ids.begin(), ids.end());
    taps->rows("ple_rows", ple.layer, sweep.position + row0, rows, static_cast<int64_t>(heads), DType::i32,
               reinterpret_cast<const std::byte*>(narrow.data()), heads * sizeof(int32_t));
  }
}

// All rows of the sweep through the layer's chosen experts.
void Engine::expert_pass(Sweep& sweep, int layer, cpu::TapSink* taps, Cancel& cancel) {
  const model::HParams& hp = model_.hp;
  const model::Experts& experts = model_.layers[static_cast<size_t>(layer)].experts;
  const auto* ids = reinterpret_cast<const int32_t*>(bindings_.base[static_cast<size_t>(program_.ids)]);
  const auto n = static_cast<size_t>(sweep.rows * hp.n_expert_used);

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
  pass.x = reinterpret_cast<const float*>(bindings_.base[static_cast<size_t>(program_.moe_in)]);
  pass.weights = reinterpret_cast<const float*>(bindings_.base[static_cast<size_t>(program_.weights)]);
  pass.out = reinterpret_cast<float*>(bindings_.base[static_cast<size_t>(program_.moe_out)]);
  pass.h = h_;
  pass.rows_out = yr_;

  stream::Groups groups = stream_->at_layer(layer, &cancel);
  std::vector<stream::Expert> group;
  std::vector<cpu::ExpertRun> runs;
  while (groups.next(group)) {
    runs.clear();
    for (const stream::Expert& x : group) {
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
    backend_->experts_gate_up(pass, runs, &cancel);
    backend_->experts_down(pass, runs, &cancel);
  }
  if (yr_) {
    const int64_t cols = int64_t{hp.n_expert_used} * hp.hidden;
    taps->rows("expert_rows", layer, sweep.position, sweep.rows, cols, DType::f32, reinterpret_cast<const std::byte*>(yr_),
               static_cast<uint64_t>(cols) * sizeof(float));
  }
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

  const auto start = std::chrono::steady_clock::now();
  const stream::Counters before = stream_->counters();
  PrefillStats stats;
  std::unique_ptr<Dump> dump;
  if (!config_.dump_moe.empty()) dump = std::make_unique<Dump>(config_.dump_moe, session.position(), hp.n_layer, hp.n_expert_used);
  Taps both(dump.get(), caller_taps);
  cpu::TapSink* taps = dump || caller_taps ? &both : nullptr;

  const int64_t chunk_rows = config_.prompt_chunk, sweep_rows = config_.prompt_chunk;
  const int64_t n_chunk = (total + chunk_rows - 1) / chunk_rows;
  const auto report = [&](int layer, int64_t chunk, int64_t done) {
    cancel.poll();
    if (!progress) return;
    const stream::Counters now = minus(stream_->counters(), before);
    progress({layer, hp.n_layer, chunk, n_chunk, done, total, seconds_since(start), &now});
  };

  try {
    for (int64_t done = 0; done < total;) {
      Sweep sweep;
      sweep.tokens = tokens.data() + done;
      sweep.rows = std::min(sweep_rows, total - done);
      sweep.position = session.position();
      session.bind(bindings_);

      const auto each_chunk = [&](auto&& fn) {
        for (int64_t row0 = 0; row0 < sweep.rows; row0 += chunk_rows) {
          Frame f;
          f.rows = std::min(chunk_rows, sweep.rows - row0);
          f.row0 = row0;
          f.position = sweep.position + row0;
          f.first_chunk = row0 == 0;
          f.tokens = sweep.tokens + row0;
          fn(f);
        }
      };
      Frame whole;
      whole.rows = sweep.rows;
      whole.position = sweep.position;

      each_chunk([&](const Frame& f) { backend_->run(program_.embed, f, bindings_, taps, &cancel); });
      for (int layer = 0; layer < hp.n_layer; ++layer) {
        each_chunk([&](const Frame& f) {
          if (layer == hp.ple.layer) gather_ngrams(session, sweep, f.row0, f.rows, taps, stats);
          backend_->run(program_.mixer[static_cast<size_t>(layer)], f, bindings_, taps, &cancel);
          const auto* ids = reinterpret_cast<const int32_t*>(bindings_.base[static_cast<size_t>(program_.ids)]);
          stream_->note(layer, {ids + f.row0 * hp.n_expert_used, static_cast<size_t>(f.rows * hp.n_expert_used)}, {});
        });
        expert_pass(sweep, layer, taps, cancel);
        backend_->run(program_.experts[static_cast<size_t>(layer)], whole, bindings_, taps, &cancel);
        report(layer + 1, done / chunk_rows, done);
      }

      // The head runs on the rows whose logits are wanted, and writes to the caller's memory.
      const bool last_sweep = done + sweep.rows == total;
      int64_t row = mode == LogitsMode::All ? 0 : mode == LogitsMode::Last && last_sweep ? sweep.rows - 1 : sweep.rows;
      while (row < sweep.rows) {
        Frame f;
        f.rows = std::min(chunk_rows, sweep.rows - row);
        f.row0 = row;
        f.position = sweep.position + row;
        float* to = mode == LogitsMode::All ? logits + (done + row) * hp.n_vocab : logits;
        bindings_.base[static_cast<size_t>(program_.logits)] = reinterpret_cast<std::byte*>(to);
        backend_->run(program_.head, f, bindings_, taps, &cancel);
        row += f.rows;
      }
      session.commit(sweep.tokens, sweep.rows);
      done += sweep.rows;
      ++stats.sweeps;
      if (dump) dump->commit(done);
      report(hp.n_layer, (done + chunk_rows - 1) / chunk_rows, done);
    }
  } catch (...) {
    stream_->abandon();
    throw;
  }
  stats.tokens = total;
  stats.chunks = n_chunk;
  stats.seconds = seconds_since(start);
  stats.experts = minus(stream_->counters(), before);
  return stats;
}

}  // namespace strata::window
