#include "model/meta.h"

#include <cmath>

#include "base/error.h"

namespace strata::model {

using gguf::Kind;

namespace {

bool is_integer(Kind k) {
  switch (k) {
    case Kind::u8:
    case Kind::i8:
    case Kind::u16:
    case Kind::i16:
    case Kind::u32:
    case Kind::i32:
    case Kind::u64:
    case Kind::i64:
      return true;
    default:
      return false;
  }
}
bool is_signed(Kind k) { return k == Kind::i8 || k == Kind::i16 || k == Kind::i32 || k == Kind::i64; }
bool is_float(Kind k) { return k == Kind::f32 || k == Kind::f64; }

std::string integer_text(Kind k, uint64_t bits) {
  return is_signed(k) ? std::to_string(static_cast<int64_t>(bits)) : std::to_string(bits);
}

}  // namespace

std::string Meta::full(std::string_view key) {
  if (key.starts_with("general.") || key.starts_with("tokenizer.")) return std::string(key);
  return std::string(kPrefix) + std::string(key);
}

void Meta::fail(std::string_view key, const std::string& what) const {
  const gguf::Value* v = find(key);
  throw ModelFormatError(full(key) + " " + what, files_.files()[0].path(),
                         v ? std::optional<uint64_t>(v->offset) : std::nullopt);
}

const gguf::Value& Meta::need(std::string_view key) const {
  const gguf::Value* v = find(key);
  if (!v) fail(key, "is missing from the metadata");
  return *v;
}

int64_t Meta::checked(std::string_view key, Kind kind, uint64_t bits, int64_t low, int64_t high) const {
  const bool fits = is_signed(kind) || bits <= static_cast<uint64_t>(INT64_MAX);
  const auto n = static_cast<int64_t>(bits);
  if (!fits || n < low || n > high) {
    const std::string allowed = high == INT_MAX || high == INT64_MAX
                                    ? "at least " + std::to_string(low) + (high == INT_MAX ? " and below 2^31" : "")
                                    : std::to_string(low) + " to " + std::to_string(high);
    fail(key, (find(key)->kind == Kind::array ? "has the entry " : "is ") + integer_text(kind, bits) + ", must be " +
                  allowed);
  }
  return n;
}

int64_t Meta::integer(std::string_view key, int64_t low, int64_t high) const {
  const gguf::Value& v = need(key);
  if (!is_integer(v.kind)) fail(key, std::string("is of kind ") + kind_name(v.kind) + ", must be an integer");
  return checked(key, v.kind, std::get<uint64_t>(v.data), low, high);
}

int64_t Meta::integer_or(std::string_view key, int64_t absent, int64_t low, int64_t high) const {
  return has(key) ? integer(key, low, high) : absent;
}

double Meta::number(std::string_view key) const {
  const gguf::Value& v = need(key);
  if (!is_float(v.kind)) fail(key, std::string("is of kind ") + kind_name(v.kind) + ", must be a float");
  const double x = std::get<double>(v.data);
  if (!std::isfinite(x)) fail(key, "is not finite");
  return x;
}

double Meta::number_or(std::string_view key, double absent) const { return has(key) ? number(key) : absent; }

bool Meta::boolean_or(std::string_view key, bool absent) const {
  const gguf::Value* v = find(key);
  if (!v) return absent;
  if (v->kind != Kind::boolean) fail(key, std::string("is of kind ") + kind_name(v->kind) + ", must be a bool");
  return std::get<uint64_t>(v->data) != 0;
}

const std::string& Meta::text(std::string_view key) const {
  const gguf::Value& v = need(key);
  if (v.kind != Kind::string) fail(key, std::string("is of kind ") + kind_name(v.kind) + ", must be a string");
  return std::get<std::string>(v.data);
}

std::optional<std::string> Meta::text_if(std::string_view key) const {
  return has(key) ? std::optional<std::string>(text(key)) : std::nullopt;
}

const gguf::Array& Meta::array(std::string_view key, const gguf::Value& v, const char* of) const {
  if (v.kind != Kind::array) fail(key, std::string("is of kind ") + kind_name(v.kind) + ", must be an array of " + of);
  return std::get<gguf::Array>(v.data);
}

std::optional<std::vector<int64_t>> Meta::integers_if(std::string_view key, int64_t low, int64_t high) const {
  const gguf::Value* v = find(key);
  if (!v) return std::nullopt;
  const gguf::Array& a = array(key, *v, "integers");
  if (!is_integer(a.kind)) fail(key, std::string("is an array of ") + kind_name(a.kind) + ", must be one of integers");
  std::vector<int64_t> out;
  for (const uint64_t bits : std::get<std::vector<uint64_t>>(a.items))
    out.push_back(checked(key, a.kind, bits, low, high));
  return out;
}

std::vector<uint64_t> Meta::unsigneds(std::string_view key) const {
  const gguf::Array& a = array(key, need(key), "integers");
  if (!is_integer(a.kind)) fail(key, std::string("is an array of ") + kind_name(a.kind) + ", must be one of integers");
  const auto& items = std::get<std::vector<uint64_t>>(a.items);
  if (is_signed(a.kind))
    for (const uint64_t bits : items) checked(key, a.kind, bits, 0, INT64_MAX);
  return items;
}

std::optional<std::vector<uint8_t>> Meta::flags_if(std::string_view key) const {
  const gguf::Value* v = find(key);
  if (!v) return std::nullopt;
  const gguf::Array& a = array(key, *v, "bools");
  if (!is_integer(a.kind) && a.kind != Kind::boolean)
    fail(key, std::string("is an array of ") + kind_name(a.kind) + ", must be one of bools");
  std::vector<uint8_t> out;
  for (const uint64_t bits : std::get<std::vector<uint64_t>>(a.items))
    out.push_back(static_cast<uint8_t>(checked(key, a.kind, bits, 0, 1)));
  return out;
}

std::optional<size_t> Meta::strings_if(std::string_view key) const {
  const gguf::Value* v = find(key);
  if (!v) return std::nullopt;
  const gguf::Array& a = array(key, *v, "strings");
  if (a.kind != Kind::string)
    fail(key, std::string("is an array of ") + kind_name(a.kind) + ", must be one of strings");
  return a.size();
}

}  // namespace strata::model
