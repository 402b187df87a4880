// Looks for the stored block behind numbers that are not finite. Files are not checked for such blocks when they are
// opened (that would read all of them); a result that is not finite is what starts the search.
#pragma once

#include <span>

#include "base/cancel.h"
#include "gguf/gguf.h"
#include "model/model.h"

namespace strata::window {

// Reads the given experts of a layer and the resident weights. Throws ModelFormatError with the tensor, the expert, row and
// block of the first value that is NaN or infinite; returns when there is none.
void find_damage(const gguf::FileSet& files, const model::Model& model, int layer, std::span<const int> experts, Cancel& cancel);

// The same for one row of the n-gram table, whose decoded values are given.
void check_table_row(const gguf::FileSet& files, const model::Weight& table, int64_t row, const float* values);

}  // namespace strata::window
