// The stream under stress: 10,000 small layers with random routing, guesses, delays, failing reads and cancels, arenas from
// the smallest up, several size classes. Every byte handed out is checked, counters add up, nothing hangs.
//
// Run plain and under the thread sanitizer: STRATA_CPP_TESTS=ON, STRATA_SANITIZE=thread.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "stream/source.h"
#include "stream/stream.h"

using namespace strata;
using namespace strata::stream;

namespace {

int failures = 0;
#define CHECK(x)                                                       \
  do {                                                                 \
    if (!(x)) {                                                        \
      std::printf("%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #x); \
      ++failures;                                                      \
    }                                                                  \
  } while (0)

constexpr int kLayers = 10, kExperts = 24, kChosen = 4;

uint8_t pattern(int layer, int expert, int part, uint64_t i) {
  return static_cast<uint8_t>(i * 7 + static_cast<uint64_t>(layer) * 31 + static_cast<uint64_t>(expert) * 131 + static_cast<uint64_t>(part) * 17 + (i >> 8));
}

// Layers 0-6: three parts far apart. Layers 7-9: larger, gate and up neighbours (one extent). Odd sizes and offsets.
struct World {
  std::string path;
  ExpertTable table;
  std::vector<File> files;

  World() {
    char name[] = "/tmp/strata-stress-XXXXXX";
    const int fd = ::mkstemp(name);
    path = name;
    table.n_expert = kExperts;
    std::vector<uint8_t> bytes;
    for (int l = 0; l < kLayers; ++l) {
      ExpertTable::LayerParts parts;
      const uint64_t size = l < 7 ? 1000 : 5003;
      if (l < 7) {
        for (int i = 0; i < kParts; ++i) {
          bytes.resize(bytes.size() + 32);
          parts.first[static_cast<size_t>(i)] = {0, bytes.size(), size};
          parts.stride[static_cast<size_t>(i)] = size;
          for (int e = 0; e < kExperts; ++e)
            for (uint64_t b = 0; b < size; ++b) bytes.push_back(pattern(l, e, i, b));
        }
      } else {
        const uint64_t base = bytes.size();
        for (int e = 0; e < kExperts; ++e)
          for (int i = 0; i < 2; ++i)
            for (uint64_t b = 0; b < size; ++b) bytes.push_back(pattern(l, e, i, b));
        parts.first[0] = {0, base, size};
        parts.first[1] = {0, base + size, size};
        parts.first[2] = {0, bytes.size(), size};
        parts.stride = {2 * size, 2 * size, size};
        for (int e = 0; e < kExperts; ++e)
          for (uint64_t b = 0; b < size; ++b) bytes.push_back(pattern(l, e, 2, b));
      }
      table.layers.push_back(parts);
    }
    if (::write(fd, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) std::abort();
    ::close(fd);
    files.emplace_back(path);
  }
  ~World() { ::unlink(path.c_str()); }
};

void check_sums(const Counters& c) {
  CHECK(c.lookups == c.resident + c.ahead + c.missed);
  CHECK(c.issued == c.used + c.wasted + c.cancelled + c.pending);
  CHECK(c.late <= c.ahead);
}

void check_bytes(const World& w, int layer, const Expert& x) {
  for (int i = 0; i < kParts; ++i) {
    const uint64_t n = w.table.part(layer, x.id, i).bytes;
    const auto* p = reinterpret_cast<const uint8_t*>(x.part[i]);
    for (uint64_t b = 0; b < n; b += b + 13 < n ? 13 : 1)
      if (p[b] != pattern(layer, x.id, i, b)) {
        std::printf("layer %d expert %d part %d byte %llu is wrong\n", layer, x.id, i, static_cast<unsigned long long>(b));
        ++failures;
        return;
      }
  }
}

struct Case {
  int slots, io_threads;
  Guess guess;
  Faults faults;
  int cancel_per_mille;
};

// Runs `layers` layers; returns how many sweeps ended early.
int run(const World& w, const Case& c, int layers, uint32_t seed) {
  std::mt19937 rng(seed);
  const auto below = [&rng](int n) { return static_cast<int>(rng() % static_cast<uint32_t>(n)); };
  MemoryPlan memory;
  const ArenaPlan arena = plan_arena(w.table, c.slots, 0, kChosen, Source::kAlignment);
  memory.add(kArenaLine, arena.bytes);
  Source source(w.files, true, c.faults);
  StreamConfig config;
  config.io_threads = c.io_threads;
  config.guess = c.guess;
  Stream stream(source, w.table, arena, memory, config);
  int ended_early = 0;
  for (int done = 0; done < layers;) {
    const int chunks = 1 + below(3);
    stream.begin_sweep(chunks * 2);
    try {
      for (int layer = 0; layer < kLayers; ++layer, ++done) {
        std::vector<uint8_t> wanted(kExperts, 0);
        for (int k = 0; k < chunks; ++k) {
          const int rows = 1 + below(4);
          std::vector<int32_t> used, predicted;
          for (int i = 0; i < rows * kChosen; ++i) {
            used.push_back(below(below(2) ? kExperts : 6));
            predicted.push_back(below(3) ? used.back() : below(kExperts));
            wanted[static_cast<size_t>(used.back())] = 1;
          }
          stream.note(layer, rows, used, layer + 1 < kLayers ? predicted : std::vector<int32_t>{});
        }
        Cancel cancel;
        if (below(1000) < c.cancel_per_mille) cancel.request();
        const auto groups = stream.at_layer(layer, below(2) * 4, &cancel);
        std::vector<uint8_t> up(kExperts, 0), down(kExperts, 0);
        int last = -1;
        Step step;
        for (groups->next(step); step.kind != Step::End; groups->next(step)) {
          for (const Expert& x : step.experts) {
            check_bytes(w, layer, x);
            if (step.kind == Step::GateUp) {
              CHECK(!up[static_cast<size_t>(x.id)]);
              up[static_cast<size_t>(x.id)] = 1;
            } else {
              CHECK(up[static_cast<size_t>(x.id)] && x.id > last);
              last = x.id;
              down[static_cast<size_t>(x.id)] = 1;
            }
          }
          if (below(1000) < c.cancel_per_mille) throw Cancelled();
          check_sums(stream.counters());
        }
        CHECK(up == wanted && down == wanted);
      }
    } catch (const Cancelled&) {
      ++ended_early;
      stream.abandon();
      ++done;
    } catch (const StreamIOError& e) {
      CHECK(e.err == EIO && e.layer >= 0 && e.expert >= 0);
      ++ended_early;
      stream.abandon();
      ++done;
    }
    check_sums(stream.counters());
  }
  stream.abandon();
  const Counters end = stream.counters();
  check_sums(end);
  CHECK(end.pending == 0);
  if (c.guess == Guess::None) CHECK(end.ahead == 0 || c.cancel_per_mille > 0 || c.faults.eio_per_million > 0);
  return ended_early;
}

}  // namespace

int main() {
  // A hang is a failure, said before the test runner's own limit.
  std::atomic<bool> finished{false};
  std::thread watchdog([&] {
    for (int i = 0; i < 3000 && !finished; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (!finished) {
      std::printf("the stream hangs\n");
      std::fflush(stdout);
      std::_Exit(2);
    }
  });
  const World world;
  Faults none, slow, eio, both;
  slow.delay_us = 200;
  eio.eio_per_million = 3000;
  both.delay_us = 100;
  both.eio_per_million = 2000;
  both.short_reads = 4096;
  const Case cases[] = {
      {kChosen, 1, Guess::Router, none, 0},    {2 * kChosen, 3, Guess::Router, slow, 5},  {20, 8, Guess::Router, both, 5},
      {40, 2, Guess::Random, none, 3},         {60, 4, Guess::Router, both, 10},          {60, 4, Guess::Profile, eio, 0},
      {100, 4, Guess::Router, slow, 5},        {140, 4, Guess::None, both, 2},            {200, 8, Guess::Random, both, 5},
      {kLayers * kExperts, 4, Guess::Router, eio, 2},
  };
  int early = 0, n = 0;
  for (const Case& c : cases) {
    const int e = run(world, c, 1000, 17U + static_cast<uint32_t>(n++));
    if (c.cancel_per_mille || c.faults.eio_per_million) CHECK(e > 0);
    else CHECK(e == 0);
    early += e;
  }
  finished = true;
  watchdog.join();
  std::printf("%d layers, %d sweeps ended early, %d failures\n", n * 1000, early, failures);
  return failures ? 1 : 0;
}
