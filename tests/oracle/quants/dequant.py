"""Reference dequantiser (numpy) for the tensor types of GGUF files, written from the formats alone.

    from quants.dequant import TYPES, dequantise
    y = dequantise("IQ2_XS", raw)          # raw: bytes or uint8 array, a whole number of blocks
                                           # y: float32 [number of blocks, elements per block]

TYPES maps a name to (id, elements per block, bytes per block). Tables come from tables.npz next to this file,
which holds the same facts as csrc/quant/tables.inc.
"""

import os

import numpy as np

_T = dict(np.load(os.path.join(os.path.dirname(os.path.abspath(__file__)), "tables.npz")))

TYPES = {
    "F32": (0, 1, 4),
    "F16": (1, 1, 2),
    "BF16": (30, 1, 2),
    "Q4_0": (2, 32, 18),
    "Q4_1": (3, 32, 20),
    "Q5_0": (6, 32, 22),
    "Q5_1": (7, 32, 24),
    "Q8_0": (8, 32, 34),
    "Q2_K": (10, 256, 84),
    "Q3_K": (11, 256, 110),
    "Q4_K": (12, 256, 144),
    "Q5_K": (13, 256, 176),
    "Q6_K": (14, 256, 210),
    "IQ2_XXS": (16, 256, 66),
    "IQ2_XS": (17, 256, 74),
    "IQ3_XXS": (18, 256, 98),
    "IQ1_S": (19, 256, 50),
    "IQ4_NL": (20, 32, 18),
    "IQ3_S": (21, 256, 110),
    "IQ2_S": (22, 256, 82),
    "IQ4_XS": (23, 256, 136),
    "IQ1_M": (29, 256, 56),
    "TQ1_0": (34, 256, 54),
    "TQ2_0": (35, 256, 66),
    "MXFP4": (39, 32, 17),
    "NVFP4": (40, 64, 36),
    "Q1_0": (41, 128, 18),
    "Q2_0": (42, 64, 18),
}
BY_ID = {v[0]: k for k, v in TYPES.items()}


# ---- small pieces -------------------------------------------------------------------------------------------


def _half(b, at):
    """The fp16 at byte offset `at` of every block, as float32, shape [n, 1]."""
    return np.ascontiguousarray(b[:, at : at + 2]).view("<f2").astype(np.float32)


def _words(b, at, count, dtype):
    size = np.dtype(dtype).itemsize
    return np.ascontiguousarray(b[:, at : at + count * size]).view(dtype)


def _fields(a, shifts, mask):
    """Append an axis: one entry per shift."""
    return (a[..., None] >> np.array(shifts, a.dtype)) & a.dtype.type(mask)


def _planes(q, run, shifts, mask):
    """q: [n, bytes]. Every run of `run` bytes yields len(shifts) runs of `run` codes, first shift first."""
    n = q.shape[0]
    return _fields(q.reshape(n, -1, run), shifts, mask).transpose(0, 1, 3, 2).reshape(n, -1)


def _nibbles(q, run=16):
    return _planes(q, run, (0, 4), 15)


def _f(a):
    return a.astype(np.float32)


def _spread(scale, values, group):
    """scale [n, g] times values [n, g*group], float32."""
    n = values.shape[0]
    return (scale[:, :, None] * values.reshape(n, -1, group)).reshape(n, -1)


def _sign(bits):
    """sign bytes [...] -> [..., 8] of +1 / -1, bit 0 first."""
    return np.float32(1) - np.float32(2) * _f(_fields(bits, range(8), 1))


# ---- one function per type; b is uint8 [n, bytes per block] --------------------------------------------------


def _F32(b):
    return _words(b, 0, 1, "<f4").copy()


def _F16(b):
    return _half(b, 0)


def _BF16(b):
    return (_words(b, 0, 1, "<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def _Q4_0(b):
    return _half(b, 0) * (_f(_nibbles(b[:, 2:])) - np.float32(8))


def _Q4_1(b):
    return _half(b, 0) * _f(_nibbles(b[:, 4:])) + _half(b, 2)


def _five(b, at):
    high = _fields(_words(b, at, 1, "<u4"), range(32), 1).reshape(len(b), 32)
    return _f(_nibbles(b[:, at + 4 :])) + np.float32(16) * _f(high)


def _Q5_0(b):
    return _half(b, 0) * (_five(b, 2) - np.float32(16))


def _Q5_1(b):
    return _half(b, 0) * _five(b, 4) + _half(b, 2)


def _Q8_0(b):
    return _half(b, 0) * _f(b[:, 2:].view(np.int8))


def _Q2_K(b):
    q = _f(_planes(b[:, 16:80], 32, (0, 2, 4, 6), 3))
    d, m = _half(b, 80), _half(b, 82)
    low = _spread(d * _f(b[:, :16] & 15), q, 16)
    return low - np.repeat(m * _f(b[:, :16] >> 4), 16, axis=1)


def _Q3_K(b):
    n = len(b)
    low = _f(_planes(b[:, 32:96], 32, (0, 2, 4, 6), 3))
    high = _f(_planes(b[:, :32], 32, range(8), 1))
    s = b[:, 96:108]
    lo4 = np.concatenate([s[:, :8] & 15, s[:, :8] >> 4], axis=1)
    hi2 = _fields(s[:, 8:], (0, 2, 4, 6), 3).transpose(0, 2, 1).reshape(n, 16)
    scale = _f(lo4) + np.float32(16) * _f(hi2) - np.float32(32)
    return _spread(_half(b, 108) * scale, low + np.float32(4) * high - np.float32(4), 16)


def k_scales(s):
    """The 12 packed bytes of Q4_K / Q5_K -> (scale [n, 8], min [n, 8]), 6-bit integers."""
    a, c, e = s[:, 0:4], s[:, 4:8], s[:, 8:12]
    scale = np.concatenate([a & 63, (e & 15) | ((a >> 6) << 4)], axis=1)
    mins = np.concatenate([c & 63, (e >> 4) | ((c >> 6) << 4)], axis=1)
    return scale, mins


def _k45(b, q):
    scale, mins = k_scales(b[:, 4:16])
    low = _spread(_half(b, 0) * _f(scale), q, 32)
    return low - np.repeat(_half(b, 2) * _f(mins), 32, axis=1)


def _Q4_K(b):
    return _k45(b, _f(_nibbles(b[:, 16:], 32)))


def _Q5_K(b):
    return _k45(b, _f(_nibbles(b[:, 48:], 32)) + np.float32(16) * _f(_planes(b[:, 16:48], 32, range(8), 1)))


def _Q6_K(b):
    low = _f(_nibbles(b[:, :128], 64))
    high = _f(_planes(b[:, 128:192], 32, (0, 2, 4, 6), 3))
    scale = _half(b, 208) * _f(b[:, 192:208].view(np.int8))
    return _spread(scale, low + np.float32(16) * high - np.float32(32), 16)


def _IQ2_XXS(b):
    w = _words(b, 2, 16, "<u4").reshape(len(b), 8, 2)
    index = _fields(w[:, :, 0], (0, 8, 16, 24), 255)
    signs = _T["ksigns"][_fields(w[:, :, 1], (0, 7, 14, 21), 127)]
    scale = _half(b, 0) * (np.float32(0.5) + _f(w[:, :, 1] >> np.uint32(28))) * np.float32(0.25)
    v = _f(_T["grid_iq2xxs"][index]) * _sign(signs)
    return _spread(scale, v.reshape(len(b), 256), 32)


def _scale16(b, at):
    """IQ2_XS and IQ2_S: sixteen 4-bit scales."""
    s = _fields(b[:, at : at + 8], (0, 4), 15).reshape(len(b), 16)
    return _half(b, 0) * (np.float32(0.5) + _f(s)) * np.float32(0.25)


def _IQ2_XS(b):
    w = _words(b, 2, 32, "<u2")
    v = _f(_T["grid_iq2xs"][w & np.uint16(511)]) * _sign(_T["ksigns"][w >> np.uint16(9)])
    return _spread(_scale16(b, 66), v.reshape(len(b), 256), 16)


def _IQ2_S(b):
    high = _fields(b[:, 66:74], (0, 2, 4, 6), 3).reshape(len(b), 32).astype(np.uint16)
    index = b[:, 2:34] | (high << np.uint16(8))
    v = _f(_T["grid_iq2s"][index]) * _sign(b[:, 34:66])
    return _spread(_scale16(b, 74), v.reshape(len(b), 256), 16)


def _IQ3_XXS(b):
    w = _words(b, 66, 8, "<u4")
    signs = _sign(_T["ksigns"][_fields(w, (0, 7, 14, 21), 127)]).reshape(len(b), 256)
    scale = _half(b, 0) * (np.float32(0.5) + _f(w >> np.uint32(28))) * np.float32(0.5)
    v = _f(_T["grid_iq3xxs"][b[:, 2:66]]).reshape(len(b), 256) * signs
    return _spread(scale, v, 32)


def _IQ3_S(b):
    high = _fields(b[:, 66:74], range(8), 1).reshape(len(b), 64).astype(np.uint16)
    index = b[:, 2:66] | (high << np.uint16(8))
    v = _f(_T["grid_iq3s"][index]).reshape(len(b), 256) * _sign(b[:, 74:106]).reshape(len(b), 256)
    s = _fields(b[:, 106:110], (0, 4), 15).reshape(len(b), 8)
    return _spread(_half(b, 0) * (np.float32(1) + np.float32(2) * _f(s)), v, 32)


def _IQ1_S(b):
    h = _words(b, 34, 8, "<u2")
    index = b[:, 2:34] | (_fields(h, (0, 3, 6, 9), 7).reshape(len(b), 32) << np.uint16(8))
    shift = np.where(h & np.uint16(0x8000), np.float32(-0.125), np.float32(0.125))
    scale = _half(b, 0) * (np.float32(2) * _f((h >> np.uint16(12)) & np.uint16(7)) + np.float32(1))
    v = _f(_T["grid_iq1"][index]).reshape(len(b), 8, 32) + shift[:, :, None]
    return _spread(scale, v.reshape(len(b), 256), 32)


def iq1m_half(b):
    """The block scale of IQ1_M, scattered over the top nibbles of four 16-bit words: float32 [n, 1]."""
    w = _words(b, 48, 4, "<u2")
    top = w >> np.uint16(12)
    d = top[:, 0] | (top[:, 1] << np.uint16(4)) | (top[:, 2] << np.uint16(8)) | (top[:, 3] << np.uint16(12))
    return d.astype("<u2").view("<f2").astype(np.float32)[:, None]


def _IQ1_M(b):
    n = len(b)
    nib = _fields(b[:, 32:48], (0, 4), 15).reshape(n, 32).astype(np.uint16)
    index = b[:, :32] | ((nib & np.uint16(7)) << np.uint16(8))
    shift = np.where(nib & np.uint16(8), np.float32(-0.125), np.float32(0.125))
    s = _fields(_words(b, 48, 4, "<u2"), (0, 3, 6, 9), 7).reshape(n, 16)
    v = _f(_T["grid_iq1"][index]) + shift[:, :, None]
    return _spread(iq1m_half(b) * (np.float32(2) * _f(s) + np.float32(1)), v.reshape(n, 256), 16)


def _IQ4_NL(b):
    return _half(b, 0) * _f(_T["kvalues_iq4"][_nibbles(b[:, 2:])])


def _IQ4_XS(b):
    n = len(b)
    high = _fields(_words(b, 2, 1, "<u2"), range(0, 16, 2), 3).reshape(n, 8)
    low = _fields(b[:, 4:8], (0, 4), 15).reshape(n, 8)
    scale = _half(b, 0) * (_f(low) + np.float32(16) * _f(high) - np.float32(32))
    return _spread(scale, _f(_T["kvalues_iq4"][_nibbles(b[:, 8:], 16)]), 32)


def _trits(q, count):
    """[n, run] bytes -> count*run digits 0..2; digit k of every byte before digit k+1 of any."""
    x = q[:, None, :] * np.array([1, 3, 9, 27, 81][:count], np.uint8)[None, :, None]  # modulo 256
    return ((x.astype(np.uint16) * np.uint16(3)) >> np.uint16(8)).reshape(len(q), -1)


def _TQ1_0(b):
    t = np.concatenate([_trits(b[:, :32], 5), _trits(b[:, 32:48], 5), _trits(b[:, 48:52], 4)], axis=1)
    return _half(b, 52) * (_f(t) - np.float32(1))


def _TQ2_0(b):
    return _half(b, 64) * (_f(_planes(b[:, :64], 32, (0, 2, 4, 6), 3)) - np.float32(1))


def _MXFP4(b):
    return _T["e8m0_half"][b[:, :1]] * _f(_T["kvalues_fp4"][_nibbles(b[:, 1:])])


def _NVFP4(b):
    return _spread(_T["ue4m3_half"][b[:, :4]], _f(_T["kvalues_fp4"][_nibbles(b[:, 4:], 8)]), 16)


def _Q1_0(b):
    bit = _fields(b[:, 2:], range(8), 1).reshape(len(b), 128)
    d = _half(b, 0)
    return np.where(bit == 1, d, -d)


def _Q2_0(b):
    q = _fields(b[:, 2:], (0, 2, 4, 6), 3).reshape(len(b), 64)
    return _half(b, 0) * (_f(q) - np.float32(1))


_FUNCS = {name: globals()["_" + name] for name in TYPES}


def dequantise(type_, raw):
    """type_: a name or an id. raw: bytes-like or uint8 array holding whole blocks. -> float32 [blocks, elements]."""
    name = BY_ID[type_] if isinstance(type_, (int, np.integer)) else type_
    _, elems, size = TYPES[name]
    a = np.frombuffer(raw, np.uint8) if isinstance(raw, (bytes, bytearray, memoryview)) else np.asarray(raw)
    if a.dtype != np.uint8:
        raise TypeError("raw must be bytes or uint8")
    if a.size % size:
        raise ValueError(f"{a.size} bytes are not a whole number of {name} blocks of {size} bytes")
    a = np.ascontiguousarray(a).reshape(-1, size)
    if not len(a):
        return np.empty((0, elems), np.float32)
    with np.errstate(all="ignore"):
        y = _FUNCS[name](a)
    assert y.dtype == np.float32 and y.shape == (len(a), elems), (name, y.dtype, y.shape)
    return np.ascontiguousarray(y)
