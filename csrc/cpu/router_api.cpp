#include "cpu/router_api.h"

#include "cpu/backend.h"

namespace strata::cpu {

void route(const Kernels& kernels, float* logits, int n, int k, int32_t* ids, float* weights) {
  const float sum = kernels.exp_sum(logits, kernels.max(logits, n), n);
  for (int i = 0; i < n; ++i) logits[i] /= sum;
  top_k(logits, n, k, ids);
  float chosen = 0;
  for (int i = 0; i < k; ++i) chosen += logits[ids[i]];
  for (int i = 0; i < k; ++i) weights[i] = logits[ids[i]] / chosen;
}

}  // namespace strata::cpu
