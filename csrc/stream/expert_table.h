// What the stream knows of a model: how many experts each layer has, and where their bytes lie. No tensors, no types.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace strata::stream {

struct Part {  // bytes of one of an expert's matrices in the file
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
};
inline constexpr int kParts = 3;  // gate, up, down

class ExpertTable {
 public:
  struct LayerParts {
    std::array<Part, kParts> first;       // of expert 0
    std::array<uint64_t, kParts> stride;  // from one expert to the next
  };
  int n_expert = 0;
  std::vector<LayerParts> layers;

  Part part(int layer, int expert, int i) const {
    const LayerParts& l = layers[static_cast<size_t>(layer)];
    Part p = l.first[static_cast<size_t>(i)];
    p.offset += l.stride[static_cast<size_t>(i)] * static_cast<uint64_t>(expert);
    return p;
  }
  uint64_t bytes(int layer) const {
    uint64_t sum = 0;
    for (const Part& p : layers[static_cast<size_t>(layer)].first) sum += p.bytes;
    return sum;
  }
};

}  // namespace strata::stream
