#include "window/damage.h"

#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "quant/quant.h"

namespace strata::window {

namespace {

// Index of the first value that is NaN or infinite, n when there is none.
int64_t first_not_finite(const float* x, int64_t n) {
  int64_t i = 0;
  while (i < n && std::isfinite(x[i])) ++i;
  return i;
}

// A matrix as it lies in the file; `expert` -1 when it is no expert's.
struct Stored {
  const std::string& name;
  uint32_t type;
  int64_t rows, cols;
  uint64_t row_bytes;
  gguf::Extent where;
  int expert = -1;
};

[[noreturn]] void report(const File& file, const Stored& m, int64_t row, int64_t col, float value) {
  const quant::TypeInfo& type = *quant::type_info(m.type);
  const int64_t block = col / type.block_values;
  const uint64_t offset = m.where.offset + static_cast<uint64_t>(row) * m.row_bytes + static_cast<uint64_t>(block) * type.block_bytes;
  std::string what = "tensor '" + m.name + "'";
  if (m.expert >= 0) what += ", expert " + std::to_string(m.expert);
  what += ", row " + std::to_string(row) + ", block " + std::to_string(block) + " (" + type.name + "): a weight is " +
          (std::isnan(value) ? "NaN" : "infinite") + "; the file is damaged or was quantised from damaged weights";
  throw ModelFormatError(what, file.path(), offset);
}

void check(const gguf::FileSet& files, const Stored& m, Cancel& cancel) {
  cancel.poll();
  const File& file = files.files()[m.where.file];
  std::vector<std::byte> raw(m.row_bytes);
  std::vector<float> row(static_cast<size_t>(m.cols));
  for (int64_t r = 0; r < m.rows; ++r) {
    file.read_exact(raw.data(), m.row_bytes, m.where.offset + static_cast<uint64_t>(r) * m.row_bytes);
    quant::dequantize_row(m.type, raw.data(), row.data(), m.cols);
    const int64_t col = first_not_finite(row.data(), m.cols);
    if (col < m.cols) report(file, m, r, col, row[static_cast<size_t>(col)]);
  }
}

}  // namespace

void find_damage(const gguf::FileSet& files, const model::Model& model, int layer, std::span<const int> experts, Cancel& cancel) {
  for (const int e : experts) {
    const model::Experts& x = model.layers[static_cast<size_t>(layer)].experts;
    for (const model::ExpertMatrix* m : {&x.gate, &x.up, &x.down}) check(files, {m->name, m->type, m->rows, m->cols, m->row_bytes, m->of(e), e}, cancel);
  }
  for (const model::Weight& w : model.weights) check(files, {w.name, w.type, w.rows, w.cols, w.row_bytes, w.where}, cancel);
}

void check_table_row(const gguf::FileSet& files, const model::Weight& table, int64_t row, const float* values) {
  const int64_t col = first_not_finite(values, table.cols);
  if (col < table.cols)
    report(files.files()[table.where.file], {table.name, table.type, table.rows, table.cols, table.row_bytes, table.where}, row, col, values[col]);
}

}  // namespace strata::window
