// A request to stop. Any thread may set it; long work asks for it between tasks and ends with Cancelled.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>

#include "base/error.h"

namespace strata {

class Cancel {
 public:
  void request() { flag_.store(true, std::memory_order_relaxed); }
  bool requested() const { return flag_.load(std::memory_order_relaxed); }
  void throw_if_requested() const {
    if (requested()) throw Cancelled();
  }

  // Called on the working thread at most every 20 ms by poll(); may throw (Python looks for signals here).
  std::function<void()> hook;
  void poll() {
    throw_if_requested();
    if (!hook) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::milliseconds(20)) return;
    last_ = now;
    hook();
    throw_if_requested();
  }

 private:
  std::atomic<bool> flag_{false};
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace strata
