#define STRATA_SIMD_PORTABLE 1
#define STRATA_KERNELS kPortable
#define STRATA_ISA_NAME "portable"
#include "cpu/isa/kernels.inc"
