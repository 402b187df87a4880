// Rows of the n-gram table for the tokens of a sweep: which ones, and reading them on a thread of their own.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <vector>

#include "base/cancel.h"
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
  // its own thread.
  void start(std::vector<int64_t> rows, std::byte* raw);
  // Waits until all rows are there; throws what the reading threw, and Cancelled.
  void join(Cancel& cancel);
  // Gives up: stops and forgets.
  void abandon();

  uint64_t reads() const { return reads_; }          // system reads of the last start
  uint64_t bytes() const { return bytes_; }          // bytes they moved
  double waited_seconds() const { return waited_; }  // spent in join()

 private:
  void gather(const std::vector<int64_t>& rows, std::byte* raw);
  const std::vector<File>& files_;
  const model::Weight& table_;
  std::future<void> work_;
  std::atomic<bool> stop_{false};
  uint64_t reads_ = 0, bytes_ = 0;
  double waited_ = 0;
};

}  // namespace strata::window
