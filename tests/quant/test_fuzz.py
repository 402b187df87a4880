"""Arbitrary bytes and arbitrary floats."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from quant_cases import NAMES, assert_same_bits
from quants.dequant import TYPES, dequantise
from strata import _core
from strata.errors import InputError


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(NAMES), st.binary(max_size=700))
def test_any_bytes_decode_as_the_reference_does_or_are_refused(name: str, data: bytes) -> None:
    size = TYPES[name][2]
    if len(data) % size:
        try:
            _core.dequantize(name, data)
        except InputError as e:
            assert str(len(data)) in str(e)
        else:
            raise AssertionError(f"{len(data)} bytes were taken as {name}")
        data = data[: len(data) // size * size]
    assert_same_bits(_core.dequantize(name, data), dequantise(name, data), name)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.sampled_from(NAMES),
    st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=1, max_size=9),
    st.sampled_from([1.0, 1e-3, 1e-20]),
)
def test_any_floats_encode_to_finite_blocks_or_are_refused(name: str, values: list[float], factor: float) -> None:
    with np.errstate(all="ignore"):
        x = np.resize(np.array(values, np.float32) * np.float32(factor), 256)
    try:
        raw = _core.quantize(name, x)
    except InputError:
        # Within a sixteenth of the largest half everything fits every type.
        assert not np.isfinite(x).all() or np.abs(x).max() > 4000
    else:
        assert np.isfinite(x).all()
        assert np.isfinite(_core.dequantize(name, raw)).all()


@settings(max_examples=30, deadline=None)
@given(st.integers(-(2**63), 2**63 - 1))
def test_any_number_is_a_known_type_or_refused(number: int) -> None:
    known = {t[1] for t in _core.quant_types()}
    try:
        assert _core.dequantize(number, b"").size == 0
        assert number in known
    except InputError as e:
        assert number not in known
        assert str(number) in str(e)
