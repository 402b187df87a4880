// dequantize, quantize, quant_types.
#include "quant/quant.h"

#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "base/error.h"
#include "bind/bind.h"

namespace strata::bind {

namespace {

using TypeArg = std::variant<std::string, int64_t>;

const quant::TypeInfo& find_type(const TypeArg& type) {
  if (const auto* name = std::get_if<std::string>(&type)) {
    if (const auto* t = quant::type_by_name(name->c_str())) return *t;
    throw InputError("tensor type '" + *name + "' is not one that strata reads");
  }
  const int64_t id = std::get<int64_t>(type);
  const auto* t = id >= 0 && id <= UINT32_MAX ? quant::type_info(static_cast<uint32_t>(id)) : nullptr;
  if (!t) throw InputError("tensor type " + std::to_string(id) + " is not one that strata reads");
  return *t;
}

// A contiguous view of the bytes of an object, held as long as this lives.
class Bytes {
 public:
  explicit Bytes(const py::handle& object) {
    if (!PyObject_CheckBuffer(object.ptr())) throw py::type_error("data must be bytes-like");
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) {
      PyErr_Clear();
      throw InputError("data must be contiguous in memory");
    }
  }
  ~Bytes() { PyBuffer_Release(&view_); }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  const uint8_t* data() const { return static_cast<const uint8_t*>(view_.buf); }
  int64_t size() const { return view_.len; }

 private:
  Py_buffer view_{};
};

py::array_t<float> dequantize(const TypeArg& type, const py::object& data) {
  const quant::TypeInfo& t = find_type(type);
  const Bytes bytes(data);
  if (bytes.size() % t.block_bytes != 0) {
    throw InputError(std::to_string(bytes.size()) + " bytes are not a whole number of " + t.name + " blocks of " +
                     std::to_string(t.block_bytes) + " bytes");
  }
  const int64_t n = bytes.size() / t.block_bytes * t.block_values;
  py::array_t<float> out(n);
  float* dst = out.mutable_data();
  {
    py::gil_scoped_release release;
    quant::dequantize_row(t.id, bytes.data(), dst, n);
  }
  return out;
}

using Floats = py::array_t<float, py::array::c_style | py::array::forcecast>;

py::array_t<uint8_t> quantize(const TypeArg& type, const Floats& x) {
  const quant::TypeInfo& t = find_type(type);
  if (x.ndim() == 0) throw InputError("quantize needs an array with at least one axis");
  const int64_t columns = x.shape(x.ndim() - 1);
  const int64_t row = quant::whole_blocks(t, columns) * t.block_bytes;
  std::vector<py::ssize_t> shape(x.shape(), x.shape() + x.ndim());
  shape.back() = row;
  py::array_t<uint8_t> out(shape);
  const float* src = x.data();
  uint8_t* dst = out.mutable_data();
  const int64_t n = x.size();
  {
    py::gil_scoped_release release;
    quant::quantize_row(t.id, src, dst, n);
  }
  return out;
}

std::vector<std::tuple<std::string, uint32_t, uint32_t, uint32_t>> quant_types() {
  std::vector<std::tuple<std::string, uint32_t, uint32_t, uint32_t>> out;
  for (uint32_t id = 0; id < quant::kTypeIds; ++id) {
    if (const auto* t = quant::type_info(id)) out.emplace_back(t->name, t->id, t->block_values, t->block_bytes);
  }
  return out;
}

}  // namespace

void init_quant(py::module_& m) {
  using namespace py::literals;
  m.def("dequantize", &dequantize, "type"_a, "data"_a,
        "Decode whole blocks of a tensor type (name or number in the file) to a flat float32 array.\n\n"
        "Raises InputError when the type is unknown or `data` is not a whole number of blocks.");
  m.def("quantize", &quantize, "type"_a, "array"_a,
        "Encode float32 rows [..., n] to uint8 [..., bytes of a row]; n must be a multiple of the type's block.\n\n"
        "Raises InputError on an unknown type, another row length, a value that is not finite, or a scale that the\n"
        "format cannot hold.");
  m.def("quant_types", &quant_types,
        "The readable tensor types, ascending by number: (name, number, values per block, bytes per block).");
}

}  // namespace strata::bind
