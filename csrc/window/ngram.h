// Rows of the n-gram table for the tokens of a sweep: which ones, and reading them beside the computation.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <span>
#include <thread>
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
  // threads of its own, or here and now when `async` is false.
  void start(const std::vector<int64_t>& rows, std::byte* raw, bool async);
  // Waits until all rows are there; throws what the reading threw, or Cancelled.
  void join(Cancel& cancel);
  // Gives up: stops and forgets.
  void abandon();

  uint64_t reads() const { return pieces_.size(); }  // system reads of the last start
  uint64_t bytes() const { return bytes_; }          // bytes they moved
  double waited_seconds() const { return waited_; }  // spent in join()

 private:
  struct Piece {  // rows order_[begin..end), read by one system call
    size_t begin = 0, end = 0;
  };
  uint64_t offset(size_t i) const { return static_cast<uint64_t>(rows_[order_[i]]) * table_.row_bytes; }
  void cut();
  void read_pieces();

  const File& file_;
  const model::Weight& table_;
  std::vector<int64_t> rows_;
  std::vector<size_t> order_;  // of rows_, rising row
  std::vector<Piece> pieces_;
  std::byte* raw_ = nullptr;
  std::vector<std::thread> threads_;
  std::atomic<size_t> next_{0};  // piece
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  size_t running_ = 0;        // threads
  std::exception_ptr error_;  // the first
  uint64_t bytes_ = 0;
  double waited_ = 0;
};

}  // namespace strata::window
