// Private parts of the CPU backend shared by its op files.
#pragma once

#include "cpu/backend.h"

namespace strata::cpu {

// Rows of routed experts quantised together at most.
inline constexpr int64_t kBatchRows = 1024;
// Heads of attention that share loads of keys and values.
inline constexpr int64_t kHeads = 4;

struct Backend::Scratch : ProductScratch {
  float* scores = nullptr;  // [kHeads][context] attention or block scores
  int64_t context = 0;      // of one head's scores, a multiple of 16
  float* strip = nullptr;   // delta-net state columns [dim][kStrip]
  int32_t* order = nullptr; // [context]
};

struct Backend::Call {
  const program::Program& program;
  const program::Op& op;
  const program::Frame& frame;
  const Bindings& bind;
  TapSink* taps;
  Cancel* cancel;

  const program::Buffer& buffer(const program::Ref& r) const { return program.buffers[static_cast<size_t>(r.id)]; }
  // First row of a chunk or sweep buffer in this frame; of a cache, position 0.
  template <class T>
  T* at(const program::Ref& r) const {
    const program::Buffer& b = buffer(r);
    std::byte* p = bind.base[static_cast<size_t>(r.id)];
    if (b.scope == program::Scope::Sweep) p += static_cast<uint64_t>(frame.row0) * b.row_bytes();
    return reinterpret_cast<T*>(p) + r.col;
  }
  float* f32(const program::Ref& r) const { return at<float>(r); }
  int64_t stride(const program::Ref& r) const { return buffer(r).cols; }
  int64_t cols(const program::Ref& r) const { return r.cols ? r.cols : buffer(r).cols; }
  const float* state_before(const program::Ref& r) const {
    const auto i = static_cast<size_t>(r.id);
    return frame.first_chunk ? reinterpret_cast<const float*>(bind.before[i]) : reinterpret_cast<const float*>(bind.base[i]);
  }
  float* state_after(const program::Ref& r) const { return reinterpret_cast<float*>(bind.base[static_cast<size_t>(r.id)]); }
};

}  // namespace strata::cpu
