#include "base/trace.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>

#include "base/error.h"

namespace strata {

namespace {

// Microseconds with three decimals, whatever the locale says about points and commas.
std::string microseconds(double seconds) {
  const auto ns = static_cast<long long>(std::llround(std::max(0.0, seconds) * 1e9));
  const std::string part = std::to_string(ns % 1000);
  return std::to_string(ns / 1000) + "." + std::string(3 - part.size(), '0') + part;
}

std::string text_of(const Trace::Event& e) {
  std::string args;
  const auto arg = [&](const char* name, bool there, uint64_t value) {
    if (there) args += (args.empty() ? "\"" : ",\"") + std::string(name) + "\":" + std::to_string(value);
  };
  arg("layer", e.layer >= 0, static_cast<uint64_t>(e.layer));
  arg("expert", e.expert >= 0, static_cast<uint64_t>(e.expert));
  arg("chunk", e.chunk >= 0, static_cast<uint64_t>(e.chunk));
  arg("bytes", e.bytes > 0, e.bytes);
  return "{\"name\":\"" + std::string(e.name) + "\",\"ph\":\"X\",\"pid\":1,\"tid\":" + std::to_string(e.thread) + ",\"ts\":" +
         microseconds(e.start) + ",\"dur\":" + microseconds(e.end - e.start) + ",\"args\":{" + args + "}},\n";
}

std::string thread_name(int thread, const std::string& name) {
  return "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":" + std::to_string(thread) + ",\"args\":{\"name\":\"" + name + "\"}},\n";
}

// A trace of an earlier run may be replaced; another file, such as a model named by mistake, may not.
bool may_replace(const std::string& path) {
  struct stat st {};
  if (::stat(path.c_str(), &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) return true;
  const std::string start = "[\n" + thread_name(0, "compute");
  std::string found(start.size(), '\0');
  std::ifstream in(path, std::ios::binary);
  return in.read(found.data(), static_cast<std::streamsize>(found.size())) && found == start;
}

}  // namespace

Trace::Trace(const std::string& path, int readers) : path_(path) {
  if (!may_replace(path)) throw ConfigError("trace", path, "a new file, an empty one, or an older trace: this one is something else");
  file_.reset(std::fopen(path.c_str(), "w"));
  if (!file_) throw ConfigError("trace", path, std::string("a file that can be written (") + std::strerror(errno) + ")");
  std::string text = "[\n" + thread_name(0, "compute");
  for (int i = 1; i <= readers; ++i) text += thread_name(i, "reader " + std::to_string(i));
  write(text);
}

Trace::~Trace() {
  try {
    flush();
    write("{\"name\":\"end\",\"ph\":\"i\",\"pid\":1,\"tid\":0,\"ts\":" + microseconds(now()) + "}]\n");
  } catch (const Error&) {
    // A destructor cannot say it; the missing end does.
  }
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
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0)
    throw ConfigError("trace", path_, std::string("a file that can be written (") + std::strerror(errno) + ")");
}

}  // namespace strata
