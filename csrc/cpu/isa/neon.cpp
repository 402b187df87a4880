#define STRATA_SIMD_NEON 1
#define STRATA_KERNELS kNeon
#define STRATA_ISA_NAME "neon"
#include "cpu/isa/kernels.inc"
