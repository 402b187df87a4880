// The extension module strata._core: conversion, the GIL, error translation. One init function per area.
#include "bind/bind.h"

namespace strata::bind {

std::string fs_bytes(const py::object& path) {
  return py::cast<std::string>(py::module_::import("os").attr("fsencode")(path));
}

namespace {

#ifdef __clang__
constexpr const char* kCompiler = "clang " __clang_version__;
#else
constexpr const char* kCompiler = "gcc " __VERSION__;
#endif

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.attr("__version__") = STRATA_VERSION;
  m.attr("compiler") = kCompiler;
  init_errors(m);
  init_gguf(m);
  init_quant(m);
  init_engine(m);
  init_parity(m);
  init_cpu(m);
}

}  // namespace strata::bind
