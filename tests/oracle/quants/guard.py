"""Buffers that lie against an unreadable page, to catch loads past either end of a row of blocks (Linux, macOS).

    with guarded(raw, "end") as a:        # a: uint8 numpy view; the byte after its last one faults when touched
        decode(a.ctypes.data, ...)        # "start": the byte before its first one faults

`lead` bytes (with "end") come before the block data in the same mapping, so that every start alignment can be tried:
the end stays on the page border, the start moves with the length of raw. A stray load kills the process with
SIGSEGV or SIGBUS, so run the cases in a child process.
"""

import contextlib
import ctypes
import mmap

import numpy as np

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@contextlib.contextmanager
def guarded(raw, side="end", lead=0):
    data = np.frombuffer(bytes(lead) + bytes(raw), np.uint8)
    page = mmap.PAGESIZE
    body = (data.size + page - 1) // page * page
    m = mmap.mmap(-1, body + 2 * page)
    base = ctypes.addressof(ctypes.c_char.from_buffer(m))
    whole = np.frombuffer(m, np.uint8)
    at = page if side == "start" else page + body - data.size
    whole[at : at + data.size] = data
    for p in (base, base + page + body):
        if _libc.mprotect(p, page, 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    try:
        yield whole[at + lead : at + data.size]
    finally:
        for p in (base, base + page + body):
            _libc.mprotect(p, page, mmap.PROT_READ | mmap.PROT_WRITE)
