// The tensor types of GGUF files: ids, block sizes. Formats and their source: docs/file-format.md.
#pragma once

#include <cstddef>
#include <cstdint>

namespace strata::quant {

struct TypeInfo {
  uint32_t id;            // number in the file
  const char* name;       // "Q4_K"
  uint32_t block_values;  // values per block
  uint32_t block_bytes;   // bytes per block
};

// nullptr when strata cannot read the type.
const TypeInfo* type_info(uint32_t id);
const TypeInfo* type_by_name(const char* name);

// Bytes of a row of `values`; `values` must be a multiple of the type's block.
inline uint64_t row_bytes(const TypeInfo& t, uint64_t values) { return values / t.block_values * t.block_bytes; }

// Ids from here on are unknown to strata; below it there are gaps.
inline constexpr uint32_t kTypeIds = 43;

enum : uint32_t { kF32 = 0, kF16 = 1, kBF16 = 30 };

}  // namespace strata::quant
