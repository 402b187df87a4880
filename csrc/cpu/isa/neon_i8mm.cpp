#define STRATA_SIMD_NEON 1
#define STRATA_SIMD_DOTPROD 1
#define STRATA_SIMD_I8MM 1
#define STRATA_KERNELS kNeonI8mm
#define STRATA_ISA_NAME "neon_i8mm"
#include "cpu/isa/kernels.inc"
