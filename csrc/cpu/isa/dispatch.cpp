#include <cstring>
#include <string>

#include "base/error.h"
#include "cpu/isa/kernels.h"

namespace strata::cpu {

namespace {

bool can_avx2() {
#if defined(STRATA_X86)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
#else
  return false;
#endif
}

bool can_avx512() {
#if defined(STRATA_X86)
  return can_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

bool can_vnni() {
#if defined(STRATA_X86)
  return can_avx512() && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi");
#else
  return false;
#endif
}

}  // namespace

std::vector<const char*> isa_names() {
  std::vector<const char*> names = {"portable"};
  if (can_avx2()) names.push_back("avx2");
  if (can_avx512()) names.push_back("avx512");
  if (can_vnni()) names.push_back("avx512vnni");
#if defined(STRATA_ARM64)
  names.push_back("neon");
#endif
  return names;
}

const Kernels& select_kernels(const char* isa) {
  const std::string want = isa;
  const bool any = want == "auto";
#if defined(STRATA_X86)
  if ((any || want == "avx512vnni") && can_vnni()) return kAvx512Vnni;
  if ((any || want == "avx512") && can_avx512()) return kAvx512;
  if ((any || want == "avx2") && can_avx2()) return kAvx2;
#elif defined(STRATA_ARM64)
  if (any || want == "neon") return kNeon;
#endif
  if (any || want == "portable") return kPortable;
  std::string allowed = "auto";
  for (const char* name : isa_names()) allowed += std::string(", ") + name;
  throw ConfigError("isa", want, allowed + " on this machine");
}

}  // namespace strata::cpu
