#include "gguf/gguf.h"

#include "quant/types.h"

namespace strata::gguf {

const char* kind_name(Kind k) {
  static constexpr const char* kNames[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                           "bool", "string", "array", "u64", "i64", "f64"};
  return kNames[static_cast<uint32_t>(k)];
}

uint32_t plain_number_bytes(uint32_t type) {
  switch (type) {
    case 24:
      return 1;
    case 25:
      return 2;
    case 26:
      return 4;
    case 27:
    case 28:
      return 8;
    default:
      return 0;
  }
}

std::string type_name(uint32_t type) {
  static constexpr const char* kPlain[] = {"I8", "I16", "I32", "I64", "F64"};
  if (plain_number_bytes(type)) return kPlain[type - 24];
  const auto* t = quant::type_info(type);
  return t ? t->name : "type " + std::to_string(type);
}

size_t Array::size() const {
  return std::visit([](const auto& v) { return v.size(); }, items);
}

const Tensor* FileSet::find(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

const Value* FileSet::value(std::string_view key) const {
  const auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

uint64_t FileSet::overhead_bytes() const {
  uint64_t n = 0;
  for (const auto& f : files_) n += f.size();
  for (const auto& t : tensors_) n -= t.where.bytes;
  return n;
}

}  // namespace strata::gguf
