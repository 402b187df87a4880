#include "stream/arena.h"

#include <algorithm>

namespace strata::stream {

namespace {
uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }
}  // namespace

uint64_t Arena::slot_bytes(const ExpertTable& table) {
  uint64_t most = 0;
  for (const auto& l : table.layers) {
    uint64_t sum = 0;
    for (const Part& p : l.first) sum += aligned(p.bytes);
    most = std::max(most, sum);
  }
  return most;
}

Arena::Arena(const ExpertTable& table, MemoryPlan& plan, int slots)
    : table_(table),
      slot_bytes_(slot_bytes(table)),
      slot_(static_cast<size_t>(slots)),
      where_(table.layers.size() * static_cast<size_t>(table.n_expert), -1) {
  memory_ = plan.take("expert arena", slot_bytes_ * static_cast<uint64_t>(slots));
}

int Arena::claim(int layer, int expert) {
  int best = -1;
  for (int i = 0; i < slots(); ++i) {
    const Slot& s = slot_[static_cast<size_t>(i)];
    if (s.pins == 0 && (best < 0 || s.used < slot_[static_cast<size_t>(best)].used)) best = i;
  }
  if (best < 0) return -1;
  forget(best);
  Slot& s = slot_[static_cast<size_t>(best)];
  s.layer = layer;
  s.expert = expert;
  where_[index(layer, expert)] = best;
  pin(best);
  return best;
}

void Arena::pin(int slot) {
  Slot& s = slot_[static_cast<size_t>(slot)];
  ++s.pins;
  s.used = ++clock_;
}

void Arena::unpin(int slot) { --slot_[static_cast<size_t>(slot)].pins; }

void Arena::forget(int slot) {
  Slot& s = slot_[static_cast<size_t>(slot)];
  if (s.expert >= 0) where_[index(s.layer, s.expert)] = -1;
  s.layer = s.expert = -1;
  s.used = 0;
}

void Arena::clear() {
  for (int i = 0; i < slots(); ++i) forget(i);
}

std::byte* Arena::part(int slot, int layer, int i) const {
  std::byte* p = memory_.data() + slot_bytes_ * static_cast<uint64_t>(slot);
  for (int j = 0; j < i; ++j) p += aligned(table_.layers[static_cast<size_t>(layer)].first[static_cast<size_t>(j)].bytes);
  return p;
}

}  // namespace strata::stream
