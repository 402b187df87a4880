"""Products with quantised weights: every type on every instruction set, against float64 and against each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import strata
from cpu_cases import FLOATS, INT8, ISAS, TYPES, activations, decoded, random_rows, reference, reference8, rounded8
from quant_cases import HALVES, NAMES, assert_same_bits, shifted
from quants.dequant import dequantise
from strata import _core

INTEGER = [n for n in NAMES if n not in FLOATS]


def cols_of(name: str, want: int) -> int:
    return max(TYPES[name].block, want // TYPES[name].block * TYPES[name].block)


def product(name: str, raw: np.ndarray, rows: int, cols: int, isa: str, offset: int = 0, **more) -> _core.Product:
    return _core.Product(TYPES[name].id, raw, offset, rows, cols, isa=isa, **more)


def sizes(name: str):
    """rows, cols, weights, activations of a few products."""
    for rows, cols in [(37, 608), (16, 256), (5, 2560)]:
        cols = cols_of(name, cols)
        yield rows, cols, random_rows(name, rows, cols, 1), activations(9, cols, 2)


@pytest.mark.parametrize("name", INTEGER)
def test_close_to_float64(name):
    for rows, cols, raw, x in sizes(name):
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


MODES = [("auto", n) for n in NAMES] + [("int8", n) for n in INT8]


@pytest.mark.parametrize("mode, name", [*MODES, *(("f32", n) for n in NAMES)])
def test_same_bits_on_every_instruction_set(name, mode):
    rows = 35
    for cols in (608, 64, 1024):
        cols = cols_of(name, cols)
        raw, x = random_rows(name, rows, cols, 3), activations(33, cols, 4)
        want = product(name, raw, rows, cols, ISAS[0]).run(x, mode)
        for isa in ISAS[1:]:
            for pack in (False, True):
                if not pack or mode != "f32":
                    got = product(name, raw, rows, cols, isa, pack=pack).run(x, mode)
                    assert_same_bits(got, want, f"{name} {isa} {cols} pack={pack}")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode, name", MODES)
def test_a_row_does_not_depend_on_its_neighbours(name, mode, isa):
    """1 to 33 rows, threads, packing: the same bits as one row at a time."""
    rows, cols = 48, cols_of(name, 608)
    raw, x = random_rows(name, rows, cols, 5), activations(33, cols, 6)
    one = product(name, raw, rows, cols, isa)
    single = np.concatenate([one.run(x[r : r + 1], mode) for r in range(33)])
    for pack in (False, True):
        many = product(name, raw, rows, cols, isa, threads=3, pack=pack)
        for m in range(1, 34):
            assert_same_bits(many.run(x[:m], mode), single[:m], f"{name} {isa} {m} rows, pack={pack}")


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("mode, name", MODES)
def test_any_alignment(name, mode, isa):
    rows, cols = 19, cols_of(name, 512)
    raw, x = random_rows(name, rows, cols, 7), activations(3, cols, 8)
    want = product(name, raw, rows, cols, isa).run(x, mode)
    for offset in (0, 2, 18, 66):
        moved = product(name, shifted(raw, offset), rows, cols, isa)
        for m in (1, 3):  # one row has kernels of its own
            assert_same_bits(moved.run(x[:m], mode), want[:m], f"{name} {isa} at offset {offset}, {m} rows")


@pytest.mark.parametrize("mode", ["auto", "int8"])
@pytest.mark.parametrize("isa", ISAS)
def test_values_that_are_not_finite(isa, mode):
    """A row with NaN or infinity gives NaN, and only that row."""
    raw, x = random_rows("Q8_0", 16, 512, 9), activations(4, 512, 10)
    x[0, 300], x[3, 5] = np.nan, -np.inf
    w = product("Q8_0", raw, 16, 512, isa)
    got = w.run(x, mode)
    assert np.isnan(got[[0, 3]]).all() and np.isnan(w.run(x[3:], mode)).all()
    assert_same_bits(got[1:3], w.run(x[1:3], mode), isa)


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


@pytest.mark.parametrize("name", INT8)
def test_int8_close_to_products_with_rounded_activations(name):
    """Against activations rounded in numpy: what is left is float32."""
    for rows, cols, raw, x in sizes(name):
        want, bound = reference8(name, decoded(name, raw, rows, cols), raw, x)
        for isa in ISAS:
            w = product(name, raw, rows, cols, isa)
            for m in (1, 3, 9):
                assert (np.abs(w.run(x[:m], "int8") - want[:m]) <= bound[:m]).all(), (isa, rows, cols, m)


def whole_weights(name: str, fill: int | None, rows: int, cols: int) -> np.ndarray:
    """Blocks whose scales are 1, so that weights are integers; codes random, or all of the same bits."""
    raw = random_rows(name, rows, cols, 21).reshape(-1, TYPES[name].bytes)
    if fill is not None:
        raw[:] = fill
    if name == "Q4_K":
        raw[:, 4:16] &= 3  # scales and minimums up to 3: sums stay below 2^24
    for at in HALVES[name]:
        raw[:, at : at + 2] = np.frombuffer(np.float16(1).tobytes(), np.uint8)
    return raw.reshape(-1)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("name", INT8)
def test_int8_sums_are_exact(name, isa):
    """Integer weights, activations that are integers up to 127 in every 256 values: every step is exact in float32, so
    the result is the integer product. All codes and signs alike give the largest sums there are."""
    rng = np.random.default_rng(3)
    for fill in (None, 0x00, 0xFF, 0x80, 0x7F):
        for rows, cols in ((16, 1024), (21, 320)):
            cols = cols_of(name, cols)
            raw = whole_weights(name, fill, rows, cols)
            x = rng.integers(-127, 128, (27, cols))
            x[:, ::64] = 127
            x[1], x[2], x[3] = 127, -127, np.where(np.arange(cols) % 2, 127, -127)
            q, scale = rounded8(x.astype(np.float32))
            assert (q == x).all() and (scale == 1).all()
            w = dequantise(TYPES[name].id, raw).reshape(rows, cols)
            whole = w.astype(np.int64)
            assert (whole == w).all()
            want = x @ whole.T
            assert np.abs(want).max() < 2**24
            for pack in (False, True):
                p = product(name, raw, rows, cols, isa, pack=pack)
                for m in (1, 2, 3, 27):
                    assert (p.run(x[:m].astype(np.float32), "int8") == want[:m]).all(), (fill, rows, cols, m, pack)
                assert (p.run(x[1:2].astype(np.float32), "int8") == want[1]).all(), (fill, rows, cols, pack)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in INT8])
def test_other_types_know_no_int8(name):
    cols = cols_of(name, 512)
    raw, x = random_rows(name, 16, cols, 1), activations(5, cols, 2)
    w = product(name, raw, 16, cols, ISAS[-1])
    assert_same_bits(w.run(x, "int8"), w.run(x), name)


def test_an_unknown_mode():
    with pytest.raises(strata.InputError, match="int8"):
        product("Q8_0", random_rows("Q8_0", 16, 64, 1), 16, 64, "auto").run(np.ones((1, 64), np.float32), "int4")


def test_reads_stay_inside_the_weights():
    """Every type on every instruction set with weights that end at an unreadable page."""
    child = Path(__file__).with_name("guard_products.py")
    run = subprocess.run([sys.executable, str(child)], capture_output=True, text=True)
    assert run.returncode == 0, f"{run.returncode}\n{run.stdout[-500:]}\n{run.stderr[-500:]}"
