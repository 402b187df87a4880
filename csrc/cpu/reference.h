// Each op once more, plain and obvious: single loops, sums in double, libm. What the fast ones are compared with.
#pragma once

#include <vector>

#include "cpu/backend.h"

namespace strata::cpu::reference {

// Runs `op`; false for kinds that only move or look at rows (Tap, Embed, StoreRows), which have no other form.
bool run(const program::Op& op, const program::Frame& frame, const program::Program& program, const Bindings& bindings,
         const std::vector<Matrix>& matrix, const std::vector<const float*>& vector);

// y = W x in double, rounded once per output.
void matvec(const Matrix& w, const float* x, float* y);
void expert_gate_up(const ExpertPass& pass, const ExpertRun& run);
void expert_down(const ExpertPass& pass, const ExpertRun& run);

}  // namespace strata::cpu::reference
