// Takes tensors by name for a model under construction: checks shape and type, notes placement, and keeps account of
// what is missing, so that one message can name everything.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace strata::model {

class Claims {
 public:
  Claims(const gguf::FileSet& files, Model& model);

  bool has(const std::string& name) const { return files_.find(name) != nullptr; }

  // A weight of `rows` rows of `cols` values; adds it to Model::weights as resident. -1 when it is missing (finish
  // throws).
  WeightId matrix(const std::string& name, int64_t cols, int64_t rows);
  // The same for rows that are never stored in blocks (convolutions, and vectors as one row): F32, F16 or BF16.
  WeightId float_rows(const std::string& name, int64_t cols, int64_t rows);
  WeightId float_vector(const std::string& name, int64_t values) { return float_rows(name, values, 1); }
  // Consecutive matrices stacked by rows in one tensor [cols, sum of rows].
  std::vector<WeightId> stacked(const std::string& name, int64_t cols, std::initializer_list<int64_t> rows);
  // Routed experts, streamed: `parts` matrices [cols, rows] per expert stacked in one tensor [cols, parts * rows,
  // experts].
  std::vector<ExpertMatrix> experts(const std::string& name, int64_t cols, int64_t rows, int64_t n_expert,
                                    int parts = 1);
  // A table whose number of rows is the tensor's own, read by row. rows == 0 when it is missing.
  Weight table(const std::string& name, int64_t cols);

  // Throws when anything was missing.
  void finish() const;

  // Fails with the file and entry of a tensor that is there.
  [[noreturn]] void fail(const gguf::Tensor& t, const std::string& what) const;

 private:
  // nullptr when it is missing. `rows` 0: any number.
  const gguf::Tensor* claim(const std::string& name, int64_t cols, int64_t rows, int64_t matrices, Placement how,
                            bool floats);
  WeightId add(Weight w);

  const gguf::FileSet& files_;
  Model& model_;
  std::vector<std::string> missing_;  // with shapes
};

}  // namespace strata::model
