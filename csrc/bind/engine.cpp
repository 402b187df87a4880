// Engine and Session for Python. The GIL is released while the core works and taken back to look for signals, to report
// progress and to hand over rows.
#include "window/engine.h"

#include <map>
#include <memory>
#include <set>

#include "bind/bind.h"

namespace strata::bind {

namespace {

using window::Engine;
using window::EngineConfig;
using window::LogitsMode;
using window::Session;

// Closing takes effect at once: the engine's threads end and its memory goes back even while Python still holds sessions of
// it, which say that they are closed. A call that is running keeps its engine and session until it returns.
struct SessionSlot {
  std::shared_ptr<Session> session;
};
struct EngineSlot {
  std::shared_ptr<Engine> engine;
  std::vector<std::weak_ptr<SessionSlot>> sessions;
  ~EngineSlot() { close(); }
  void close() {
    for (const auto& weak : sessions)
      if (const auto slot = weak.lock()) slot->session.reset();  // before the engine whose plan it gives memory back to
    sessions.clear();
    engine.reset();
  }
};
struct EngineHandle {
  std::shared_ptr<EngineSlot> slot;
  std::shared_ptr<Engine> get() const {
    if (!slot->engine) throw InputError("the model is closed");
    return slot->engine;
  }
};
struct SessionHandle {
  std::shared_ptr<EngineSlot> engine;  // keeps the engine alive as long as the session is
  std::shared_ptr<SessionSlot> slot;
  std::shared_ptr<Session> get() const {
    if (!slot->session) throw InputError(engine->engine ? "the session is closed" : "the model is closed");
    return slot->session;
  }
  void close() const { slot->session.reset(); }
};

// Ctrl-C while the core works: Python's own handler raises KeyboardInterrupt here, and the core unwinds with it.
void look_for_signals() {
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Collects rows per tap for one call, in token order. `names`: of which taps; empty = all.
class Collector : public cpu::TapSink {
 public:
  explicit Collector(std::set<std::string> names) : names_(std::move(names)) {}
  bool wants(const char* tap, int /*layer*/) const override { return names_.empty() || names_.count(tap) > 0; }
  void rows(const char* tap, int layer, int64_t /*first*/, int64_t rows, int64_t cols, program::DType dtype, const std::byte* data,
            uint64_t stride) override {
    const std::string name = layer < 0 || std::string(tap) == "ple_rows" ? tap : "L" + std::to_string(layer) + "/" + tap;
    Table& t = tables_[name];
    t.cols = cols;
    t.dtype = dtype;
    const auto bytes = static_cast<size_t>(cols) * program::dtype_bytes(dtype);
    for (int64_t r = 0; r < rows; ++r) {
      const std::byte* p = data + static_cast<uint64_t>(r) * stride;
      t.data.insert(t.data.end(), p, p + bytes);
    }
  }
  void into(const py::dict& out) const {
    for (const auto& [name, t] : tables_) {
      const auto cols = static_cast<py::ssize_t>(t.cols);
      const auto rows = static_cast<py::ssize_t>(t.data.size() / program::dtype_bytes(t.dtype)) / cols;
      if (t.dtype == program::DType::i32)
        out[py::str(name)] = py::array_t<int32_t>({rows, cols}, reinterpret_cast<const int32_t*>(t.data.data()));
      else
        out[py::str(name)] = py::array_t<float>({rows, cols}, reinterpret_cast<const float*>(t.data.data()));
    }
  }

 private:
  struct Table {
    int64_t cols = 0;
    program::DType dtype = program::DType::f32;
    std::vector<std::byte> data;
  };
  std::set<std::string> names_;
  std::map<std::string, Table> tables_;
};

template <class T>
void take(const py::dict& config, const char* name, T& value) {
  if (config.contains(name) && !config[name].is_none()) value = config[name].cast<T>();
}

EngineConfig config_from(const py::dict& d) {
  EngineConfig c;
  take(d, "activations", c.activations);
  take(d, "kv_type", c.kv_type);
  take(d, "backend", c.backend);
  take(d, "isa", c.isa);
  take(d, "context", c.context);
  take(d, "prompt_sweep", c.prompt_sweep);
  take(d, "io_threads", c.io_threads);
  take(d, "prompt_pred", c.prompt_pred);
  take(d, "prompt_pred_min", c.prompt_pred_min);
  take(d, "ple_async", c.ple_async);
  take(d, "direct_io", c.direct_io);
  take(d, "stream_fake", c.stream_fake);
  take(d, "ram_gb", c.ram_gb);
  take(d, "sweep_seconds", c.sweep_seconds);
  take(d, "fault_delay_us", c.fault_delay_us);
  take(d, "fault_eio_at", c.fault_eio_at);
  take(d, "fault_short_reads", c.fault_short_reads);
  take(d, "prompt_chunk", c.prompt_chunk);
  take(d, "arena_gb", c.arena_gb);
  take(d, "arena_slots", c.arena_slots);
  take(d, "threads", c.threads);
  take(d, "profile", c.profile);
  take(d, "qsa_ratio", c.qsa_ratio);
  if (d.contains("dump_moe") && !d["dump_moe"].is_none()) c.dump_moe = fs_bytes(d["dump_moe"]);
  if (d.contains("trace") && !d["trace"].is_none()) c.trace = fs_bytes(d["trace"]);
  return c;
}

py::dict info_of(const Engine& e) {
  const model::HParams& hp = e.model().hp;
  py::dict d;
  d["n_layer"] = hp.n_layer;
  d["n_vocab"] = hp.n_vocab;
  d["hidden"] = hp.hidden;
  d["context_length"] = hp.context_length;
  d["n_expert"] = hp.n_expert;
  d["n_expert_used"] = hp.n_expert_used;
  d["experts_total"] = int64_t{hp.n_expert} * hp.n_layer;
  return d;
}

py::object path_or_none(const std::string& path) {
  if (path.empty()) return py::none();
  return py::reinterpret_steal<py::object>(PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<py::ssize_t>(path.size())));
}

py::dict config_dict(const EngineConfig& c) {
  py::dict d;
  d["activations"] = c.activations;
  d["kv_type"] = c.kv_type;
  d["backend"] = c.backend;
  d["isa"] = c.isa;
  d["context"] = c.context;
  d["prompt_chunk"] = c.prompt_chunk;
  d["prompt_sweep"] = c.prompt_sweep;
  d["arena_slots"] = c.arena_slots;
  d["arena_gb"] = c.arena_gb;
  d["threads"] = c.threads;
  d["io_threads"] = c.io_threads;
  d["prompt_pred"] = c.prompt_pred;
  d["prompt_pred_min"] = c.prompt_pred_min;
  d["ple_async"] = c.ple_async;
  d["direct_io"] = c.direct_io;
  d["stream_fake"] = c.stream_fake;
  d["qsa_ratio"] = c.qsa_ratio;
  d["trace"] = path_or_none(c.trace);
  d["dump_moe"] = path_or_none(c.dump_moe);
  return d;
}

py::dict effective_of(const Engine& e) {
  py::dict d = config_dict(e.effective());
  d["isa"] = e.isa();
  return d;
}

py::list lines_of(const MemoryPlan& plan) {
  py::list l;
  for (const MemoryPlan::Line& line : plan.lines()) l.append(py::make_tuple(line.name, line.bytes));
  return l;
}

py::dict counters_dict(const stream::Counters& c) {
  py::dict d;
  d["lookups"] = c.lookups;
  d["resident"] = c.resident;
  d["ahead"] = c.ahead;
  d["missed"] = c.missed;
  d["issued"] = c.issued;
  d["used"] = c.used;
  d["wasted"] = c.wasted;
  d["cancelled"] = c.cancelled;
  d["reads"] = c.reads;
  d["bytes_read"] = c.bytes;
  d["late"] = c.late;
  d["pending"] = c.pending;
  d["exposed_seconds"] = c.exposed_seconds;
  d["read_seconds"] = c.read_seconds;
  return d;
}

py::tuple prefill(EngineHandle& handle, SessionHandle& session, const py::array_t<int32_t, py::array::c_style>& tokens,
                  const std::string& logits, const py::object& progress, const py::object& taps,
                  const std::set<std::string>& tap_names) {
  const std::shared_ptr<Engine> engine_held = handle.get();
  const std::shared_ptr<Session> session_held = session.get();
  Engine& engine = *engine_held;
  Session& s = *session_held;
  if (session.engine != handle.slot) throw InputError("the session belongs to another model");
  if (tokens.ndim() != 1) throw InputError("tokens have " + std::to_string(tokens.ndim()) + " dimensions; 1 is wanted");
  const LogitsMode mode = logits == "last" ? LogitsMode::Last : logits == "all" ? LogitsMode::All : LogitsMode::None;
  if (mode == LogitsMode::None && logits != "none") throw ConfigError("logits", logits, "last, all, none");

  const py::ssize_t vocab = engine.model().hp.n_vocab;
  py::object out = py::none();
  float* to = nullptr;
  if (mode != LogitsMode::None) {
    py::array_t<float> a = mode == LogitsMode::All ? py::array_t<float>({tokens.size(), vocab}) : py::array_t<float>(vocab);
    to = a.mutable_data();
    out = a;
  }
  Collector collector(tap_names);
  std::function<void(const window::Progress&)> report;
  if (!progress.is_none())
    report = [&](const window::Progress& p) {
      const py::gil_scoped_acquire gil;
      py::dict d = counters_dict(p.experts);
      d["layer"] = p.layer;
      d["n_layer"] = p.n_layer;
      d["chunk"] = p.chunk;
      d["n_chunk"] = p.n_chunk;
      d["tokens_done"] = p.tokens_done;
      d["tokens"] = p.tokens;
      d["sweep_tokens"] = p.sweep_tokens;
      d["seconds"] = p.seconds;
      progress(d);
    };
  Cancel cancel;
  cancel.hook = look_for_signals;
  window::PrefillStats stats;
  {
    const py::gil_scoped_release release;
    stats = engine.prefill(s, {tokens.data(), static_cast<size_t>(tokens.size())}, mode, to, report,
                           taps.is_none() ? nullptr : &collector, cancel);
  }
  if (!taps.is_none()) collector.into(taps.cast<py::dict>());
  py::dict d = counters_dict(stats.experts);
  d["tokens"] = stats.tokens;
  d["chunks"] = stats.chunks;
  d["sweeps"] = stats.sweeps;
  d["seconds"] = stats.seconds;
  d["tokens_per_second"] = stats.seconds > 0 ? static_cast<double>(stats.tokens) / stats.seconds : 0.0;
  d["exposed_by_layer"] = stats.exposed_by_layer;
  d["stream_fake"] = stats.fake;
  d["not_finite_layer"] = stats.not_finite_layer < 0 ? py::object(py::none()) : py::object(py::int_(stats.not_finite_layer));
  d["table_rows"] = stats.table_rows;
  d["table_reads"] = stats.table_reads;
  d["table_wait_seconds"] = stats.table_wait_seconds;
  d["table_bytes"] = stats.table_bytes;
  return py::make_tuple(out, d);
}

}  // namespace

void init_engine(py::module_& m) {
  py::class_<SessionHandle>(m, "Session")
      .def_property_readonly("position", [](const SessionHandle& s) { return s.get()->position(); })
      .def_property_readonly("context", [](const SessionHandle& s) { return s.get()->context(); })
      .def_property_readonly("closed", [](const SessionHandle& s) { return !s.slot->session; })
      .def("close", &SessionHandle::close)
      .def("state", [](const SessionHandle& s, const std::string& name) {
        int64_t rows = 0, cols = 0;
        const std::shared_ptr<Session> held = s.get();
        const float* p = held->state(name, rows, cols);
        if (!p) throw InputError("the session has no state \"" + name + "\"");
        return py::array_t<float>({static_cast<py::ssize_t>(rows), static_cast<py::ssize_t>(cols)}, p);
      });

  py::class_<EngineHandle>(m, "Engine")
      .def(py::init([](const py::object& path, const py::dict& config) {
             const std::string file = fs_bytes(path);
             const EngineConfig c = config_from(config);
             Cancel cancel;
             cancel.hook = look_for_signals;
             const py::gil_scoped_release release;
             auto slot = std::make_shared<EngineSlot>();
             slot->engine = std::make_shared<Engine>(file, c, &cancel);
             return EngineHandle{slot};
           }),
           py::arg("path"), py::arg("config"))
      .def("close", [](const EngineHandle& e) { e.slot->close(); })
      .def_property_readonly("info", [](const EngineHandle& e) { return info_of(*e.get()); })
      .def_property_readonly("warnings", [](const EngineHandle& e) { return e.get()->warnings(); })
      .def_property_readonly("effective", [](const EngineHandle& e) { return effective_of(*e.get()); })
      .def("popularity",
           [](const EngineHandle& e) {
             const std::shared_ptr<Engine> held = e.get();
             const std::vector<double> shares = held->popularity();
             return py::array_t<double>({static_cast<py::ssize_t>(held->model().hp.n_layer), static_cast<py::ssize_t>(held->model().hp.n_expert)},
                                        shares.data());
           })
      .def("set_popularity",
           [](const EngineHandle& e, const py::array_t<double, py::array::c_style | py::array::forcecast>& shares) {
             e.get()->set_popularity({shares.data(), shares.data() + shares.size()});
           })
      .def("profile",
           [](const EngineHandle& e) {
             py::list rows;
             if (cpu::Profile* profile = e.get()->backend().profile()) {
               for (const auto& [key, entry] : profile->entries())
                 rows.append(py::make_tuple(key.first, key.second, entry.count, entry.seconds, entry.macs, entry.bytes));
               profile->clear();
             }
             return rows;
           },
           "(op, kernel, count, seconds, multiply-adds, weight bytes) since the last call; empty unless the config says profile.")
      .def("peak",
           [](const EngineHandle& e) {
             const cpu::Peak p = e.get()->backend().peak();
             return py::make_tuple(p.integer, p.f32, p.memory);
           },
           "Measured: 1e9 integer and float multiply-adds a second, 1e9 bytes a second read; all threads.")
      .def_property_readonly("plan", [](const EngineHandle& e) { return lines_of(e.get()->plan().memory); })
      .def("program",
           [](const EngineHandle& e) {
             const std::shared_ptr<Engine> held = e.get();
             const program::Program& p = held->program();
             std::string s = to_text(p, p.embed);
             for (size_t i = 0; i < p.mixer.size(); ++i) s += to_text(p, p.mixer[i]) + to_text(p, p.experts[i]);
             return s + to_text(p, p.head);
           })
      .def("session",
           [](const EngineHandle& e) {
             auto slot = std::make_shared<SessionSlot>();
             slot->session = e.get()->new_session();
             std::erase_if(e.slot->sessions, [](const auto& weak) { return weak.expired(); });
             e.slot->sessions.push_back(slot);
             return SessionHandle{e.slot, slot};
           })
      .def("prefill", &prefill, py::arg("session"), py::arg("tokens"), py::arg("logits") = "last", py::arg("progress") = py::none(),
           py::arg("taps") = py::none(), py::arg("tap_names") = std::set<std::string>());

  // The memory plan of a load, from the file's header alone: lines, the values in force, the memory it was made for.
  m.def(
      "memory_plan",
      [](const py::object& path, const py::dict& config) {
        const std::string file = fs_bytes(path);
        const EngineConfig c = config_from(config);
        window::Plan plan;
        {
          const py::gil_scoped_release release;
          plan = Engine::plan_only(file, c);
        }
        py::dict d;
        d["lines"] = lines_of(plan.memory);
        d["config"] = config_dict(plan.config);
        d["available"] = plan.available;
        return d;
      },
      py::arg("path"), py::arg("config"));
}

}  // namespace strata::bind
