"""What the tests of the block formats share."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from quants.dequant import TYPES

GOLDENS = Path(__file__).resolve().parent.parent / "data" / "quants" / "goldens.npz"
NAMES = list(TYPES)
KINDS = ["", "hostile_"]

# Byte offsets of the half-precision fields of a block. IQ1_M spreads its half over four words.
HALVES = {
    **dict.fromkeys(["Q4_0", "Q5_0", "Q8_0", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"], (0,)),
    **dict.fromkeys(["IQ1_S", "IQ4_NL", "IQ4_XS", "Q1_0", "Q2_0"], (0,)),
    **dict.fromkeys(["Q4_1", "Q5_1", "Q4_K", "Q5_K"], (0, 2)),
    **{"Q2_K": (80, 82), "Q3_K": (108,), "Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,)},
}


@cache
def goldens() -> dict[str, np.ndarray]:
    with np.load(GOLDENS) as z:
        return {k: z[k] for k in z.files}


def differing(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Flat positions at which the float32 bits differ; any NaN equals any NaN."""
    got, want = np.ravel(got), np.ravel(want)
    assert got.dtype == want.dtype == np.float32
    assert got.size == want.size
    same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
    return np.flatnonzero(~same)


def assert_same_bits(got: np.ndarray, want: np.ndarray, what: str) -> None:
    bad = differing(got, want)
    if bad.size:
        i = bad[0]
        g, w = np.ravel(got)[i], np.ravel(want)[i]
        raise AssertionError(f"{what}: {bad.size} of {want.size} values differ, first {i}: got {g!r}, want {w!r}")


def shifted(raw: np.ndarray, offset: int) -> np.ndarray:
    """A copy of `raw` whose first byte lies `offset` bytes after a multiple of 128."""
    room = np.empty(raw.size + 256 + offset, np.uint8)
    start = -room.ctypes.data % 128 + offset
    view = room[start : start + raw.size]
    view[:] = raw.reshape(-1)
    assert (view.ctypes.data - offset) % 128 == 0
    return view
