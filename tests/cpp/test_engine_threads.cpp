// Everything that runs beside each other in a loaded model, at once: compute threads, readers, the n-gram thread, two sessions
// used from two threads, a cancel from a third. Meant for the thread sanitizer; the results are compared too.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "window/engine.h"

using namespace strata;
using namespace strata::window;

namespace {

EngineConfig small_arena() {
  EngineConfig c;
  c.prompt_chunk = 8;
  c.prompt_sweep = 16;
  c.arena_slots = 20;
  c.threads = 3;
  c.io_threads = 3;
  c.context = 256;
  c.fault_delay_us = 100;
  return c;
}

std::vector<int32_t> tokens(int n, int seed) {
  std::vector<int32_t> t;
  for (int i = 0; i < n; ++i) t.push_back((i * 37 + seed * 11 + i * i) % 490);
  return t;
}

std::vector<float> run(Engine& engine, const std::vector<int32_t>& ids) {
  std::vector<float> logits(static_cast<size_t>(engine.model().hp.n_vocab));
  const auto session = engine.new_session();
  Cancel cancel;
  engine.prefill(*session, ids, LogitsMode::Last, logits.data(), {}, nullptr, cancel);
  return logits;
}

}  // namespace

int main() {
  std::atomic<int> failures{0};
  for (const char* name : {"tiny-ties", "tiny-f16", "small-iq2xs-q2_0"}) {
    const std::string path = std::string(STRATA_TEST_DATA) + "/oracle/" + name + ".gguf";
    Engine engine(path, small_arena(), nullptr);
    const auto a = tokens(60, 1), b = tokens(45, 2);
    const auto want_a = run(engine, a), want_b = run(engine, b);
    const auto check = [&](const std::vector<int32_t>& ids, const std::vector<float>& want) {
      const auto got = run(engine, ids);
      if (std::memcmp(got.data(), want.data(), want.size() * sizeof(float)) != 0) ++failures;
    };
    std::thread one([&] { for (int i = 0; i < 3; ++i) check(a, want_a); });
    std::thread two([&] { for (int i = 0; i < 3; ++i) check(b, want_b); });
    one.join();
    two.join();

    // Stopped at some moment by another thread: the session is where a sweep began, and goes on to the same result.
    for (int i = 0; i < 6; ++i) {
      const auto session = engine.new_session();
      std::vector<float> logits(want_a.size());
      Cancel cancel;
      std::thread stopper([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(3 * i));
        cancel.request();
      });
      try {
        engine.prefill(*session, a, LogitsMode::Last, logits.data(), {}, nullptr, cancel);
      } catch (const Cancelled&) {
        if (session->position() % 16 != 0) ++failures;
        Cancel none;
        engine.prefill(*session, std::span(a).subspan(static_cast<size_t>(session->position())), LogitsMode::Last, logits.data(), {},
                       nullptr, none);
      }
      stopper.join();
      if (std::memcmp(logits.data(), want_a.data(), want_a.size() * sizeof(float)) != 0) ++failures;
    }
  }
  std::printf("%d failures\n", failures.load());
  return failures ? 1 : 0;
}
