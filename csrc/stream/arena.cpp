#include "stream/arena.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace strata::stream {

namespace {

constexpr double kHalfLife = 256;  // rows; 64 to 1024 were within 6 % of each other in the model of the stream
constexpr double kPrior = 256;     // rows that the start (equal shares) counts as

}  // namespace

int ArenaPlan::total() const { return std::accumulate(slots.begin(), slots.end(), 0); }

ArenaPlan plan_arena(const ExpertTable& table, int64_t slots, double bytes, int least, uint64_t alignment) {
  ArenaPlan p;
  std::vector<int> layers;
  for (int l = 0; l < table.n_layer(); ++l) {
    const uint64_t size = slot_layout(table, l, alignment).bytes;
    const auto at = std::find(p.slot_bytes.begin(), p.slot_bytes.end(), size);
    p.class_of.push_back(static_cast<int>(at - p.slot_bytes.begin()));
    if (at == p.slot_bytes.end()) {
      p.slot_bytes.push_back(size);
      layers.push_back(0);
    }
    ++layers[static_cast<size_t>(p.class_of.back())];
  }
  double all = 0;
  for (size_t c = 0; c < layers.size(); ++c) all += static_cast<double>(p.slot_bytes[c]) * layers[c];
  for (size_t c = 0; c < layers.size(); ++c) {
    const double n = slots > 0 ? static_cast<double>(slots) * layers[c] / table.n_layer() : bytes * layers[c] / all;
    const int most = layers[c] * table.n_expert;
    p.slots.push_back(std::clamp(static_cast<int>(std::min(n, 1e9)), std::min(least, most), most));
    p.bytes += p.slot_bytes[c] * static_cast<uint64_t>(p.slots[c]);
  }
  return p;
}

Arena::Arena(const ExpertTable& table, const ArenaPlan& plan, MemoryPlan& memory)
    : table_(table), plan_(plan), free_(plan.slots.size()), cold_(plan.slots.size()), hot_list_(plan.slots.size()) {
  memory_ = memory.take(kArenaLine, plan.bytes);
  std::byte* p = memory_.data();
  for (size_t c = 0; c < plan.slots.size(); ++c)
    for (int i = 0; i < plan.slots[c]; ++i, p += plan.slot_bytes[c]) {
      free_[c].push_back(static_cast<int32_t>(slot_.size()));
      slot_.push_back({p, static_cast<int>(c), kNone, -1, -1, -1});
    }
  for (auto& f : free_) std::reverse(f.begin(), f.end());

  const auto L = static_cast<size_t>(table.n_layer()), E = static_cast<size_t>(table.n_expert);
  share_.assign(L * E, static_cast<double>(table.n_used) / static_cast<double>(E));
  seen_.assign(L, kPrior);
  hot_.assign(L * E, 0);
  want_.assign(L * E, 0);
  quota_.assign(L, 0);
  hot_count_.assign(L, 0);
  for (size_t c = 0; c < plan.slots.size(); ++c) {
    // Passing slots: a tenth of the class, or two layers' experts (one being used, one being read). The rest is hot.
    const int passing = std::min(plan.slots[c], std::max(plan.slots[c] / 10, 2 * table.n_expert));
    int layers = 0;
    for (size_t l = 0; l < L; ++l) layers += plan.class_of[l] == static_cast<int>(c);
    for (size_t l = 0; l < L; ++l)
      if (plan.class_of[l] == static_cast<int>(c)) quota_[l] = std::min((plan.slots[c] - passing) / layers, table.n_expert);
  }
}

void Arena::link(int slot, List list, bool front) {
  Slot& s = slot_[static_cast<size_t>(slot)];
  Ends& e = (list == kHot ? hot_list_ : cold_)[static_cast<size_t>(s.cls)];
  s.list = list;
  s.prev = front ? -1 : e.tail;
  s.next = front ? e.head : -1;
  (s.prev >= 0 ? slot_[static_cast<size_t>(s.prev)].next : e.head) = slot;
  (s.next >= 0 ? slot_[static_cast<size_t>(s.next)].prev : e.tail) = slot;
}

void Arena::unlink(int slot) {
  Slot& s = slot_[static_cast<size_t>(slot)];
  if (s.list == kNone) return;
  Ends& e = (s.list == kHot ? hot_list_ : cold_)[static_cast<size_t>(s.cls)];
  (s.prev >= 0 ? slot_[static_cast<size_t>(s.prev)].next : e.head) = s.next;
  (s.next >= 0 ? slot_[static_cast<size_t>(s.next)].prev : e.tail) = s.prev;
  s.list = kNone;
  s.prev = s.next = -1;
}

int Arena::claim(int layer, bool urgent, int32_t& evicted) {
  evicted = -1;
  const size_t c = cls(layer);
  if (!free_[c].empty()) {
    const int slot = free_[c].back();
    free_[c].pop_back();
    return slot;
  }
  int slot = cold_[c].head;
  if (slot < 0 && urgent) slot = hot_list_[c].head;
  if (slot < 0) return -1;
  unlink(slot);
  Slot& s = slot_[static_cast<size_t>(slot)];
  evicted = s.key;
  if (hot_[static_cast<size_t>(s.key)]) {
    hot_[static_cast<size_t>(s.key)] = 0;
    --hot_count_[static_cast<size_t>(s.key / table_.n_expert)];
  }
  s.key = -1;
  return slot;
}

void Arena::make_idle(int slot, int32_t key, bool first_out) {
  const auto k = static_cast<size_t>(key);
  const auto layer = static_cast<size_t>(key / table_.n_expert);
  slot_[static_cast<size_t>(slot)].key = key;
  // A wanted expert joins the hot set now that it is in memory; members that are no longer wanted left in observe().
  if (!first_out && want_[k] && !hot_[k] && hot_count_[layer] < quota_[layer]) {
    hot_[k] = 1;
    ++hot_count_[layer];
  }
  link(slot, hot_[k] ? kHot : kCold, first_out && !hot_[k]);
}

void Arena::make_busy(int slot) { unlink(slot); }

void Arena::release(int slot) {
  Slot& s = slot_[static_cast<size_t>(slot)];
  unlink(slot);
  if (s.key >= 0 && hot_[static_cast<size_t>(s.key)]) {
    hot_[static_cast<size_t>(s.key)] = 0;
    --hot_count_[static_cast<size_t>(s.key / table_.n_expert)];
  }
  s.key = -1;
  free_[static_cast<size_t>(s.cls)].push_back(slot);
}

void Arena::observe(int layer, const std::vector<int32_t>& rows, int64_t total) {
  const auto l = static_cast<size_t>(layer), E = static_cast<size_t>(table_.n_expert);
  const double n = static_cast<double>(total);
  const double keep = seen_[l] * std::exp2(-n / kHalfLife), added = std::min(n, kHalfLife / std::log(2.0));
  double* share = share_.data() + l * E;
  for (size_t e = 0; e < E; ++e) share[e] = (share[e] * keep + rows[e] * (added / n)) / (keep + added);
  seen_[l] = keep + added;
  choose_hot(layer);
}

void Arena::set_shares(const std::vector<double>& shares) {
  share_ = shares;
  std::fill(seen_.begin(), seen_.end(), kPrior);
  for (int l = 0; l < table_.n_layer(); ++l) choose_hot(l);
}

void Arena::choose_hot(int layer) {
  const auto l = static_cast<size_t>(layer), E = static_cast<size_t>(table_.n_expert);
  const double* share = share_.data() + l * E;
  const auto quota = static_cast<size_t>(quota_[l]);
  if (quota == 0) return;
  std::vector<int32_t> order(E);
  std::iota(order.begin(), order.end(), 0);
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(quota - 1), order.end(), [&](int32_t a, int32_t b) {
    const double x = share[a], y = share[b];
    return x != y ? x > y : a < b;
  });
  std::fill_n(want_.begin() + static_cast<std::ptrdiff_t>(l * E), E, uint8_t{0});
  for (size_t i = 0; i < quota; ++i) want_[l * E + static_cast<size_t>(order[i])] = 1;
  // Members that are no longer wanted become ordinary experts.
  for (int s = 0; s < static_cast<int>(slot_.size()); ++s) {
    Slot& slot = slot_[static_cast<size_t>(s)];
    if (slot.key < 0 || static_cast<size_t>(slot.key) / E != l) continue;
    const auto k = static_cast<size_t>(slot.key);
    if (!hot_[k] || want_[k]) continue;
    hot_[k] = 0;
    --hot_count_[l];
    if (slot.list == kHot) {
      unlink(s);
      link(s, kCold, false);
    }
  }
}

}  // namespace strata::stream
