// Files that are intact but are no model strata runs: told apart by architecture and names, so that nobody downloads
// again for nothing.
#pragma once

#include <string_view>

#include "model/model.h"

namespace strata::model {

// N of a tensor name "blk.N.", -1 for other names.
int block_of(std::string_view name);

// Refuses other architectures, projectors, adapters, draft heads alone. Throws ModelFormatError with what the file is.
void refuse_other_kinds(const gguf::FileSet& files);

// Refuses second-level scales (NAME.scale, written for NVFP4): a result without them would be nonsense.
void refuse_scales(const gguf::FileSet& files, const HParams& hp);

// Adds a sentence on tensors that are not used although nothing explains why.
void warn_unused(const gguf::FileSet& files, Model& model);

}  // namespace strata::model
