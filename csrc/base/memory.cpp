#include "base/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <sstream>
#include <utility>

#include "base/cgroup.h"
#include "base/error.h"

#ifdef __APPLE__
#include <mach/mach.h>
#endif

namespace strata {

namespace {

constexpr uint64_t kHuge = 2 << 20;  // bytes of a huge page on Linux

}  // namespace

// Large pieces ask for huge pages: the first touch, direct reads and the processor's address translation are all paid per
// page, and with pages of 4 KiB they cost a stream of experts more than the arithmetic's own slack.
Pages::Pages(uint64_t bytes) : size_(bytes) {
  if (bytes == 0) return;
#ifdef __linux__
  const uint64_t room = bytes >= 4 * kHuge ? kHuge : 0;
#else
  const uint64_t room = 0;
#endif
  void* p = ::mmap(nullptr, bytes + room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  data_ = static_cast<std::byte*>(p);
#ifdef __linux__
  if (room) {  // start on a huge page; what is left over at both ends goes back
    const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const uint64_t before = (kHuge - reinterpret_cast<uintptr_t>(p) % kHuge) % kHuge;
    if (before) ::munmap(p, before);
    data_ += before;
    if (before < room) ::munmap(data_ + (bytes + page - 1) / page * page, room - before);
    ::madvise(data_, bytes, MADV_HUGEPAGE);
  }
#endif
}

Pages::~Pages() {
  if (data_) ::munmap(data_, size_);
}

Pages::Pages(Pages&& o) noexcept : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}

Pages& Pages::operator=(Pages&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  return *this;
}

void Pages::discard() const {
  if (!data_) return;
#ifdef __linux__
  ::madvise(data_, size_, MADV_DONTNEED);
#else
  ::madvise(data_, size_, MADV_FREE);  // elsewhere MADV_DONTNEED need not give anything back
#endif
}

void MemoryPlan::add(const std::string& name, uint64_t bytes) { lines_.push_back({name, bytes, 0}); }

uint64_t MemoryPlan::total() const {
  uint64_t sum = 0;
  for (const Line& l : lines_) sum += l.bytes;
  return sum;
}

std::string MemoryPlan::to_text() const {
  std::string s;
  char row[160];
  for (const Line& l : lines_) {
    std::snprintf(row, sizeof row, "  %-28s %10.1f MB\n", l.name.c_str(), static_cast<double>(l.bytes) / 1e6);
    s += row;
  }
  std::snprintf(row, sizeof row, "  %-28s %10.1f MB", "total", static_cast<double>(total()) / 1e6);
  return s + row;
}

MemoryPlan::Line& MemoryPlan::line(const std::string& name) {
  for (Line& l : lines_)
    if (l.name == name) return l;
  throw OutOfMemoryPlanError("the memory plan has no line \"" + name + "\"", to_text(), 0, 0);
}

Pages MemoryPlan::take(const std::string& name, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(*mutex_);
  return take_locked(line(name), bytes);
}

Pages MemoryPlan::take_locked(Line& l, uint64_t bytes) {
  if (bytes > l.bytes - l.taken)
    throw OutOfMemoryPlanError("the line \"" + l.name + "\" of the memory plan holds " + std::to_string(l.bytes) + " bytes, " +
                                   std::to_string(l.taken) + " of them taken; " + std::to_string(bytes) + " more were asked for",
                               to_text(), bytes, l.bytes - l.taken);
  try {
    Pages p(bytes);
    l.taken += bytes;
    return p;
  } catch (const std::bad_alloc&) {
    throw OutOfMemoryPlanError("the system has no memory for \"" + l.name + "\" (" + std::to_string(bytes) + " bytes)", to_text(),
                               bytes, available_memory());
  }
}

Pages MemoryPlan::take_all(const std::string& name) {
  const std::lock_guard<std::mutex> lock(*mutex_);
  Line& l = line(name);
  return take_locked(l, l.bytes - l.taken);
}

void MemoryPlan::give_back(const std::string& name, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(*mutex_);
  Line& l = line(name);
  l.taken -= std::min(l.taken, bytes);
}

void MemoryPlan::make_room(const std::string& name, uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(*mutex_);
  Line& l = line(name);
  if (l.bytes - l.taken >= bytes) return;
  const uint64_t more = bytes - (l.bytes - l.taken), have = available_memory();
  if (have && more > have)
    throw OutOfMemoryPlanError("\"" + name + "\" needs " + std::to_string(more) + " bytes more, " + std::to_string(have) + " are free",
                               to_text(), more, have);
  l.bytes += more;
}

#ifdef __linux__
namespace {

// limit - usage + reclaimable page cache of the memory cgroup at `dir`, kUnknown when it sets no limit.
uint64_t cgroup_left(const std::string& dir, const char* limit_file, const char* usage_file, const char* cache_key) {
  const uint64_t limit = number_of(dir + "/" + limit_file, ""), usage = number_of(dir + "/" + usage_file, "");
  if (limit >= (uint64_t{1} << 60) || usage == kUnknown) return kUnknown;
  const uint64_t cache = number_of(dir + "/memory.stat", cache_key);
  const uint64_t used = cache != kUnknown && usage > cache ? usage - cache : usage;
  return limit > used ? limit - used : 0;
}

}  // namespace
#endif

uint64_t available_memory() {
#ifdef __linux__
  const uint64_t kb = number_of("/proc/meminfo", "MemAvailable");
  uint64_t left = kb == kUnknown ? kUnknown : kb * 1024;
  for (const Cgroup& g : own_cgroups("memory"))
    left = std::min(left, g.v2 ? cgroup_left(g.folder, "memory.max", "memory.current", "inactive_file")
                               : cgroup_left(g.folder, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"));
  return left == kUnknown ? 0 : std::max<uint64_t>(left, 1);
#elif defined(__APPLE__)
  vm_statistics64_data_t vm{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  if (host_statistics64(mach_host_self(), HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&vm), &count) != KERN_SUCCESS) return 0;
  const auto page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  return (static_cast<uint64_t>(vm.free_count) + vm.inactive_count + vm.purgeable_count) * page;
#else
  return 0;
#endif
}

}  // namespace strata
