// C++ errors -> the exception classes of strata.errors, fields included.
#include "base/error.h"

#include <exception>

#include "bind/bind.h"

namespace strata::bind {

namespace {

// Raises strata.errors.<name>(message) with the given attributes set.
void raise(const char* name, const std::string& message, const py::dict& fields) {
  const py::object cls = py::module_::import("strata.errors").attr(name);
  const py::object err = cls(text(message));
  for (const auto& item : fields) py::setattr(err, py::reinterpret_borrow<py::object>(item.first), item.second);
  PyErr_SetObject(cls.ptr(), err.ptr());
}

}  // namespace

py::str text(const std::string& s) {
  PyObject* o = PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "surrogateescape");
  if (!o) throw py::error_already_set();
  return py::reinterpret_steal<py::str>(o);
}

void init_errors(py::module_&) {
  using namespace py::literals;
  py::register_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const ModelFormatError& e) {
      raise("ModelFormatError", e.what(), py::dict("file"_a = text(e.file), "offset"_a = e.offset));
    } catch (const ConfigError& e) {
      raise("ConfigError", e.what(), py::dict("knob"_a = e.knob, "value"_a = e.value, "allowed"_a = e.allowed));
    } catch (const StreamIOError& e) {
      raise("StreamIOError", e.what(),
            py::dict("file"_a = text(e.file), "offset"_a = e.offset, "errno"_a = e.err, "layer"_a = e.layer, "expert"_a = e.expert));
    } catch (const OutOfMemoryPlanError& e) {
      raise("OutOfMemoryPlanError", e.what(), py::dict("plan"_a = e.plan, "needed"_a = e.needed, "available"_a = e.available));
    } catch (const InputError& e) {
      raise("InputError", e.what(), py::dict());
    } catch (const Cancelled& e) {
      raise("Cancelled", e.what(), py::dict());
    }
  });
}

}  // namespace strata::bind
