// What ran when, for a viewer: events in Chrome's trace format (JSON array), which Perfetto opens.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <vector>

namespace strata {

class Trace {
 public:
  struct Event {
    const char* name = "";
    int thread = 0;             // 0: the one that computes; 1 and up: readers
    double start = 0, end = 0;  // seconds, of now()
    int layer = -1, expert = -1, chunk = -1;
    uint64_t bytes = 0;
  };

  // Replaces the file. Throws ConfigError when it cannot be written.
  Trace(const std::string& path, int readers);
  ~Trace();  // closes the array: a file without its end is one of a run that did not end
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  double now() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - zero_).count(); }
  void add(const Event& event);  // any thread
  void flush();                  // to the file; throws ConfigError when it is full

  // An event as long as the object lives. A null trace costs one branch.
  class Span {
   public:
    Span(Trace* trace, const char* name, int layer = -1, int chunk = -1) : trace_(trace) {
      if (!trace_) return;
      event_.name = name;
      event_.layer = layer;
      event_.chunk = chunk;
      event_.start = trace_->now();
    }
    ~Span() {
      if (!trace_) return;
      event_.end = trace_->now();
      trace_->add(event_);
    }
    Span(const Span&) = delete;
    Span& operator=(const Span&) = delete;

   private:
    Trace* trace_;
    Event event_;
  };

 private:
  void write(const std::string& text);

  const std::string path_;
  const std::chrono::steady_clock::time_point zero_ = std::chrono::steady_clock::now();
  std::FILE* file_ = nullptr;
  std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace strata
