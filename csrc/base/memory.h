// All large memory comes from here, each piece under a line of the plan; taking more than a line holds is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace strata {

// Pieces of one region begin at cache lines.
inline constexpr uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

// Zeroed, page-aligned memory straight from the operating system, so that unused parts of a buffer cost (nearly) nothing and
// what is freed goes back at once.
class Pages {
 public:
  Pages() = default;
  explicit Pages(uint64_t bytes);  // throws std::bad_alloc
  ~Pages();
  Pages(Pages&& o) noexcept;
  Pages& operator=(Pages&& o) noexcept;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  // Gives the contents back to the system; the memory stays ours and counts as zeroed, or as it was.
  void discard() const;
  std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t size_ = 0;
};

// Taking and giving back may happen on any thread; lines are added before the plan is shared.
class MemoryPlan {
 public:
  struct Line {
    std::string name;
    uint64_t bytes = 0;
    uint64_t taken = 0;
  };
  void add(const std::string& name, uint64_t bytes);
  uint64_t total() const;
  const std::vector<Line>& lines() const { return lines_; }
  std::string to_text() const;
  // Memory under a line; throws OutOfMemoryPlanError when the line would be exceeded or the system has no memory.
  Pages take(const std::string& name, uint64_t bytes);
  Pages take_all(const std::string& name);  // what is left of the line
  void give_back(const std::string& name, uint64_t bytes);
  // Widens a line so that `bytes` more can be taken from it (a further session); throws when the machine has no room.
  void make_room(const std::string& name, uint64_t bytes);

 private:
  Line& line(const std::string& name);
  Pages take_locked(Line& line, uint64_t bytes);
  std::vector<Line> lines_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();
};

// Bytes this process may still take: free and reclaimable memory of the machine, or of its cgroup where that is less.
// 0 when the system does not say.
uint64_t available_memory();

}  // namespace strata
