// One GGUF file's header, checked (docs/file-format.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "gguf/gguf.h"

namespace strata::gguf {

struct Header {
  uint32_t version = 0;
  uint64_t alignment = 32;
  std::vector<std::string> keys;  // in file order
  std::map<std::string, Value, std::less<>> values;
  std::vector<Tensor> tensors;  // in file order; extents inside the file, none overlap
};

// `index` of the file in its set, for the extents. Reads the header only. Throws ModelFormatError.
Header read_header(const File& file, uint32_t index);

}  // namespace strata::gguf
