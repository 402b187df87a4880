// Linux: numbers in /proc and /sys, and the control groups that limit this process. Elsewhere there are none.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace strata {

inline constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// The first number on the line of `file` that starts with `key` and a space or colon (`key` empty: on the first line);
// kUnknown when there is none ("max", an empty or missing file). Read by lines, without the number parsing of C++ streams,
// which needs a locale that works (docs/learned.md).
uint64_t number_of(const std::string& file, const std::string& key);

struct Cgroup {
  std::string folder;
  bool v2 = false;
};
// The process's own group and all its parents, which limit it too, in the hierarchy of a controller ("memory", "cpu").
std::vector<Cgroup> own_cgroups(const std::string& controller);

}  // namespace strata
