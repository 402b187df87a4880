#include "base/trace.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace strata {

namespace {

std::string text_of(const Trace::Event& e) {
  char s[320];
  int n = std::snprintf(s, sizeof s, "{\"name\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"args\":{", e.name, e.thread,
                        e.start * 1e6, (e.end - e.start) * 1e6);
  std::string text(s, static_cast<size_t>(n));
  bool first = true;
  const auto arg = [&](const char* name, uint64_t value) {
    n = std::snprintf(s, sizeof s, "%s\"%s\":%llu", first ? "" : ",", name, static_cast<unsigned long long>(value));
    text.append(s, static_cast<size_t>(n));
    first = false;
  };
  if (e.layer >= 0) arg("layer", static_cast<uint64_t>(e.layer));
  if (e.expert >= 0) arg("expert", static_cast<uint64_t>(e.expert));
  if (e.chunk >= 0) arg("chunk", static_cast<uint64_t>(e.chunk));
  if (e.bytes > 0) arg("bytes", e.bytes);
  return text + "}},\n";
}

std::string thread_name(int thread, const std::string& name) {
  return "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":" + std::to_string(thread) + ",\"args\":{\"name\":\"" + name + "\"}},\n";
}

}  // namespace

Trace::Trace(const std::string& path, int readers) : path_(path), file_(std::fopen(path.c_str(), "w")) {
  if (!file_) throw ConfigError("trace", path, std::string("a file that can be written (") + std::strerror(errno) + ")");
  std::string text = "[\n" + thread_name(0, "compute");
  for (int i = 1; i <= readers; ++i) text += thread_name(i, "reader " + std::to_string(i));
  write(text);
}

Trace::~Trace() {
  try {
    flush();
    write("{\"name\":\"end\",\"ph\":\"i\",\"pid\":1,\"tid\":0,\"ts\":" + std::to_string(now() * 1e6) + "}]\n");
  } catch (const Error&) {
    // A destructor cannot say it; the missing end does.
  }
  std::fclose(file_);
}

void Trace::add(const Event& event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  events_.push_back(event);
}

void Trace::flush() {
  std::vector<Event> events;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    events.swap(events_);
  }
  std::string text;
  for (const Event& e : events) text += text_of(e);
  write(text);
}

void Trace::write(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fflush(file_) != 0)
    throw ConfigError("trace", path_, std::string("a file that can be written (") + std::strerror(errno) + ")");
}

}  // namespace strata
