// GgufFile and model_info: what a file holds, for Python. There is no other parser.
#include "gguf/gguf.h"

#include <filesystem>

#include "bind/bind.h"
#include "model/model.h"

namespace strata::bind {

namespace {

using gguf::FileSet;
using gguf::Kind;

bool is_signed(Kind k) { return k == Kind::i8 || k == Kind::i16 || k == Kind::i32 || k == Kind::i64; }

template <class T, class Items>
py::array array_of(const Items& items) {
  py::array_t<T> out(static_cast<py::ssize_t>(items.size()));
  auto to = out.template mutable_unchecked<1>();
  for (size_t i = 0; i < items.size(); ++i) to(static_cast<py::ssize_t>(i)) = static_cast<T>(items[i]);
  return out;
}

py::object array_value(const gguf::Array& a) {
  if (const auto* s = std::get_if<std::vector<std::string>>(&a.items)) {
    py::list out(s->size());
    for (size_t i = 0; i < s->size(); ++i) out[i] = text((*s)[i]);
    return out;
  }
  if (const auto* f = std::get_if<std::vector<double>>(&a.items))
    return a.kind == Kind::f32 ? array_of<float>(*f) : array_of<double>(*f);
  const auto& n = std::get<std::vector<uint64_t>>(a.items);
  switch (a.kind) {
    case Kind::u8:
      return array_of<uint8_t>(n);
    case Kind::i8:
      return array_of<int8_t>(n);
    case Kind::u16:
      return array_of<uint16_t>(n);
    case Kind::i16:
      return array_of<int16_t>(n);
    case Kind::u32:
      return array_of<uint32_t>(n);
    case Kind::i32:
      return array_of<int32_t>(n);
    case Kind::i64:
      return array_of<int64_t>(n);
    case Kind::boolean:
      return array_of<bool>(n);
    default:
      return array_of<uint64_t>(n);
  }
}

py::object value(const gguf::Value& v) {
  if (const auto* s = std::get_if<std::string>(&v.data)) return text(*s);
  if (const auto* f = std::get_if<double>(&v.data)) return py::float_(*f);
  if (const auto* a = std::get_if<gguf::Array>(&v.data)) return array_value(*a);
  const uint64_t n = std::get<uint64_t>(v.data);
  if (v.kind == Kind::boolean) return py::bool_(n != 0);
  return is_signed(v.kind) ? py::int_(static_cast<int64_t>(n)) : py::int_(n);
}

std::string kind_text(const gguf::Value& v) {
  const auto* a = std::get_if<gguf::Array>(&v.data);
  return a ? std::string("array of ") + kind_name(a->kind) : kind_name(v.kind);
}

py::dict tensor_dict(const gguf::Tensor& t) {
  using namespace py::literals;
  py::tuple ne(t.n_dims);
  for (uint32_t i = 0; i < t.n_dims; ++i) ne[i] = t.ne[i];
  return py::dict("name"_a = text(t.name), "ne"_a = ne, "type"_a = gguf::type_name(t.type), "type_id"_a = t.type,
                  "file"_a = t.where.file, "offset"_a = t.where.offset, "bytes"_a = t.where.bytes);
}

py::list files_list(const FileSet& f) {
  py::list out;
  for (const auto& file : f.files()) out.append(py::make_tuple(text(file.path()), file.size()));
  return out;
}

template <class T>
py::list ints(const std::vector<T>& v) {
  py::list out;
  for (const auto x : v) out.append(py::int_(x));
  return out;
}

py::dict hparams_dict(const model::HParams& h) {
  using namespace py::literals;
  py::dict d("n_layer"_a = h.n_layer, "n_draft_block"_a = h.n_draft_block, "context_length"_a = h.context_length,
             "hidden"_a = h.hidden, "n_vocab"_a = h.n_vocab, "eps"_a = h.eps, "n_head"_a = h.n_head,
             "n_head_kv"_a = h.n_head_kv, "head_dim"_a = h.head_dim, "n_rot"_a = h.n_rot, "rope_base"_a = h.rope_base,
             "index_heads"_a = h.index_heads, "index_dim"_a = h.index_dim, "index_budget"_a = h.index_budget,
             "ratio"_a = ints(h.ratio), "conv_taps"_a = h.conv_taps, "state_dim"_a = h.state_dim,
             "n_key_head"_a = h.n_key_head, "n_value_head"_a = h.n_value_head, "n_expert"_a = h.n_expert,
             "n_expert_used"_a = h.n_expert_used, "expert_width"_a = h.expert_width, "shared_width"_a = h.shared_width,
             "n_stream"_a = h.n_stream, "mix_rank"_a = h.mix_rank);
  py::list recurrent;
  for (const auto r : h.recurrent) recurrent.append(py::bool_(r != 0));
  d["recurrent"] = recurrent;
  if (h.ple.layer >= 0)
    d["ple"] = py::dict("layer"_a = h.ple.layer, "ngram"_a = h.ple.ngram, "heads_per_ngram"_a = h.ple.heads_per_ngram,
                        "conv_taps"_a = h.ple.conv_taps, "reset_token"_a = h.ple.reset_token,
                        "row_width"_a = h.ple.row_width, "multipliers"_a = ints(h.ple.multipliers),
                        "head_offset"_a = ints(h.ple.head_offset), "head_rows"_a = ints(h.ple.head_rows));
  else d["ple"] = py::none();
  return d;
}

// A matrix in its file.
template <class Matrix>
py::dict matrix_dict(const Matrix& w, const gguf::Extent& where) {
  using namespace py::literals;
  return py::dict("name"_a = text(w.name), "type"_a = gguf::type_name(w.type), "rows"_a = w.rows, "cols"_a = w.cols,
                  "file"_a = where.file, "offset"_a = where.offset, "bytes"_a = where.bytes);
}

py::dict expert_dict(const model::ExpertMatrix& m) {
  py::dict d = matrix_dict(m, m.first);
  d["stride"] = m.stride;
  return d;
}

py::dict model_info(const py::object& path, int ratio_override) {
  using namespace py::literals;
  const std::string file = fs_bytes(path);
  std::optional<FileSet> files;
  std::optional<model::Model> m;
  {
    const py::gil_scoped_release release;
    files = FileSet::open(file);
    m = model::Model::from_files(*files, ratio_override);
  }
  py::list tensors;
  for (size_t i = 0; i < files->tensors().size(); ++i) {
    py::dict t = tensor_dict(files->tensors()[i]);
    t["placement"] = model::placement_name(m->placement[i]);
    tensors.append(t);
  }
  py::list weights, experts, expert_bytes;
  for (const auto& w : m->weights) weights.append(matrix_dict(w, w.where));
  for (const auto& l : m->layers) {
    experts.append(py::dict("gate"_a = expert_dict(l.experts.gate), "up"_a = expert_dict(l.experts.up),
                            "down"_a = expert_dict(l.experts.down)));
    expert_bytes.append(l.experts.bytes());
  }
  return py::dict("architecture"_a = value(*files->value("general.architecture")), "version"_a = files->version(),
                  "files"_a = files_list(*files), "hparams"_a = hparams_dict(m->hp), "warnings"_a = m->warnings,
                  "tensors"_a = tensors, "weights"_a = weights, "experts"_a = experts, "expert_bytes"_a = expert_bytes,
                  "tied_output"_a = m->output == m->token_embd, "overhead_bytes"_a = files->overhead_bytes());
}

}  // namespace

void init_gguf(py::module_& m) {
  py::class_<FileSet>(
      m, "GgufFile",
      "The header of a GGUF file, or of a split set opened through its first file. Raises ModelFormatError.")
      .def(py::init([](const py::object& path) {
             const std::string file = fs_bytes(path);
             const py::gil_scoped_release release;
             return FileSet::open(file);
           }),
           py::arg("path"))
      .def_property_readonly("version", &FileSet::version)
      .def_property_readonly("alignment", &FileSet::alignment, "Of the first file, in bytes.")
      .def_property_readonly("files", &files_list, "[(path, size in bytes)]")
      .def(
          "keys",
          [](const FileSet& f) {
            py::list out;
            for (const auto& k : f.keys()) out.append(text(k));
            return out;
          },
          "Metadata keys in file order.")
      .def(
          "value",
          [](const FileSet& f, const py::str& key) -> py::object {
            const auto k = py::cast<std::string>(key.attr("encode")("utf-8", "surrogateescape"));
            const gguf::Value* v = f.value(k);
            if (!v) throw py::key_error(k);
            return value(*v);
          },
          py::arg("key"), "int, float, bool, str, numpy array (numbers) or list of str. Raises KeyError.")
      .def_property_readonly(
          "kinds",
          [](const FileSet& f) {
            py::dict out;
            for (const auto& k : f.keys()) out[text(k)] = kind_text(*f.value(k));
            return out;
          },
          "{key: \"u32\", \"array of string\", ...}")
      .def_property_readonly(
          "tensors",
          [](const FileSet& f) {
            py::list out;
            for (const auto& t : f.tensors()) out.append(tensor_dict(t));
            return out;
          },
          "[{name, ne (ne[0] contiguous), type, type_id, file (index), offset (in that file), bytes}] in file order.")
      .def_property_readonly("overhead_bytes", &FileSet::overhead_bytes,
                             "Bytes of the files that belong to no tensor.");

  m.def(
      "model_info", &model_info, py::arg("path"), py::arg("ratio_override") = 0,
      "Everything about a model file but its weights' values. Dict of architecture, version, files, hparams, "
      "warnings,\n"
      "tensors (as GgufFile.tensors, each with its placement), weights (resident matrices with their extents), "
      "experts\n"
      "(per layer gate, up and down: the extent of expert 0 and the stride to the next), expert_bytes (of one expert,\n"
      "per layer), tied_output, overhead_bytes. Raises ModelFormatError, ConfigError.");
}

}  // namespace strata::bind
