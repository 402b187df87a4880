"""Products with quantised weights: every type on every instruction set, against float64 and against each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cpu_cases import FLOATS, ISAS, TYPES, activations, decoded, random_rows, reference
from quant_cases import HALVES, NAMES, assert_same_bits, shifted
from strata import _core

INTEGER = [n for n in NAMES if n not in FLOATS]


def cols_of(name: str, want: int) -> int:
    return max(TYPES[name].block, want // TYPES[name].block * TYPES[name].block)


def product(name: str, raw: np.ndarray, rows: int, cols: int, isa: str, offset: int = 0, **more) -> _core.Product:
    return _core.Product(TYPES[name].id, raw, offset, rows, cols, isa=isa, **more)


@pytest.mark.parametrize("name", INTEGER)
def test_close_to_float64(name):
    for rows, cols in [(37, 608), (16, 256), (5, 2560)]:
        cols = cols_of(name, cols)
        raw, x = random_rows(name, rows, cols, 1), activations(9, cols, 2)
        want, bound = reference(name, decoded(name, raw, rows, cols), raw, x)
        for isa in ISAS:
            got = product(name, raw, rows, cols, isa).run(x)
            over = np.abs(got - want) > bound
            assert not over.any(), (
                f"{isa} {rows} x {cols}: off by {np.abs(got - want)[over][0]}, bound {bound[over][0]}"
            )


@pytest.mark.parametrize("name", FLOATS)
def test_plain_floats_close_to_float64(name):
    raw, x = random_rows(name, 37, 601, 1), activations(9, 601, 2)
    w = decoded(name, raw, 37, 601)
    bound = 605 * 2.0**-24 * (np.abs(x).astype(np.float64) @ np.abs(w).T)
    for isa in ISAS:
        got = product(name, raw, 37, 601, isa).run(x)
        assert (np.abs(got - x.astype(np.float64) @ w.T) <= bound).all()


@pytest.mark.parametrize("mode", ["auto", "f32"])
@pytest.mark.parametrize("name", NAMES)
def test_same_bits_on_every_instruction_set(name, mode):
    rows = 35
    for cols in (608, 64, 1024):
        cols = cols_of(name, cols)
        raw, x = random_rows(name, rows, cols, 3), activations(33, cols, 4)
        want = product(name, raw, rows, cols, ISAS[0]).run(x, mode)
        for isa in ISAS[1:]:
            for pack in (False, True):
                got = product(name, raw, rows, cols, isa, pack=pack).run(x, mode if not pack else "auto")
                if not pack or mode == "auto":
                    assert_same_bits(got, want, f"{name} {isa} {cols} pack={pack}")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", NAMES)
def test_a_row_does_not_depend_on_its_neighbours(name, isa):
    """1 to 33 rows, threads, packing: the same bits as one row at a time."""
    rows, cols = 48, cols_of(name, 608)
    raw, x = random_rows(name, rows, cols, 5), activations(33, cols, 6)
    one = product(name, raw, rows, cols, isa)
    single = np.concatenate([one.run(x[r : r + 1]) for r in range(33)])
    for pack in (False, True):
        many = product(name, raw, rows, cols, isa, threads=3, pack=pack)
        for m in range(1, 34):
            assert_same_bits(many.run(x[:m]), single[:m], f"{name} {isa} {m} rows, pack={pack}")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", NAMES)
def test_any_alignment(name, isa):
    rows, cols = 19, cols_of(name, 512)
    raw, x = random_rows(name, rows, cols, 7), activations(3, cols, 8)
    want = product(name, raw, rows, cols, isa).run(x)
    for offset in (0, 2, 18, 66):
        moved = product(name, shifted(raw, offset), rows, cols, isa)
        for m in (1, 3):  # one row has kernels of its own
            assert_same_bits(moved.run(x[:m]), want[:m], f"{name} {isa} at offset {offset}, {m} rows")


@pytest.mark.parametrize("isa", ISAS)
def test_values_that_are_not_finite(isa):
    """A row with NaN or infinity gives NaN, and only that row."""
    raw, x = random_rows("Q8_0", 16, 512, 9), activations(4, 512, 10)
    x[0, 300], x[3, 5] = np.nan, -np.inf
    w = product("Q8_0", raw, 16, 512, isa)
    got = w.run(x)
    assert np.isnan(got[[0, 3]]).all()
    assert_same_bits(got[1:3], w.run(x[1:3]), isa)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", INTEGER)
def test_largest_codes_do_not_overflow(name, isa):
    """All bits set or clear with all activations at the limit: the largest sums there are."""
    info = TYPES[name]
    cols = cols_of(name, 256)
    for fill in (0x00, 0xFF, 0x80, 0x7F):
        raw = np.full((16 * cols // info.block, info.bytes), fill, np.uint8)
        model = random_rows(name, 16, cols, 11).reshape(raw.shape)
        if name == "IQ1_M":
            raw[:, 49:56:2] = (raw[:, 49:56:2] & 15) | (model[:, 49:56:2] & 0xF0)
        elif name == "MXFP4":
            raw[:, :1] = model[:, :1]
        elif name == "NVFP4":
            raw[:, :4] = model[:, :4]
        else:
            for at in HALVES[name]:
                raw[:, at : at + 2] = model[:, at : at + 2]
        x = np.ones((2, cols), np.float32)
        x[1] = -1
        want, bound = reference(name, decoded(name, raw.reshape(-1), 16, cols), raw.reshape(-1), x)
        got = product(name, raw.reshape(-1), 16, cols, isa).run(x)
        assert (np.abs(got - want) <= bound).all(), (fill, got[0, 0], want[0, 0])


def test_reads_stay_inside_the_weights():
    """Every type on every instruction set with weights that end at an unreadable page."""
    child = Path(__file__).with_name("guard_products.py")
    run = subprocess.run([sys.executable, str(child)], capture_output=True, text=True)
    assert run.returncode == 0, f"{run.returncode}\n{run.stdout[-500:]}\n{run.stderr[-500:]}"
