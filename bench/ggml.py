"""Matrix products of llama.cpp's own kernels, through its shared libraries: to compare in one run on the same bytes.

The libraries are those of an installed llama-cpp-python (its folder llama_cpp/lib). Only the C functions that they
export are called.
"""

from __future__ import annotations

import ctypes as c
from pathlib import Path

import numpy as np

# Types that a buffer type repacks (others it must not be given).
REPACKED = {
    "CPU_REPACK": {"Q4_0", "Q4_K", "IQ4_NL"},
    "AMX": {"Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS"},
}


class InitParams(c.Structure):
    _fields_ = [("size", c.c_size_t), ("mem", c.c_void_p), ("no_alloc", c.c_bool)]


class Ggml:
    def __init__(self, folder: str | Path):
        folder = Path(folder)
        self.libs = [c.CDLL(str(folder / f"lib{n}.so"), mode=c.RTLD_GLOBAL) for n in ("ggml-base", "ggml-cpu")]
        p, i64, i32, size = c.c_void_p, c.c_int64, c.c_int, c.c_size_t
        signatures = {
            "ggml_cpu_init": (None, []),
            "ggml_init": (p, [InitParams]),
            "ggml_free": (None, [p]),
            "ggml_new_tensor_2d": (p, [p, i32, i64, i64]),
            "ggml_mul_mat": (p, [p, p, p]),
            "ggml_new_graph": (p, [p]),
            "ggml_build_forward_expand": (None, [p, p]),
            "ggml_backend_cpu_init": (p, []),
            "ggml_backend_free": (None, [p]),
            "ggml_backend_cpu_set_n_threads": (None, [p, i32]),
            "ggml_backend_graph_compute": (i32, [p, p]),
            "ggml_backend_cpu_buffer_type": (p, []),
            "ggml_backend_alloc_ctx_tensors_from_buft": (p, [p, p]),
            "ggml_backend_buffer_free": (None, [p]),
            "ggml_backend_tensor_set": (None, [p, p, size, size]),
            "ggml_backend_tensor_get": (None, [p, p, size, size]),
            "ggml_backend_buft_name": (c.c_char_p, [p]),
            "ggml_backend_cpu_reg": (p, []),
            "ggml_backend_reg_dev_get": (p, [p, size]),
            "ggml_backend_reg_get_proc_address": (p, [p, c.c_char_p]),
        }
        for name, (result, args) in signatures.items():
            f = next(getattr(lib, name) for lib in reversed(self.libs) if hasattr(lib, name))
            f.restype, f.argtypes = result, args
            setattr(self, name[5:], f)
        self.cpu_init()

    def repack_types(self, name: str) -> list[int]:
        """The CPU backend's extra buffer types, which lay weights of type `name` out anew when they are set."""
        reg = self.backend_cpu_reg()
        address = self.backend_reg_get_proc_address(reg, b"ggml_backend_dev_get_extra_bufts")
        if not address:
            return []
        get = c.CFUNCTYPE(c.POINTER(c.c_void_p), c.c_void_p)(address)
        found, i, array = [], 0, get(self.backend_reg_dev_get(reg, 0))
        while array and array[i]:
            if name in REPACKED.get(self.backend_buft_name(array[i]).decode(), ()):
                found.append(array[i])
            i += 1
        return found


class Product:
    """y = x w^T for m rows, as a graph of one node."""

    def __init__(
        self,
        g: Ggml,
        type_id: int,
        weights: np.ndarray,
        n: int,
        k: int,
        x: np.ndarray,
        threads: int,
        buffer: int | None,
    ):
        self.g, m = g, x.shape[0]
        plain = g.backend_cpu_buffer_type()
        wctx, ctx = g.init(InitParams(1 << 16, None, True)), g.init(InitParams(1 << 20, None, True))
        w = g.new_tensor_2d(wctx, type_id, k, n)
        self.keep = [g.backend_alloc_ctx_tensors_from_buft(wctx, buffer or plain)]
        g.backend_tensor_set(w, weights.ctypes.data, 0, weights.nbytes)
        xt = g.new_tensor_2d(ctx, 0, k, m)
        self.y = g.mul_mat(ctx, w, xt)
        self.graph = g.new_graph(ctx)
        g.build_forward_expand(self.graph, self.y)
        self.keep.append(g.backend_alloc_ctx_tensors_from_buft(ctx, plain))
        g.backend_tensor_set(xt, x.ctypes.data, 0, x.nbytes)
        self.backend = g.backend_cpu_init()
        g.backend_cpu_set_n_threads(self.backend, threads)
        self.contexts, self.shape = [wctx, ctx], (m, n)

    def run(self) -> None:
        self.g.backend_graph_compute(self.backend, self.graph)

    def result(self) -> np.ndarray:
        out = np.empty(self.shape, np.float32)
        self.g.backend_tensor_get(self.y, out.ctypes.data, 0, out.nbytes)
        return out

    def close(self) -> None:
        self.g.backend_free(self.backend)
        for b in self.keep:
            self.g.backend_buffer_free(b)
        for ctx in self.contexts:
            self.g.free(ctx)
