// The header of one file as a stream of numbers and strings. Every read is compared with the bytes left before anything
// is allocated, and the header as a whole is bounded, so memory is bounded whatever the file claims.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace strata::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF is read as it lies in memory: little-endian only");

class Source {
 public:
  // A model's header holds its vocabulary: some 10 MB for 250,000 tokens. More than this is not a header.
  static constexpr uint64_t kMaxHeader = uint64_t{256} << 20;

  explicit Source(const File& file) : file_(file) {}

  const File& file() const { return file_; }
  uint64_t pos() const { return pos_; }
  uint64_t left() const { return file_.size() - pos_; }

  // `what` names the thing in messages: "the tensor count".
  template <class T>
  T number(const char* what) {
    T v;
    bytes(&v, sizeof v, what);
    return v;
  }
  std::string string(const char* what);
  void bytes(void* dst, uint64_t n, const char* what);

  // Fails unless `count` things of at least `each` bytes fit the rest of the file.
  void expect_room(uint64_t count, uint64_t each, const char* what, uint64_t at) const;

  [[noreturn]] void fail(const std::string& what, uint64_t at) const { throw ModelFormatError(what, file_.path(), at); }

 private:
  void expect_bytes(uint64_t n, const char* what) const;

  const File& file_;
  uint64_t pos_ = 0;
  std::vector<char> buffer_;  // bytes of the file from buffer_at_ on
  uint64_t buffer_at_ = 0;
};

}  // namespace strata::gguf
