// Rows of the n-gram table for the tokens of a sweep: which ones, and reading them on a thread of their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <thread>
#include <vector>

#include "base/file.h"
#include "model/model.h"

namespace strata::window {

// Row numbers [tokens, heads]. `recent`: the last ngram-1 token ids before the first token (the reset token where there are
// none). Per order o = 2..N and head: m = xor over j < o of context[j] * multiplier[j]; row = m mod rows[q] + offset[q];
// the context is cut at the reset token.
std::vector<int64_t> ngram_rows(const model::NgramParams& ple, std::span<const int32_t> recent, std::span<const int32_t> tokens);

class NgramGather {
 public:
  NgramGather(const std::vector<File>& files, const model::Weight& table);
  ~NgramGather();
  NgramGather(const NgramGather&) = delete;
  NgramGather& operator=(const NgramGather&) = delete;

  // Reads the rows, each to raw + i * row_bytes, in the file's own format: sorted, each row once, neighbours together. On
  // its own thread, or here and now when `async` is false.
  void start(std::vector<int64_t> rows, std::byte* raw, bool async);
  // Waits until all rows are there; throws what the reading threw.
  void join();
  // Gives up: stops and forgets.
  void abandon();

  uint64_t reads() const { return reads_; }          // system reads of the last start
  uint64_t bytes() const { return bytes_; }          // bytes they moved
  double waited_seconds() const { return waited_; }  // spent in join()

 private:
  void gather(const std::vector<int64_t>& rows, std::byte* raw);
  const std::vector<File>& files_;
  const model::Weight& table_;
  std::thread thread_;
  std::atomic<bool> stop_{false};
  std::exception_ptr error_;
  uint64_t reads_ = 0, bytes_ = 0;
  double waited_ = 0;
};

}  // namespace strata::window
