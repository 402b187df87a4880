// The router alone: what Backend::router does for one row, callable without a model (parity checks).
#pragma once

#include <cstdint>

#include "cpu/isa/kernels.h"

namespace strata::cpu {

// p = softmax(logits), in place; ids = the k largest, larger first, lower index first among equals, NaN below everything;
// weights = their p, normalised to 1 among themselves.
void route(const Kernels& kernels, float* logits, int n, int k, int32_t* ids, float* weights);

}  // namespace strata::cpu
