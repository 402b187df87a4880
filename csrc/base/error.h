// Typed errors of the core. bind/ turns each into the Python exception of the same name, with the same fields.
// Bad input always ends in one of these: the core never asserts on it, never aborts.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace strata {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A model file is damaged, incomplete, or not of a kind strata reads.
struct ModelFormatError : Error {
  // `where` is the byte offset in `file` of the faulty entry, when there is one.
  ModelFormatError(const std::string& what, std::string file_, std::optional<uint64_t> offset_ = std::nullopt);
  std::string file;
  std::optional<uint64_t> offset;
};

// A knob has a value outside its range, or two knobs contradict each other.
struct ConfigError : Error {
  ConfigError(std::string knob_, std::string value_, std::string allowed_);
  std::string knob, value, allowed;
};

// A call's arguments cannot be served: token ids out of range, more tokens than the context, a closed session.
struct InputError : Error {
  using Error::Error;
};

// The operating system refused a read, or the file ended early. The session stays usable.
struct StreamIOError : Error {
  StreamIOError(const std::string& what, std::string file_, uint64_t offset_, int err_, int layer_ = -1, int expert_ = -1);
  std::string file;
  uint64_t offset;
  int err;            // errno, 0 when the file ended early
  int layer, expert;  // -1 when the bytes belong to no expert
};

// The memory plan does not fit; `plan` is the printed table.
struct OutOfMemoryPlanError : Error {
  OutOfMemoryPlanError(const std::string& what, std::string plan_, uint64_t needed_, uint64_t available_);
  std::string plan;
  uint64_t needed, available;  // bytes
};

// The caller asked to stop. The session is where the sweep began.
struct Cancelled : Error {
  Cancelled() : Error("cancelled") {}
};

}  // namespace strata
