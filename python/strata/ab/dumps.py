"""Comparison of two dump folders, byte for byte, with the first difference named."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata import dump
from strata.errors import StrataError

BLOCK_BYTES = 8 << 20  # compared at a time, so that a dump larger than memory is no matter


@dataclasses.dataclass(frozen=True)
class Difference:
    """One value that differs. column: index in the row, (d1,) or (d1, d2). ulp: None when a value is a NaN."""

    file: str
    layer: int
    row: int  # in the sequence
    column: tuple[int, ...]
    a: float | int
    b: float | int
    a_bits: str
    b_bits: str
    ulp: int | None

    def __str__(self) -> str:
        column = ", ".join(map(str, self.column))
        distance = "a NaN" if self.ulp is None else f"{self.ulp} ulp apart"
        return (
            f"{self.file}: layer {self.layer}, row {self.row}, column {column}: {self.a!r} ({self.a_bits}) and "
            f"{self.b!r} ({self.b_bits}), {distance}"
        )


@dataclasses.dataclass(frozen=True)
class DumpComparison:
    """What a comparison found. by_layer: layer -> values that differ. errors: why folders cannot be compared."""

    a: str
    b: str
    files: int
    values: int
    different: int
    first: Difference | None
    by_layer: dict[int, int]
    by_file: dict[str, int]
    errors: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Every file of both folders was there, whole, and the same bits."""
        return not self.errors and self.different == 0

    @property
    def exit_code(self) -> int:
        """0 equal, 1 values differ, 2 files are missing, cut, or of another shape."""
        return 2 if self.errors else 1 if self.different else 0

    def text(self) -> str:
        """The result in lines."""
        lines = list(self.errors)
        if self.first is not None:
            lines.append(f"first difference: {self.first}")
            lines.append(f"{self.different} of {self.values} values differ; by layer:")
            most = max(self.by_layer.values())
            for layer, count in sorted(self.by_layer.items()):
                lines.append(
                    f"  layer {layer:3d}  {count:12d}  {'#' * max(1, round(40 * count / most)) if count else ''}"
                )
        if self.equal:
            lines.append(f"equal: {self.files} files, {self.values} values, every bit.")
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """A plain dict for JSON."""
        data = dataclasses.asdict(self)
        data["equal"] = self.equal
        data["by_layer"] = {str(layer): n for layer, n in sorted(self.by_layer.items())}
        data["errors"] = list(self.errors)
        if self.first is not None:
            data["first"]["column"] = list(self.first.column)
            # JSON has no NaN; the bits say which one it was.
            for side in ("a", "b"):
                if not np.isfinite(data["first"][side]):
                    data["first"][side] = repr(data["first"][side])
        return data


def compare(
    a: str | os.PathLike[str], b: str | os.PathLike[str], progress: Callable[[str], object] | None = None
) -> DumpComparison:
    """Compares all files of two dump folders. The bits count: -0.0 differs from 0.0, a NaN equals the same NaN."""
    a, b = Path(a), Path(b)
    errors = [f"{folder}: not a folder." for folder in (a, b) if not folder.is_dir()]
    names_a, names_b = (_names(f) if f.is_dir() else set() for f in (a, b))
    if not errors:
        errors += [f"{f}: no dump files in it." for f, names in ((a, names_a), (b, names_b)) if not names]
    errors += [f"{name}: in {a}, missing in {b}." for name in sorted(names_a - names_b)]
    errors += [f"{name}: in {b}, missing in {a}." for name in sorted(names_b - names_a)]
    values = different = files = 0
    first: Difference | None = None
    by_layer: dict[int, int] = {}
    by_file: dict[str, int] = {}
    for name in sorted(names_a & names_b):
        if progress is not None:
            progress(name)
        try:
            da, db = dump.read(a / name), dump.read(b / name)
        except (StrataError, OSError) as e:
            errors.append(str(e))
            continue
        for what in ("layer", "first_row", "dtype", "shape"):
            if getattr(da, what) != getattr(db, what):
                errors.append(f"{name}: {what} is {getattr(da, what)} in {a} and {getattr(db, what)} in {b}.")
                break
        else:
            count, where = _compare_arrays(da.array, db.array)
            files += 1
            values += da.array.size
            by_layer[da.layer] = by_layer.get(da.layer, 0) + count
            by_file[name] = count
            different += count
            if where is not None and (first is None or da.layer < first.layer):
                first = _difference(name, da, db, where)
    return DumpComparison(
        str(a), str(b), files, values, different, first, by_layer, by_file, tuple(dict.fromkeys(errors))
    )


def ulp_distance(a: float | np.floating[Any], b: float | np.floating[Any]) -> int | None:
    """float32 values between a and b, counting one of them; 0 between -0.0 and 0.0; None when one is a NaN."""
    if np.isnan(a) or np.isnan(b):
        return None
    return abs(_rank(np.float32(a)) - _rank(np.float32(b)))


def _rank(x: np.float32) -> int:
    """Place of a float among all floats: the bits of its size, with its sign."""
    bits = int(x.view(np.uint32))
    return -(bits & 0x7FFFFFFF) if bits >> 31 else bits


def _names(folder: Path) -> set[str]:
    return {p.name for p in folder.iterdir() if p.is_file() and not p.name.startswith(".")}


def _compare_arrays(a: NDArray[Any], b: NDArray[Any]) -> tuple[int, tuple[int, ...] | None]:
    """Number of values with other bits, and the index of the first."""
    flat_a, flat_b = a.reshape(-1).view(np.uint32), b.reshape(-1).view(np.uint32)
    step = BLOCK_BYTES // 4
    count, first = 0, None
    for at in range(0, flat_a.size, step):
        other = flat_a[at : at + step] != flat_b[at : at + step]
        n = int(np.count_nonzero(other))
        if n and first is None:
            first = at + int(np.argmax(other))
        count += n
    return count, None if first is None else tuple(int(i) for i in np.unravel_index(first, a.shape))


def _difference(name: str, a: dump.DumpFile, b: dump.DumpFile, where: tuple[int, ...]) -> Difference:
    va, vb = a.array[where], b.array[where]
    whole = a.dtype.kind == "i"
    return Difference(
        file=name,
        layer=a.layer,
        row=a.first_row + where[0],
        column=where[1:],
        a=int(va) if whole else float(va),
        b=int(vb) if whole else float(vb),
        a_bits=f"0x{int(va.view(np.uint32)):08x}",
        b_bits=f"0x{int(vb.view(np.uint32)):08x}",
        ulp=abs(int(va) - int(vb)) if whole else ulp_distance(va, vb),
    )
