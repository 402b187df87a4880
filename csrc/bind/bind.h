#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>

namespace strata::bind {

namespace py = pybind11;

// A path given as str, bytes or os.PathLike, as the bytes the file system knows it by.
std::string fs_bytes(const py::object& path);

// Text that may hold any bytes (paths, strings of a file); what is not UTF-8 becomes surrogates, as os.fsdecode does.
py::str text(const std::string& s);

void init_errors(py::module_& m);
void init_gguf(py::module_& m);
void init_quant(py::module_& m);
void init_engine(py::module_& m);
void init_parity(py::module_& m);
void init_cpu(py::module_& m);

}  // namespace strata::bind
