// Single kernels and the router, for parity checks (strata kernel-parity, strata route-parity).
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "bind/bind.h"
#include "cpu/isa/kernels.h"
#include "cpu/router_api.h"

namespace strata::bind {

namespace {

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;
using Halves = py::array_t<uint16_t, py::array::c_style | py::array::forcecast>;

int length(const py::array& a, py::ssize_t axis) { return static_cast<int>(a.shape(axis)); }

void want(bool good, const char* what) {
  if (!good) throw InputError(what);
}

// A copy that a kernel may write to.
Floats copy(const Floats& a) {
  Floats out(std::vector<py::ssize_t>(a.shape(), a.shape() + a.ndim()));
  std::copy_n(a.data(), a.size(), out.mutable_data());
  return out;
}

py::tuple route(const Floats& logits, int k, const std::string& isa, const py::object& resident, float bonus) {
  const cpu::Kernels& kernels = cpu::select_kernels(isa.c_str());
  want(logits.ndim() == 2, "logits are rows of one number for each expert");
  const int rows = length(logits, 0), n = length(logits, 1);
  want(k >= 1 && k <= n, "k is from 1 to the number of experts");
  std::vector<uint8_t> mask;
  if (!resident.is_none()) {
    const auto m = resident.cast<py::array_t<bool, py::array::c_style | py::array::forcecast>>();
    want(m.ndim() == 1 && m.size() == n, "resident is one truth value for each expert");
    mask.assign(m.data(), m.data() + n);
  }
  py::array_t<int32_t> ids({rows, k});
  Floats weights({rows, k});
  std::vector<float> row(static_cast<size_t>(n)), plain(static_cast<size_t>(n));
  std::vector<int32_t> unused(static_cast<size_t>(k));
  std::vector<float> some(static_cast<size_t>(k));
  for (int t = 0; t < rows; ++t) {
    const float* from = logits.data() + static_cast<int64_t>(t) * n;
    int32_t* to = ids.mutable_data() + static_cast<int64_t>(t) * k;
    float* w = weights.mutable_data() + static_cast<int64_t>(t) * k;
    std::copy_n(from, n, row.begin());
    if (mask.empty()) {
      cpu::route(kernels, row.data(), n, k, to, w);
      continue;
    }
    for (int i = 0; i < n; ++i)
      if (mask[static_cast<size_t>(i)]) row[static_cast<size_t>(i)] += bonus;
    cpu::route(kernels, row.data(), n, k, to, w);  // the bonus chooses; the weights are those of the plain logits
    std::copy_n(from, n, plain.begin());
    cpu::route(kernels, plain.data(), n, k, unused.data(), some.data());
    float chosen = 0;
    for (int i = 0; i < k; ++i) chosen += plain[static_cast<size_t>(to[i])];
    for (int i = 0; i < k; ++i) w[i] = plain[static_cast<size_t>(to[i])] / chosen;
  }
  return py::make_tuple(ids, weights);
}

// One kernel on float arrays; the shapes each takes are in _core.pyi.
py::object vector_kernel(const std::string& name, const std::string& isa, const Floats& a, const py::object& second, float s, float m) {
  const cpu::Kernels& k = cpu::select_kernels(isa.c_str());
  const auto n = static_cast<int>(a.size());
  const auto other = [&](py::ssize_t size) {
    auto b = second.cast<Floats>();
    want(b.size() == size, "the second array has another size than this kernel takes");
    return b;
  };
  Floats y = copy(a);
  float* out = y.mutable_data();
  if (name == "max") return py::float_(k.max(a.data(), n));
  if (name == "exp_sum") {
    const float sum = k.exp_sum(out, s, n);
    return py::make_tuple(y, sum);
  }
  if (name == "to_f16") {
    Halves h(n);
    k.to_f16(a.data(), h.mutable_data(), n);
    return h;
  }
  if (name == "scale") {
    k.scale(out, s, n);
  } else if (name == "silu_scaled") {
    k.silu_scaled(out, s, n);
  } else if (name == "sigmoid_scaled") {
    k.sigmoid_scaled(out, s, m, n);
  } else if (name == "rms_norm") {
    k.rms_norm(a.data(), other(n).data(), out, n, s);
  } else if (name == "add") {
    k.add(out, other(n).data(), n);
  } else if (name == "axpy") {
    k.axpy(out, s, other(n).data(), n);
  } else if (name == "sigmoid_gate") {
    k.sigmoid_gate(out, other(n).data(), n);
  } else if (name == "swiglu") {
    k.swiglu(a.data(), other(n).data(), out, n);
  } else if (name == "dot_f16" || name == "axpy_f16") {
    const auto h = second.cast<Halves>();
    want(h.size() == n, "the second array has another size than this kernel takes");
    if (name == "dot_f16") return py::float_(k.dot_f16(a.data(), h.data(), n));
    k.axpy_f16(out, s, h.data(), n);
  } else if (name == "mix_streams" || name == "conv") {
    want(a.ndim() == 2, "this kernel takes rows");
    const int rows = length(a, 0), cols = length(a, 1);
    const Floats b = other(n);
    Floats one(cols);
    if (name == "mix_streams") {
      k.mix_streams(a.data(), b.data(), one.mutable_data(), rows, cols);
    } else {
      std::vector<const float*> x(static_cast<size_t>(rows));
      for (int r = 0; r < rows; ++r) x[static_cast<size_t>(r)] = a.data() + static_cast<int64_t>(r) * cols;
      k.conv(x.data(), b.data(), one.mutable_data(), rows, cols);
    }
    return one;
  } else {
    throw InputError("there is no vector kernel \"" + name + "\"");
  }
  return y;
}

// State [dim, columns], q and k [T, dim], v [T, columns], decay and beta [T] -> outputs [T, columns], state after.
py::tuple delta_scan(const std::string& isa, const Floats& state, const Floats& q, const Floats& k, const Floats& v, const Floats& decay,
                     const Floats& beta) {
  const cpu::Kernels& kernels = cpu::select_kernels(isa.c_str());
  want(state.ndim() == 2 && q.ndim() == 2 && k.ndim() == 2 && v.ndim() == 2, "state, q, k and v are rows");
  const int dim = length(state, 0), columns = length(state, 1), tokens = length(q, 0);
  want(columns >= 1 && columns <= cpu::kStrip, "too many columns");
  want(q.shape(1) == dim && k.shape(1) == dim && k.shape(0) == tokens && v.shape(0) == tokens && v.shape(1) == columns &&
           decay.size() == tokens && beta.size() == tokens,
       "the arrays do not fit each other");
  std::vector<float> strip(static_cast<size_t>(dim) * cpu::kStrip, 0.0F);
  for (int i = 0; i < dim; ++i)
    std::copy_n(state.data() + static_cast<int64_t>(i) * columns, columns, strip.begin() + static_cast<int64_t>(i) * cpu::kStrip);
  Floats o({tokens, columns}), after({dim, columns});
  kernels.delta_scan(strip.data(), dim, tokens, q.data(), k.data(), dim, v.data(), columns, decay.data(), beta.data(), 1, o.mutable_data(),
                     columns, columns);
  for (int i = 0; i < dim; ++i)
    std::copy_n(strip.begin() + static_cast<int64_t>(i) * cpu::kStrip, columns, after.mutable_data() + static_cast<int64_t>(i) * columns);
  return py::make_tuple(o, after);
}

}  // namespace

void init_parity(py::module_& m) {
  using namespace py::literals;
  m.def("route", &route, "logits"_a, "k"_a, "isa"_a = "auto", "resident"_a = py::none(), "bonus"_a = 0.0F);
  m.def("vector_kernel", &vector_kernel, "name"_a, "isa"_a, "a"_a, "b"_a = py::none(), "s"_a = 0.0F, "m"_a = 0.0F);
  m.def("delta_scan", &delta_scan, "isa"_a, "state"_a, "q"_a, "k"_a, "v"_a, "decay"_a, "beta"_a);
}

}  // namespace strata::bind
