"""What the tests of the CPU kernels share: random weights of every type and float64 products with their error bound."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from quant_cases import HALVES
from quants.dequant import TYPES as RAW_TYPES
from strata import _core


class Type(NamedTuple):
    id: int
    block: int
    bytes: int


TYPES = {name: Type(*row) for name, row in RAW_TYPES.items()}
ISAS = list(_core.cpu_isas())
FLOATS = ("F32", "F16", "BF16")
MINIMUMS = {"Q4_1": 1, "Q5_1": 1, "Q2_K": 15, "Q4_K": 63, "Q5_K": 63}  # largest M of -m * M
EPS = 2.0**-24
INT8 = ("Q4_0", "Q8_0", "Q4_K", "IQ4_NL", "Q2_0")  # types that activations="int8" touches


def random_rows(name: str, rows: int, cols: int, seed: int) -> np.ndarray:
    """Blocks of random codes, signs and integer scales; the float scales have both signs and moderate sizes."""
    info = TYPES[name]
    rng = np.random.default_rng([seed, info.id])
    if name in FLOATS:
        x = rng.standard_normal((rows, cols)).astype(np.float32)
        if name == "F32":
            return x.view(np.uint8).reshape(-1)
        if name == "F16":
            return x.astype(np.float16).view(np.uint8).reshape(-1)
        return np.ascontiguousarray(x.view(np.uint16)[:, 1::2]).view(np.uint8).reshape(-1)
    count = rows * cols // info.block
    raw = rng.integers(0, 256, (count, info.bytes), dtype=np.uint8)
    half = (rng.uniform(0.5, 2, count) * rng.choice([-0.01, 0.01], count)).astype(np.float16)
    for at in HALVES.get(name, ()):
        raw[:, at : at + 2] = half.view(np.uint8).reshape(-1, 2)
    if name == "IQ1_M":
        words = raw[:, 48:56].view(np.uint16)
        for i in range(4):
            words[:, i] = (words[:, i] & 0x0FFF) | ((half.view(np.uint16) >> (4 * i)) & 15) << 12
    if name == "MXFP4":
        raw[:, 0] = rng.integers(118, 130, count)
    if name == "NVFP4":
        raw[:, :4] = rng.integers(0x20, 0x50, (count, 4))
    return raw.reshape(-1)


def decoded(name: str, raw: np.ndarray, rows: int, cols: int) -> np.ndarray:
    return _core.dequantize(name, raw).reshape(rows, cols).astype(np.float64)


def magnitudes(name: str, w: np.ndarray, raw: np.ndarray) -> np.ndarray:
    """|w|; for types with minimums scale and minimum apart, as their difference may be smaller than both."""
    magnitude = np.abs(w)
    if name in MINIMUMS:
        info = TYPES[name]
        at = HALVES[name][1]
        blocks = raw.reshape(-1, info.bytes)[:, at : at + 2].copy().view(np.float16).astype(np.float64)
        low = np.abs(blocks) * MINIMUMS[name]
        magnitude = magnitude + 2 * np.repeat(low.reshape(w.shape[0], -1), info.block, axis=1)
    return magnitude


def rounded8(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """int8 activations: q and the scale of each value. One scale a row and 256 values, nearest even, all in float32."""
    q, scale = np.zeros(x.shape, np.int64), np.zeros(x.shape, np.float32)
    for k in range(0, x.shape[1], 256):
        part = x[:, k : k + 256]
        top = np.abs(part).max(1, keepdims=True)
        alive = top >= np.float32(2.0**-100)
        inverse = np.float32(127) / np.where(alive, top, np.float32(1))
        q[:, k : k + 256] = np.where(alive, np.rint(part * inverse), 0).astype(np.int64)
        scale[:, k : k + 256] = np.where(alive, top / np.float32(127), np.float32(0))
    return q, scale


def reference(name: str, w: np.ndarray, raw: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Products in float64 and a bound on the error of integer activations.

    A value is rounded to a multiple of s = (largest of its 256) / 16383, so by at most s / 2; making the quotient costs
    two more roundings of a number of at most 16383 (2^-9 of s). Each of the at most 33 multiply-adds of 256 values and
    the one behind them rounds a partial sum, which the sum of all magnitudes bounds.
    """
    x = x.astype(np.float64)
    magnitude = magnitudes(name, w, raw)
    cols = x.shape[1]
    chunks = -(-cols // 256)
    bound = (34 * chunks + 4) * EPS * (np.abs(x) @ magnitude.T)
    for k in range(0, cols, 256):
        step = np.abs(x[:, k : k + 256]).max(1) / 16383
        bound += step[:, None] * (0.5 + 2.0**-8) * magnitude[:, k : k + 256].sum(1)
    return x @ w.T, bound


def reference8(name: str, w: np.ndarray, raw: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Products of weights with int8 activations as `rounded8` makes them, and a bound on the error of the float steps
    alone: an integer sum that is off by one is outside."""
    q, scale = rounded8(x)
    y = q * scale.astype(np.float64)
    bound = (34 * -(-x.shape[1] // 256) + 4) * EPS * (np.abs(y) @ magnitudes(name, w, raw).T)
    return y @ w.T, bound


def activations(rows: int, cols: int, seed: int) -> np.ndarray:
    """Normal values, one of 128 eight times larger, one row of zeros, one of tiny values."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, cols)).astype(np.float32)
    x *= np.where(rng.random((rows, cols)) < 1 / 128, np.float32(8), np.float32(1))
    if rows > 2:
        x[1] = 0
        x[2] *= np.float32(1e-28)
    return x
