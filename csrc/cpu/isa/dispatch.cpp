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
  std::string allowed = "auto, portable";
  if (can_avx2()) allowed += ", avx2";
  if (can_avx512()) allowed += ", avx512";
  if (can_vnni()) allowed += ", avx512vnni";
#if defined(STRATA_ARM64)
  allowed += ", neon";
#endif
  throw ConfigError("isa", want, allowed + " on this machine");
}

}  // namespace strata::cpu
