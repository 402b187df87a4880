#include "window/dump.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace strata::window {

static_assert(sizeof(DumpHeader) == 64);

namespace {

struct Kind {
  const char* tap;
  const char* suffix;
  bool last_layer;  // written for the last layer only
};
constexpr Kind kKinds[] = {
    {"moe_in", "mixed", false}, {"router_ids", "ids", false}, {"router_weights", "wts", false}, {"expert_rows", "yr", false},
    {"hh", "hh", false},        {"sgv", "sgv", false},        {"moe_out", "out", false},        {"R_post", "R_post", true},
    {"inj", "inj", true},
};

const Kind* kind_of(const char* tap) {
  for (const Kind& k : kKinds)
    if (std::strcmp(k.tap, tap) == 0) return &k;
  return nullptr;
}

}  // namespace

struct Dump::File {
  std::string path;
  int fd = -1;
  DumpHeader header;
  ~File() {
    if (fd >= 0) ::close(fd);
  }
  void write(const void* data, uint64_t bytes, uint64_t offset) const {
    const auto* p = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::pwrite(fd, p, bytes, static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) throw StreamIOError("writing the dump failed", path, offset, n < 0 ? errno : ENOSPC);
      p += n;
      offset += static_cast<uint64_t>(n);
      bytes -= static_cast<uint64_t>(n);
    }
  }
};

Dump::Dump(std::string folder, int64_t first_row, int n_layer, int k)
    : folder_(std::move(folder)), first_row_(first_row), n_layer_(n_layer), k_(k) {
  std::error_code ec;
  std::filesystem::create_directories(folder_, ec);
  if (ec) throw StreamIOError("the dump folder cannot be made", folder_, 0, ec.value());
}

Dump::~Dump() = default;

bool Dump::wants(const char* tap, int layer) const {
  const Kind* k = kind_of(tap);
  return k && (!k->last_layer || layer == n_layer_ - 1);
}

Dump::File& Dump::file(const std::string& name, int layer, int64_t cols, program::DType dtype, int64_t d2) {
  std::unique_ptr<File>& f = files_[name];
  if (!f) {
    f = std::make_unique<File>();
    f->path = folder_ + "/" + name;
    f->fd = ::open(f->path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (f->fd < 0) throw StreamIOError("the dump cannot be written", f->path, 0, errno);
    DumpHeader& h = f->header;
    std::memcpy(h.dtype, program::dtype_name(dtype), 3);
    h.n_dims = d2 ? 3 : 2;
    h.d1 = static_cast<uint64_t>(d2 ? cols / d2 : cols);
    h.d2 = static_cast<uint64_t>(d2);
    h.layer = layer;
    h.first_row = static_cast<uint64_t>(first_row_);
    f->write(&h, sizeof h, 0);
  }
  return *f;
}

void Dump::rows(const char* tap, int layer, int64_t first_position, int64_t rows, int64_t cols, program::DType dtype,
                const std::byte* data, uint64_t stride) {
  const Kind* kind = kind_of(tap);
  char name[64];
  std::snprintf(name, sizeof name, "L%03d.%s", layer, kind->suffix);
  const bool per_expert = std::strcmp(tap, "expert_rows") == 0;  // [rows, K, H]
  File& f = file(name, layer, cols, dtype, per_expert ? cols / k_ : 0);
  const uint64_t row = static_cast<uint64_t>(cols) * program::dtype_bytes(dtype);
  uint64_t at = sizeof(DumpHeader) + static_cast<uint64_t>(first_position - first_row_) * row;
  if (stride == row) {
    f.write(data, static_cast<uint64_t>(rows) * row, at);
    return;
  }
  for (int64_t r = 0; r < rows; ++r, at += row) f.write(data + static_cast<uint64_t>(r) * stride, row, at);
}

void Dump::commit(int64_t rows) {
  for (auto& [name, f] : files_) {
    f->header.rows = static_cast<uint64_t>(rows);
    f->write(&f->header, sizeof f->header, 0);
  }
}

}  // namespace strata::window
