// Metadata as checked numbers: a key that is absent, of another kind, or out of range is an error that names it.
#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/gguf.h"

namespace strata::model {

class Meta {
 public:
  static constexpr std::string_view kPrefix = "qwen4exp.";

  explicit Meta(const gguf::FileSet& files) : files_(files) {}

  // Keys are given without the prefix "qwen4exp."; those that begin with "general." or "tokenizer." have none.
  static std::string full(std::string_view key);
  const gguf::Value* find(std::string_view key) const { return files_.value(full(key)); }
  bool has(std::string_view key) const { return find(key) != nullptr; }

  // Any integer kind is accepted where its value lies in [low, high].
  int64_t integer(std::string_view key, int64_t low, int64_t high = INT_MAX) const;
  int64_t integer_or(std::string_view key, int64_t absent, int64_t low, int64_t high = INT_MAX) const;
  // Finite, f32 or f64.
  double number(std::string_view key) const;
  double number_or(std::string_view key, double absent) const;
  bool boolean_or(std::string_view key, bool absent) const;
  const std::string& text(std::string_view key) const;
  std::optional<std::string> text_if(std::string_view key) const;

  // Arrays; each element in [low, high]. Empty optional when the key is absent.
  std::optional<std::vector<int64_t>> integers_if(std::string_view key, int64_t low, int64_t high = INT_MAX) const;
  std::vector<uint64_t> unsigneds(std::string_view key) const;               // required; up to 2^64-1
  std::optional<std::vector<uint8_t>> flags_if(std::string_view key) const;  // bools, or integers 0 and 1
  std::optional<size_t> strings_if(std::string_view key) const;              // the number of strings

  // An error about a key that is there (or not: without offset then).
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;

 private:
  const gguf::Value& need(std::string_view key) const;
  const gguf::Array& array(std::string_view key, const gguf::Value& v, const char* of) const;
  int64_t checked(std::string_view key, gguf::Kind kind, uint64_t bits, int64_t low, int64_t high) const;

  const gguf::FileSet& files_;
};

}  // namespace strata::model
