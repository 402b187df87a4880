#include <cstring>
#include <string>

#include "base/error.h"
#include "cpu/isa/kernels.h"

#if defined(STRATA_ARM64) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(STRATA_ARM64) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

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

// Bits of the system's interface (Linux: asm/hwcap.h, of which older versions lack the second).
#if defined(STRATA_ARM64) && defined(__linux__)
constexpr unsigned long kHwcapAsimdDp = 1UL << 20, kHwcap2I8mm = 1UL << 13;
bool can_dotprod() { return (getauxval(AT_HWCAP) & kHwcapAsimdDp) != 0; }
bool can_i8mm() { return can_dotprod() && (getauxval(AT_HWCAP2) & kHwcap2I8mm) != 0; }
#elif defined(STRATA_ARM64) && defined(__APPLE__)
bool has_feature(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}
bool can_dotprod() { return has_feature("hw.optional.arm.FEAT_DotProd"); }
bool can_i8mm() { return can_dotprod() && has_feature("hw.optional.arm.FEAT_I8MM"); }
#elif defined(STRATA_ARM64)
bool can_dotprod() { return false; }
bool can_i8mm() { return false; }
#endif

}  // namespace

std::vector<const char*> isa_names() {
  std::vector<const char*> names = {"portable"};
  if (can_avx2()) names.push_back("avx2");
  if (can_avx512()) names.push_back("avx512");
  if (can_vnni()) names.push_back("avx512vnni");
#if defined(STRATA_ARM64)
  names.push_back("neon");
  if (can_dotprod()) names.push_back("neon_dotprod");
  if (can_i8mm()) names.push_back("neon_i8mm");
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
  if ((any || want == "neon_i8mm") && can_i8mm()) return kNeonI8mm;
  if ((any || want == "neon_dotprod") && can_dotprod()) return kNeonDotprod;
  if (any || want == "neon") return kNeon;
#endif
  if (any || want == "portable") return kPortable;
  std::string allowed = "auto";
  for (const char* name : isa_names()) allowed += std::string(", ") + name;
  throw ConfigError("isa", want, allowed + " on this machine");
}

}  // namespace strata::cpu
