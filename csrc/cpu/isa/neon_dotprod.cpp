#define STRATA_SIMD_NEON 1
#define STRATA_SIMD_DOTPROD 1
#define STRATA_KERNELS kNeonDotprod
#define STRATA_ISA_NAME "neon_dotprod"
#include "cpu/isa/kernels.inc"
