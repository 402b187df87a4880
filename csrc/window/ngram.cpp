#include "window/ngram.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

namespace strata::window {

namespace {

// Rows nearer than a page are read together: the drive moves whole pages anyway.
constexpr uint64_t kPage = 4096, kMostTogether = 65536;
constexpr size_t kThreads = 8, kLeastPieces = 4;  // readers at most; pieces that a reader is worth

}  // namespace

std::vector<int64_t> ngram_rows(const model::NgramParams& ple, std::span<const int32_t> recent, std::span<const int32_t> tokens) {
  const auto heads = static_cast<size_t>(ple.heads());
  const auto past = static_cast<int64_t>(recent.size());
  const auto token = [&](int64_t i) {
    return static_cast<uint32_t>(i >= 0 ? tokens[static_cast<size_t>(i)] : recent[static_cast<size_t>(past + i)]);
  };
  std::vector<int64_t> rows(tokens.size() * heads);
  std::vector<uint64_t> context(static_cast<size_t>(ple.ngram));
  for (int64_t t = 0; t < static_cast<int64_t>(tokens.size()); ++t) {
    context[0] = token(t);
    bool cut = false;
    for (int j = 1; j < ple.ngram; ++j) {
      cut = cut || token(t - j) == ple.reset_token;
      context[static_cast<size_t>(j)] = cut ? ple.reset_token : token(t - j);
    }
    for (int o = 2; o <= ple.ngram; ++o) {
      uint64_t m = 0;
      for (int j = 0; j < o; ++j) m ^= context[static_cast<size_t>(j)] * ple.multipliers[static_cast<size_t>(j)];
      for (int e = 0; e < ple.heads_per_ngram; ++e) {
        const auto q = static_cast<size_t>((o - 2) * ple.heads_per_ngram + e);
        rows[static_cast<size_t>(t) * heads + q] = static_cast<int64_t>(m % ple.head_rows[q] + ple.head_offset[q]);
      }
    }
  }
  return rows;
}

NgramGather::NgramGather(const std::vector<File>& files, const model::Weight& table) : file_(files[table.where.file]), table_(table) {}

NgramGather::~NgramGather() { abandon(); }

// A drive wants many such small reads at once: one after another they take its latency each.
void NgramGather::start(const std::vector<int64_t>& rows, std::byte* raw) {
  abandon();
  stop_ = false;
  next_ = 0;
  waited_ = 0;
  rows_ = rows;
  raw_ = raw;
  cut();
  const size_t threads = std::min(kThreads, (pieces_.size() + kLeastPieces - 1) / kLeastPieces);
  threads_.reserve(threads);
  running_ = threads;
  try {
    while (threads_.size() < threads)
      threads_.emplace_back([this] {
        read_pieces();
        const std::lock_guard<std::mutex> lock(mutex_);
        --running_;
        ended_.notify_all();
      });
  } catch (const std::exception&) {  // the system gives no more threads: those that started do, or this one
    const std::lock_guard<std::mutex> lock(mutex_);
    running_ -= threads - threads_.size();
  }
  if (threads_.empty()) read_pieces();
}

void NgramGather::join(Cancel& cancel) {
  const auto start = std::chrono::steady_clock::now();
  for (std::unique_lock<std::mutex> lock(mutex_); running_ > 0;) {
    ended_.wait_for(lock, std::chrono::milliseconds(20));
    lock.unlock();
    cancel.poll();
    lock.lock();
  }
  for (std::thread& t : threads_) t.join();
  threads_.clear();
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void NgramGather::abandon() {
  stop_ = true;
  for (std::thread& t : threads_) t.join();
  threads_.clear();
  error_ = nullptr;
}

void NgramGather::cut() {
  order_.resize(rows_.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::sort(order_.begin(), order_.end(), [&](size_t a, size_t b) { return rows_[a] < rows_[b]; });
  pieces_.clear();
  bytes_ = 0;
  const uint64_t row = table_.row_bytes;
  for (size_t i = 0; i < order_.size(); i = pieces_.back().end) {
    size_t end = i + 1;
    while (end < order_.size() && offset(end) < offset(end - 1) + row + kPage && offset(end) + row - offset(i) <= kMostTogether) ++end;
    pieces_.push_back({i, end});
    bytes_ += offset(end - 1) + row - offset(i);
  }
}

void NgramGather::read_pieces() {
  try {
    std::vector<std::byte> together;
    for (size_t n = next_++; n < pieces_.size() && !stop_; n = next_++) {
      const Piece& p = pieces_[n];
      const uint64_t first = offset(p.begin);
      together.resize(offset(p.end - 1) + table_.row_bytes - first);
      file_.read_exact(together.data(), together.size(), table_.where.offset + first);
      for (size_t i = p.begin; i < p.end; ++i)
        std::memcpy(raw_ + order_[i] * table_.row_bytes, together.data() + (offset(i) - first), table_.row_bytes);
    }
  } catch (...) {
    stop_ = true;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

}  // namespace strata::window
