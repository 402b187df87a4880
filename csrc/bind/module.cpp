// The extension module strata._core: conversion, the GIL, error translation. One init function per area.
#include "bind/bind.h"

namespace strata::bind {

std::string fs_bytes(const py::object& path) {
  return py::cast<std::string>(py::module_::import("os").attr("fsencode")(path));
}

PYBIND11_MODULE(_core, m) {
  m.attr("__version__") = STRATA_VERSION;
  init_errors(m);
  init_gguf(m);
  init_quant(m);
  init_engine(m);
  init_parity(m);
  init_cpu(m);
}

}  // namespace strata::bind
