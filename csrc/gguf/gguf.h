// Reads the header of GGUF files: metadata and tensor directory, with every check of untrusted input. Knows nothing of models.
// Layout: docs/file-format.md. Nothing is allocated from a count that was not compared with the bytes left.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/file.h"

namespace strata::gguf {

enum class Kind : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
const char* kind_name(Kind k);

// Tensor types 24 to 28 (I8, I16, I32, I64, F64): a file may hold them, but no weight has them. 0 for other ids.
uint32_t plain_number_bytes(uint32_t type);
// "Q4_K", "I32", ...; "type 77" for ids that are none.
std::string type_name(uint32_t type);

struct Array {
  Kind kind = Kind::u8;  // of the elements
  // One of these, by kind: integers (and bools, as 0/1) keep their bit pattern sign-extended to 64 bits.
  std::variant<std::vector<uint64_t>, std::vector<double>, std::vector<std::string>> items;
  size_t size() const;
};
struct Value {
  Kind kind = Kind::u8;
  std::variant<uint64_t, double, std::string, Array> data;  // signed integers sign-extended, bool 0/1
  uint64_t offset = 0;                                      // of the entry in its file
};

struct Extent {  // bytes in a file of the set
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
};

struct Tensor {
  std::string name;
  uint32_t n_dims = 0;
  std::array<uint64_t, 4> ne{1, 1, 1, 1};  // ggml order, ne[0] contiguous
  uint32_t type = 0;                       // checked: quant::type_info or a plain I8..F64
  Extent where;                            // absolute
  uint64_t entry_offset = 0;               // of the directory entry, for messages
};

// One file, or all files of a split set opened through its first.
class FileSet {
 public:
  // Throws ModelFormatError.
  static FileSet open(const std::string& path);

  const std::vector<File>& files() const { return files_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  const Tensor* find(std::string_view name) const;
  const std::vector<std::string>& keys() const { return keys_; }  // in file order, of the first file
  const Value* value(std::string_view key) const;                 // nullptr when absent
  uint32_t version() const { return version_; }
  uint64_t alignment() const { return alignment_; }
  // Bytes of all files that belong to no tensor: headers, padding, gaps.
  uint64_t overhead_bytes() const;

 private:
  friend class SetReader;
  std::vector<File> files_;
  std::vector<Tensor> tensors_;
  std::map<std::string, size_t, std::less<>> tensor_index_;  // ordered: names made to collide in a hash cost nothing
  std::vector<std::string> keys_;
  std::map<std::string, Value, std::less<>> values_;
  uint32_t version_ = 0;
  uint64_t alignment_ = 32;
};

}  // namespace strata::gguf
