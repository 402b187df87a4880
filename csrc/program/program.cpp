#include "program/program.h"

#include <set>
#include <stdexcept>

namespace strata::program {

const char* dtype_name(DType t) {
  switch (t) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::i32: return "i32";
  }
  return "?";
}

const char* op_name(OpKind k) {
  switch (k) {
    case OpKind::Embed: return "embed";
    case OpKind::MatMul: return "matmul";
    case OpKind::RmsNorm: return "rms_norm";
    case OpKind::HeadNormRope: return "head_norm_rope";
    case OpKind::ScaledSilu: return "scaled_silu";
    case OpKind::MixStreams: return "mix_streams";
    case OpKind::InjectWeights: return "inject_weights";
    case OpKind::Combine: return "combine";
    case OpKind::Add: return "add";
    case OpKind::PleGate: return "ple_gate";
    case OpKind::Conv: return "conv";
    case OpKind::DeltaPrep: return "delta_prep";
    case OpKind::DeltaScan: return "delta_scan";
    case OpKind::GatedNorm: return "gated_norm";
    case OpKind::StoreRows: return "store_rows";
    case OpKind::BlockKeys: return "block_keys";
    case OpKind::SelectBlocks: return "select_blocks";
    case OpKind::Attend: return "attend";
    case OpKind::SigmoidGate: return "sigmoid_gate";
    case OpKind::Router: return "router";
    case OpKind::SwiGlu: return "swiglu";
    case OpKind::Sigmoid: return "sigmoid";
    case OpKind::ScaleRows: return "scale_rows";
    case OpKind::Tap: return "tap";
  }
  return "?";
}

BufferId Program::find(const std::string& name) const {
  for (size_t i = 0; i < buffers.size(); ++i)
    if (buffers[i].name == name) return static_cast<BufferId>(i);
  return -1;
}

std::vector<Range> ranges(const Program& program, const Op& op, const Frame& f) {
  std::vector<Range> out;
  const auto add = [&](const Ref& ref) {
    if (ref.space == Ref::Weight) {
      out.push_back({ref, 0, 0});
      return;
    }
    const Buffer& b = program.buffers[static_cast<size_t>(ref.id)];
    switch (b.scope) {
      case Scope::Chunk: out.push_back({ref, 0, f.rows}); break;
      case Scope::Sweep: out.push_back({ref, f.row0, f.rows}); break;
      case Scope::State: out.push_back({ref, 0, b.rows}); break;
      case Scope::Cache: {
        // A write touches the frame's own positions; a read may reach back to the first one.
        const int64_t per = b.rows, last = (f.position + f.rows) / per;
        const int64_t first = ref.access == Access::Read ? 0 : f.position / per;
        out.push_back({ref, first, last - first});
        break;
      }
    }
  };
  for (const Ref& r : op.in) add(r);
  for (const Ref& r : op.out) add(r);
  return out;
}

void validate(const Program& program, int n_weights) {
  const auto check = [&](const Segment& s) {
    std::set<BufferId> written;
    for (const Op& op : s.ops) {
      const auto fail = [&](const std::string& why) {
        throw std::logic_error("program: segment " + s.name + ", op " + op_name(op.kind) + ": " + why);
      };
      const auto one = [&](const Ref& r, bool output) {
        if (r.space == Ref::Weight) {
          if (r.id < 0 || r.id >= n_weights) fail("weight " + std::to_string(r.id) + " does not exist");
          if (output) fail("writes a weight");
          return;
        }
        if (r.id < 0 || r.id >= static_cast<BufferId>(program.buffers.size())) fail("buffer does not exist");
        const Buffer& b = program.buffers[static_cast<size_t>(r.id)];
        if (r.col < 0 || r.cols < 0 || r.col + r.cols > b.cols) fail("slice outside " + b.name);
        const bool reads = r.access != Access::Write;
        if (reads && b.scope == Scope::Chunk && r.id != program.ngram && !written.count(r.id))
          fail("reads " + b.name + ", which nothing wrote");
        if (output) written.insert(r.id);
      };
      for (const Ref& r : op.in) {
        if (r.access != Access::Read) fail("an input is marked as written");
        one(r, false);
      }
      for (const Ref& r : op.out) {
        if (r.access == Access::Read) fail("an output is marked as read only");
        one(r, true);
      }
    }
  };
  check(program.embed);
  for (const Segment& s : program.mixer) check(s);
  for (const Segment& s : program.experts) check(s);
  check(program.head);
}

std::string to_text(const Program& program, const Segment& segment) {
  std::string s = segment.name + "\n";
  const auto ref = [&](const Ref& r) {
    std::string t;
    if (r.space == Ref::Weight) return "w" + std::to_string(r.id);
    t = program.buffers[static_cast<size_t>(r.id)].name;
    if (r.cols) t += "[" + std::to_string(r.col) + ":" + std::to_string(r.col + r.cols) + "]";
    return t;
  };
  for (const Op& op : segment.ops) {
    s += std::string("  ") + op_name(op.kind);
    if (op.p.tap) s += std::string(" ") + op.p.tap;
    for (const Ref& r : op.in) s += " " + ref(r);
    if (!op.out.empty()) s += " ->";
    for (const Ref& r : op.out) s += " " + ref(r);
    s += "\n";
  }
  return s;
}

}  // namespace strata::program
