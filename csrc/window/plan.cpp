#include "window/plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/pool.h"
#include "cpu/backend.h"
#include "stream/source.h"
#include "window/session.h"

namespace strata::window {

using program::Buffer;
using program::Scope;

namespace {

constexpr int64_t kAutoContext = 32768, kLeastContext = 4096, kLeastChunk = 256;  // automatic sizes, most and least
constexpr int64_t kAutoSweep = 16384;  // rows at most: a cancelled sweep is work lost
constexpr double kHeadroom = 0.1;      // of the available memory, left to others when the arena is sized automatically

// Python with its libraries, and the vocabulary as it is read and held by the tokenizer: measured peaks. This memory is
// not taken through the plan, but it is the process's all the same.
constexpr uint64_t kProcess = 40'000'000, kPerToken = 1000;

// A longer chunk reads each layer's experts for more rows, and takes more memory.
int64_t chunk_for(uint64_t available) { return available >= 96e9 ? 4096 : available >= 24e9 ? 2048 : 1024; }

void one_of(const char* knob, const std::string& value, std::initializer_list<const char*> allowed) {
  std::string list;
  for (const char* a : allowed) {
    if (value == a) return;
    list += (list.empty() ? "" : ", ") + std::string(a);
  }
  throw ConfigError(knob, value, list);
}

void in_range(const char* knob, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) throw ConfigError(knob, std::to_string(value), std::to_string(low) + " to " + std::to_string(high));
}

std::string gb(double bytes) {
  char s[32];
  std::snprintf(s, sizeof s, "%.3f GB", bytes / 1e9);
  return s;
}

// Sweep buffers for `rows` rows: the program's, the SwiGLU outputs [rows, K, width], the raw n-gram rows, and, for dumps
// only, every chosen expert's output row [rows, K, hidden].
uint64_t sweep_bytes(const model::Model& m, const program::Program& p, const Plan& plan, int64_t rows) {
  const auto slots = static_cast<uint64_t>(rows * m.hp.n_expert_used);
  uint64_t sum = buffer_bytes(p, Scope::Sweep, rows) + aligned(slots * static_cast<uint64_t>(m.hp.expert_width) * sizeof(float));
  if (!plan.config.dump_moe.empty()) sum += aligned(slots * static_cast<uint64_t>(m.hp.hidden) * sizeof(float));
  return sum + aligned(static_cast<uint64_t>(rows) * plan.ngram_row_bytes);
}

}  // namespace

stream::ExpertTable expert_table(const model::Model& m) {
  stream::ExpertTable t;
  t.n_expert = m.hp.n_expert;
  t.n_used = m.hp.n_expert_used;
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

uint64_t buffer_bytes(const program::Program& program, Scope scope, int64_t rows) {
  uint64_t sum = 0;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& b = program.buffers[i];
    if (b.scope == scope && static_cast<program::BufferId>(i) != program.logits) sum += aligned(static_cast<uint64_t>(rows) * b.row_bytes());
  }
  return sum;
}

Plan make_plan(const model::Model& model, const program::Program& program, const EngineConfig& config, uint64_t available) {
  const model::HParams& hp = model.hp;
  Plan plan;
  plan.config = config;
  plan.available = available;
  EngineConfig& c = plan.config;
  one_of("activations", c.activations, {"auto", "int16", "int8", "f32"});
  one_of("kv_type", c.kv_type, {"auto", "f16", "f32"});
  one_of("backend", c.backend, {"cpu", "reference"});
  one_of("direct_io", c.direct_io, {"auto", "on", "off"});
  in_range("prompt_chunk", c.prompt_chunk, 0, 65536);
  in_range("prompt_sweep", c.prompt_sweep, 0, 1 << 20);
  in_range("threads", c.threads, 0, 1024);
  in_range("io_threads", c.io_threads, 0, 256);
  in_range("prompt_pred", c.prompt_pred, -1, 2);
  in_range("prompt_pred_min", c.prompt_pred_min, 1, 1 << 20);
  in_range("arena_slots", c.arena_slots, 0, int64_t{1} << 30);
  in_range("qsa_ratio", c.qsa_ratio, 0, 1 << 20);
  in_range("context", c.context, 0, hp.context_length);
  if (!(c.arena_gb >= 0 && c.arena_gb < 1e6)) throw ConfigError("arena_gb", std::to_string(c.arena_gb), "0 to 1000000");
  if (c.arena_gb > 0 && c.arena_slots > 0) throw ConfigError("arena_slots", std::to_string(c.arena_slots), "0 when arena_gb is given");
  if (c.threads == 0) c.threads = allowed_cpus();
  if (c.io_threads == 0) c.io_threads = 4;  // enough for the drives seen so far (docs/learned.md)
  if (c.kv_type == "auto") c.kv_type = c.activations == "f32" ? "f32" : "f16";
  if (c.backend == "reference") c.activations = "f32";
  if (c.activations == "auto") c.activations = "int16";
  if (hp.ple.layer >= 0) plan.ngram_row_bytes = static_cast<uint64_t>(hp.ple.heads()) * model.ple_table.row_bytes;

  // Automatic context and chunk: the largest that leave the arena what was asked for, or two layers' experts (one in use,
  // one being read). First the chunk gives way, then the context.
  const stream::ExpertTable table = expert_table(model);
  const double usable = available ? (1 - kHeadroom) * static_cast<double>(available) : 0;
  const bool auto_context = c.context == 0, auto_chunk = c.prompt_chunk == 0;
  if (auto_context) c.context = std::min(hp.context_length, kAutoContext);
  if (auto_chunk) c.prompt_chunk = chunk_for(available);
  uint64_t slot = 0;
  for (int l = 0; l < hp.n_layer; ++l) slot = std::max(slot, stream::slot_layout(table, l, stream::Source::kAlignment).bytes);
  const double slots = c.arena_slots > 0 ? static_cast<double>(c.arena_slots) : 1.0 * hp.n_expert * std::min(2, hp.n_layer);
  const double arena = c.arena_gb > 0 ? c.arena_gb * 1e9 : static_cast<double>(slot) * slots;
  const auto lines = [&](int64_t chunk, int64_t sweep) {
    MemoryPlan m;
    m.add(kProcessLine, kProcess + kPerToken * static_cast<uint64_t>(hp.n_vocab));
    m.add(kWeightLine, cpu::Backend::weight_bytes(model, program));
    m.add(kStateLine, Session::state_bytes(program));
    m.add(kCacheLine, Session::cache_bytes(program, c.context));
    m.add(kScratchLine, cpu::Backend::scratch_bytes(model, program, c.threads, chunk, c.context));
    m.add(kSweepLine, sweep_bytes(model, program, plan, sweep));
    m.add(kChunkLine, buffer_bytes(program, Scope::Chunk, chunk));
    return m;
  };
  const auto chunk = [&] { return std::min(c.prompt_chunk, c.context); };
  const auto least_total = [&] { return static_cast<double>(lines(chunk(), c.prompt_sweep ? c.prompt_sweep : chunk()).total()); };
  while (available && least_total() + arena > usable) {
    if (auto_chunk && c.prompt_chunk > kLeastChunk)
      c.prompt_chunk /= 2;
    else if (auto_context && c.context > kLeastContext)
      c.context = std::max(kLeastContext, c.context / 2);
    else
      break;
  }
  c.prompt_chunk = chunk();

  plan.auto_sweep = c.prompt_sweep == 0;
  if (plan.auto_sweep) {
    // An eighth of what is left goes to the sweep: every doubling of it halves what a long prompt reads.
    const double left = usable - static_cast<double>(lines(c.prompt_chunk, 0).total());
    const double per_row = static_cast<double>(sweep_bytes(model, program, plan, 1024)) / 1024;
    const auto rows = static_cast<int64_t>(std::min(left / 8 / per_row, static_cast<double>(kAutoSweep)));
    c.prompt_sweep = std::max(c.prompt_chunk, rows / c.prompt_chunk * c.prompt_chunk);
  }
  c.prompt_sweep = std::min(c.prompt_sweep, c.context);
  c.prompt_chunk = std::min(c.prompt_chunk, c.prompt_sweep);
  plan.memory = lines(c.prompt_chunk, c.prompt_sweep);
  MemoryPlan& m = plan.memory;

  // The arena: at least one token's experts in every size class.
  const int least = hp.n_expert_used;
  const stream::ArenaPlan smallest = stream::plan_arena(table, 1, 0, least, stream::Source::kAlignment);
  if (c.arena_slots > 0) {
    if (c.arena_slots < smallest.total())
      throw ConfigError("arena_slots", std::to_string(c.arena_slots), "at least " + std::to_string(smallest.total()) + " for this model (one token's experts)");
    plan.arena = stream::plan_arena(table, c.arena_slots, 0, least, stream::Source::kAlignment);
  } else {
    double bytes = c.arena_gb * 1e9;
    if (bytes > 0 && bytes < static_cast<double>(smallest.bytes))
      throw ConfigError("arena_gb", std::to_string(c.arena_gb), "at least " + gb(static_cast<double>(smallest.bytes)) + " for this model (" + std::to_string(smallest.total()) + " experts)");
    if (bytes == 0) bytes = available ? usable - static_cast<double>(m.total()) : 1e18;
    plan.arena = stream::plan_arena(table, 0, std::max(bytes, 0.0), least, stream::Source::kAlignment);
  }
  c.arena_slots = plan.arena.total();
  c.arena_gb = static_cast<double>(plan.arena.bytes) / 1e9;
  if (c.stream_fake)  // each layer computes with experts of its own
    plan.arena = stream::plan_arena(table, c.arena_slots, 0, std::max(least, hp.n_layer), stream::Source::kAlignment);
  m.add(stream::kArenaLine, plan.arena.bytes);
  if (available && m.total() > available)
    throw OutOfMemoryPlanError("the memory plan needs " + gb(static_cast<double>(m.total())) + ", " + gb(static_cast<double>(available)) +
                                   " are available; smaller: arena_gb (at least " + gb(static_cast<double>(smallest.bytes)) + "), context, prompt_sweep, prompt_chunk",
                               m.to_text(), m.total(), available);
  return plan;
}

}  // namespace strata::window
