#include "stream/stream.h"

#include <algorithm>
#include <chrono>

namespace strata::stream {

Stream::Stream(const std::vector<File>& files, const ExpertTable& table, MemoryPlan& plan, int slots)
    : files_(files), table_(table), arena_(table, plan, slots), wanted_(static_cast<size_t>(table.n_expert), 0) {}

void Stream::note(int /*layer*/, std::span<const int32_t> used, std::span<const int32_t> /*predicted*/) {
  for (const int32_t e : used) wanted_[static_cast<size_t>(e)] = 1;
}

void Stream::abandon() { std::fill(wanted_.begin(), wanted_.end(), uint8_t{0}); }

Groups Stream::at_layer(int layer, Cancel* cancel) {
  std::vector<int> experts;
  for (int e = 0; e < table_.n_expert; ++e)
    if (wanted_[static_cast<size_t>(e)]) experts.push_back(e);
  abandon();
  return Groups(*this, layer, std::move(experts), cancel);
}

void Stream::fetch(int layer, int expert, int slot) {
  const auto start = std::chrono::steady_clock::now();
  ++counters_.issued;
  for (int i = 0; i < kParts; ++i) {
    const Part p = table_.part(layer, expert, i);
    files_[p.file].read_exact(arena_.part(slot, layer, i), p.bytes, p.offset, layer, expert);
    ++counters_.reads;
    counters_.bytes += p.bytes;
  }
  ++counters_.used;
  counters_.exposed_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Groups::Groups(Stream& stream, int layer, std::vector<int> experts, Cancel* cancel)
    : stream_(stream), layer_(layer), experts_(std::move(experts)), cancel_(cancel) {}

Groups::~Groups() { release(); }

void Groups::release() {
  for (const int slot : pinned_) stream_.arena_.unpin(slot);
  pinned_.clear();
}

bool Groups::next(std::vector<Expert>& group) {
  release();
  group.clear();
  Arena& arena = stream_.arena_;
  Counters& count = stream_.counters_;
  // What is resident stays: pin it before a miss can push it out.
  const size_t end = std::min(experts_.size(), at_ + static_cast<size_t>(arena.slots()));
  for (size_t i = at_; i < end; ++i) {
    const int slot = arena.find(layer_, experts_[i]);
    if (slot < 0) continue;
    arena.pin(slot);
    pinned_.push_back(slot);
  }
  for (; at_ < end; ++at_) {
    if (cancel_) cancel_->poll();
    const int e = experts_[at_];
    int slot = arena.find(layer_, e);
    ++count.lookups;
    if (slot >= 0) {
      ++count.resident;
    } else {
      ++count.missed;
      slot = arena.claim(layer_, e);
      pinned_.push_back(slot);
      try {
        stream_.fetch(layer_, e, slot);
      } catch (...) {
        ++count.cancelled;
        arena.forget(slot);
        throw;
      }
    }
    Expert x;
    x.id = e;
    for (int i = 0; i < kParts; ++i) x.part[i] = arena.part(slot, layer_, i);
    group.push_back(x);
  }
  return !group.empty();
}

}  // namespace strata::stream
