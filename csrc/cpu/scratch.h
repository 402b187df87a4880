// Private parts of the CPU backend shared by its op files.
#pragma once

#include "cpu/backend.h"

namespace strata::cpu {

// Rows of a product taken by one task at most: their sums stay in the second-level cache.
inline constexpr int64_t kRowBlock = 512;
// Rows of routed experts quantised together at most.
inline constexpr int64_t kBatchRows = 1024;

inline int64_t chunks_of(int64_t cols) { return (cols + kBlockK - 1) / kBlockK; }

// Rows of one product as integers: [chunk of 256 values][tile], the layout of kernels.h inside a tile.
struct Backend::Quantised {
  Tiling tiling;
  int64_t cols = 0;
  bool sums = false;  // of q over groups, for weights with minimums
  uint32_t* q = nullptr;   // [chunk][row][128]
  float* scale = nullptr;  // [chunk][row]
  float* sum = nullptr;    // [chunk][row][kSums]
  int64_t at(int64_t chunk, int64_t row) const { return chunk * tiling.rows + row; }
};

struct Backend::Scratch {
  float* rows = nullptr;    // [16][kBlockK] decoded weight rows
  float* panel = nullptr;   // [kBlockK][16]
  float* acc = nullptr;     // [kRowBlock][16]
  float* scores = nullptr;  // [context] attention or block scores
  float* strip = nullptr;   // delta-net state columns [dim][kStrip]
  float* up = nullptr;      // [kRowBlock][16]
  int32_t* order = nullptr; // [context]
  const float** x = nullptr;  // [kRowBlock] rows of a float32 product
  CodePanel* codes = nullptr;
  Rows* code_rows = nullptr;
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
