"""Decoding against the golden blocks and against the numpy reference, bit for bit."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from quant_cases import HALVES, KINDS, NAMES, assert_same_bits, differing, goldens, shifted
from quants.dequant import TYPES, dequantise
from strata import _core
from strata.errors import InputError


def test_types_are_those_of_the_format() -> None:
    listed = _core.quant_types()
    assert {name: tuple(rest) for name, *rest in listed} == TYPES
    assert len(listed) == 28
    assert [t[1] for t in listed] == sorted(t[1] for t in listed)


def test_goldens_cover_every_type() -> None:
    assert {k.split(".")[0] for k in goldens()} == set(NAMES)
    assert len(goldens()) == 4 * 28


@pytest.mark.parametrize("kind", KINDS, ids=["plain", "hostile"])
@pytest.mark.parametrize("name", NAMES)
def test_goldens(name: str, kind: str) -> None:
    blocks, values = goldens()[f"{name}.{kind}blocks"], goldens()[f"{name}.{kind}values"]
    assert blocks.shape[1] == TYPES[name][2]
    assert values.shape == (len(blocks), TYPES[name][1])
    assert_same_bits(_core.dequantize(name, blocks.tobytes()), values, name)
    assert_same_bits(_core.dequantize(TYPES[name][0], blocks), values, f"{name} by id")


@pytest.mark.parametrize("name", NAMES)
def test_comparison_sees_one_bit_and_zero_signs(name: str) -> None:
    values = goldens()[f"{name}.values"].reshape(-1)
    for i in (0, values.size // 2, values.size - 1):
        changed = values.copy()
        changed.view(np.uint32)[i] ^= 1
        assert differing(changed, values).tolist() == [i]
    zeros = np.flatnonzero(values == 0)
    if zeros.size:
        changed = values.copy()
        changed[zeros[0]] = -changed[zeros[0]]
        assert differing(changed, values).tolist() == [zeros[0]]


@pytest.mark.parametrize("offset", [0, 1, 2, 3, 5, 7, 15, 18, 66])
@pytest.mark.parametrize("name", NAMES)
def test_any_source_alignment(name: str, offset: int) -> None:
    for kind in KINDS:
        blocks, values = goldens()[f"{name}.{kind}blocks"], goldens()[f"{name}.{kind}values"]
        if name in ("F16", "BF16"):  # 65536 one-value blocks: a spread will do
            blocks, values = blocks[::7], values[::7]
        assert_same_bits(_core.dequantize(name, shifted(blocks, offset)), values, f"{name} at {offset}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("blocks", [0, 1, 2, 3, 5, 7])
def test_short_rows(name: str, blocks: int) -> None:
    raw, values = goldens()[f"{name}.blocks"][-blocks or 10**9 :], goldens()[f"{name}.values"][-blocks or 10**9 :]
    assert len(raw) == blocks
    got = _core.dequantize(name, raw.tobytes())
    assert got.shape == (blocks * TYPES[name][1],)
    assert_same_bits(got, values, name)


@pytest.mark.parametrize("name", NAMES)
def test_random_bytes_equal_reference(name: str) -> None:
    """Every byte string is a block: codes need no check, and scales of any bits follow IEEE arithmetic."""
    rng = np.random.default_rng(TYPES[name][0])
    _, length, size = TYPES[name]
    raw = rng.integers(0, 256, (max(1, 200_000 // length), size), dtype=np.uint8)
    assert_same_bits(_core.dequantize(name, raw), dequantise(name, raw), name)


@pytest.mark.parametrize("name", [n for n in NAMES if n in HALVES or n == "IQ1_M"])
def test_every_half_as_scale(name: str) -> None:
    """All 65536 scales, over few codes: extremes and the scales between them."""
    halves = np.arange(65536, dtype="<u2")
    if TYPES[name][1] == 256:
        halves = halves[TYPES[name][0] % 8 :: 8]
    rng = np.random.default_rng(TYPES[name][0])
    raw = rng.integers(0, 256, (len(halves), TYPES[name][2]), dtype=np.uint8)
    if name == "IQ1_M":
        words = raw[:, 48:56].copy().view("<u2")
        for k in range(4):
            words[:, k] = words[:, k] & 0x0FFF | (halves >> 4 * k & 15) << 12
        raw[:, 48:56] = words.view(np.uint8)
    for at in HALVES.get(name, ()):
        raw[:, at : at + 2] = rng.permutation(halves).reshape(-1, 1).view(np.uint8)
    assert_same_bits(_core.dequantize(name, raw), dequantise(name, raw), name)


def test_every_q6_k_scale() -> None:
    """Every signed scale byte, -128 included, with every code."""
    raw = np.zeros((64, 210), np.uint8)
    raw[:, :192] = np.random.default_rng(6).integers(0, 256, (64, 192), dtype=np.uint8)
    raw[:, 192:208] = np.arange(1024).reshape(64, 16) % 256
    raw[:, 208:] = np.array([1.0], "<f2").view(np.uint8)
    got = _core.dequantize("Q6_K", raw)
    assert_same_bits(got, dequantise("Q6_K", raw), "Q6_K")
    assert got.max() == -128 * -32


@pytest.mark.parametrize("name", NAMES)
def test_zero_bytes_are_zeros(name: str) -> None:
    _, length, size = TYPES[name]
    y = _core.dequantize(name, bytes(3 * size))
    assert y.size == 3 * length
    assert (y == 0).all()


def test_a_zero_scale_keeps_the_minimum() -> None:
    """A block with d = 0 and m = 1.5 is the constant 1.5 (Q4_1, Q5_1), not empty; the k-quants subtract."""
    rng = np.random.default_rng(3)
    for name, sign in (("Q4_1", 1), ("Q5_1", 1), ("Q2_K", -1), ("Q4_K", -1), ("Q5_K", -1)):
        raw = rng.integers(0, 256, TYPES[name][2], dtype=np.uint8)
        d, m = HALVES[name]
        raw[d : d + 2] = 0
        raw[m : m + 2] = np.array([1.5], "<f2").view(np.uint8)
        y = _core.dequantize(name, raw)
        assert (y * sign >= 0).all()
        assert (y * sign / 1.5 == np.rint(y * sign / 1.5)).all()
        assert y.any()


def test_result_belongs_to_the_caller() -> None:
    raw = bytearray(goldens()["Q8_0.blocks"].tobytes())
    first = _core.dequantize("Q8_0", raw)
    kept = first.copy()
    raw[:] = bytes(len(raw))
    _core.dequantize("Q8_0", raw)
    assert_same_bits(first, kept, "Q8_0")
    assert first.flags.writeable
    raw.extend(b"x")  # the buffer is released


@pytest.mark.parametrize("type_", [4, 5, 9, 15, 24, 28, 31, 33, 36, 38, 43, 255, 2**31, 2**32, 2**32 + 2, -1, -(2**40)])
def test_unknown_ids_are_refused_by_number(type_: int) -> None:
    with pytest.raises(InputError, match=rf"type {type_} is not one"):
        _core.dequantize(type_, b"")
    with pytest.raises(InputError, match=rf"type {type_} is not one"):
        _core.quantize(type_, np.zeros(256, np.float32))


@pytest.mark.parametrize("type_", ["", "q4_0", "Q8_1", "Q8_K", "Q4_0_4_4", "I8", "Q4_0 "])
def test_unknown_names_are_refused_by_name(type_: str) -> None:
    with pytest.raises(InputError, match=f"'{type_}' is not one"):
        _core.dequantize(type_, b"")


@pytest.mark.parametrize("name", [n for n in NAMES if TYPES[n][2] > 1])
def test_parts_of_blocks_are_refused(name: str) -> None:
    size = TYPES[name][2]
    for n in (1, size - 1, size + 1, 3 * size - 1):
        with pytest.raises(InputError, match=rf"{n} bytes .* {name} blocks of {size} bytes"):
            _core.dequantize(name, bytes(n))


def test_data_must_be_contiguous_bytes() -> None:
    blocks = goldens()["Q4_0.blocks"]
    with pytest.raises(InputError, match="contiguous"):
        _core.dequantize("Q4_0", np.repeat(blocks, 2, axis=1)[:, ::2])
    with pytest.raises(TypeError, match="bytes-like"):
        _core.dequantize("Q4_0", 18)
    want = goldens()["Q4_0.values"]
    for data in (bytearray(blocks.tobytes()), memoryview(blocks.tobytes()), blocks.view("<u2")):
        assert_same_bits(_core.dequantize("Q4_0", data), want, str(type(data)))


def test_other_threads_run_meanwhile() -> None:
    """The GIL is free while a large array is decoded: this thread gets turns inside one call of another."""
    raw = np.zeros((60_000, 66), np.uint8)

    def turns_during_one_call() -> int:
        started, done, turns = threading.Event(), threading.Event(), 0

        def work() -> None:
            started.set()
            _core.dequantize("IQ2_XXS", raw)
            done.set()

        t = threading.Thread(target=work)
        t.start()
        started.wait()
        while not done.wait(0.0005):
            turns += 1
        t.join()
        return turns

    # Were the lock held, there could be one turn before the call and one after it. A busy machine may need more tries.
    assert any(turns_during_one_call() >= 4 for _ in range(20))
