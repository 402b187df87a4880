#include "gguf/header.h"

#include <algorithm>
#include <bit>
#include <set>
#include <span>

#include "gguf/source.h"
#include "gguf/text.h"
#include "quant/types.h"

namespace strata::gguf {

namespace {

// Far above any real file; they bound what a file made for the purpose can make the reader allocate.
constexpr uint64_t kMaxKeys = uint64_t{1} << 16;
constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
constexpr uint64_t kMaxArrayItems = uint64_t{1} << 24;  // over all arrays of a file
constexpr uint64_t kMaxAlignment = uint64_t{1} << 24;
constexpr uint64_t kMaxBytes = (uint64_t{1} << 63) - 1;

constexpr uint64_t kSmallestEntry = 13;   // metadata: key length, one key byte... value kind, one value byte
constexpr uint64_t kSmallestTensor = 33;  // name length, one name byte, dimensions, one dimension, type, offset

struct TypeSize {
  uint64_t block_values = 0, block_bytes = 0;  // 0: not a type of files
};

TypeSize type_size(uint32_t type) {
  if (const auto* t = quant::type_info(type)) return {t->block_values, t->block_bytes};
  if (const uint32_t n = plain_number_bytes(type)) return {1, n};
  return {};
}

// Why a type number is refused.
std::string refused_type(uint32_t type) {
  const std::string number = "type " + std::to_string(type);
  if (type == 4 || type == 5 || (type >= 31 && type <= 33) || (type >= 36 && type <= 38))
    return number + ", which was removed from the format: the file is too old or damaged";
  if (type == 9) return number + " (Q8_1), a format for activations that files must not hold";
  if (type == 15) return number + " (Q8_K), a format for activations that files must not hold";
  return number + ", which strata does not know: the file is newer than this program, or damaged";
}

uint64_t kind_bytes(Kind k) {
  switch (k) {
    case Kind::u8:
    case Kind::i8:
    case Kind::boolean:
      return 1;
    case Kind::u16:
    case Kind::i16:
      return 2;
    case Kind::u32:
    case Kind::i32:
    case Kind::f32:
      return 4;
    case Kind::u64:
    case Kind::i64:
    case Kind::f64:
      return 8;
    case Kind::string:
      return 8;  // at least
    case Kind::array:
      break;
  }
  return 12;  // at least
}

class HeaderReader {
 public:
  HeaderReader(const File& file, uint32_t index) : in_(file), index_(index) {}

  Header read() {
    check_magic();
    h_.version = read_version();
    const uint64_t count_at = in_.pos();
    const auto n_tensors = in_.number<uint64_t>("the tensor count");
    const auto n_keys = in_.number<uint64_t>("the metadata count");
    in_.expect_room(n_keys, kSmallestEntry, "metadata entries", count_at + 8);
    in_.expect_room(n_tensors, kSmallestTensor, "tensors", count_at);
    if (n_keys > kMaxKeys)
      in_.fail("claims " + std::to_string(n_keys) + " metadata entries; at most " + std::to_string(kMaxKeys) +
                   " are accepted",
               count_at + 8);
    if (n_tensors > kMaxTensors)
      in_.fail(
          "claims " + std::to_string(n_tensors) + " tensors; at most " + std::to_string(kMaxTensors) + " are accepted",
          count_at);
    for (uint64_t i = 0; i < n_keys; ++i) read_entry();
    read_alignment();
    for (uint64_t i = 0; i < n_tensors; ++i) read_tensor();
    place_tensors();
    return std::move(h_);
  }

 private:
  void check_magic() {
    const uint64_t size = in_.file().size();
    if (size == 0) in_.fail("the file is empty", 0);
    std::string first(std::min<uint64_t>(size, 64), '\0');
    in_.file().read_exact(first.data(), first.size(), 0);
    if (std::string_view(first).substr(0, 4) != std::string_view("GGUF").substr(0, first.size())) {
      const std::string guess = looks_like(first);
      in_.fail("not a GGUF file: it begins with " + quote(std::string_view(first).substr(0, 24)) +
                   (guess.empty() ? "" : "; " + guess),
               0);
    }
    if (size < 24)
      in_.fail(
          "ends inside the header: the file has " + std::to_string(size) + " bytes, needs at least 24; it is cut off",
          0);
    char magic[4];
    in_.bytes(magic, 4, "the magic");
  }

  uint32_t read_version() {
    const uint64_t at = in_.pos();
    const auto v = in_.number<uint32_t>("the version");
    if (v == 2 || v == 3) return v;
    if (v == 1) in_.fail("GGUF version 1 (32-bit counts, 2023) is not read: convert the model again", at);
    if ((v & 0xFFFF) == 0 && v != 0)
      in_.fail("a big-endian GGUF file (version bytes are swapped): only little-endian files are read", at);
    in_.fail("GGUF version " + std::to_string(v) + " is not read: strata reads 2 and 3", at);
  }

  Kind read_kind(const std::string& key) {
    const uint64_t at = in_.pos();
    const auto k = in_.number<uint32_t>("a value kind");
    if (k > static_cast<uint32_t>(Kind::f64))
      in_.fail("key " + quote(key) + ": unknown value kind " + std::to_string(k), at);
    return static_cast<Kind>(k);
  }

  // An integer or bool: bits sign-extended to 64.
  uint64_t read_integer(Kind k, const std::string& key) {
    const uint64_t at = in_.pos();
    const char* what = "a metadata value";
    const auto extend = [](int64_t v) { return static_cast<uint64_t>(v); };
    switch (k) {
      case Kind::u8:
        return in_.number<uint8_t>(what);
      case Kind::i8:
        return extend(in_.number<int8_t>(what));
      case Kind::u16:
        return in_.number<uint16_t>(what);
      case Kind::i16:
        return extend(in_.number<int16_t>(what));
      case Kind::u32:
        return in_.number<uint32_t>(what);
      case Kind::i32:
        return extend(in_.number<int32_t>(what));
      case Kind::i64:
        return extend(in_.number<int64_t>(what));
      case Kind::boolean: {
        const auto b = in_.number<uint8_t>(what);
        if (b > 1)
          in_.fail("key " + quote(key) + ": a bool is the byte " + std::to_string(b) + ", neither 0 nor 1", at);
        return b;
      }
      default:
        return in_.number<uint64_t>(what);
    }
  }

  double read_float(Kind k) {
    return k == Kind::f32 ? static_cast<double>(in_.number<float>("a metadata value"))
                          : in_.number<double>("a metadata value");
  }

  static bool is_float(Kind k) { return k == Kind::f32 || k == Kind::f64; }

  Array read_array(const std::string& key, uint64_t entry) {
    Array a;
    a.kind = read_kind(key);
    if (a.kind == Kind::array) in_.fail("key " + quote(key) + ": arrays of arrays are not accepted", entry);
    const uint64_t at = in_.pos();
    const auto n = in_.number<uint64_t>("an array's length");
    in_.expect_room(n, kind_bytes(a.kind), ("entries in the array " + quote(key)).c_str(), at);
    if (n > kMaxArrayItems - items_)
      in_.fail("key " + quote(key) + ": " + std::to_string(n) + " entries; all arrays together may have " +
                   std::to_string(kMaxArrayItems),
               at);
    items_ += n;
    if (a.kind == Kind::string) {
      std::vector<std::string>
          v;  // grows as strings are read: one takes more memory than the 8 bytes it may have in the file
      for (uint64_t i = 0; i < n; ++i) v.push_back(in_.string("a string of an array"));
      a.items = std::move(v);
    } else if (is_float(a.kind)) {
      std::vector<double> v(n);
      for (auto& x : v) x = read_float(a.kind);
      a.items = std::move(v);
    } else {
      std::vector<uint64_t> v(n);
      for (auto& x : v) x = read_integer(a.kind, key);
      a.items = std::move(v);
    }
    return a;
  }

  void read_entry() {
    Value v;
    v.offset = in_.pos();
    std::string key = in_.string("a metadata key");
    if (key.empty()) in_.fail("a metadata key is empty", v.offset);
    v.kind = read_kind(key);
    if (v.kind == Kind::string) v.data = in_.string("a metadata string");
    else if (v.kind == Kind::array) v.data = read_array(key, v.offset);
    else if (is_float(v.kind)) v.data = read_float(v.kind);
    else v.data = read_integer(v.kind, key);
    const uint64_t at = v.offset;
    if (!h_.values.emplace(key, std::move(v)).second) in_.fail("the key " + quote(key) + " is there twice", at);
    h_.keys.push_back(std::move(key));
  }

  void read_alignment() {
    const auto it = h_.values.find("general.alignment");
    if (it == h_.values.end()) return;
    const Value& v = it->second;
    if (v.kind != Kind::u32)
      in_.fail(std::string("general.alignment is of kind ") + kind_name(v.kind) + ", must be u32", v.offset);
    h_.alignment = std::get<uint64_t>(v.data);
    if (!std::has_single_bit(h_.alignment) || h_.alignment > kMaxAlignment)
      in_.fail("general.alignment is " + std::to_string(h_.alignment) + ", must be a power of two up to " +
                   std::to_string(kMaxAlignment),
               v.offset);
  }

  void read_tensor() {
    Tensor t;
    t.entry_offset = in_.pos();
    t.name = in_.string("a tensor name");
    if (t.name.empty()) in_.fail("a tensor name is empty", t.entry_offset);
    if (t.name.size() >= 64)
      in_.fail("the tensor name " + quote(t.name) + " has " + std::to_string(t.name.size()) +
                   " bytes, at most 63 are allowed",
               t.entry_offset);
    if (!valid_utf8(t.name)) in_.fail("the tensor name " + quote(t.name) + " is not UTF-8", t.entry_offset);
    if (!names_.insert(t.name).second) in_.fail("the tensor " + quote(t.name) + " is there twice", t.entry_offset);
    t.n_dims = in_.number<uint32_t>("a tensor's number of dimensions");
    if (t.n_dims < 1 || t.n_dims > t.ne.size())
      in_.fail("tensor " + quote(t.name) + ": " + std::to_string(t.n_dims) + " dimensions, must be 1 to 4",
               t.entry_offset);
    for (uint32_t i = 0; i < t.n_dims; ++i) t.ne[i] = in_.number<uint64_t>("a tensor's dimensions");
    t.type = in_.number<uint32_t>("a tensor's type");
    t.where.file = index_;
    t.where.offset = in_.number<uint64_t>("a tensor's offset");  // from the data section, until place_tensors
    t.where.bytes = tensor_bytes(t);
    if (t.where.offset % h_.alignment != 0)
      in_.fail("tensor " + quote(t.name) + ": its offset " + std::to_string(t.where.offset) +
                   " is not a multiple of the alignment " + std::to_string(h_.alignment),
               t.entry_offset);
    h_.tensors.push_back(std::move(t));
  }

  uint64_t tensor_bytes(const Tensor& t) const {
    const std::string name = "tensor " + quote(t.name) + ", dimensions " + shape_text(std::span(t.ne).first(t.n_dims));
    uint64_t values = 1;
    for (const uint64_t n : t.ne) {
      if (n == 0) in_.fail(name + ": a dimension is 0", t.entry_offset);
      if (n > kMaxBytes / values) in_.fail(name + ": more than 2^63 values", t.entry_offset);
      values *= n;
    }
    const TypeSize size = type_size(t.type);
    if (size.block_values == 0) in_.fail("tensor " + quote(t.name) + " has " + refused_type(t.type), t.entry_offset);
    if (t.ne[0] % size.block_values != 0)
      in_.fail(name + ": a row of " + std::to_string(t.ne[0]) + " values is not a whole number of " +
                   type_name(t.type) + " blocks of " + std::to_string(size.block_values),
               t.entry_offset);
    const uint64_t blocks = values / size.block_values;
    if (blocks > kMaxBytes / size.block_bytes) in_.fail(name + ": more than 2^63 bytes", t.entry_offset);
    return blocks * size.block_bytes;
  }

  // Turns offsets into positions in the file; checks that each tensor lies inside it and none overlap.
  void place_tensors() {
    if (h_.tensors.empty()) return;                                                       // no data section then
    const uint64_t start = (in_.pos() + h_.alignment - 1) / h_.alignment * h_.alignment;  // both are small
    uint64_t need = 0;
    for (auto& t : h_.tensors) {
      if (t.where.offset > kMaxBytes - start || t.where.bytes > kMaxBytes - start - t.where.offset)
        in_.fail("tensor " + quote(t.name) + ": its offset " + std::to_string(t.where.offset) + " lies beyond any file",
                 t.entry_offset);
      t.where.offset += start;
      need = std::max(need, t.where.offset + t.where.bytes);
    }
    std::vector<const Tensor*> order;
    for (const auto& t : h_.tensors) order.push_back(&t);
    std::sort(order.begin(), order.end(),
              [](const Tensor* a, const Tensor* b) { return a->where.offset < b->where.offset; });
    const uint64_t size = in_.file().size();
    if (need > size) {
      const auto beyond = [&](const Tensor* t) { return t->where.offset + t->where.bytes > size; };
      const auto first = std::find_if(order.begin(), order.end(), beyond);
      in_.fail("the file has " + std::to_string(size) + " bytes, needs " + std::to_string(need) + ": " +
                   std::to_string(std::count_if(order.begin(), order.end(), beyond)) + " of " +
                   std::to_string(order.size()) + " tensors end beyond it, the first is " + quote((*first)->name) +
                   "; the file is cut off or damaged",
               (*first)->entry_offset);
    }
    for (size_t i = 1; i < order.size(); ++i)
      if (order[i]->where.offset - order[i - 1]->where.offset < order[i - 1]->where.bytes)
        in_.fail("the tensors " + quote(order[i - 1]->name) + " and " + quote(order[i]->name) + " overlap",
                 order[i]->entry_offset);
  }

  Source in_;
  uint32_t index_;
  Header h_;
  std::set<std::string> names_;
  uint64_t items_ = 0;
};

}  // namespace

Header read_header(const File& file, uint32_t index) { return HeaderReader(file, index).read(); }

}  // namespace strata::gguf
