// What the stream knows of a model: how many experts each layer has, and where their bytes lie. No tensors, no types.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace strata::stream {

struct Part {  // bytes of one of an expert's matrices in the file
  uint32_t file = 0;
  uint64_t offset = 0, bytes = 0;
};
inline constexpr int kParts = 3;  // gate, up, down

struct ExpertTable {
  struct LayerParts {
    std::array<Part, kParts> first;       // of expert 0
    std::array<uint64_t, kParts> stride;  // from one expert to the next
  };
  int n_expert = 0;
  int n_used = 1;  // chosen by a row in each layer
  std::vector<LayerParts> layers;

  int n_layer() const { return static_cast<int>(layers.size()); }
  Part part(int layer, int expert, int i) const {
    const LayerParts& l = layers[static_cast<std::size_t>(layer)];
    Part p = l.first[static_cast<std::size_t>(i)];
    p.offset += l.stride[static_cast<std::size_t>(i)] * static_cast<uint64_t>(expert);
    return p;
  }
};

// How an expert of one layer lies in a slot: parts that are neighbours in the file are read together, and every such
// extent has room for being widened to the alignment that direct reads want.
struct SlotLayout {
  struct Extent {
    int first_part = 0, parts = 1;
    uint64_t bytes = 0;   // in the file
    uint64_t at = 0;      // of its region in the slot
  };
  std::vector<Extent> extents;
  std::array<uint64_t, kParts> extent_of{};  // which extent a part belongs to
  std::array<uint64_t, kParts> inside{};     // its offset in that extent
  uint64_t bytes = 0;                        // of the slot, a multiple of the alignment
};
SlotLayout slot_layout(const ExpertTable& table, int layer, uint64_t alignment);

}  // namespace strata::stream
