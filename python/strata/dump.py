"""Reads the files that a run with dump_moe=FOLDER (DUMP_MOE) writes: docs/dumps.md has their format.

dump = strata.dump.open_dump("folder")
dump[3, "ids"].array          # int32 [rows, K] of layer 3, mapped from the file
dump.rows, dump.first_row, dump.layers, dump.kinds(3)
"""

from __future__ import annotations

import dataclasses
import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from strata.errors import DumpFormatError

PathLike = Union[str, "os.PathLike[str]"]

MAGIC = b"STRDUMP1"
HEADER = struct.Struct("<8s4sIQQQiIQQ")  # magic, dtype, n_dims, rows, d1, d2, layer, 0, first_row, 0
DTYPES = {b"f32\0": np.dtype("<f4"), b"i32\0": np.dtype("<i4")}
KINDS = ("mixed", "ids", "wts", "yr", "hh", "sgv", "out", "R_post", "inj")
NAME = re.compile(r"L(\d{3,})\.(\w+)")


@dataclasses.dataclass(frozen=True, eq=False)
class DumpFile:
    """One file of a dump.

    kind: one of KINDS. layer: from 0. first_row: position of row 0 in the sequence. shape, dtype: of `array`, which is
    mapped from the file and read-only. complete: False when the run stopped before it had written all it began.
    """

    path: Path
    kind: str
    layer: int
    first_row: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    array: NDArray[Any]
    complete: bool

    @property
    def rows(self) -> int:
        """Complete rows, one for each token."""
        return self.shape[0]


class Dump(Mapping[tuple[int, str], DumpFile]):
    """The files of one run, by (layer, kind). All hold the same rows."""

    def __init__(self, folder: Path, files: dict[tuple[int, str], DumpFile]) -> None:
        self.folder = folder
        self._files = files
        first = next(iter(files.values()))
        self.rows, self.first_row = first.rows, first.first_row

    @property
    def layers(self) -> list[int]:
        """Numbers of the layers there are files of."""
        return sorted({layer for layer, _ in self._files})

    def kinds(self, layer: int) -> list[str]:
        """Kinds of file of a layer, in the order of KINDS."""
        return [kind for kind in KINDS if (layer, kind) in self._files]

    def __getitem__(self, key: tuple[int, str]) -> DumpFile:
        return self._files[key]

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


def read(path: PathLike, *, partial: bool = False) -> DumpFile:
    """Opens one file of a dump. partial: takes the complete rows of a dump whose run was stopped.

    Raises DumpFormatError when it is none, is damaged or cut short, or was left incomplete; OSError when it cannot be
    opened.
    """
    path = Path(path)
    named = NAME.fullmatch(path.name)
    if named is None or named[2] not in KINDS:
        raise _error(path, f"a dump is called L000.KIND, with KIND one of {', '.join(KINDS)}")
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = file.read(HEADER.size)
        if len(head) < HEADER.size:
            raise _error(path, f"{size} bytes, the header alone has {HEADER.size}")
        magic, tag, n_dims, rows, d1, d2, layer, reserved, first_row, reserved2 = HEADER.unpack(head)
        if magic != MAGIC:
            raise _error(path, f"it begins with {magic!r}, not with {MAGIC!r}")
        if tag not in DTYPES:
            raise _error(path, f"its values are of type {tag!r}, which is not known")
        if n_dims not in (2, 3) or d1 == 0 or (d2 == 0) == (n_dims == 3) or reserved or reserved2:
            raise _error(path, f"its header gives {n_dims} dimensions of {rows}, {d1}, {d2}")
        if layer != int(named[1]):
            raise _error(path, f"its header says layer {layer}")
        dtype = DTYPES[tag]
        shape = (rows, d1) if n_dims == 2 else (rows, d1, d2)
        row = d1 * max(d2, 1) * dtype.itemsize
        want = HEADER.size + rows * row
        if size < want:
            raise _error(path, f"{size} bytes where {rows} rows of {row} bytes need {want}")
        if size > want and not partial:
            raise _error(
                path,
                f"{size} bytes where {rows} rows of {row} bytes need {want}: the run that wrote it was stopped "
                "(partial=True takes the complete rows)",
            )
        # An empty file cannot be mapped.
        array = np.memmap(file, dtype, "r", HEADER.size, shape) if rows else np.empty(shape, dtype)
    return DumpFile(path, named[2], layer, first_row, dtype, shape, array, size == want)


def open_dump(folder: PathLike, *, partial: bool = False) -> Dump:
    """Opens all files of a dump. Raises DumpFormatError as `read` does, and when they are not of one run."""
    folder = Path(folder)
    names = sorted(p for p in folder.iterdir() if (m := NAME.fullmatch(p.name)) and m[2] in KINDS)
    if not names:
        raise _error(folder, "no dump is in this folder")
    files = {}
    first: DumpFile | None = None
    for path in names:
        file = read(path, partial=partial)
        if first is None:
            first = file
        elif (file.rows, file.first_row) != (first.rows, first.first_row):
            raise _error(
                path,
                f"{file.rows} rows from position {file.first_row}, but {first.path.name} has {first.rows} from "
                f"{first.first_row}: files of two runs",
            )
        files[file.layer, file.kind] = file
    return Dump(folder, files)


def _error(path: Path, what: str) -> DumpFormatError:
    error = DumpFormatError(f"{path}: {what}.")
    error.file = str(path)
    return error
