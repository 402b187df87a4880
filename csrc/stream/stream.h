// The stream hands a layer's experts to whoever computes with them. It moves bytes by (layer, expert) and knows neither
// models nor programs.
//
// For each layer of a sweep: note() after every chunk's router, then at_layer(), whose groups are taken with next() until
// there is none. A group's addresses are valid until the next call of next() or until the Groups object dies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/cancel.h"
#include "base/file.h"
#include "stream/arena.h"
#include "stream/expert_table.h"

namespace strata::stream {

// lookups = resident + ahead + missed at every moment; issued = used + wasted + cancelled when nothing is being read.
struct Counters {
  uint64_t lookups = 0, resident = 0, ahead = 0, missed = 0;  // distinct experts asked for, per layer and sweep
  uint64_t issued = 0, used = 0, wasted = 0, cancelled = 0;   // experts read
  uint64_t reads = 0, bytes = 0;                              // system reads of expert data, their bytes
  double exposed_seconds = 0;                                 // time the computation waited for reads
};

struct Expert {
  int id = 0;
  const std::byte* part[kParts] = {};
};

class Stream;

class Groups {
 public:
  Groups(Stream& stream, int layer, std::vector<int> experts, Cancel* cancel);
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // The next run of rising expert numbers, as many as the arena holds at once; false when all were handed out. Throws
  // StreamIOError or Cancelled.
  bool next(std::vector<Expert>& group);

 private:
  void release();
  Stream& stream_;
  int layer_;
  std::vector<int> experts_;  // rising
  size_t at_ = 0;
  std::vector<int> pinned_;
  Cancel* cancel_;
};

class Stream {
 public:
  // `files` and `table` must outlive it.
  Stream(const std::vector<File>& files, const ExpertTable& table, MemoryPlan& plan, int slots);

  // The experts that rows of a chunk chose in `layer`, and those predicted for the layer after it (may be empty).
  void note(int layer, std::span<const int32_t> used, std::span<const int32_t> predicted);
  // All chunks of the sweep were noted: the layer's distinct experts, group by group.
  Groups at_layer(int layer, Cancel* cancel);
  // The sweep was given up: forgets what was noted.
  void abandon();

  const Counters& counters() const { return counters_; }
  Arena& arena() { return arena_; }

 private:
  friend class Groups;
  void fetch(int layer, int expert, int slot);

  const std::vector<File>& files_;
  const ExpertTable& table_;
  Arena arena_;
  Counters counters_;
  std::vector<uint8_t> wanted_;  // [expert] by the chunks noted so far
};

}  // namespace strata::stream
