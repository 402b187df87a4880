// A read-only file: positioned reads that finish or say why not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace strata {

class File {
 public:
  // Throws ModelFormatError when the file cannot be opened or is not a regular file.
  explicit File(const std::string& path);
  ~File();
  File(File&& o) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  File& operator=(File&&) = delete;

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // bytes, when it was opened
  int fd() const { return fd_; }

  // Reads exactly `bytes` at `offset` into `dst`. Short reads are continued, EINTR retried, single system calls kept
  // at 1 GiB (larger ones fail on macOS). Throws StreamIOError; `layer` and `expert` only name the owner in it.
  void read_exact(void* dst, uint64_t bytes, uint64_t offset, int layer = -1, int expert = -1) const;

 private:
  std::string path_;
  uint64_t size_ = 0;
  int fd_ = -1;
};

}  // namespace strata
