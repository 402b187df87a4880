// Bytes of a file in messages: whatever the file holds, the message is short, printable and valid UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace strata::gguf {

// True for well-formed UTF-8: no overlong forms, no surrogates, nothing above U+10FFFF.
bool valid_utf8(std::string_view s);

// `s` in single quotes, cut after 80 bytes; control characters, and every byte of ill-formed text, as \xNN.
std::string quote(std::string_view s);

// "[64, 512]"
template <class Range>
std::string shape_text(const Range& ne) {
  std::string s = "[";
  for (const auto n : ne) s += (s.size() > 1 ? ", " : "") + std::to_string(n);
  return s + "]";
}

// What a file that does not begin with "GGUF" looks like, as the end of a sentence: "it looks like an HTML page".
// Empty when unknown.
std::string looks_like(std::string_view first_bytes);

}  // namespace strata::gguf
