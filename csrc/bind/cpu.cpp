// The CPU kernels alone, for tests and benches: products of any type on any instruction set of this machine.
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "base/pool.h"
#include "bind/bind.h"
#include "cpu/backend.h"
#include "cpu/pack.h"
#include "cpu/product.h"
#include "quant/quant.h"

namespace strata::bind {

namespace {

using FloatRows = py::array_t<float, py::array::c_style | py::array::forcecast>;

// A weight matrix, a pool of threads and their scratch.
class Product {
 public:
  Product(uint32_t type, const py::buffer& weights, int64_t offset, int64_t rows, int64_t cols, const std::string& isa, int threads, bool pack)
      : k_(cpu::select_kernels(isa.c_str())), pool_(threads), held_(weights) {
    const quant::TypeInfo* info = quant::type_info(type);
    if (!info) throw InputError("unknown tensor type");
    const py::buffer_info b = weights.request();
    const auto stride = quant::row_bytes(*info, static_cast<uint64_t>(cols));
    if (cols % info->block_values != 0 || offset < 0 ||
        static_cast<uint64_t>(offset) + stride * static_cast<uint64_t>(rows) > static_cast<uint64_t>(b.size * b.itemsize))
      throw InputError("the weights are shorter than their shape");
    w_ = {type, rows, cols, stride, static_cast<const std::byte*>(b.ptr) + offset};
    if (pack && cpu::packed_type(type) != type) {
      packed_.resize(cpu::packed_bytes(w_) + 64);
      std::byte* to = packed_.data() + (64 - reinterpret_cast<uintptr_t>(packed_.data()) % 64) % 64;
      w_ = cpu::pack(w_, to);
    }
    floats_.resize(static_cast<size_t>(threads) * cpu::ProductScratch::floats() + 16);
    float* p = aligned(floats_);
    scratch_.resize(static_cast<size_t>(threads));
    for (cpu::ProductScratch& s : scratch_) p = s.take(p);
  }

  py::array_t<float> run(const FloatRows& x, const std::string& activations) {
    py::array_t<float> y({x.shape(0), static_cast<py::ssize_t>(w_.rows)});
    run_into(x, activations, y.mutable_data());
    return y;
  }

  // The same into an array that is there.
  void into(const FloatRows& x, py::array_t<float, py::array::c_style>& y, const std::string& activations) {
    if (y.ndim() != 2 || y.shape(0) != x.shape(0) || y.shape(1) != w_.rows) throw InputError("y does not have the product's shape");
    run_into(x, activations, y.mutable_data());
  }

 private:
  static float* aligned(std::vector<float>& v) {
    return v.data() + (64 - reinterpret_cast<uintptr_t>(v.data()) % 64) % 64 / sizeof(float);
  }
  void run_into(const FloatRows& x, const std::string& activations, float* y) {
    if (x.ndim() != 2 || x.shape(1) != w_.cols) throw InputError("x must be rows of " + std::to_string(w_.cols) + " values");
    const int64_t m = x.shape(0);
    std::vector<const float*> rows(static_cast<size_t>(m));
    for (int64_t r = 0; r < m; ++r) rows[static_cast<size_t>(r)] = x.data() + r * w_.cols;
    const auto scratch = [&](int thread) -> const cpu::ProductScratch& { return scratch_[static_cast<size_t>(thread)]; };
    const auto done = [&](int64_t r0, int64_t n, int64_t c0, int count, const float* acc) {
      for (int64_t r = 0; r < n; ++r)
        std::memcpy(y + (r0 + r) * w_.rows + c0, acc + r * cpu::kPanel, static_cast<size_t>(count) * sizeof(float));
    };
    const cpu::CodeFormat* f = cpu::code_format(w_.type);
    if (activations != "auto" && activations != "int16" && activations != "int8" && activations != "f32")
      throw InputError("activations are auto, int16, int8 or f32");
    if (activations == "f32" && w_.type == cpu::kPackedQ8) throw InputError("packed weights have integer products only");
    if (activations == "f32" || !f) {
      cpu::product_f32(k_, pool_, scratch, w_, rows.data(), m, nullptr, done);
      return;
    }
    const auto chunks = static_cast<uint64_t>(m * cpu::chunks_of(w_.cols));
    q_.resize(chunks * cpu::Quantised::floats() + 16);
    const cpu::Form form = cpu::form_of(k_, activations == "int8", w_.type);
    const cpu::Quantised q = cpu::QuantisedPool(aligned(q_), chunks).rows(k_, 0, m, w_.cols, form, f->m_group != 0);
    cpu::run_tasks(pool_, q.tiling.tiles, w_.cols * k_.row_tile, nullptr,
                   [&](int64_t t, int) { cpu::quantise_tile(k_, q, rows.data() + q.tiling.first(t), t); });
    cpu::product_int(k_, pool_, scratch, w_, q, nullptr, done);
  }

  const cpu::Kernels& k_;
  ThreadPool pool_;
  py::buffer held_;
  cpu::Matrix w_;
  std::vector<std::byte> packed_;
  std::vector<float> floats_, q_;
  std::vector<cpu::ProductScratch> scratch_;
};

// One token through a head's state [dim, dim]: outputs [1, dim], state after.
py::tuple delta_step(const std::string& isa, const FloatRows& state, const FloatRows& q, const FloatRows& k, const FloatRows& v,
                     const FloatRows& decay, const FloatRows& beta) {
  const cpu::Kernels& kernels = cpu::select_kernels(isa.c_str());
  const py::ssize_t dim = q.size();
  if (dim % kernels.step_columns != 0 || state.size() != dim * dim || k.size() != dim || v.size() != dim || decay.size() != 1 ||
      beta.size() != 1)
    throw InputError("the arrays do not fit each other");
  std::vector<float> room(static_cast<size_t>(dim * dim) + 16);
  float* to = room.data() + (64 - reinterpret_cast<uintptr_t>(room.data()) % 64) % 64 / sizeof(float);
  py::array_t<float> o({py::ssize_t{1}, dim}), after({dim, dim});
  kernels.delta_step(state.data(), to, static_cast<int>(dim), nullptr, q.data(), k.data(), v.data(), *decay.data(), *beta.data(),
                     o.mutable_data());
  std::memcpy(after.mutable_data(), to, static_cast<size_t>(dim * dim) * sizeof(float));
  return py::make_tuple(o, after);
}

py::array_t<int32_t> top_k(const py::array_t<float, py::array::c_style | py::array::forcecast>& p, int k) {
  py::array_t<int32_t> ids(std::min<py::ssize_t>(k, p.size()));
  cpu::top_k(p.data(), static_cast<int>(p.size()), k, ids.mutable_data());
  return ids;
}

}  // namespace

void init_cpu(py::module_& m) {
  py::class_<Product>(m, "Product")
      .def(py::init<uint32_t, const py::buffer&, int64_t, int64_t, int64_t, const std::string&, int, bool>(), py::arg("type"),
           py::arg("weights"), py::arg("offset"), py::arg("rows"), py::arg("cols"), py::arg("isa") = "auto", py::arg("threads") = 1,
           py::arg("pack") = false)
      .def("run", &Product::run, py::arg("x"), py::arg("activations") = "auto")
      .def("into", &Product::into, py::arg("x"), py::arg("y"), py::arg("activations") = "auto");
  m.def("allowed_cpus", &allowed_cpus, "Cores this process may use: its affinity mask, and the CPU quotas of its cgroups.");
  m.def("available_memory", &available_memory, "Bytes this process may still take, by the machine and its cgroups; 0 = unknown.");
  m.def("cpu_isas", [] { return cpu::isa_names(); }, "Instruction sets that this machine can run.");
  m.def("delta_step", &delta_step, py::arg("isa"), py::arg("state"), py::arg("q"), py::arg("k"), py::arg("v"), py::arg("decay"),
        py::arg("beta"), "The delta rule's kernel for one token.");
  m.def("top_k", &top_k, py::arg("p"), py::arg("k"), "The k largest in falling order; NaN is below everything.");
}

}  // namespace strata::bind
