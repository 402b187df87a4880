#include "base/cgroup.h"

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace strata {

namespace {

uint64_t number_in(const std::string& line) {
  const size_t at = line.find_first_of("0123456789");
  return at == std::string::npos ? kUnknown : std::strtoull(line.c_str() + at, nullptr, 10);
}

bool lists(const std::string& controllers, const std::string& controller) {
  std::istringstream in(controllers);
  for (std::string one; std::getline(in, one, ',');)
    if (one == controller) return true;
  return false;
}

}  // namespace

uint64_t number_of(const std::string& file, const std::string& key) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (key.empty()) return number_in(line);
    if (line.compare(0, key.size(), key) == 0 && line.size() > key.size() && (line[key.size()] == ' ' || line[key.size()] == ':'))
      return number_in(line.substr(key.size()));
  }
  return kUnknown;
}

std::vector<Cgroup> own_cgroups(const std::string& controller) {
  std::vector<Cgroup> found;
#ifdef __linux__
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    std::istringstream in(line);
    std::string id, controllers, path;
    std::getline(in, id, ':');
    std::getline(in, controllers, ':');
    std::getline(in, path);
    const bool v2 = controllers.empty();
    if (!v2 && !lists(controllers, controller)) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controller;
    for (;;) {
      found.push_back({root + (path == "/" ? "" : path), v2});
      if (path.empty() || path == "/") break;
      path.resize(path.find_last_of('/'));
    }
  }
#endif
  return found;
}

}  // namespace strata
