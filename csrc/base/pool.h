// A pool of threads for loops of independent tasks. Idle threads sleep, a few moments
// after the last loop. Which thread runs a task never changes its result.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/cancel.h"

namespace strata {

// Cores this process may use: its affinity mask, and the CPU quota of its cgroup (v1 and v2).
int allowed_cpus();

class ThreadPool {
 public:
  // `threads` in all, the caller's included; at least 1. Fewer where the system does not give as many: see size().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs fn(task, thread) for every task in 0..n-1 and returns when all are done; thread is in 0..size()-1. When a
  // task throws, or `cancel` is requested, no new task starts and the first error is thrown here.
  void run(int64_t n, const std::function<void(int64_t, int)>& fn, Cancel* cancel = nullptr);

 private:
  void work(int thread);
  void take_tasks(int thread, Cancel* poll);

  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  template <class F>
  void wait_awake(F&& ready);

  const bool crowded_;  // more threads than cores: waiting awake would keep others from working
  std::atomic<uint64_t> round_{0};
  std::atomic<int> running_{0}, asleep_{0};
  bool stop_ = false;
  const std::function<void(int64_t, int)>* fn_ = nullptr;
  Cancel* cancel_ = nullptr;
  int64_t n_ = 0;
  std::atomic<int64_t> next_{0};
  std::exception_ptr error_;
};

}  // namespace strata
