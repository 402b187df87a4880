#include "model/claims.h"

#include <span>

#include "base/error.h"
#include "gguf/text.h"
#include "model/kinds.h"
#include "quant/types.h"

namespace strata::model {

using gguf::quote;

namespace {

Weight rows_of(const gguf::Tensor& t, int64_t first, int64_t rows) {
  Weight w;
  w.name = t.name;
  w.type = t.type;
  w.rows = rows;
  w.cols = static_cast<int64_t>(t.ne[0]);
  w.row_bytes = quant::row_bytes(*quant::type_info(t.type), t.ne[0]);
  w.where = {t.where.file, t.where.offset + static_cast<uint64_t>(first) * w.row_bytes,
             static_cast<uint64_t>(rows) * w.row_bytes};
  return w;
}

// `rows` 0: any number.
std::string wanted_shape(int64_t cols, int64_t rows, int64_t matrices) {
  std::vector<std::string> dims{std::to_string(cols)};
  if (rows != 1 || matrices != 1) dims.push_back(rows ? std::to_string(rows) : "any");
  if (matrices != 1) dims.push_back(std::to_string(matrices));
  std::string s;
  for (const auto& d : dims) s += (s.empty() ? "[" : ", ") + d;
  return s + "]";
}

std::string names_text(const std::vector<std::string>& names) {
  constexpr size_t kMax = 5;
  std::string s;
  for (size_t i = 0; i < names.size() && i < kMax; ++i) s += (i ? ", " : "") + names[i];
  if (names.size() > kMax) s += " and " + std::to_string(names.size() - kMax) + " more";
  return s;
}

}  // namespace

Claims::Claims(const gguf::FileSet& files, Model& model) : files_(files), model_(model) {
  model_.placement.assign(files.tensors().size(), Placement::Unused);
}

void Claims::fail(const gguf::Tensor& t, const std::string& what) const {
  throw ModelFormatError("tensor " + quote(t.name) + " " + what, files_.files()[t.where.file].path(), t.entry_offset);
}

const gguf::Tensor* Claims::claim(const std::string& name, int64_t cols, int64_t rows, int64_t matrices, Placement how,
                                  bool floats) {
  const gguf::Tensor* t = files_.find(name);
  if (!t) {
    missing_.push_back(quote(name) + " " + wanted_shape(cols, rows, matrices));
    return nullptr;
  }
  // A dimension that is not there counts as 1, so a trailing 1 may be there or not.
  const bool same = t->ne[0] == static_cast<uint64_t>(cols) && (rows == 0 || t->ne[1] == static_cast<uint64_t>(rows)) &&
                    t->ne[2] == static_cast<uint64_t>(matrices) && t->ne[3] == 1;
  if (!same)
    fail(*t, "has the shape " + gguf::shape_text(std::span(t->ne).first(t->n_dims)) + ", expected is " +
                 wanted_shape(cols, rows, matrices));
  if (!quant::type_info(t->type)) fail(*t, "has the type " + gguf::type_name(t->type) + ", which no weight can have");
  if (floats && t->type != quant::kF32 && t->type != quant::kF16 && t->type != quant::kBF16)
    fail(*t, "has the type " + gguf::type_name(t->type) + ", must be F32, F16 or BF16");
  model_.placement[static_cast<size_t>(t - files_.tensors().data())] = how;
  return t;
}

WeightId Claims::add(Weight w) {
  model_.weights.push_back(std::move(w));
  return static_cast<WeightId>(model_.weights.size() - 1);
}

WeightId Claims::matrix(const std::string& name, int64_t cols, int64_t rows) {
  const auto* t = claim(name, cols, rows, 1, Placement::Resident, false);
  return t ? add(rows_of(*t, 0, rows)) : -1;
}

WeightId Claims::float_rows(const std::string& name, int64_t cols, int64_t rows) {
  const auto* t = claim(name, cols, rows, 1, Placement::Resident, true);
  return t ? add(rows_of(*t, 0, rows)) : -1;
}

std::vector<WeightId> Claims::stacked(const std::string& name, int64_t cols, std::initializer_list<int64_t> rows) {
  int64_t all = 0, first = 0;
  for (const int64_t n : rows) all += n;
  const auto* t = claim(name, cols, all, 1, Placement::Resident, false);
  std::vector<WeightId> ids;
  for (const int64_t n : rows) {
    ids.push_back(t ? add(rows_of(*t, first, n)) : -1);
    first += n;
  }
  return ids;
}

std::vector<ExpertMatrix> Claims::experts(const std::string& name, int64_t cols, int64_t rows, int64_t n_expert,
                                          int parts) {
  std::vector<ExpertMatrix> out(static_cast<size_t>(parts));
  const auto* t = claim(name, cols, parts * rows, n_expert, Placement::Streamed, false);
  if (!t) return out;
  for (int i = 0; i < parts; ++i) {
    const Weight w = rows_of(*t, i * rows, rows);
    ExpertMatrix& m = out[static_cast<size_t>(i)];
    m.name = w.name;
    m.type = w.type;
    m.rows = w.rows;
    m.cols = w.cols;
    m.row_bytes = w.row_bytes;
    m.first = w.where;
    m.stride = static_cast<uint64_t>(parts) * w.where.bytes;
  }
  return out;
}

Weight Claims::table(const std::string& name, int64_t cols) {
  const auto* t = claim(name, cols, 0, 1, Placement::ByRow, false);
  return t ? rows_of(*t, 0, static_cast<int64_t>(t->ne[1])) : Weight{};
}

void Claims::finish() const {
  if (missing_.empty()) return;
  std::vector<std::string> unknown;
  for (size_t i = 0; i < model_.placement.size(); ++i)
    if (const auto& t = files_.tensors()[i];
        model_.placement[i] == Placement::Unused && block_of(t.name) < model_.hp.n_layer) {
      unknown.push_back(quote(t.name) + " " + gguf::shape_text(std::span(t.ne).first(t.n_dims)));
    }
  std::string what =
      (missing_.size() == 1 ? "a tensor is missing: " : std::to_string(missing_.size()) + " tensors are missing: ") +
      names_text(missing_) + "; the file holds " + std::to_string(model_.placement.size()) + " tensors";
  what += unknown.empty() ? ", all with known names"
                          : ", of which these have other names than expected: " + names_text(unknown);
  throw ModelFormatError(
      what + ". It is not cut off: it is another dialect of the architecture, or was converted wrongly",
      files_.files()[0].path());
}

}  // namespace strata::model
