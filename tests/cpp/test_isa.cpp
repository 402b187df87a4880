// Which instruction sets are offered. As arguments: those that this machine (or the emulated one) has.
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "cpu/isa/kernels.h"

using namespace strata;

namespace {

int failures = 0;
void check(bool ok, const std::string& what) {
  if (ok) return;
  ++failures;
  std::printf("wrong: %s\n", what.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> here;
  for (const char* name : cpu::isa_names()) here.emplace_back(name);
  if (argc > 1) check(here == std::vector<std::string>(argv + 1, argv + argc), "sets offered");
  check(here.front() == "portable" && here.back() == cpu::select_kernels("auto").name, "auto is not the last of them");
  for (const char* name : {"portable", "avx2", "avx512", "avx512vnni", "neon", "neon_dotprod", "neon_i8mm", "none", ""}) {
    bool there = false;
    for (const std::string& h : here) there = there || h == name;
    try {
      check(std::strcmp(cpu::select_kernels(name).name, name) == 0 && there, std::string(name) + " is selected");
    } catch (const ConfigError& e) {
      check(!there && e.knob == "isa" && e.value == name, std::string(name) + " is refused");
      for (const std::string& h : here) check(e.allowed.find(h) != std::string::npos, h + " is not among those allowed");
    }
  }
  for (const std::string& h : here) std::printf("%s ", h.c_str());
  std::printf("%s\n", failures != 0 ? "FAILED" : "ok");
  return failures != 0 ? 1 : 0;
}
