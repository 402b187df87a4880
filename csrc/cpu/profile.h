// Where the time goes: per kind of op and kernel. Off, it costs one branch an op.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/pool.h"
#include "cpu/isa/kernels.h"

namespace strata::cpu {

class Profile {
 public:
  struct Entry {
    int64_t count = 0;
    double seconds = 0, macs = 0, bytes = 0;  // multiply-adds, bytes of weights read
  };
  using Key = std::pair<std::string, std::string>;  // kind of op, kernel

  void add(const char* kind, std::string kernel, double seconds, double macs, double bytes) {
    Entry& e = entries_[{kind, std::move(kernel)}];
    ++e.count;
    e.seconds += seconds;
    e.macs += macs;
    e.bytes += bytes;
  }
  void clear() { entries_.clear(); }
  const std::map<Key, Entry>& entries() const { return entries_; }

 private:
  std::map<Key, Entry> entries_;
};

// Runs fn; when there is a profile, adds its time under what(): Key, multiply-adds and bytes.
template <class F, class What>
void timed(Profile* profile, F&& fn, What&& what) {
  if (!profile) {
    fn();
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  fn();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  what(seconds);
}

// What the machine does at best on all threads of the pool, measured in some tenths of a second: products of integers and of
// floats on data in the first-level cache (1e9 multiply-adds a second), and memory read (1e9 bytes a second).
struct Peak {
  double integer = 0, f32 = 0, memory = 0;
};
Peak measure_peak(const Kernels& k, ThreadPool& pool);
// Its `integer` alone, from about a thousandth of a second.
double quick_integer_peak(const Kernels& k, ThreadPool& pool);

}  // namespace strata::cpu
