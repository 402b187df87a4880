"""Build goldens.npz: raw blocks of every tensor type and their float32 values as llama.cpp's own C code computes them.

    python make_goldens.py --lib DIR [--out goldens.npz]

DIR holds libggml-base.so of a llama.cpp build (Linux; on other systems name the file with --lib FILE).
The values come from the to_float routine of ggml's type traits. When the `gguf` package is importable its numpy
dequantiser is compared bit for bit as well, and dequant.py always is. Nothing else is needed to use the goldens;
this script is only for making them again or for a newer peer.
"""

import argparse
import ctypes
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "oracle"))
from quants.dequant import TYPES, dequantise  # noqa: E402

HALVES = {  # byte offsets of fp16 fields
    "Q4_0": [0],
    "Q4_1": [0, 2],
    "Q5_0": [0],
    "Q5_1": [0, 2],
    "Q8_0": [0],
    "Q2_K": [80, 82],
    "Q3_K": [108],
    "Q4_K": [0, 2],
    "Q5_K": [0, 2],
    "Q6_K": [208],
    "IQ2_XXS": [0],
    "IQ2_XS": [0],
    "IQ2_S": [0],
    "IQ3_XXS": [0],
    "IQ3_S": [0],
    "IQ1_S": [0],
    "IQ4_NL": [0],
    "IQ4_XS": [0],
    "TQ1_0": [52],
    "TQ2_0": [64],
    "Q1_0": [0],
    "Q2_0": [0],
}
# zero, minus zero, smallest and largest denormals, smallest normals, one, a tenth, largest finite, of both signs
EDGE = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x3C00, 0xBC00, 0x2E66, 0x7BFF, 0xFBFF]
HOSTILE = [0x7C00, 0xFC00, 0x7E00, 0xFE00, 0x7C01, 0x7DFF]  # infinities, quiet and signalling NaNs


class Lib:
    class Traits(ctypes.Structure):
        _fields_ = [
            ("name", ctypes.c_char_p),
            ("blck", ctypes.c_int64),
            ("inter", ctypes.c_int64),
            ("size", ctypes.c_size_t),
            ("quantized", ctypes.c_bool),
            ("to_float", ctypes.c_void_p),
            ("from_float", ctypes.c_void_p),
        ]

    def __init__(self, path):
        if os.path.isdir(path):
            path = os.path.join(path, "libggml-base.so")
        self.lib = ctypes.CDLL(path)
        self.lib.ggml_get_type_traits.restype = ctypes.POINTER(self.Traits)
        self.lib.ggml_get_type_traits.argtypes = [ctypes.c_int]

    def traits(self, name):
        return self.lib.ggml_get_type_traits(TYPES[name][0]).contents

    def dequantise(self, name, blocks):
        _, elems, size = TYPES[name]
        t = self.traits(name)
        assert (t.blck, t.size) == (elems, size), (name, t.name, t.blck, t.size)
        out = np.empty((len(blocks), elems), np.float32)
        if name == "F32":
            out[:] = blocks.view("<f4")
            return out
        fn = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(t.to_float)
        src = np.ascontiguousarray(blocks)
        fn(src.ctypes.data, out.ctypes.data, out.size)
        return out


def put_half(blocks, name, which, bits):
    """Write fp16 bit patterns (scalar or [n]) into field number `which` of every block."""
    bits = np.broadcast_to(np.asarray(bits, np.uint16), (len(blocks),))
    if name == "IQ1_M":
        w = blocks[:, 48:56].copy().view("<u2")
        for k in range(4):
            w[:, k] = (w[:, k] & 0x0FFF) | (((bits >> (4 * k)) & 15) << 12)
        blocks[:, 48:56] = w.view(np.uint8)
    else:
        at = HALVES[name][which]
        blocks[:, at : at + 2] = bits.astype("<u2").reshape(-1, 1).view(np.uint8)


def n_halves(name):
    return 1 if name == "IQ1_M" else len(HALVES.get(name, []))


def rnd(rng, name, n):
    return rng.integers(0, 256, (n, TYPES[name][2]), dtype=np.uint8)


def sane(rng, n):
    """Scales of the size that real weights have."""
    return (rng.uniform(0.0005, 0.05, n) * rng.choice([1, -1], n)).astype(np.float16).view(np.uint16)


def any_half(rng, n):
    h = rng.integers(0, 65536, 4 * n, dtype=np.uint16)
    return h[(h & 0x7C00) != 0x7C00][:n]


def cover(rng, name):
    """Blocks that between them use every grid index and every sign pattern."""

    def fit(values, per_block):
        k = -len(values) % per_block
        v = np.concatenate([values, rng.permutation(values)[:k]]) if k else values
        return v.reshape(-1, per_block)

    if name == "IQ2_XXS":
        idx, sg = fit(np.arange(256), 32), fit(np.arange(256) % 128, 32)
        b = rnd(rng, name, len(idx))
        w = np.zeros((len(idx), 8, 2), np.uint32)
        for l in range(4):
            w[:, :, 0] |= idx.reshape(-1, 8, 4)[:, :, l].astype(np.uint32) << np.uint32(8 * l)
            w[:, :, 1] |= sg.reshape(-1, 8, 4)[:, :, l].astype(np.uint32) << np.uint32(7 * l)
        w[:, :, 1] |= (np.arange(w[:, :, 1].size) % 16).astype(np.uint32).reshape(-1, 8) << np.uint32(28)
        b[:, 2:66] = w.astype("<u4").reshape(len(b), -1).view(np.uint8)
    elif name == "IQ2_XS":
        code = fit(np.arange(512) | ((np.arange(512) * 37 % 128) << 9), 32)
        b = rnd(rng, name, len(code))
        b[:, 2:66] = code.astype("<u2").view(np.uint8)
    elif name in ("IQ2_S", "IQ1_S", "IQ1_M"):
        total = {"IQ2_S": 1024, "IQ1_S": 2048, "IQ1_M": 2048}[name]
        idx = fit(np.arange(total), 32)
        n = len(idx)
        b = rnd(rng, name, n)
        if name == "IQ2_S":
            b[:, 2:34] = idx & 255
            h = (idx >> 8).reshape(n, 8, 4)
            b[:, 66:74] = h[..., 0] | h[..., 1] << 2 | h[..., 2] << 4 | h[..., 3] << 6
            b[:, 34:66] = fit(np.arange(1024) % 256, 32)
        elif name == "IQ1_S":
            b[:, 2:34] = idx & 255
            h = (idx >> 8).reshape(n, 8, 4)
            w = h[..., 0] | h[..., 1] << 3 | h[..., 2] << 6 | h[..., 3] << 9
            w = w | (np.arange(n * 8).reshape(n, 8) % 16) << 12
            b[:, 34:50] = w.astype("<u2").view(np.uint8)
        else:
            b[:, :32] = idx & 255
            nib = (idx >> 8) | (rng.integers(0, 2, idx.shape) << 3)
            b[:, 32:48] = nib[:, 0::2] | nib[:, 1::2] << 4
    elif name == "IQ3_XXS":
        b = rnd(rng, name, 8)
        b[:, 2:66] = fit(np.concatenate([np.arange(256), rng.permutation(256)]), 64)
        sg = fit(np.arange(256) % 128, 32).reshape(8, 8, 4).astype(np.uint32)
        w = sg[..., 0] | sg[..., 1] << np.uint32(7) | sg[..., 2] << np.uint32(14) | sg[..., 3] << np.uint32(21)
        w |= (np.arange(64) % 16).astype(np.uint32).reshape(8, 8) << np.uint32(28)
        b[:, 66:98] = w.astype("<u4").view(np.uint8)
    elif name == "IQ3_S":
        idx = fit(np.concatenate([np.arange(512), rng.permutation(512)]), 64)
        b = rnd(rng, name, len(idx))
        b[:, 2:66] = idx & 255
        b[:, 66:74] = np.packbits((idx >> 8).astype(np.uint8), axis=1, bitorder="little")
        b[:, 74:106] = fit(np.arange(512) % 256, 32)
    elif name == "TQ1_0":
        b = rnd(rng, name, 10)  # every byte value at many places, legal or not
        b[:, :52] = (np.arange(520) % 256).reshape(10, 52)
    else:
        return None
    put_half(b, name, 0, sane(rng, len(b)))
    return b


def build(rng, name):
    """-> (blocks, hostile blocks)"""
    _, elems, size = TYPES[name]
    if name in ("F16", "BF16"):
        code = np.arange(65536, dtype=np.uint16)
        special = (code & 0x7C00) == 0x7C00 if name == "F16" else (code & 0x7F80) == 0x7F80
        return code[~special].astype("<u2").view(np.uint8).reshape(-1, 2), code[special].astype("<u2").view(
            np.uint8
        ).reshape(-1, 2)
    if name == "F32":
        b = np.concatenate(
            [
                np.array(
                    [0, -0.0, 1, -1, 1e-45, -1e-45, 1.1754942e-38, 1.1754944e-38, 3.4028235e38, -3.4028235e38],
                    np.float32,
                ),
                rng.standard_normal(54).astype(np.float32),
            ]
        )
        h = np.array([0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001], np.uint32)
        return b.astype("<f4").view(np.uint8).reshape(-1, 4), h.astype("<u4").view(np.uint8).reshape(-1, 4)
    if name == "MXFP4":
        e = np.concatenate([np.arange(253), np.repeat([0, 1, 2, 127, 252], 4)])
        b = rnd(rng, name, len(e))
        b[:, 0] = e
        b[:, 1:][100:116] = np.arange(256, dtype=np.uint8).reshape(16, 16)
        h = rnd(rng, name, 12)
        h[:, 0] = np.repeat([253, 254, 255], 4)
        return b, h
    if name == "NVFP4":
        b = rnd(rng, name, 64)
        b[:32, :4] = np.arange(128, dtype=np.uint8).reshape(32, 4)
        b[32:, :4] &= 0x7F
        b[40:48, 4:] = np.arange(256, dtype=np.uint8).reshape(8, 32)
        h = rnd(rng, name, 32)
        h[:, :4] = np.arange(128, 256, dtype=np.uint8).reshape(32, 4)
        return b, h

    k = n_halves(name)
    parts = []

    def add(b, *halves):
        for w, bits in enumerate(halves):
            put_half(b, name, w, bits)
        parts.append(b)

    n = 48 if elems == 32 else 24
    add(rnd(rng, name, n), *[sane(rng, n) for _ in range(k)])
    add(rnd(rng, name, 12), *[any_half(rng, 12) for _ in range(k)])
    c = cover(rng, name)
    if c is not None:
        parts.append(c)
    if k == 1:
        add(rnd(rng, name, len(EDGE)), EDGE)
    else:
        pairs = np.array(
            [(x, y) for x in EDGE for y in EDGE]
            if elems == 32
            else [(x, EDGE[(i * 5 + j) % len(EDGE)]) for j in range(3) for i, x in enumerate(EDGE)],
            np.uint16,
        )
        add(rnd(rng, name, len(pairs)), pairs[:, 0], pairs[:, 1])
    for fill in (0x00, 0xFF, 0x55, 0xAA):
        b = np.full((4, size), fill, np.uint8)
        add(b, *[[0x3C00, 0xBC00, 0x0001, 0x7BFF]] * k)
    if elems == 32:  # every code byte
        b = rnd(rng, name, 16)
        b[:, size - 16 :] = np.arange(256, dtype=np.uint8).reshape(16, 16)
        add(b, *[sane(rng, 16) for _ in range(k)])
    good = np.concatenate(parts)

    parts.clear()
    for w in range(k):
        m = len(HOSTILE)
        h = [np.full(m, 0x3C00, np.uint16) for _ in range(k)]
        h[w] = np.array(HOSTILE, np.uint16)
        add(rnd(rng, name, m), *h)
        z = np.zeros((m, size), np.uint8)  # zero codes times infinity
        add(z, *h)
    return good, np.concatenate(parts)


def same(a, b):
    """Bitwise equal, any NaN equal to any NaN."""
    return (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--lib", required=True)
    ap.add_argument("--out", default=os.path.join(HERE, "goldens.npz"))
    a = ap.parse_args()
    lib = Lib(a.lib)
    try:
        import gguf
        from gguf.quants import dequantize as gdeq
    except ImportError:
        gguf = None
    out, bad = {}, 0
    for name in TYPES:
        rng = np.random.default_rng(TYPES[name][0] + 1000)
        for label, blocks in zip(("", "hostile_"), build(rng, name), strict=True):
            blocks = np.ascontiguousarray(blocks)
            y = lib.dequantise(name, blocks)
            if not label:
                assert np.isfinite(y).all(), name
            out[f"{name}.{label}blocks"] = blocks
            out[f"{name}.{label}values"] = y
            mine = same(y, dequantise(name, blocks))
            note = "gguf-py: no such type"
            if gguf and name in gguf.GGMLQuantizationType.__members__:
                try:
                    with np.errstate(all="ignore"):
                        g = gdeq(blocks, gguf.GGMLQuantizationType[name]).reshape(y.shape).astype(np.float32)
                    diff = int((~same(y, g)).sum())
                    note = "gguf-py: equal" if not diff else f"gguf-py: {diff} values differ"
                except NotImplementedError:
                    note = "gguf-py: not implemented"
            bad += int((~mine).sum())
            print(
                f"{name:8s} {label or 'plain':8s} {len(blocks):6d} blocks, dequant.py "
                f"{'equal' if mine.all() else str(int((~mine).sum())) + ' DIFFER'}, {note}"
            )
    np.savez_compressed(a.out, **out)
    print(f"{a.out}: {os.path.getsize(a.out)} bytes")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
