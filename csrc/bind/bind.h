#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

namespace strata::bind {

namespace py = pybind11;

void init_errors(py::module_& m);
void init_quant(py::module_& m);

}  // namespace strata::bind
