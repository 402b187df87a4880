"""The golden blocks contain what their note claims, so that agreeing with them means something: formats must be tested
with every grid entry, sign pattern and scale, not only with quantised Gaussian data."""

from __future__ import annotations

import numpy as np
import pytest
from quant_cases import HALVES, NAMES, goldens


def words(blocks: np.ndarray, at: int, count: int, dtype: str) -> np.ndarray:
    size = np.dtype(dtype).itemsize
    return np.ascontiguousarray(blocks[:, at : at + count * size]).view(dtype)


def grid_use(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Grid indices and sign (or shift) codes of the plain golden blocks."""
    b = goldens()[f"{name}.blocks"]
    shifts7, pairs, bits = np.arange(0, 28, 7, dtype=np.uint32), np.arange(0, 8, 2), np.arange(8)
    if name == "IQ2_XXS":
        w = words(b, 2, 16, "<u4").reshape(-1, 2)
        return w[:, :1] >> np.arange(0, 32, 8, dtype=np.uint32) & 255, w[:, 1:] >> shifts7 & 127
    if name == "IQ2_XS":
        c = words(b, 2, 32, "<u2")
        return c & 511, c >> 9
    if name == "IQ2_S":
        high = (b[:, 66:74, None] >> pairs & 3).reshape(len(b), 32)
        return b[:, 2:34] + 256 * high, b[:, 34:66]
    if name == "IQ3_XXS":
        return b[:, 2:66], words(b, 66, 8, "<u4")[..., None] >> shifts7 & 127
    if name == "IQ3_S":
        high = (b[:, 66:74, None] >> bits & 1).reshape(len(b), 64)
        return b[:, 2:66] + 256 * high, b[:, 74:106]
    if name == "IQ1_S":
        h = words(b, 34, 8, "<u2").astype(int)
        return b[:, 2:34] + 256 * (h[..., None] >> np.arange(0, 12, 3) & 7).reshape(len(b), 32), h >> 15
    nibbles = np.stack([b[:, 32:48] & 15, b[:, 32:48] >> 4], axis=2).reshape(len(b), 32).astype(int)
    return b[:, :32] + 256 * (nibbles & 7), nibbles >> 3


@pytest.mark.parametrize(
    ("name", "entries", "signs"),
    [
        ("IQ2_XXS", 256, 128),
        ("IQ2_XS", 512, 128),
        ("IQ2_S", 1024, 256),
        ("IQ3_XXS", 256, 128),
        ("IQ3_S", 512, 256),
        ("IQ1_S", 2048, 2),
        ("IQ1_M", 2048, 2),
    ],
)
def test_every_grid_entry_and_sign_pattern(name: str, entries: int, signs: int) -> None:
    index, sign = grid_use(name)
    assert np.unique(index).tolist() == list(range(entries))
    assert np.unique(sign).tolist() == list(range(signs))


def test_every_group_scale() -> None:
    g = goldens()
    for name, at in (("IQ2_XXS", 2 + 4), ("IQ3_XXS", 66)):
        step = 8 if name == "IQ2_XXS" else 4
        top = np.concatenate([words(g[f"{name}.blocks"], at + step * i, 1, "<u4") >> 28 for i in range(8)])
        assert np.unique(top).size == 16
    for name, at, count in (("IQ2_XS", 66, 8), ("IQ2_S", 74, 8), ("IQ3_S", 106, 4), ("Q2_K", 0, 16)):
        s = g[f"{name}.blocks"][:, at : at + count]
        assert np.unique(s & 15).size == np.unique(s >> 4).size == 16
    assert np.unique(words(g["IQ1_S.blocks"], 34, 8, "<u2") >> 12).size == 16


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4", "NVFP4", "TQ1_0"])
def test_every_code_byte(name: str) -> None:
    first = {"Q4_1": 4, "Q5_0": 6, "Q5_1": 8, "MXFP4": 1, "NVFP4": 4, "TQ1_0": 0}.get(name, 2)
    last = 52 if name == "TQ1_0" else None
    assert np.unique(goldens()[f"{name}.blocks"][:, first:last]).size == 256


def test_every_fp4_scale_byte() -> None:
    g = goldens()
    assert np.unique(g["MXFP4.blocks"][:, 0]).tolist() == list(range(253))
    assert np.unique(g["MXFP4.hostile_blocks"][:, 0]).tolist() == [253, 254, 255]
    assert np.unique(g["NVFP4.blocks"][:, :4]).tolist() == list(range(128))
    assert np.unique(g["NVFP4.hostile_blocks"][:, :4]).tolist() == list(range(128, 256))


def test_every_16_bit_float() -> None:
    for name in ("F16", "BF16"):
        both = np.concatenate([goldens()[f"{name}.blocks"], goldens()[f"{name}.hostile_blocks"]])
        assert np.unique(both.view("<u2")).size == 65536


@pytest.mark.parametrize("name", sorted(HALVES))
def test_extreme_scales(name: str) -> None:
    edges = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF}
    hostile = {0x7C00, 0xFC00, 0x7E00, 0xFE00}
    for at in HALVES[name]:
        assert edges <= set(words(goldens()[f"{name}.blocks"], at, 1, "<u2").ravel().tolist())
        assert hostile <= set(words(goldens()[f"{name}.hostile_blocks"], at, 1, "<u2").ravel().tolist())


@pytest.mark.parametrize("name", NAMES)
def test_plain_values_are_finite_and_hostile_ones_are_not_all(name: str) -> None:
    assert np.isfinite(goldens()[f"{name}.values"]).all()
    if name != "NVFP4":  # its scale bytes have no code that is not finite
        assert not np.isfinite(goldens()[f"{name}.hostile_values"]).all()
