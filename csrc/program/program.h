// The Program: what is to be computed, as flat lists of ops on named buffers. It knows no device and no file.
//
// A buffer is rows of plain values. Its scope says how long it lives and which row an op touches:
//   Chunk  scratch of one chunk            row i of the chunk
//   Sweep  kept for all rows of a sweep    row row0 + i
//   Cache  session, one row per position   (or per block of positions), absolute
//   State  session, double                 read from the state before the sweep on its first chunk, written to the next
// A weight is named by its index in the model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace strata::program {

enum class Scope : uint8_t { Chunk, Sweep, Cache, State };
enum class DType : uint8_t { f32, f16, i32 };
inline uint32_t dtype_bytes(DType t) { return t == DType::f16 ? 2 : 4; }
const char* dtype_name(DType t);

using BufferId = int32_t;
struct Buffer {
  std::string name;
  Scope scope = Scope::Chunk;
  DType dtype = DType::f32;
  int64_t cols = 0;             // values of a row
  int64_t rows = 0;             // State: rows; Cache: positions that share a row; else unused
  uint64_t row_bytes() const { return static_cast<uint64_t>(cols) * dtype_bytes(dtype); }
};

enum class Access : uint8_t { Read, Write, ReadWrite };
struct Ref {
  enum Space : uint8_t { Buf, Weight } space = Buf;
  int32_t id = -1;
  int64_t col = 0, cols = 0;    // the slice of each row; cols == 0: the whole row
  Access access = Access::Read;
};

enum class OpKind : uint8_t {
  Embed,        // weight -> R                        every stream gets the token's row
  MatMul,       // x, W -> y                          y[i] = W x[i]
  RmsNorm,      // x, gamma -> y                      per group of `width`
  HeadNormRope, // x, gamma -> y                      per head: RMS norm, then rotation at the row's position
  ScaledSilu,   // x                                  x = silu(x / scale)
  MixStreams,   // w, n -> u                          u = mean over streams of sigmoid(w) * n
  InjectWeights,// x                                  x = 2 sigmoid(x / scale)
  Combine,      // R, c, o                            R[s] += c[s] * o
  Add,          // x, y                               y += x
  PleGate,      // key, query, value -> y             gate per stream times value
  Conv,         // x, history, W -> y                 y = silu(causal dilated convolution), history moves on
  DeltaPrep,    // qkv, alpha, beta, dt, a            q, k to unit length, alpha -> decay, beta -> sigmoid
  DeltaScan,    // qkv, decay, beta, state -> o
  GatedNorm,    // o, z, gamma                        o = rms(o) * sigmoid(z)
  StoreRows,    // x -> cache                         at the rows' positions, in the cache's type
  BlockKeys,    // raw keys, tail, gamma -> cache     mean over a block, norm, rotation at its first position
  SelectBlocks, // index query, block keys -> ids     [count, ids rising]
  Attend,       // q, k cache, v cache, (ids) -> o
  SigmoidGate,  // o, gate                            o *= sigmoid(gate), per head slices of `stride`
  Router,       // logits -> ids, weights
  SwiGlu,       // gate, up -> h                      h = silu(gate) * up
  Sigmoid,      // x
  ScaleRows,    // x, s -> y                          y = s * x, one factor a row
  Tap,          // x                                  hands rows to whoever listens (dumps, tests)
};
const char* op_name(OpKind k);

struct Params {
  int32_t layer = -1;
  int32_t groups = 0, width = 0;      // norms
  int32_t heads = 0, kv_heads = 0, dim = 0, stride = 0, n_rot = 0;
  int32_t key_heads = 0, streams = 0;
  int32_t taps = 0, dilation = 1;
  int32_t ratio = 0, budget = 0;      // sparse attention: block size, blocks kept
  int32_t k = 0;                      // experts chosen
  float eps = 0, scale = 1;
  double rope_base = 0;
  const char* tap = nullptr;          // static string
};

struct Op {
  OpKind kind;
  std::vector<Ref> in, out;           // a Ref that is read and written stands in `out`, ReadWrite
  Params p;
};

struct Segment {
  std::string name;
  std::vector<Op> ops;
};

// Which rows a segment runs on.
struct Frame {
  int64_t rows = 0;       // of the chunk
  int64_t row0 = 0;       // first of them in the sweep
  int64_t position = 0;   // of the first row in the sequence
  bool first_chunk = true;          // of the sweep: State is read from before the sweep
  const int32_t* tokens = nullptr;  // [rows], for Embed
};

// Rows of one buffer that an op touches in a frame.
struct Range {
  Ref ref;
  int64_t first_row = 0, rows = 0;
};

struct Program {
  std::vector<Buffer> buffers;
  Segment embed;
  std::vector<Segment> mixer;    // [layer], run per chunk
  std::vector<Segment> experts;  // [layer], run per sweep after the routed experts were added
  Segment head;                  // R -> logits

  // Buffers that the window fills or reads.
  BufferId residual = -1, ngram = -1, moe_in = -1, moe_out = -1, ids = -1, weights = -1, logits = -1;
  BufferId next_ids = -1;  // guessed experts of the next layer, where the program makes a guess

  BufferId find(const std::string& name) const;  // -1 when there is none
};

// The byte ranges an op reads and writes, for planning, scheduling and the hazard checker.
std::vector<Range> ranges(const Program& program, const Op& op, const Frame& frame);

// Throws std::logic_error when an op's refs are out of range or read a chunk buffer nothing wrote: a fault of the builder.
void validate(const Program& program, int n_weights);

std::string to_text(const Program& program, const Segment& segment);

}  // namespace strata::program
