// Reads of expert bytes, past the page cache where the system can.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace strata::stream {

// Faults put into reads by tests. Each read first waits up to `delay_us` (pseudo-random); read number `eio_at` (from 0) and
// `eio_per_million` of all, chosen by a hash of their number, fail with EIO; system reads move at most `short_reads` bytes.
struct Faults {
  int delay_us = 0;
  int64_t eio_at = -1;
  uint64_t eio_per_million = 0;
  uint64_t short_reads = 0;
};

class Source {
 public:
  // Alignment of offset, length and address that direct reads keep. 4096 serves every block size in use; a device that
  // wants more refuses the trial read and is read through the page cache.
  static constexpr uint64_t kAlignment = 4096;

  // Tries one direct read per file at open; where it is refused, that file is read through the page cache and
  // `warnings` says so. `files` must outlive it.
  Source(const std::vector<File>& files, bool direct, const Faults& faults = {});
  ~Source();
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  bool direct(uint32_t file) const { return direct_[file] >= 0; }
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Reads `bytes` at `offset` so that they start at region + offset % kAlignment. `region` is aligned and has room for
  // the bytes widened to whole blocks at both ends. Throws StreamIOError.
  void read(uint32_t file, uint64_t offset, uint64_t bytes, std::byte* region, int layer, int expert);

 private:
  const std::vector<File>& files_;
  const Faults faults_;
  std::vector<int> direct_;  // file descriptors, -1 where reads are buffered
  std::vector<std::string> warnings_;
  std::atomic<uint64_t> reads_{0};
};

}  // namespace strata::stream
