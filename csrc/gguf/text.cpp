#include "gguf/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <utility>

namespace strata::gguf {

namespace {

// Length of the well-formed UTF-8 sequence at the start of `s`, 0 when there is none (Unicode 15, table 3-7).
size_t utf8_length(std::string_view s) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<uint8_t>(s[i]) : uint8_t{0}; };
  const uint8_t b = byte(0);
  if (b < 0x80) return s.empty() ? 0 : 1;
  const size_t n = b >= 0xC2 && b <= 0xDF ? 2 : b >= 0xE0 && b <= 0xEF ? 3 : b >= 0xF0 && b <= 0xF4 ? 4 : 0;
  if (n == 0 || s.size() < n) return 0;
  const uint8_t low = b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;   // below: an overlong form
  const uint8_t high = b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;  // above: a surrogate, or beyond U+10FFFF
  if (byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < n; ++i)
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  return n;
}

void append_hex(std::string& out, char c) {
  constexpr char kHex[] = "0123456789abcdef";
  const auto b = static_cast<uint8_t>(c);
  out += "\\x";
  out += kHex[b >> 4];
  out += kHex[b & 15];
}

bool starts_with_any_case(std::string_view s, std::string_view prefix) {
  if (s.size() < prefix.size()) return false;
  return std::equal(prefix.begin(), prefix.end(), s.begin(), [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  });
}

}  // namespace

bool valid_utf8(std::string_view s) {
  while (!s.empty()) {
    const size_t n = utf8_length(s);
    if (n == 0) return false;
    s.remove_prefix(n);
  }
  return true;
}

std::string quote(std::string_view s) {
  constexpr size_t kMax = 80;
  std::string out = "'";
  size_t used = 0;
  while (used < s.size() && used < kMax) {
    const std::string_view rest = s.substr(used);
    const size_t n = utf8_length(rest);
    const auto b = static_cast<uint8_t>(rest[0]);
    // C1 control characters (U+0080 to U+009F) move a terminal's cursor as the C0 ones do.
    const bool control = b < 0x20 || b == 0x7F || (n == 2 && b == 0xC2 && static_cast<uint8_t>(rest[1]) < 0xA0);
    if (n == 0 || control) {
      append_hex(out, rest[0]);
      for (size_t i = 1; i < n; ++i) append_hex(out, rest[i]);
    } else {
      out.append(rest.substr(0, n));
    }
    used += n == 0 ? 1 : n;
  }
  out += "'";
  if (used < s.size()) out += "... (" + std::to_string(s.size()) + " bytes)";
  return out;
}

std::string looks_like(std::string_view first_bytes) {
  if (!first_bytes.empty() && first_bytes.find_first_not_of('\0') == std::string_view::npos)
    return "it begins with zeros, like an unfinished download";
  std::string_view s = first_bytes;
  if (s.size() > 9 && s[8] == '{' && s.substr(0, 8).find('\0') != std::string_view::npos)
    return "it looks like a safetensors file";
  if (s.substr(0, 3) == "\xEF\xBB\xBF") s.remove_prefix(3);
  while (!s.empty() && std::isspace(static_cast<unsigned char>(s[0]))) s.remove_prefix(1);
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 13> kKnown{{
      {"<!doctype", "it looks like HTML: a web page was saved instead of the file"},
      {"<html", "it looks like HTML: a web page was saved instead of the file"},
      {"<?xml", "it looks like XML: probably a server's error message"},
      {"version https://git-lfs", "it looks like a Git LFS pointer: fetch the file itself with 'git lfs pull'"},
      {"{", "it looks like JSON"},
      {"PK\x03\x04", "it looks like a zip archive (a PyTorch checkpoint is one)"},
      {"\x1F\x8B", "it looks like gzip: unpack it first"},
      {"\x28\xB5\x2F\xFD", "it looks like zstd: unpack it first"},
      {"\xFD"
       "7zXZ",
       "it looks like xz: unpack it first"},
      {"FUGG", "it looks like a GGUF file of the other byte order"},
      {"lmgg", "it looks like GGML, the format before GGUF: convert it"},
      {"fmgg", "it looks like GGML, the format before GGUF: convert it"},
      {"tjgg", "it looks like GGML, the format before GGUF: convert it"},
  }};
  for (const auto& [prefix, sentence] : kKnown)
    if (starts_with_any_case(s, prefix)) return std::string(sentence);
  return {};
}

}  // namespace strata::gguf
