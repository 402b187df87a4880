#include "base/pool.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <string>
#include <utility>

#include "base/cgroup.h"

#ifdef __linux__
#include <sched.h>
#endif

namespace strata {

namespace {

// CPUs granted by the quotas of the process's cgroups, or 0 when there is none. v2: "max 100000" or "quota period"; v1: two
// files, -1 = none.
double cgroup_cpus() {
  double least = 0;
  for (const Cgroup& g : own_cgroups("cpu")) {
    double quota = 0, period = 0;
    if (g.v2) {
      std::ifstream in(g.folder + "/cpu.max");
      std::string line;
      if (!std::getline(in, line) || std::sscanf(line.c_str(), "%lf %lf", &quota, &period) != 2) continue;
    } else {
      std::ifstream in(g.folder + "/cpu.cfs_quota_us");
      std::string line;
      const uint64_t us = number_of(g.folder + "/cpu.cfs_period_us", "");
      if (!std::getline(in, line) || us == kUnknown) continue;
      quota = std::atof(line.c_str());
      period = static_cast<double>(us);
    }
    if (quota > 0 && period > 0 && (least == 0 || quota / period < least)) least = quota / period;
  }
  return least;
}

// Tells the processor that a loop waits.
inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

constexpr int kAwakeMicroseconds = 50;

}  // namespace

int allowed_cpus() {
  int n = static_cast<int>(std::thread::hardware_concurrency());
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
#endif
  const double quota = cgroup_cpus();
  if (quota > 0) n = std::min(n, static_cast<int>(std::ceil(quota)));
  return std::max(1, n);
}

ThreadPool::ThreadPool(int threads) : crowded_(threads > allowed_cpus()) {
  workers_.reserve(static_cast<size_t>(std::max(0, threads - 1)));
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::exception&) {  // the system gives no more threads, or no memory for them: the work is done by fewer
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& t : workers_) t.join();
}

// Waits awake for a moment, for work that follows at once: a thread that sleeps takes tens of microseconds to come back,
// and a token is some hundred short loops. Then the caller sleeps: idle threads take no processor time.
template <class F>
void ThreadPool::wait_awake(F&& ready) {
  if (crowded_) return;
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(kAwakeMicroseconds);
  while (!ready()) {
    for (int i = 0; i < 32; ++i) relax();
    if (std::chrono::steady_clock::now() > end) return;
  }
}

void ThreadPool::run(int64_t n, const std::function<void(int64_t, int)>& fn, Cancel* cancel) {
  if (cancel) cancel->poll();
  if (n <= 0) return;
  if (n == 1 || workers_.empty()) {
    for (int64_t i = 0; i < n; ++i) {
      fn(i, 0);
      if (cancel) cancel->poll();
    }
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    fn_ = &fn;
    cancel_ = cancel;
    n_ = n;
    next_.store(0, std::memory_order_relaxed);
    error_ = nullptr;
    running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
  }
  if (asleep_.load() > 0) wake_.notify_all();
  take_tasks(0, cancel);
  wait_awake([this] { return running_.load(std::memory_order_acquire) == 0; });
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [this] { return running_.load(std::memory_order_acquire) == 0; });
  if (error_) {
    const std::exception_ptr e = std::exchange(error_, nullptr);
    lock.unlock();
    std::rethrow_exception(e);
  }
}

void ThreadPool::take_tasks(int thread, Cancel* poll) {
  try {
    for (;;) {
      if (poll)
        poll->poll();
      else if (cancel_ && cancel_->requested())
        return;
      const int64_t i = next_.fetch_add(1, std::memory_order_relaxed);
      if (i >= n_) return;
      (*fn_)(i, thread);
    }
  } catch (...) {
    next_.store(n_, std::memory_order_relaxed);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

void ThreadPool::work(int thread) {
  uint64_t seen = 0;
  for (;;) {
    wait_awake([&] { return round_.load(std::memory_order_acquire) != seen; });
    {
      std::unique_lock<std::mutex> lock(mutex_);
      asleep_.fetch_add(1);
      wake_.wait(lock, [&] { return stop_ || round_.load(std::memory_order_acquire) != seen; });
      asleep_.fetch_sub(1);
      if (stop_) return;
      seen = round_.load(std::memory_order_acquire);
    }
    take_tasks(thread, nullptr);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const std::lock_guard<std::mutex> lock(mutex_);  // the caller is either awake or inside its wait
      done_.notify_one();
    }
  }
}

}  // namespace strata
