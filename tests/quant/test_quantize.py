"""Encoding: the same bytes as the numpy quantisers where those are defined by rounding alone, and an error that is
no worse where a search is involved."""

from __future__ import annotations

import time

import numpy as np
import pytest
from quant_cases import NAMES, assert_same_bits, goldens
from quants.dequant import TYPES, dequantise
from quants.quantise import quantise
from strata import _core
from strata.errors import InputError

ROUNDING = [
    "F32",
    "F16",
    "BF16",
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q1_0",
    "Q2_0",
    "TQ1_0",
    "TQ2_0",
    "MXFP4",
    "NVFP4",
]
SEARCHING = [n for n in NAMES if n not in ROUNDING]
WITH_HALF_SCALES = [n for n in NAMES if n not in ("F32", "BF16", "MXFP4", "NVFP4")]


def gaussian(shape: tuple[int, ...], scale: float = 0.02, seed: int = 1) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def shapes_of_data() -> dict[str, np.ndarray]:
    """Rows of 256: the usual, and those that break a scale search."""
    x = gaussian((4, 256))
    one_hot = np.zeros((4, 256), np.float32)
    one_hot[np.arange(4), [0, 17, 128, 255]] = [1, -1, 0.5, -3]
    outlier = x.copy()
    outlier[:, 100] = 5
    return {
        "gaussian": x,
        "zeros": np.zeros((2, 256), np.float32),
        "constant": np.full((2, 256), -0.25, np.float32),
        "one hot": one_hot,
        "positive": np.abs(x) + np.float32(0.01),
        "negative": -np.abs(x) - np.float32(0.01),
        "outlier": outlier,
        "tiny": x * np.float32(1e-7),
        "denormal": x * np.float32(1e-38),
        "large": x * np.float32(1e4),
        "integers": np.random.default_rng(5).integers(-8, 8, (4, 256)).astype(np.float32),
        "steps": np.repeat(np.arange(-16, 16, dtype=np.float32), 8).reshape(1, 256),
    }


@pytest.mark.parametrize("name", ROUNDING)
def test_bytes_equal_reference(name: str) -> None:
    for scale in (0.02, 1.0, 30.0):
        x = gaussian((64, 1024), scale)
        np.testing.assert_array_equal(_core.quantize(name, x), quantise(name, x))
    for what, x in shapes_of_data().items():
        np.testing.assert_array_equal(_core.quantize(name, x), quantise(name, x), err_msg=what)


@pytest.mark.parametrize("name", SEARCHING)
def test_error_is_no_worse_than_reference(name: str) -> None:
    def error(raw: np.ndarray, x: np.ndarray) -> float:
        return float(np.sqrt(((dequantise(name, raw.reshape(-1)).reshape(x.shape).astype(float) - x) ** 2).mean()))

    for x in (gaussian((32, 512)), *shapes_of_data().values()):
        mine, reference = error(_core.quantize(name, x), x), error(quantise(name, x), x)
        assert mine <= 1.05 * reference + 1e-12


# Root-mean-square error relative to the weights on Gaussian data, rounded up: a wrong packing would show at once.
RELATIVE_ERROR = {
    **{"F32": 0, "F16": 3e-4, "BF16": 2e-3, "Q8_0": 0.006, "Q6_K": 0.02, "Q5_K": 0.04, "Q5_1": 0.04, "Q5_0": 0.045},
    **{"Q4_K": 0.08, "Q4_1": 0.08, "Q4_0": 0.1, "IQ4_NL": 0.08, "IQ4_XS": 0.08, "MXFP4": 0.13, "NVFP4": 0.11},
    **{"Q3_K": 0.18, "IQ3_S": 0.17, "IQ3_XXS": 0.2, "Q2_K": 0.35, "IQ2_S": 0.3, "IQ2_XS": 0.33, "IQ2_XXS": 0.36},
    **{"IQ1_M": 0.47, "IQ1_S": 0.52, "Q1_0": 0.62, "Q2_0": 0.75, "TQ2_0": 0.85, "TQ1_0": 0.85},
}


@pytest.mark.parametrize("name", NAMES)
def test_round_trip(name: str) -> None:
    x = gaussian((256, 256))
    start = time.perf_counter()
    raw = _core.quantize(name, x)
    assert time.perf_counter() - start < 10  # 0.1 s at most on one core; the margin is for slow machines
    y = _core.dequantize(name, raw).reshape(x.shape).astype(float)
    assert np.sqrt(((y - x) ** 2).mean() / (x**2).mean()) <= RELATIVE_ERROR[name]


@pytest.mark.parametrize("name", NAMES)
def test_odd_data_gives_finite_values(name: str) -> None:
    for what, x in shapes_of_data().items():
        y = _core.dequantize(name, _core.quantize(name, x))
        assert np.isfinite(y).all(), what
        assert what != "zeros" or (y == 0).all()


@pytest.mark.parametrize("name", ["F32", "F16", "BF16"])
def test_plain_types_are_exact_on_their_own_values(name: str) -> None:
    """Every finite value of the type comes back as the same bytes."""
    blocks, values = goldens()[f"{name}.blocks"], goldens()[f"{name}.values"]
    np.testing.assert_array_equal(_core.quantize(name, values.reshape(-1)), blocks.reshape(-1))


def test_half_rounds_to_nearest_even() -> None:
    """Midpoints between neighbouring halves and the float32 values beside them, denormals and the overflow border."""
    h = np.arange(0x7BFF, dtype=np.uint16)
    low, high = h.view(np.float16).astype(np.float32), (h + np.uint16(1)).view(np.float16).astype(np.float32)
    middle = ((low.astype(np.float64) + high) / 2).astype(np.float32)
    x = np.concatenate([middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(0))])
    x = np.concatenate([x, -x, np.float32([1e-45, 2**-25, 2**-26, 65519.996])])
    np.testing.assert_array_equal(_core.quantize("F16", x).view("<u2"), x.astype("<f2").view("<u2"))
    with pytest.raises(InputError, match="does not fit a half"):
        _core.quantize("F16", np.float32([65520]))


@pytest.mark.parametrize("name", NAMES)
def test_values_that_are_not_finite_are_refused(name: str) -> None:
    for bad in (np.nan, np.inf, -np.inf):
        x = gaussian((2, 256))
        x[1, 3] = bad
        with pytest.raises(InputError, match=r"value 259 .* not finite"):
            _core.quantize(name, x)


@pytest.mark.parametrize("name", WITH_HALF_SCALES)
def test_scales_beyond_a_half_are_refused(name: str) -> None:
    for scale in (1e9, 1e38, 3e38):
        x = np.clip(gaussian((1, 256), 1.0), -1, 1) * np.float32(scale)
        with pytest.raises(InputError, match="does not fit a half"):
            _core.quantize(name, x)


def test_bf16_overflow_is_refused() -> None:
    largest = np.float32(3.3895314e38)  # the largest bf16
    assert _core.dequantize("BF16", _core.quantize("BF16", largest.reshape(1)))[0] == largest
    with pytest.raises(InputError, match="does not fit bf16"):
        _core.quantize("BF16", np.float32([3.4028235e38]))


@pytest.mark.parametrize("name", [n for n in NAMES if TYPES[n][1] > 1])
def test_rows_that_are_not_whole_blocks_are_refused(name: str) -> None:
    """Also when the blocks would come out even over the rows together: a row never shares a block with the next."""
    length = TYPES[name][1]
    for columns in (length - 1, length + 1, length // 2):
        with pytest.raises(InputError, match=rf"{columns} values .* {name} blocks of {length}"):
            _core.quantize(name, np.zeros((length, columns), np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_rows_of_640_values(name: str) -> None:
    """640 = 20 * 32 = 10 * 64 = 5 * 128, and no multiple of 256."""
    x = gaussian((3, 640))
    if TYPES[name][1] == 256:
        with pytest.raises(InputError, match=f"640 values .* {name}"):
            _core.quantize(name, x)
    else:
        raw = _core.quantize(name, x)
        assert raw.shape == (3, 640 // TYPES[name][1] * TYPES[name][2])
        assert_same_bits(_core.dequantize(name, raw), dequantise(name, quantise(name, x).reshape(-1)), name)


def test_shapes() -> None:
    x = gaussian((2, 3, 64))
    raw = _core.quantize("Q8_0", x)
    assert raw.shape == (2, 3, 68)
    assert raw.dtype == np.uint8
    np.testing.assert_array_equal(_core.quantize(8, x[:, ::2].astype(np.float64)), raw[:, ::2])
    assert _core.quantize("Q8_0", np.zeros((0, 64), np.float32)).shape == (0, 68)
    assert _core.quantize("Q8_0", np.zeros((3, 0), np.float32)).shape == (3, 0)
    with pytest.raises(InputError, match="at least one axis"):
        _core.quantize("Q8_0", np.float32(1))
