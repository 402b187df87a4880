"""The generated tables are those of the format."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from quants import dequant

ROOT = Path(__file__).resolve().parent.parent.parent

# shape, values that occur, first 16 hexadecimal digits of SHA-256 over the table as raw bytes
GRIDS = {
    "grid_iq2xxs": ((256, 8), [8, 25, 43], "05826b5d3e472a3a"),
    "grid_iq2xs": ((512, 8), [8, 25, 43], "06e47aaca60b4dc1"),
    "grid_iq2s": ((1024, 8), [8, 25, 43], "e1aa1473412b0552"),
    "grid_iq3xxs": ((256, 4), [4, 12, 20, 28, 36, 44, 52, 62], "46e35f5a997efdee"),
    "grid_iq3s": ((512, 4), [1, 3, 5, 7, 9, 11, 13, 15], "bd1af4945a1717c6"),
    "grid_iq1": ((2048, 8), [-1, 0, 1], "07540ffc1aeaf6ad"),
}


@pytest.fixture(scope="module")
def tables() -> dict[str, np.ndarray]:
    """The arrays of csrc/quant/tables.inc as a compiler would read them."""
    text = (ROOT / "csrc" / "quant" / "tables.inc").read_text()
    out = {}
    for kind, name, dims, body in re.findall(r"constexpr (\w+)_t (\w+)([\[\]\d]+) = \{(.*?)\n\};", text, re.S):
        shape = [int(n) for n in re.findall(r"\d+", dims)]
        flat = [int(v, 0) for v in re.findall(r"-?\w+", body)]
        out[name] = np.array(flat, kind).reshape(shape)
    return out


@pytest.mark.parametrize("name", GRIDS)
def test_grids(tables: dict[str, np.ndarray], name: str) -> None:
    shape, values, digest = GRIDS[name]
    grid = tables[name]
    assert grid.shape == shape
    assert np.unique(grid).tolist() == values
    assert hashlib.sha256(grid.tobytes()).hexdigest()[:16] == digest
    digits = np.searchsorted(values, grid)
    numbers = (digits * len(values) ** np.arange(shape[1])).sum(axis=1)
    assert (np.diff(numbers) > 0).all(), "entries ascend, digit 0 the least significant"


def test_small_tables(tables: dict[str, np.ndarray]) -> None:
    assert set(tables) == {*GRIDS, "ksigns", "kvalues_iq4", "kvalues_fp4", "ue4m3_half"}
    assert tables["ksigns"].tolist() == [s | (s.bit_count() & 1) << 7 for s in range(128)]
    levels = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
    assert tables["kvalues_iq4"].tolist() == levels
    assert tables["kvalues_fp4"].tolist() == [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]
    scale = tables["ue4m3_half"].view(np.float32)
    assert scale[[0x00, 0x01, 0x08, 0x38, 0x7E, 0x7F, 0x80, 0xFE, 0xFF]].tolist() == [
        *(0, 2**-10, 2**-7, 0.5, 224, 0, 0, 224, 240),
    ]
    assert (scale[0x81:0xFF] == scale[0x01:0x7F]).all()


def test_reference_has_the_same_tables(tables: dict[str, np.ndarray]) -> None:
    for name, a in tables.items():
        want = dequant._T[name]
        assert a.tobytes() == want.tobytes(), name


def test_file_is_what_its_generator_writes() -> None:
    pytest.importorskip("gguf.quants", reason="the generator takes the grids from the gguf package")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "make_quant_tables.py"), "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
