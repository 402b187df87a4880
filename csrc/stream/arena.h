// Slots of memory for experts, in one size class per distinct size. Decides which expert gives way; knows no threads: the
// stream calls it under its lock.
//
// An expert that nobody needs or guesses is *idle*. Idle experts give way in this order: those marked first-out (wrong
// guesses), the rest by last use, and at last the hot set: per layer, the experts with the largest learnt share of rows
// (half-life 256 rows), as many as the layer's quota. A prompt reads past the hot set, so that decode finds it warm.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "stream/expert_table.h"

namespace strata::stream {

inline constexpr const char* kArenaLine = "expert arena";

struct ArenaPlan {
  std::vector<int> class_of;        // [layer]
  std::vector<uint64_t> slot_bytes; // [class]
  std::vector<int> slots;           // [class]
  uint64_t bytes = 0;               // of all slots
  int total() const;
};
// Shares `slots` (or, when it is 0, `bytes`) out over the size classes by the layers in each; every class gets at least
// `least` slots and at most all its experts.
ArenaPlan plan_arena(const ExpertTable& table, int64_t slots, double bytes, int least, uint64_t alignment);

class Arena {
 public:
  Arena(const ExpertTable& table, const ArenaPlan& plan, MemoryPlan& memory);

  int slots_for(int layer) const { return plan_.slots[cls(layer)]; }
  int total() const { return plan_.total(); }
  size_t classes() const { return plan_.slots.size(); }
  size_t cls(int layer) const { return static_cast<size_t>(plan_.class_of[static_cast<size_t>(layer)]); }
  bool several_classes() const { return plan_.slots.size() > 1; }
  bool same_class(int layer, int other) const { return cls(layer) == cls(other); }
  std::byte* data(int slot) const { return slot_[static_cast<size_t>(slot)].data; }

  // A slot for an expert of `layer`: an unused one, else the idle expert that gives way (its key goes to `evicted`). -1 when
  // there is none. Only an urgent claim may take from the hot set.
  int claim(int layer, bool urgent, int32_t& evicted);
  // The slot's expert is idle from now on / no longer idle.
  void make_idle(int slot, int32_t key, bool first_out);
  void make_busy(int slot);
  void release(int slot);  // holds nothing any more

  // The layer's pass over `total` rows, expert e used by rows[e] of them: updates shares and the wanted hot set.
  void observe(int layer, const std::vector<int32_t>& rows, int64_t total);
  // Share of rows that use each expert, [layer * experts]: learnt, and as it was learnt in earlier runs.
  const std::vector<double>& shares() const { return share_; }
  void set_shares(const std::vector<double>& shares);
  double share(int layer, int expert) const { return share_[index(layer, expert)]; }
  bool hot(int layer, int expert) const { return hot_[index(layer, expert)] != 0; }

 private:
  enum List : uint8_t { kNone, kCold, kHot };
  struct Slot {
    std::byte* data = nullptr;
    int cls = 0;
    List list = kNone;
    int32_t key = -1, prev = -1, next = -1;
  };
  struct Ends {
    int32_t head = -1, tail = -1;  // head gives way first
  };
  size_t index(int layer, int expert) const {
    return static_cast<size_t>(layer) * static_cast<size_t>(table_.n_expert) + static_cast<size_t>(expert);
  }
  void choose_hot(int layer);
  void link(int slot, List list, bool front);
  void unlink(int slot);

  const ExpertTable& table_;
  ArenaPlan plan_;
  Pages memory_;
  std::vector<Slot> slot_;
  std::vector<std::vector<int32_t>> free_;  // [class]
  std::vector<Ends> cold_, hot_list_;       // [class]
  std::vector<double> share_, seen_;        // [layer * experts], [layer]
  std::vector<uint8_t> hot_, want_;         // [layer * experts]
  std::vector<int> quota_;                  // [layer] hot experts
  std::vector<int> hot_count_;              // [layer]
};

}  // namespace strata::stream
