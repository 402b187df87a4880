"""Run as a program: products whose weights end at an unreadable page. Prints what it is at: a crash names it."""

from __future__ import annotations

import ctypes
import mmap
import sys
from pathlib import Path

import numpy as np

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "oracle"), str(TESTS / "quant"), str(TESTS / "cpu")]

from cpu_cases import INT8, ISAS, TYPES, activations, random_rows  # noqa: E402
from strata import _core  # noqa: E402

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def at_the_edge(raw: np.ndarray) -> np.ndarray:
    page = mmap.PAGESIZE
    room = -(-raw.size // page) * page
    area = mmap.mmap(-1, room + page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    if libc.mprotect(start + room, page, 0) != 0:
        raise OSError(ctypes.get_errno())
    view = np.frombuffer(area, np.uint8, raw.size, room - raw.size)
    ctypes.memmove(view.ctypes.data, raw.ctypes.data, raw.size)
    kept.append(area)
    return view


kept: list[mmap.mmap] = []
for name, info in TYPES.items():
    for rows, cols in ((1, 512), (16, 512), (17, 512), (16, 608)):
        cols = max(info.block, cols // info.block * info.block)
        raw = at_the_edge(random_rows(name, rows, cols, 1))
        for isa in ISAS:
            print(name, rows, cols, isa, flush=True)
            for pack in (False, True):
                for m in (1, 4, 13):
                    product = _core.Product(info.id, raw, 0, rows, cols, isa=isa, pack=pack)
                    product.run(activations(m, cols, 2))
                    if name in INT8:
                        product.run(activations(m, cols, 2), "int8")
