// Ways to ask Linux for reads: pread from N threads; io_uring with N reads in flight from one thread, into memory as it is or into
// registered buffers. (Registered memory counts against RLIMIT_MEMLOCK, 8 MB for most users, and an arena is gigabytes.)
//
//   g++ -O2 -std=c++17 bench/io_engines.cpp -o io_engines -luring -pthread     (Debian: liburing-dev)
//   ./io_engines FILE [--repeats 7] [--seconds 1] [--bytes 1409024,475136,4096] [--depth 1,4,8,32]
//
// Random reads of FILE past the page cache (O_DIRECT), in whole blocks of 4096 bytes. 1409024 bytes are an expert of the
// published model read at once, 475136 one of its three parts, 4096 a row of the n-gram table. Buffers are
// in huge pages where the system gives them, as an arena is. All sizes, depths and ways
// take turns; medians over the repeats: GB/s, processor time per GB (user and system, of the whole process), median and 99th percentile of a read's time.
#include <fcntl.h>
#include <liburing.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

[[noreturn]] void fail(const std::string& what, int error) {
  std::fprintf(stderr, "%s: %s\n", what.c_str(), std::strerror(error));
  std::exit(1);
}

struct Job {
  int fd;
  uint64_t bytes, places;
  int depth;
  double seconds;
  uint64_t seed;
};

struct Result {
  uint64_t reads = 0;
  double seconds = 0, cpu = 0;
  std::vector<double> times;  // of each read
};

// The i-th place to read, the same for both ways.
uint64_t place(const Job& j, uint64_t i) {
  uint64_t x = j.seed + (i + 1) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return (x ^ (x >> 31)) % j.places * j.bytes;
}

struct Buffers {
  std::vector<void*> at;
  Buffers(int n, uint64_t bytes) {
    void* p = nullptr;
    const uint64_t all = static_cast<uint64_t>(n) * bytes;
    if (const int error = posix_memalign(&p, 2 << 20, all)) fail("memory", error);
    madvise(p, all, MADV_HUGEPAGE);
    std::memset(p, 1, all);  // the first touch is not the drive's
    for (int i = 0; i < n; ++i) at.push_back(static_cast<char*>(p) + static_cast<uint64_t>(i) * bytes);
  }
  ~Buffers() { std::free(at[0]); }
  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
};

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  const auto s = [](timeval t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return s(u.ru_utime) + s(u.ru_stime);
}

Result threads(const Job& j, const Buffers& buffers) {
  std::atomic<uint64_t> next{0};
  std::vector<std::vector<double>> times(static_cast<size_t>(j.depth));
  const double cpu = cpu_seconds();
  const auto start = Clock::now();
  std::vector<std::thread> all;
  for (size_t t = 0; t < times.size(); ++t)
    all.emplace_back([&, t] {
      while (since(start) < j.seconds) {
        const auto began = Clock::now();
        const ssize_t n = pread(j.fd, buffers.at[t], j.bytes, static_cast<off_t>(place(j, next++)));
        if (n != static_cast<ssize_t>(j.bytes)) fail("pread", n < 0 ? errno : EIO);
        times[t].push_back(since(began));
      }
    });
  for (std::thread& t : all) t.join();
  Result r;
  r.seconds = since(start);
  r.cpu = cpu_seconds() - cpu;
  for (const auto& mine : times) r.times.insert(r.times.end(), mine.begin(), mine.end());
  r.reads = r.times.size();
  return r;
}

Result uring(const Job& j, const Buffers& buffers, bool registered) {
  io_uring ring{};
  if (const int e = io_uring_queue_init(static_cast<unsigned>(j.depth), &ring, 0)) fail("io_uring_queue_init", -e);
  std::vector<iovec> vectors;
  for (int i = 0; i < j.depth; ++i) vectors.push_back({buffers.at[static_cast<size_t>(i)], j.bytes});
  if (registered)
    if (const int e = io_uring_register_buffers(&ring, vectors.data(), static_cast<unsigned>(vectors.size()))) fail("registering buffers", -e);
  if (const int e = io_uring_register_files(&ring, &j.fd, 1)) fail("registering the file", -e);
  std::vector<Clock::time_point> began(vectors.size());
  uint64_t next = 0;
  const auto ask = [&](size_t i) {
    io_uring_sqe* e = io_uring_get_sqe(&ring);
    const unsigned bytes = static_cast<unsigned>(j.bytes);
    if (registered) io_uring_prep_read_fixed(e, 0, vectors[i].iov_base, bytes, place(j, next++), static_cast<int>(i));
    else io_uring_prep_read(e, 0, vectors[i].iov_base, bytes, place(j, next++));
    e->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data64(e, i);
    began[i] = Clock::now();
  };
  Result r;
  const double cpu = cpu_seconds();
  const auto start = Clock::now();
  for (size_t i = 0; i < vectors.size(); ++i) ask(i);
  for (int flying = j.depth; flying > 0;) {
    io_uring_submit_and_wait(&ring, 1);
    io_uring_cqe* c = nullptr;
    while (io_uring_peek_cqe(&ring, &c) == 0) {
      if (c->res != static_cast<int>(j.bytes)) fail("io_uring read", c->res < 0 ? -c->res : EIO);
      const size_t i = io_uring_cqe_get_data64(c);
      io_uring_cqe_seen(&ring, c);
      r.times.push_back(since(began[i]));
      if (since(start) < j.seconds)
        ask(i);
      else
        --flying;
    }
  }
  r.seconds = since(start);
  r.cpu = cpu_seconds() - cpu;
  r.reads = r.times.size();
  io_uring_queue_exit(&ring);
  return r;
}

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

std::vector<uint64_t> numbers(const std::string& text) {
  std::vector<uint64_t> all;
  std::stringstream s(text);
  for (std::string one; std::getline(s, one, ',');) all.push_back(std::strtoull(one.c_str(), nullptr, 10));
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  std::string file, sizes = "1409024,475136,4096", depths = "1,4,8,32";
  int repeats = 7;
  double seconds = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const bool more = i + 1 < argc;
    if (a == "--repeats" && more) repeats = std::atoi(argv[++i]);
    else if (a == "--seconds" && more) seconds = std::atof(argv[++i]);
    else if (a == "--bytes" && more) sizes = argv[++i];
    else if (a == "--depth" && more) depths = argv[++i];
    else file = a;
  }
  const int fd = open(file.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
  struct stat s{};
  if (fd < 0 || fstat(fd, &s) != 0) fail(file.empty() ? "usage: io_engines FILE" : file, errno);
  struct Cell {
    uint64_t bytes, depth;
    std::vector<double> rate[3], cpu[3], p50[3], p99[3];
  };
  std::vector<Cell> cells;
  for (const uint64_t bytes : numbers(sizes))
    for (const uint64_t depth : numbers(depths)) {
      if (bytes % 4096 != 0 || bytes == 0 || depth == 0 || bytes > static_cast<uint64_t>(s.st_size)) fail("sizes or depths", EINVAL);
      cells.push_back({bytes, depth, {}, {}, {}, {}});
    }
  for (int i = 0; i < repeats; ++i)  // outermost, so that a slow spell of the drive falls on all of them
    for (Cell& c : cells) {
      const Buffers buffers(static_cast<int>(c.depth), c.bytes);
      for (int k = 0; k < 3; ++k) {
        const int way = (i + k) % 3;
        const Job j{fd, c.bytes, static_cast<uint64_t>(s.st_size) / c.bytes, static_cast<int>(c.depth), seconds, static_cast<uint64_t>(i) << 40};
        Result r = way ? uring(j, buffers, way == 2) : threads(j, buffers);
        std::sort(r.times.begin(), r.times.end());
        const double gb = 1e-9 * static_cast<double>(r.reads * c.bytes);
        c.rate[way].push_back(gb / r.seconds);
        c.cpu[way].push_back(r.cpu / gb);
        c.p50[way].push_back(1e3 * r.times[r.times.size() / 2]);
        c.p99[way].push_back(1e3 * r.times[r.times.size() * 99 / 100]);
      }
    }
  static const char* const names[] = {"pread", "io_uring", "io_uring, registered"};
  std::printf("%10s %5s  %-20s %7s %9s %9s %9s\n", "bytes", "depth", "engine", "GB/s", "cpu s/GB", "p50 ms", "p99 ms");
  for (const Cell& c : cells)
    for (int way = 0; way < 3; ++way)
      std::printf("%10llu %5llu  %-20s %7.3f %9.3f %9.3f %9.3f\n", static_cast<unsigned long long>(c.bytes), static_cast<unsigned long long>(c.depth),
                  names[way], median(c.rate[way]), median(c.cpu[way]), median(c.p50[way]), median(c.p99[way]));
  close(fd);
}
