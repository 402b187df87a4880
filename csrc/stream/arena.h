// Slots of memory for experts. A slot holds one expert, all parts; which expert stays is decided by last use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "stream/expert_table.h"

namespace strata::stream {

class Arena {
 public:
  // Bytes of a slot that fits every layer's experts; parts start at multiples of 64 bytes.
  static uint64_t slot_bytes(const ExpertTable& table);

  Arena(const ExpertTable& table, MemoryPlan& plan, int slots);

  int slots() const { return static_cast<int>(slot_.size()); }
  // Slot that holds the expert, or -1.
  int find(int layer, int expert) const { return where_[index(layer, expert)]; }
  // Takes the least recently used slot that is not pinned for this expert, which it holds from now on, pinned. -1 when
  // every slot is pinned.
  int claim(int layer, int expert);
  void pin(int slot);    // a pinned slot is never reused; pinning counts as use
  void unpin(int slot);
  void forget(int slot); // its bytes are not what they should be (a read failed)
  void clear();          // forgets all experts; nothing may be pinned

  std::byte* part(int slot, int layer, int i) const;

 private:
  struct Slot {
    int layer = -1, expert = -1, pins = 0;
    uint64_t used = 0;
  };
  size_t index(int layer, int expert) const { return static_cast<size_t>(layer) * static_cast<size_t>(table_.n_expert) + static_cast<size_t>(expert); }

  const ExpertTable& table_;
  Pages memory_;
  uint64_t slot_bytes_ = 0;
  std::vector<Slot> slot_;
  std::vector<int32_t> where_;  // [layer][expert] -> slot or -1
  uint64_t clock_ = 0;
};

}  // namespace strata::stream
