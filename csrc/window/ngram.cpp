#include "window/ngram.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <utility>

namespace strata::window {

namespace {

// Rows nearer than a page are read together: the drive moves whole pages anyway.
constexpr uint64_t kPage = 4096, kMostTogether = 65536;

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

NgramGather::NgramGather(const std::vector<File>& files, const model::Weight& table) : files_(files), table_(table) {}

NgramGather::~NgramGather() { abandon(); }

void NgramGather::start(std::vector<int64_t> rows, std::byte* raw) {
  abandon();
  stop_ = false;
  reads_ = bytes_ = 0;
  waited_ = 0;
  work_ = std::async(std::launch::async, [this, raw, r = std::move(rows)] { gather(r, raw); });
}

void NgramGather::join(Cancel& cancel) {
  const auto start = std::chrono::steady_clock::now();
  // Woken every 20 ms to look for a request to stop.
  while (work_.valid() && work_.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) cancel.poll();
  waited_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (work_.valid()) work_.get();
}

void NgramGather::abandon() {
  stop_ = true;
  if (work_.valid()) work_.wait();
  work_ = {};
}

void NgramGather::gather(const std::vector<int64_t>& rows, std::byte* raw) {
  const uint64_t row_bytes = table_.row_bytes;
  const File& file = files_[table_.where.file];
  std::vector<size_t> order(rows.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rows[a] < rows[b]; });
  std::vector<std::byte> together;
  const auto offset = [&](size_t i) { return static_cast<uint64_t>(rows[order[i]]) * row_bytes; };
  for (size_t i = 0; i < order.size();) {
    if (stop_) return;
    const uint64_t first = offset(i);
    size_t end = i + 1;
    while (end < order.size() && offset(end) < offset(end - 1) + row_bytes + kPage && offset(end) + row_bytes - first <= kMostTogether) ++end;
    const uint64_t bytes = offset(end - 1) + row_bytes - first;
    together.resize(bytes);
    file.read_exact(together.data(), bytes, table_.where.offset + first);
    ++reads_;
    bytes_ += bytes;
    for (; i < end; ++i) std::memcpy(raw + order[i] * row_bytes, together.data() + (offset(i) - first), row_bytes);
  }
}

}  // namespace strata::window
