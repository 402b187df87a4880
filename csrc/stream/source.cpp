#include "stream/source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>

#include "base/error.h"

namespace strata::stream {

namespace {

// A file descriptor whose reads bypass the page cache, or -1 with the reason in `why`.
int open_direct(const File& file, std::string& why) {
#if defined(O_DIRECT)
  const int fd = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (fd < 0) {
    why = std::strerror(errno);
    return -1;
  }
  // Some file systems take the flag and refuse the read: try one.
  void* block = nullptr;
  if (::posix_memalign(&block, Source::kAlignment, Source::kAlignment) != 0) block = nullptr;
  const std::unique_ptr<void, decltype(&std::free)> owned(block, &std::free);
  if (!block || ::pread(fd, block, Source::kAlignment, 0) < 0) {
    why = block ? std::strerror(errno) : "no memory";
    ::close(fd);
    return -1;
  }
  return fd;
#elif defined(F_NOCACHE)
  const int fd = ::open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0 && ::fcntl(fd, F_NOCACHE, 1) == 0) return fd;
  why = std::strerror(errno);
  if (fd >= 0) ::close(fd);
  return -1;
#else
  (void)file;
  why = "this system has no such flag";
  return -1;
#endif
}

}  // namespace

Source::Source(const std::vector<File>& files, bool direct, const Faults& faults)
    : files_(files), faults_(faults), direct_(files.size(), -1) {
  for (size_t i = 0; direct && i < files.size(); ++i) {
    std::string why;
    direct_[i] = open_direct(files[i], why);
    if (direct_[i] < 0) warnings_.push_back(files[i].path() + ": reads go through the page cache, direct reads are refused (" + why + ")");
  }
}

Source::~Source() {
  for (const int fd : direct_)
    if (fd >= 0) ::close(fd);
}

void Source::read(uint32_t file, uint64_t offset, uint64_t bytes, std::byte* region, int layer, int expert) {
  const uint64_t number = reads_.fetch_add(1, std::memory_order_relaxed);
  const File& f = files_[file];
  const uint64_t mixed = ((number + 1) * 0x9E3779B97F4A7C15ULL) >> 33;
  if (faults_.delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(mixed % static_cast<uint64_t>(faults_.delay_us)));
  if ((faults_.eio_at >= 0 && number == static_cast<uint64_t>(faults_.eio_at)) || mixed % 1000000 < faults_.eio_per_million)
    throw StreamIOError("read failed", f.path(), offset, EIO, layer, expert);

  constexpr uint64_t kMaxCall = uint64_t{1} << 30;
  const uint64_t lead = offset % kAlignment, end = offset + bytes;
  uint64_t at = offset;  // the bytes before it are there
  if (direct_[file] >= 0) {
    const uint64_t limit = (end + kAlignment - 1) / kAlignment * kAlignment;
    uint64_t from = offset - lead;
    while (from < end) {
      uint64_t want = std::min(limit - from, kMaxCall);
      if (faults_.short_reads) want = std::max(kAlignment, std::min(want, faults_.short_reads / kAlignment * kAlignment));
      const ssize_t n = ::pread(direct_[file], region + (from - (offset - lead)), want, static_cast<off_t>(from));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) throw StreamIOError("read failed", f.path(), std::max(from, offset), errno, layer, expert);
      if (n == 0) throw StreamIOError("the file ended early (it was longer when it was opened)", f.path(), from, 0, layer, expert);
      from += static_cast<uint64_t>(n);
      if (static_cast<uint64_t>(n) % kAlignment != 0) break;  // the file's end, or a short read: the rest goes the plain way
    }
    at = std::max(at, std::min(from, end));
  }
  while (at < end) {
    uint64_t want = end - at;
    if (faults_.short_reads) want = std::min(want, std::max<uint64_t>(1, faults_.short_reads));
    f.read_exact(region + lead + (at - offset), want, at, layer, expert);
    at += want;
  }
}

}  // namespace strata::stream
