#include "gguf/source.h"

#include <algorithm>

namespace strata::gguf {

namespace {
constexpr uint64_t kBuffer = uint64_t{256} << 10;
}

void Source::expect_bytes(uint64_t n, const char* what) const {
  if (n > left()) {
    std::string need;
    if (n <= kMaxHeader) need = ", needs at least " + std::to_string(pos_ + n);
    fail("ends inside " + std::string(what) + " (" + std::to_string(n) + " bytes, " + std::to_string(left()) +
             " left): the file has " + std::to_string(file_.size()) + " bytes" + need + "; it is cut off or damaged",
         pos_);
  }
  if (n > kMaxHeader || pos_ > kMaxHeader - n)
    fail(std::string(what) + " (" + std::to_string(n) + " bytes) would make the header larger than " +
             std::to_string(kMaxHeader >> 20) + " MiB; the file is damaged",
         pos_);
}

void Source::bytes(void* dst, uint64_t n, const char* what) {
  expect_bytes(n, what);
  auto* out = static_cast<char*>(dst);
  while (n > 0) {
    const uint64_t in_buffer = pos_ - buffer_at_;
    if (in_buffer >= buffer_.size()) {  // refill; the file's size bounds the read
      buffer_at_ = pos_;
      buffer_.resize(std::min(kBuffer, left()));
      file_.read_exact(buffer_.data(), buffer_.size(), buffer_at_);
      continue;
    }
    const uint64_t k = std::min(n, buffer_.size() - in_buffer);
    std::memcpy(out, buffer_.data() + in_buffer, k);
    out += k;
    pos_ += k;
    n -= k;
  }
}

std::string Source::string(const char* what) {
  const auto n = number<uint64_t>(what);
  expect_bytes(n, what);
  std::string s(n, '\0');
  bytes(s.data(), n, what);
  return s;
}

void Source::expect_room(uint64_t count, uint64_t each, const char* what, uint64_t at) const {
  if (count > left() / each)
    fail("claims " + std::to_string(count) + " " + what + ", but the " + std::to_string(left()) +
             " bytes that follow hold at most " + std::to_string(left() / each) + ": the file has " +
             std::to_string(file_.size()) + " bytes; it is cut off or damaged",
         at);
}

}  // namespace strata::gguf
