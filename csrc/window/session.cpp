#include "window/session.h"

#include <algorithm>
#include <utility>

#include "window/plan.h"

namespace strata::window {

using program::Buffer;
using program::Scope;

namespace {

uint64_t bytes_of(const Buffer& b, int64_t context) {
  const int64_t rows = b.scope == Scope::State ? b.rows : (context + b.rows - 1) / b.rows;
  return aligned(static_cast<uint64_t>(rows) * b.row_bytes());
}
uint64_t sum(const program::Program& p, Scope scope, int64_t context) {
  uint64_t s = 0;
  for (const Buffer& b : p.buffers)
    if (b.scope == scope) s += bytes_of(b, context);
  return s;
}

}  // namespace

uint64_t Session::state_bytes(const program::Program& p) { return 2 * sum(p, Scope::State, 0); }
uint64_t Session::cache_bytes(const program::Program& p, int64_t context) { return sum(p, Scope::Cache, context); }

Session::Session(const program::Program& program, const model::HParams& hp, MemoryPlan& plan, int64_t context)
    : program_(program), plan_(plan), context_(context) {
  const uint64_t state = sum(program, Scope::State, 0), cache = cache_bytes(program, context);
  plan.make_room(kStateLine, 2 * state);
  plan.make_room(kCacheLine, cache);
  current_ = plan.take(kStateLine, state);
  next_ = plan.take(kStateLine, state);
  cache_ = plan.take(kCacheLine, cache);
  uint64_t at_state = 0, at_cache = 0;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& b = program.buffers[i];
    const auto id = static_cast<program::BufferId>(i);
    if (b.scope == Scope::State) {
      states_.push_back({id, at_state});
      at_state += bytes_of(b, context);
    } else if (b.scope == Scope::Cache) {
      caches_.push_back({id, at_cache});
      at_cache += bytes_of(b, context);
    }
  }
  if (hp.ple.layer >= 0) recent_.assign(static_cast<size_t>(hp.ple.ngram - 1), static_cast<int32_t>(hp.ple.reset_token));
}

Session::~Session() {
  plan_.give_back(kStateLine, current_.size() + next_.size());
  plan_.give_back(kCacheLine, cache_.size());
}

void Session::bind(cpu::Bindings& b) const {
  b.before.resize(b.base.size());
  for (const Place& p : states_) {
    b.before[static_cast<size_t>(p.id)] = current_.data() + p.offset;
    b.base[static_cast<size_t>(p.id)] = next_.data() + p.offset;
  }
  for (const Place& p : caches_) b.base[static_cast<size_t>(p.id)] = cache_.data() + p.offset;
}

void Session::commit(const int32_t* tokens, int64_t n) {
  std::swap(current_, next_);
  position_ += n;
  recent_.insert(recent_.end(), tokens, tokens + n);
  const size_t keep = recent_.size() - static_cast<size_t>(n);
  recent_.erase(recent_.begin(), recent_.end() - static_cast<std::ptrdiff_t>(keep));
}

const float* Session::state(const std::string& name, int64_t& rows, int64_t& cols) const {
  for (const Place& p : states_) {
    const Buffer& b = program_.buffers[static_cast<size_t>(p.id)];
    if (b.name != name) continue;
    rows = b.rows;
    cols = b.cols;
    return reinterpret_cast<const float*>(current_.data() + p.offset);
  }
  return nullptr;
}

}  // namespace strata::window
