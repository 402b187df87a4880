// The stream hands a layer's experts to whoever computes with them, read from the drive just before. It moves bytes by
// (layer, expert) and knows neither models nor programs.
//
// For each sweep: begin_sweep(); for each layer: note() after every chunk's router, then at_layer(), whose steps are taken
// with Groups::next() until End. Addresses in a step stay valid until the Down step of their run was followed by another
// next(), or the Groups object dies. One caller at a time; reader threads work behind.
//
// Two queues: urgent (an expert the router asked for) and ahead (a guess for a later layer); readers take from the urgent
// queue first, always. A queued read has no slot: it takes one when it starts. A guess that was read keeps its slot until
// its layer's routing is known; what is needed now is never given up.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/cancel.h"
#include "base/trace.h"
#include "stream/arena.h"
#include "stream/expert_table.h"
#include "stream/source.h"

namespace strata::stream {

// lookups = resident + ahead + missed and issued = used + wasted + cancelled + pending, at every moment.
struct Counters {
  uint64_t lookups = 0;    // distinct experts asked for, per layer and sweep
  uint64_t resident = 0;   // of them in memory before
  uint64_t ahead = 0;      // read, or being read, as a guess
  uint64_t late = 0;       // of `ahead`: not there yet when asked for
  uint64_t missed = 0;     // read because they were asked for
  uint64_t issued = 0;     // reads queued
  uint64_t used = 0;       // for an expert that was asked for
  uint64_t wasted = 0;     // read and not asked for, or failed
  uint64_t cancelled = 0;  // taken back before they started
  uint64_t pending = 0;    // guesses whose layer is still to come
  uint64_t reads = 0;      // system-level reads (one per extent)
  uint64_t bytes = 0;      // of experts read
  double exposed_seconds = 0;  // the computation waited for reads
  double read_seconds = 0;     // readers spent in reads, summed over readers
};
Counters operator-(const Counters& a, const Counters& b);

enum class Guess : int {
  None = -1,    // no read-ahead
  Profile = 0,  // by each layer's learnt popularity
  Router = 1,   // by the next layer's router on this layer's input
  Random = 2,   // pseudo-random experts: shows that a guess changes no bit (tests)
};

struct StreamConfig {
  int io_threads = 1;
  Guess guess = Guess::Router;
  int guess_min = 1;    // tokens that must be predicted for an expert
  bool fake = false;    // every expert counts as present; the bytes are those of some, read at the start
};

struct Expert {
  int id = 0;
  const std::byte* part[kParts] = {};
};

struct Step {
  enum Kind { GateUp, Down, End } kind = End;
  std::vector<Expert> experts;  // GateUp: as they landed; Down: a whole run, rising
};

class Stream;

// A layer's experts. Runs of rising expert numbers (one run when memory holds all of them): GateUp steps as the run's
// experts land, then one Down step with the run. A run is half of what could be asked for, so that the other half is read
// while it is computed.
class Groups {
 public:
  ~Groups();
  Groups(Groups&&) = delete;
  // Throws StreamIOError when an expert could not be read, Cancelled.
  void next(Step& step);

 private:
  friend class Stream;
  Groups(Stream& stream, int layer, std::vector<int> experts, bool fits, Cancel* cancel);
  void activate_run();
  void finish_run();

  Stream& stream_;
  int layer_;
  std::vector<int> experts_;  // rising
  std::vector<uint8_t> given_;
  bool fits_;                 // all at once
  size_t begin_ = 0, end_ = 0;  // of the run
  size_t left_ = 0;           // of it not given to GateUp yet
  size_t asked_ = 0;          // experts made urgent so far
  bool down_ = false;         // the run's Down step is out
  bool guessed_ = false;      // the next layer's guesses are queued
  Cancel* cancel_;
};

class Stream {
 public:
  Stream(Source& source, const ExpertTable& table, const ArenaPlan& arena, MemoryPlan& memory, const StreamConfig& config,
         Trace* trace = nullptr);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // A sweep of `rows` rows begins: layer 0 is read by popularity meanwhile.
  void begin_sweep(int64_t rows);
  // The experts that `rows` rows of a chunk chose in `layer` ([rows, K]), and those predicted for layer + 1 (or none).
  void note(int layer, int64_t rows, std::span<const int32_t> used, std::span<const int32_t> predicted);
  // All chunks of the sweep were noted. `next_rows`: rows of the next sweep, when this is its last layer and one follows.
  std::unique_ptr<Groups> at_layer(int layer, int64_t next_rows, Cancel* cancel);
  // The sweep was given up: queued reads are taken back, what was read stays as idle experts.
  void abandon();

  // How popular each expert is: the share of rows that use it, [layers * experts]. Learnt from every pass; what an earlier
  // run learnt can be given back before the first sweep.
  std::vector<double> popularity() const;
  void set_popularity(const std::vector<double>& shares);

  Counters counters() const;
  std::vector<double> exposed_by_layer() const;
  int slots() const { return arena_.total(); }
  int readers() const { return static_cast<int>(readers_.size()); }
  bool fake() const { return config_.fake; }

 private:
  friend class Groups;
  enum State : uint8_t { kAbsent, kQueued, kReading, kReady };
  enum Role : uint8_t { kIdle, kGuess, kActive };  // kActive: needed by the layer that is running
  struct Entry {
    int32_t slot = -1;
    State state = kAbsent;
    Role role = kIdle;
    bool urgent = false;  // the queue it waits in
    uint64_t ticket = 0;  // of its place in that queue
    bool held = false;    // a guess that was resident already: nothing is read for it
  };

  size_t key_of(int layer, int expert) const { return static_cast<size_t>(layer) * static_cast<size_t>(table_.n_expert) + static_cast<size_t>(expert); }
  const std::byte* part(size_t key, int i) const;
  void fill_fake();
  // All below: called with the lock held.
  void ask(int layer, int expert);
  void queue(size_t key, bool urgent);
  void guess(int layer, const std::vector<int32_t>& order);
  void guess_all(int layer);
  std::vector<int32_t> by_profile(int layer, int64_t rows) const;
  void drop_guess(size_t key);
  void drop_guesses(int layer);
  void make_idle(size_t key, bool first_out);
  void let_go(size_t key);  // an active expert is not needed any more
  int slot_for(size_t key, bool urgent);
  bool take(size_t& key);
  void read_loop(int reader);

  Source& source_;
  const ExpertTable& table_;
  StreamConfig config_;
  Trace* trace_;
  std::vector<SlotLayout> layout_;  // [layer]
  std::vector<int> fake_experts_;   // [layer] experts that stand for all

  mutable std::mutex mutex_;
  std::condition_variable work_, landed_;
  Arena arena_;
  std::vector<Entry> entry_;        // [layer * experts]
  // A place counts only while its entry is kQueued and holds the same ticket: one that was taken back and asked for anew
  // waits at its new place, or the order of runs would be lost.
  struct Place {
    size_t key = 0;
    uint64_t ticket = 0;
  };
  std::deque<Place> urgent_, ahead_;
  uint64_t tickets_ = 0;
  std::vector<std::vector<size_t>> guesses_;  // [layer] keys guessed for it, in queue order
  std::vector<int32_t> wanted_, predicted_;   // [expert] tokens of the sweep so far
  int64_t rows_ = 0;                // noted for the layer
  int active_ = 0;                  // experts that the running layer needs and that are queued, being read, or there
  std::vector<int32_t> later_;      // guesses for the next layer, queued when all of this one are asked for
  bool crowded_ = false;            // the layer to come will hardly fit: it is read in rising order from the start
  std::exception_ptr error_;        // of the first active read that failed
  Counters count_;
  std::vector<double> exposed_;     // [layer] seconds
  uint64_t random_ = 0x9E3779B97F4A7C15ULL;
  bool stop_ = false;
  std::vector<std::thread> readers_;  // fewer than asked for where the system gives no more
};

}  // namespace strata::stream
