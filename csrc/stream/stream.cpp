#include "stream/stream.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <utility>

namespace strata::stream {

namespace {

constexpr int64_t kFakeBytes = 256 << 20;  // of a layer's experts: more than the caches of today's processors hold

constexpr size_t kLeastRun = 8;  // experts that go through one Down step, where so many could be asked for

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

Counters operator-(const Counters& a, const Counters& b) {
  Counters c;
  c.lookups = a.lookups - b.lookups;
  c.resident = a.resident - b.resident;
  c.ahead = a.ahead - b.ahead;
  c.late = a.late - b.late;
  c.missed = a.missed - b.missed;
  c.issued = a.issued - b.issued;
  c.used = a.used - b.used;
  c.wasted = a.wasted - b.wasted;
  c.cancelled = a.cancelled - b.cancelled;
  c.pending = a.pending - b.pending;
  c.reads = a.reads - b.reads;
  c.bytes = a.bytes - b.bytes;
  c.exposed_seconds = a.exposed_seconds - b.exposed_seconds;
  c.read_seconds = a.read_seconds - b.read_seconds;
  return c;
}

Stream::Stream(Source& source, const ExpertTable& table, const ArenaPlan& plan, MemoryPlan& memory, const StreamConfig& config,
               Trace* trace)
    : source_(source), table_(table), config_(config), trace_(trace), arena_(table, plan, memory) {
  const auto L = static_cast<size_t>(table.n_layer()), E = static_cast<size_t>(table.n_expert);
  for (int l = 0; l < table.n_layer(); ++l) layout_.push_back(slot_layout(table, l, Source::kAlignment));
  entry_.resize(L * E);
  guesses_.resize(L);
  wanted_.assign(E, 0);
  predicted_.assign(E, 0);
  exposed_.assign(L, 0);
  if (config.fake) {
    fill_fake();
    return;
  }
  const int readers = std::max(1, config.io_threads);
  readers_.reserve(static_cast<size_t>(readers));
  try {
    for (int i = 0; i < readers; ++i) readers_.emplace_back([this, i] { read_loop(i + 1); });
  } catch (const std::exception& e) {  // the system gives no more: those that started do
    if (readers_.empty()) throw ConfigError("io_threads", std::to_string(readers), std::string("what the system gives, which is none (") + e.what() + ")");
  }
}

// Experts to compute with instead of those that would be read: from each layer so many that they come from memory, as read
// ones do, and not from a cache.
void Stream::fill_fake() {
  std::vector<int> layers(arena_.classes(), 0);
  for (int l = 0; l < table_.n_layer(); ++l) ++layers[arena_.cls(l)];
  for (int l = 0; l < table_.n_layer(); ++l) {
    const auto bytes = static_cast<int64_t>(layout_[static_cast<size_t>(l)].bytes);
    const int64_t share = arena_.slots_for(l) / layers[arena_.cls(l)];
    const auto n = static_cast<int>(std::max<int64_t>(1, std::min({share, kFakeBytes / bytes + 1, int64_t{table_.n_expert}})));
    for (int e = 0; e < n; ++e) {
      int32_t evicted = -1;
      const int slot = arena_.claim(l, false, evicted);
      for (const SlotLayout::Extent& x : layout_[static_cast<size_t>(l)].extents) {
        const Part p = table_.part(l, e, x.first_part);
        source_.read(p.file, p.offset, x.bytes, arena_.data(slot) + x.at, l, e);
      }
      entry_[key_of(l, e)].slot = slot;
    }
    fake_experts_.push_back(n);
  }
}

Stream::~Stream() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  for (std::thread& t : readers_) t.join();
}

const std::byte* Stream::part(size_t key, int i) const {
  const auto E = static_cast<size_t>(table_.n_expert);
  const auto layer = key / E;
  const auto expert = static_cast<int>(key % E);
  const SlotLayout& s = layout_[layer];
  const SlotLayout::Extent& x = s.extents[s.extent_of[static_cast<size_t>(i)]];
  const uint64_t start = table_.part(static_cast<int>(layer), expert, x.first_part).offset;
  return arena_.data(entry_[key].slot) + x.at + start % Source::kAlignment + s.inside[static_cast<size_t>(i)];
}

// ---- asking and guessing

void Stream::queue(size_t key, bool urgent) {
  Entry& e = entry_[key];
  e.state = kQueued;
  e.urgent = urgent;
  e.ticket = ++tickets_;
  (urgent ? urgent_ : ahead_).push_back({key, e.ticket});
  work_.notify_one();
}

// The layer that is running needs the expert.
void Stream::ask(int layer, int expert) {
  const size_t key = key_of(layer, expert);
  Entry& e = entry_[key];
  ++count_.lookups;
  if (e.role == kGuess) {
    if (e.held) {
      ++count_.resident;
    } else {
      ++count_.ahead;
      ++count_.used;
      --count_.pending;
      if (e.state != kReady) ++count_.late;
    }
    e.held = false;
    if (e.state == kQueued) queue(key, true);
  } else if (e.state == kReady) {
    ++count_.resident;
    arena_.make_busy(e.slot);
  } else if (e.state == kReading) {  // given up by an earlier pass, still on its way: of use after all
    ++count_.ahead;
    ++count_.late;
    --count_.wasted;
    ++count_.used;
  } else {
    ++count_.missed;
    ++count_.issued;
    ++count_.used;
    queue(key, true);
  }
  e.role = kActive;
  ++active_;
}

void Stream::guess(int layer, const std::vector<int32_t>& order) {
  for (const int32_t expert : order) {
    const size_t key = key_of(layer, expert);
    Entry& e = entry_[key];
    if (e.role != kIdle) continue;
    if (e.state == kReady) {
      arena_.make_busy(e.slot);
      e.held = true;
    } else if (e.state == kAbsent) {
      ++count_.issued;
      ++count_.pending;
      queue(key, false);
    } else {
      continue;  // still being read for an earlier pass
    }
    e.role = kGuess;
    guesses_[static_cast<size_t>(layer)].push_back(key);
  }
}

// Experts that more likely than not are used by at least one of `rows` rows, the most popular first.
std::vector<int32_t> Stream::by_profile(int layer, int64_t rows) const {
  std::vector<int32_t> order;
  for (int e = 0; e < table_.n_expert; ++e) {
    const double p = std::min(1.0, arena_.share(layer, e));
    if (1 - std::pow(1 - p, static_cast<double>(rows)) >= 0.5) order.push_back(e);
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return arena_.share(layer, a) > arena_.share(layer, b); });
  return order;
}

void Stream::drop_guess(size_t key) {
  Entry& e = entry_[key];
  e.role = kIdle;
  if (e.held) {
    e.held = false;
    make_idle(key, false);
    return;
  }
  --count_.pending;
  if (e.state == kQueued) {
    e.state = kAbsent;
    ++count_.cancelled;
    return;
  }
  ++count_.wasted;
  if (e.state == kReady) make_idle(key, true);  // else the reader does it when the bytes are there
}

void Stream::drop_guesses(int layer) {
  for (const size_t key : guesses_[static_cast<size_t>(layer)])
    if (entry_[key].role == kGuess) drop_guess(key);
  guesses_[static_cast<size_t>(layer)].clear();
}

void Stream::make_idle(size_t key, bool first_out) {
  arena_.make_idle(entry_[key].slot, static_cast<int32_t>(key), first_out);
  work_.notify_all();  // a reader may have waited for a slot
}

void Stream::let_go(size_t key) {
  Entry& e = entry_[key];
  if (e.role != kActive) return;
  e.role = kIdle;
  --active_;
  if (e.state == kQueued) {
    e.state = kAbsent;
    --count_.used;
    ++count_.cancelled;
  } else if (e.state == kReading) {
    --count_.used;
    ++count_.wasted;
  } else if (e.state == kReady) {
    make_idle(key, false);
  }
}

// ---- the caller's side

void Stream::begin_sweep(int64_t rows) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (config_.fake || config_.guess == Guess::None || !guesses_[0].empty()) return;
  later_ = by_profile(0, rows);
  guess_all(0);
}

void Stream::note(int layer, int64_t rows, std::span<const int32_t> used, std::span<const int32_t> predicted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  rows_ += rows;
  // Misses become urgent at once, but only while all of them together surely fit beside each other: a layer that does not
  // fit is run in pieces, and what was read too early would be read twice.
  const int room = arena_.slots_for(layer) / 2;
  for (const int32_t e : used)
    if (wanted_[static_cast<size_t>(e)]++ == 0 && !config_.fake && !crowded_ && active_ < room) ask(layer, e);
  for (const int32_t e : predicted) ++predicted_[static_cast<size_t>(e)];
}

std::unique_ptr<Groups> Stream::at_layer(int layer, int64_t next_rows, Cancel* cancel) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::vector<int> experts;
  for (int e = 0; e < table_.n_expert; ++e)
    if (wanted_[static_cast<size_t>(e)]) experts.push_back(e);
  bool fits = true;
  if (config_.fake) {
    count_.lookups += experts.size();
    count_.resident += experts.size();
  } else {
    // Everything that is needed is known: guesses of this layer that were wrong are taken back.
    for (const size_t key : guesses_[static_cast<size_t>(layer)])
      if (entry_[key].role == kGuess && !wanted_[key % static_cast<size_t>(table_.n_expert)]) drop_guess(key);
    fits = experts.size() <= static_cast<size_t>(arena_.slots_for(layer));
    if (fits)
      for (const int e : experts)
        if (entry_[key_of(layer, e)].role != kActive) ask(layer, e);
    arena_.observe(layer, wanted_, rows_);

    later_.clear();
    const int next = layer + 1;
    if (next == table_.n_layer()) {
      if (next_rows > 0 && config_.guess != Guess::None) later_ = by_profile(0, next_rows);
    } else if (config_.guess == Guess::Profile) {
      later_ = by_profile(next, rows_);
    } else if (config_.guess == Guess::Router || config_.guess == Guess::Random) {
      if (config_.guess == Guess::Random)
        for (int32_t& p : predicted_) {
          random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
          p = static_cast<int32_t>(random_ >> 62);
        }
      for (int e = 0; e < table_.n_expert; ++e)
        if (predicted_[static_cast<size_t>(e)] >= std::max(1, config_.guess_min)) later_.push_back(e);
      std::stable_sort(later_.begin(), later_.end(), [&](int32_t a, int32_t b) { return predicted_[static_cast<size_t>(a)] > predicted_[static_cast<size_t>(b)]; });
    }
    // Before anybody waits for this layer's misses. Where the layer does not fit, its own experts come first: see Groups.
    if (fits) guess_all(next % table_.n_layer());
  }
  std::fill(wanted_.begin(), wanted_.end(), 0);
  std::fill(predicted_.begin(), predicted_.end(), 0);
  rows_ = 0;
  return std::unique_ptr<Groups>(new Groups(*this, layer, std::move(experts), fits, cancel));
}

// Queues the guesses in later_ for a layer. When they are more than its slots it will be run in pieces, in rising order: then
// the lowest are read, and note() leaves it at that.
void Stream::guess_all(int layer) {
  const auto slots = static_cast<size_t>(arena_.slots_for(layer));
  crowded_ = later_.size() > slots;
  if (crowded_) {
    std::sort(later_.begin(), later_.end());
    later_.resize(slots);
  }
  guess(layer, later_);
  later_.clear();
}

void Stream::abandon() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t key = 0; key < entry_.size(); ++key) let_go(key);
  for (int l = 0; l < table_.n_layer(); ++l) drop_guesses(l);
  later_.clear();
  crowded_ = false;
  std::fill(wanted_.begin(), wanted_.end(), 0);
  std::fill(predicted_.begin(), predicted_.end(), 0);
  rows_ = 0;
  error_ = nullptr;
}

Counters Stream::counters() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return count_;
}

std::vector<double> Stream::popularity() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return arena_.shares();
}

void Stream::set_popularity(const std::vector<double>& shares) {
  const std::lock_guard<std::mutex> lock(mutex_);
  arena_.set_shares(shares);
}

std::vector<double> Stream::exposed_by_layer() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return exposed_;
}

// ---- the readers' side

// A slot for a read that starts now, or -1.
int Stream::slot_for(size_t key, bool urgent) {
  const auto layer = static_cast<int>(key / static_cast<size_t>(table_.n_expert));
  const auto claim = [&] {
    int32_t evicted = -1;
    const int slot = arena_.claim(layer, urgent, evicted);
    if (evicted >= 0) {
      entry_[static_cast<size_t>(evicted)].state = kAbsent;
      entry_[static_cast<size_t>(evicted)].slot = -1;
    }
    return slot;
  };
  const int slot = claim();
  if (slot >= 0 || !urgent) return slot;
  // What is needed now goes before what may be needed later: take back the last guess, of the layer farthest ahead.
  for (size_t l = guesses_.size(); l-- > 0;)
    for (size_t i = guesses_[l].size(); i-- > 0;) {
      const size_t k = guesses_[l][i];
      Entry& e = entry_[k];
      if (e.role != kGuess || e.state != kReady || !arena_.same_class(static_cast<int>(l), layer)) continue;
      drop_guess(k);
      return claim();
    }
  return -1;
}

// The next read whose slot could be had: its entry is kReading, with its slot.
bool Stream::take(size_t& key) {
  for (const bool urgent : {true, false}) {
    std::deque<Place>& q = urgent ? urgent_ : ahead_;
    const auto stale = [&](const Place& p) { return entry_[p.key].state != kQueued || entry_[p.key].ticket != p.ticket; };
    // Layers may differ in size class, so a read that finds no slot does not stop those behind it.
    for (size_t i = 0; i < q.size();) {
      if (stale(q[i])) {
        q.erase(q.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      key = q[i].key;
      const int slot = slot_for(key, urgent);
      if (slot < 0) {
        if (!arena_.several_classes()) break;
        ++i;
        continue;
      }
      q.erase(q.begin() + static_cast<std::ptrdiff_t>(i));
      entry_[key].slot = slot;
      entry_[key].state = kReading;
      return true;
    }
  }
  return false;
}

void Stream::read_loop(int reader) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    size_t key = 0;
    work_.wait(lock, [&] { return stop_ || take(key); });
    if (stop_) return;
    const auto layer = static_cast<int>(key / static_cast<size_t>(table_.n_expert));
    const auto expert = static_cast<int>(key % static_cast<size_t>(table_.n_expert));
    std::byte* slot = arena_.data(entry_[key].slot);
    const SlotLayout& layout = layout_[static_cast<size_t>(layer)];
    lock.unlock();

    std::exception_ptr error;
    uint64_t bytes = 0, reads = 0;
    const auto start = std::chrono::steady_clock::now();
    try {
      for (const SlotLayout::Extent& x : layout.extents) {
        const Part p = table_.part(layer, expert, x.first_part);
        source_.read(p.file, p.offset, x.bytes, slot + x.at, layer, expert);
        bytes += x.bytes;
        ++reads;
      }
    } catch (...) {
      error = std::current_exception();
    }
    const double took = seconds_since(start);
    if (trace_) {
      const double now = trace_->now();
      trace_->add({"read", reader, now - took, now, layer, expert, -1, bytes});
    }

    lock.lock();
    count_.reads += reads;
    count_.bytes += bytes;
    count_.read_seconds += took;
    Entry& e = entry_[key];
    if (error) {
      arena_.release(e.slot);
      e.slot = -1;
      e.state = kAbsent;
      if (e.role == kGuess) {  // asked for in the end, it is read again, and then the error counts
        e.role = kIdle;
        --count_.pending;
        ++count_.wasted;
      } else if (e.role == kActive) {
        --count_.used;
        ++count_.wasted;
        if (!error_) error_ = error;
      }
    } else {
      e.state = kReady;
      if (e.role == kIdle) make_idle(key, true);
    }
    work_.notify_all();  // a reader may wait for this slot, or for a guess that can be taken back
    landed_.notify_all();
  }
}

// ---- groups

Groups::Groups(Stream& stream, int layer, std::vector<int> experts, bool fits, Cancel* cancel)
    : stream_(stream), layer_(layer), experts_(std::move(experts)), given_(experts_.size(), 0), fits_(fits), cancel_(cancel) {}

Groups::~Groups() {
  const std::lock_guard<std::mutex> lock(stream_.mutex_);
  if (stream_.config_.fake) return;
  for (const int e : experts_) stream_.let_go(stream_.key_of(layer_, e));
  stream_.drop_guesses(layer_);  // what is left of them when a layer was given up
}

// As many more experts as there are slots are asked for, in rising order, so that each gets one in the end: nobody waits for
// a slot that a later one holds. The first half of what is asked for is the run.
void Groups::activate_run() {
  down_ = false;
  const int slots = stream_.arena_.slots_for(layer_);
  for (; !stream_.config_.fake && asked_ < experts_.size(); ++asked_) {
    const int e = experts_[asked_];
    if (stream_.entry_[stream_.key_of(layer_, e)].role == Stream::kActive) continue;
    if (stream_.active_ == slots) break;
    stream_.ask(layer_, e);
  }
  if (fits_) {
    end_ = experts_.size();
  } else {
    if (asked_ == experts_.size() && !guessed_) {
      guessed_ = true;
      stream_.guess_all((layer_ + 1) % stream_.table_.n_layer());
    }
    end_ = std::min(asked_, begin_ + std::max(kLeastRun, (asked_ - begin_ + 1) / 2));
  }
  left_ = end_ - begin_;
}

void Groups::finish_run() {
  if (!stream_.config_.fake)
    for (size_t i = begin_; i < end_; ++i) stream_.let_go(stream_.key_of(layer_, experts_[i]));
  begin_ = end_;
}

void Groups::next(Step& step) {
  step.experts.clear();
  std::unique_lock<std::mutex> lock(stream_.mutex_);
  if (down_ || begin_ == end_) {
    if (down_) finish_run();
    if (begin_ == experts_.size()) {
      step.kind = Step::End;
      return;
    }
    activate_run();
  }
  const auto give = [&](size_t i) {
    Expert x;
    x.id = experts_[i];
    for (int p = 0; p < kParts; ++p)
      x.part[p] = stream_.part(stream_.key_of(layer_, stream_.config_.fake ? x.id % stream_.fake_experts_[static_cast<size_t>(layer_)] : x.id), p);
    step.experts.push_back(x);
  };
  if (left_ == 0) {
    step.kind = Step::Down;
    for (size_t i = begin_; i < end_; ++i) give(i);
    down_ = true;
    return;
  }
  step.kind = Step::GateUp;
  const auto start = std::chrono::steady_clock::now();
  bool waited = false;
  for (;;) {
    if (stream_.error_) std::rethrow_exception(std::exchange(stream_.error_, nullptr));
    for (size_t i = begin_; i < end_; ++i) {
      if (given_[i] || (!stream_.config_.fake && stream_.entry_[stream_.key_of(layer_, experts_[i])].state != Stream::kReady)) continue;
      give(i);
      given_[i] = 1;
      --left_;
    }
    if (!step.experts.empty()) break;
    waited = true;
    // Woken at least every 20 ms to look for a request to stop.
    stream_.landed_.wait_for(lock, std::chrono::milliseconds(20));
    if (cancel_) {
      lock.unlock();
      cancel_->poll();
      lock.lock();
    }
  }
  if (waited) {
    const double s = seconds_since(start);
    stream_.count_.exposed_seconds += s;
    stream_.exposed_[static_cast<size_t>(layer_)] += s;
    if (stream_.trace_) {
      const double now = stream_.trace_->now();
      stream_.trace_->add({"wait", 0, now - s, now, layer_, -1, -1, 0});
    }
  }
}

}  // namespace strata::stream
