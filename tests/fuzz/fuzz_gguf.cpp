// libFuzzer target: any bytes as a model file, through the reader and Model::from_files. Build and run: tests/fuzz/run.
// Only the typed errors may come out; memory and time are bounded by libFuzzer's own limits.
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "gguf/gguf.h"
#include "model/model.h"

namespace {

// The reader takes paths; one file, rewritten for each input, in memory where the system has such a folder.
const std::string& scratch_path() {
  static const std::string path = [] {
    std::string p = (::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/strata-fuzz-XXXXXX");
    const int fd = ::mkstemp(p.data());
    if (fd < 0) std::abort();
    ::close(fd);
    std::atexit([] { ::unlink(scratch_path().c_str()); });
    return p;
  }();
  return path;
}

void write_file(const uint8_t* data, size_t size) {
  const int fd = ::open(scratch_path().c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
  if (fd < 0 || ::write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  // The corpus holds headers only. Tensors lie behind them in a hole, so that valid headers stay valid.
  if (::ftruncate(fd, static_cast<off_t>(size + (size_t{1} << 20))) != 0) std::abort();
  ::close(fd);
}

// What a caller of a model relies on: every extent lies in its file, every matrix fills its extent.
void expect_sound(const strata::gguf::FileSet& files, const strata::model::Model& m) {
  const auto inside = [&](const strata::gguf::Extent& e) {
    if (e.file >= files.files().size() || e.bytes == 0) return false;
    const uint64_t size = files.files()[e.file].size();
    return e.offset <= size && e.bytes <= size - e.offset;
  };
  const auto require = [](bool ok) {
    if (!ok) std::abort();
  };
  for (const auto& w : m.weights) require(inside(w.where) && static_cast<uint64_t>(w.rows) * w.row_bytes == w.where.bytes);
  for (const auto& l : m.layers)
    for (const auto* x : {&l.experts.gate, &l.experts.up, &l.experts.down})
      require(inside(x->of(0)) && inside(x->of(m.hp.n_expert - 1)));
  require(m.layers.size() == m.hp.ratio.size() && m.layers.size() == m.hp.recurrent.size());
  require(m.hp.n_vocab > 0 && m.hp.hidden > 0 && m.hp.n_expert_used <= m.hp.n_expert);
  for (size_t i = 0; i < m.hp.ple.head_rows.size(); ++i)
    require(m.hp.ple.head_offset[i] + m.hp.ple.head_rows[i] <= static_cast<uint64_t>(m.ple_table.rows));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  write_file(data, size);
  try {
    const auto files = strata::gguf::FileSet::open(scratch_path());
    (void)files.overhead_bytes();
    for (const auto& key : files.keys()) (void)files.value(key);
    expect_sound(files, strata::model::Model::from_files(files));
  } catch (const strata::ModelFormatError&) {
  }
  return 0;
}
