#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace strata {

File::File(const std::string& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // else a FIFO without a writer would hang here
  if (fd_ < 0) throw ModelFormatError(std::string("cannot be opened: ") + std::strerror(errno), path);
  struct stat st {};
  if (::fstat(fd_, &st) != 0 || !S_ISREG(st.st_mode)) {
    const std::string why = S_ISDIR(st.st_mode) ? "is a folder, not a file" : "is not a regular file";
    ::close(fd_);
    throw ModelFormatError(why, path);
  }
  size_ = static_cast<uint64_t>(st.st_size);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& o) noexcept : path_(std::move(o.path_)), size_(o.size_), fd_(o.fd_) { o.fd_ = -1; }

void File::read_exact(void* dst, uint64_t bytes, uint64_t offset, int layer, int expert) const {
  constexpr uint64_t kMaxCall = uint64_t{1} << 30;
  auto* p = static_cast<char*>(dst);
  while (bytes > 0) {
    const ssize_t n = ::pread(fd_, p, std::min(bytes, kMaxCall), static_cast<off_t>(offset));
    if (n < 0) {
      if (errno == EINTR) continue;
      throw StreamIOError("read failed", path_, offset, errno, layer, expert);
    }
    if (n == 0) throw StreamIOError("the file ended early (it was longer when it was opened)", path_, offset, 0, layer, expert);
    p += n;
    offset += static_cast<uint64_t>(n);
    bytes -= static_cast<uint64_t>(n);
  }
}

}  // namespace strata
