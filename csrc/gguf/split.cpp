// Opening a file or a split set: parts named NAME-00001-of-00003.gguf, all metadata in the first.
#include <cstdio>
#include <filesystem>
#include <optional>

#include "base/error.h"
#include "gguf/gguf.h"
#include "gguf/header.h"
#include "gguf/text.h"

namespace strata::gguf {

namespace {

constexpr uint64_t kMaxParts = 1000;

// A path that ends in -%05d-of-%05d.gguf.
struct PartName {
  std::string prefix;              // with the folder
  uint64_t number = 0, count = 0;  // from 1

  std::string path_of(uint64_t n) const {
    char tail[32];
    std::snprintf(tail, sizeof tail, "-%05u-of-%05u.gguf", static_cast<unsigned>(n), static_cast<unsigned>(count));
    return prefix + tail;
  }

  static std::optional<PartName> parse(const std::string& path) {
    constexpr std::string_view kShape = "-ddddd-of-ddddd.gguf";
    if (path.size() < kShape.size()) return std::nullopt;
    const std::string tail = path.substr(path.size() - kShape.size());
    for (size_t i = 0; i < kShape.size(); ++i)
      if (kShape[i] == 'd' && i < 15 ? tail[i] < '0' || tail[i] > '9' : tail[i] != kShape[i]) return std::nullopt;
    PartName p;
    p.prefix = path.substr(0, path.size() - kShape.size());
    p.number = std::stoul(tail.substr(1, 5));
    p.count = std::stoul(tail.substr(10, 5));
    return p;
  }
};

// What one file says about its set.
struct SplitKeys {
  uint64_t no = 0, count = 0;
  std::optional<uint64_t> tensors;
  uint64_t offset = 0;  // of split.count
};

std::optional<uint64_t> split_integer(const Header& h, const char* key, const std::string& path) {
  const auto it = h.values.find(key);
  if (it == h.values.end()) return std::nullopt;
  const Value& v = it->second;
  const bool integer = std::holds_alternative<uint64_t>(v.data) && v.kind != Kind::boolean;
  const bool is_signed = v.kind == Kind::i8 || v.kind == Kind::i16 || v.kind == Kind::i32 || v.kind == Kind::i64;
  if (!integer)
    throw ModelFormatError(std::string(key) + " is of kind " + kind_name(v.kind) + ", must be an integer", path,
                           v.offset);
  const uint64_t n = std::get<uint64_t>(v.data);
  if (is_signed && static_cast<int64_t>(n) < 0)
    throw ModelFormatError(std::string(key) + " is negative: " + std::to_string(static_cast<int64_t>(n)), path,
                           v.offset);
  return n;
}

// Nothing for a file that belongs to no set.
std::optional<SplitKeys> split_keys(const Header& h, const std::string& path) {
  const auto count = split_integer(h, "split.count", path);
  const auto no = split_integer(h, "split.no", path);
  const auto tensors = split_integer(h, "split.tensors.count", path);
  if (!count && !no && !tensors) return std::nullopt;
  if (!count) throw ModelFormatError("has split keys, but split.count is missing", path);
  SplitKeys k;
  k.offset = h.values.find("split.count")->second.offset;
  k.count = *count;
  if (k.count < 1 || k.count > kMaxParts)
    throw ModelFormatError("split.count is " + std::to_string(k.count) + ", must be 1 to " + std::to_string(kMaxParts),
                           path, k.offset);
  if (!no) throw ModelFormatError("has split keys, but split.no is missing", path);
  k.no = *no;
  if (k.no >= k.count)
    throw ModelFormatError(
        "split.no is " + std::to_string(k.no) + ", but the set has " + std::to_string(k.count) + " parts", path,
        h.values.find("split.no")->second.offset);
  k.tensors = tensors;
  return k;
}

std::string numbers_text(const std::vector<uint64_t>& v) {
  std::string s;
  for (size_t i = 0; i < v.size() && i < 20; ++i) s += (i ? ", " : "") + std::to_string(v[i]);
  if (v.size() > 20) s += ", ...";
  return s;
}

// Refuses an incomplete set. Says what the parts that are there hold, since no list tells what the others would.
void expect_all_parts(const PartName& name, const Header& first, const SplitKeys& keys) {
  std::vector<uint64_t> missing, found;
  for (uint64_t n = 1; n <= keys.count; ++n) {
    std::error_code ignored;
    (std::filesystem::exists(name.path_of(n), ignored) ? found : missing).push_back(n);
  }
  if (missing.empty()) return;
  uint64_t held = first.tensors.size();
  for (const uint64_t n : found) {
    if (n == 1) continue;
    try {
      held += read_header(File(name.path_of(n)), 0).tensors.size();
    } catch (const Error&) {  // the missing part is the news; this one is reported when the set is complete
    }
  }
  std::string what = "the set is incomplete: found " + std::to_string(found.size()) + " of " +
                     std::to_string(keys.count) + " parts, missing number " + numbers_text(missing) + " (" +
                     quote(std::filesystem::path(name.path_of(missing[0])).filename().string()) + ")";
  if (keys.tensors)
    what += "; the parts found hold " + std::to_string(held) + " of " + std::to_string(*keys.tensors) + " tensors";
  throw ModelFormatError(what, name.path_of(1));
}

// Metadata that a part other than the first repeats must be the first's: else it comes from another model.
void expect_same_model(const Header& first, const Header& part, const std::string& first_path,
                       const std::string& path) {
  for (const char* key : {"general.architecture", "general.name"}) {
    const auto a = first.values.find(key), b = part.values.find(key);
    if (a == first.values.end() || b == part.values.end()) continue;
    const auto* x = std::get_if<std::string>(&a->second.data);
    const auto* y = std::get_if<std::string>(&b->second.data);
    if (x && y && *x != *y)
      throw ModelFormatError("belongs to another set than " + first_path + ": its " + key + " is " + quote(*y) +
                                 ", the first part's is " + quote(*x),
                             path, b->second.offset);
  }
}

}  // namespace

class SetReader {
 public:
  static FileSet open(const std::string& path) {
    FileSet s;
    s.files_.emplace_back(path);
    Header first = read_header(s.files_[0], 0);
    const auto keys = split_keys(first, path);
    const auto name = PartName::parse(path);
    if (keys && keys->no != 0) refuse_later_part(path, *keys, name);
    s.version_ = first.version;
    s.alignment_ = first.alignment;
    if (keys && keys->count > 1) {
      expect_name(path, *keys, name);
      expect_all_parts(*name, first, *keys);
      add_tensors(s, std::move(first.tensors));
      for (uint64_t n = 2; n <= keys->count; ++n) add_part(s, first, *keys, *name, n);
    } else {
      add_tensors(s, std::move(first.tensors));
    }
    if (keys && keys->tensors && *keys->tensors != s.tensors_.size())
      throw ModelFormatError("the parts hold " + std::to_string(s.tensors_.size()) +
                                 " tensors, split.tensors.count is " + std::to_string(*keys->tensors) +
                                 ": parts of two different sets, or a damaged file",
                             path, keys->offset);
    s.keys_ = std::move(first.keys);
    s.values_ = std::move(first.values);
    return s;
  }

 private:
  [[noreturn]] static void refuse_later_part(const std::string& path, const SplitKeys& k,
                                             const std::optional<PartName>& name) {
    const std::string first = name ? name->path_of(1) : "whose name ends in -00001-of-NNNNN.gguf";
    throw ModelFormatError("is part " + std::to_string(k.no + 1) + " of " + std::to_string(k.count) +
                               " of a split model: open the first part, " + first,
                           path, k.offset);
  }

  static void expect_name(const std::string& path, const SplitKeys& k, const std::optional<PartName>& name) {
    if (!name)
      throw ModelFormatError("is the first of " + std::to_string(k.count) +
                                 " parts, but its name does not end in -00001-of-NNNNN.gguf, so the others cannot be "
                                 "found: keep the original names",
                             path, k.offset);
    if (name->number != 1 || name->count != k.count)
      throw ModelFormatError("its name says part " + std::to_string(name->number) + " of " +
                                 std::to_string(name->count) + ", its keys say part 1 of " + std::to_string(k.count) +
                                 ": keep the original names",
                             path, k.offset);
  }

  static void add_part(FileSet& s, const Header& first, const SplitKeys& keys, const PartName& name, uint64_t n) {
    const auto index = static_cast<uint32_t>(n - 1);
    s.files_.emplace_back(name.path_of(n));
    const std::string path = s.files_.back().path();
    Header h = read_header(s.files_.back(), index);
    const auto k = split_keys(h, path);
    const std::string other = "belongs to another set than " + s.files_[0].path() + ": ";
    if (!k) throw ModelFormatError(other + "it has no split keys", path);
    if (k->count != keys.count)
      throw ModelFormatError(
          other + "it says " + std::to_string(k->count) + " parts, the first says " + std::to_string(keys.count), path,
          k->offset);
    if (k->no != index)
      throw ModelFormatError(
          "its name says part " + std::to_string(n) + ", its key split.no says part " + std::to_string(k->no + 1), path,
          k->offset);
    if (k->tensors && keys.tensors && *k->tensors != *keys.tensors)
      throw ModelFormatError(other + "it says " + std::to_string(*k->tensors) + " tensors in all, the first says " +
                                 std::to_string(*keys.tensors),
                             path, k->offset);
    expect_same_model(first, h, s.files_[0].path(), path);
    add_tensors(s, std::move(h.tensors));
  }

  static void add_tensors(FileSet& s, std::vector<Tensor>&& tensors) {
    for (auto& t : tensors) {
      const auto [it, fresh] = s.tensor_index_.emplace(t.name, s.tensors_.size());
      if (!fresh)
        throw ModelFormatError("the tensor " + quote(t.name) + " is also in " +
                                   s.files_[s.tensors_[it->second].where.file].path() + ": parts of two different sets",
                               s.files_[t.where.file].path(), t.entry_offset);
      s.tensors_.push_back(std::move(t));
    }
  }
};

FileSet FileSet::open(const std::string& path) { return SetReader::open(path); }

}  // namespace strata::gguf
