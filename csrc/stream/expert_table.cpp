#include "stream/expert_table.h"

namespace strata::stream {

SlotLayout slot_layout(const ExpertTable& table, int layer, uint64_t alignment) {
  const ExpertTable::LayerParts& l = table.layers[static_cast<std::size_t>(layer)];
  SlotLayout s;
  for (int i = 0; i < kParts; ++i) {
    const auto u = static_cast<std::size_t>(i);
    const bool joins = i > 0 && l.first[u].file == l.first[u - 1].file && l.stride[u] == l.stride[u - 1] &&
                       l.first[u].offset == l.first[u - 1].offset + l.first[u - 1].bytes;
    if (!joins) s.extents.push_back({i, 0, 0, 0});
    SlotLayout::Extent& e = s.extents.back();
    s.extent_of[u] = s.extents.size() - 1;
    s.inside[u] = e.bytes;
    e.bytes += l.first[u].bytes;
    ++e.parts;
  }
  for (SlotLayout::Extent& e : s.extents) {
    e.at = s.bytes;
    // Widened at both ends: at most one block more than the bytes fill.
    s.bytes += (e.bytes + alignment - 1) / alignment * alignment + alignment;
  }
  return s;
}

}  // namespace strata::stream
