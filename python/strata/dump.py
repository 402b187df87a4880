"""Reads the files of a dump folder (DUMP_MOE). The layout is that of csrc/window/dump.h."""

from __future__ import annotations

import dataclasses
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.errors import InputError

HEADER = struct.Struct("<8s4sIQQQiIQQ")
MAGIC = b"STRDUMP1"
DTYPES = {b"f32": np.dtype("<f4"), b"i32": np.dtype("<i4")}


@dataclasses.dataclass(frozen=True, eq=False)
class Dump:
    """One file: what one layer gave for every row of one call.

    array: [rows, d1] or [rows, d1, d2], mapped from the file. first_row: position in the sequence of row 0.
    """

    layer: int
    first_row: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    array: NDArray[Any]


def read(path: str | os.PathLike[str]) -> Dump:
    """Opens a dump file. Raises InputError when it is none, or is cut short or longer than its header says."""
    path = Path(path)
    size = path.stat().st_size
    if size < HEADER.size:
        raise InputError(f"{path}: {size} bytes are no dump file, whose header alone has {HEADER.size}.")
    with path.open("rb") as file:
        head = file.read(HEADER.size)
    magic, kind, n_dims, rows, d1, d2, layer, _, first_row, _ = HEADER.unpack(head)
    if magic != MAGIC:
        raise InputError(f"{path}: no dump file: it starts with {magic!r}, not {MAGIC!r}.")
    dtype = DTYPES.get(kind.rstrip(b"\0"))
    if dtype is None or n_dims not in (2, 3):
        raise InputError(f"{path}: unknown kind of values {kind!r} or number of dimensions {n_dims}.")
    shape = (rows, d1) if n_dims == 2 else (rows, d1, d2)
    # Python's integers, so that sizes of a damaged header cannot wrap around.
    need = HEADER.size + dtype.itemsize * int(np.prod([int(n) for n in shape], dtype=object))
    if size != need:
        state = "cut short" if size < need else "longer than its header says"
        raise InputError(f"{path}: {state}: {size} bytes, {need} for {shape} values of {dtype.name}.")
    array: NDArray[Any]
    if rows * d1 * (d2 if n_dims == 3 else 1) == 0:
        array = np.empty(shape, dtype)
    else:
        array = np.memmap(path, dtype, "r", offset=HEADER.size, shape=shape)
    return Dump(layer, first_row, dtype, shape, array)
