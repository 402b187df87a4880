"""Simple quantisers (numpy) for every block type, so that test files can be made without another engine.

    from quants.quantise import quantise
    raw = quantise("IQ2_XS", x)      # x: float32 [..., k], k a multiple of the block length
                                     # raw: uint8 [..., bytes per row]

The blocks are valid; the quality is that of a plain search (no importance weights), good enough for tests, not for
publishing a model. Methods: round to nearest with the scale set by the largest value for the 32/64/128-element types,
TQ1_0 and TQ2_0 (coarse for Q2_0 and TQ2_0 on bell-shaped weights: search=True helps); per-group min / max
for Q2_K, Q4_K, Q5_K; per-group signed maximum for Q3_K and Q6_K; for IQ types a few trial scales per group with
the nearest grid entry by squared distance, then a second pass with the stored (rounded) scale.
Raises ValueError for NaN / inf input, for rows that are not whole blocks and for scales beyond fp16.
"""

import numpy as np

from .dequant import _T, TYPES

F = np.float32


def _half(v):
    h = np.asarray(v, F).astype("<f2")
    if not np.isfinite(h).all():
        raise ValueError("a block scale does not fit fp16")
    return h


def _bytes(h):
    """fp16 [n] or [n, 1] -> uint8 [n, 2]"""
    return np.ascontiguousarray(h.reshape(-1, 1)).view(np.uint8)


def _recip(d):
    with np.errstate(divide="ignore"):
        r = F(1) / d
    return np.where(np.isfinite(r), r, F(0)).astype(F)


def _away(v):
    """round half away from zero"""
    return np.trunc(v + np.copysign(F(0.5), v))


def _absmax(x):
    i = np.abs(x).argmax(axis=-1)[..., None]
    return np.take_along_axis(x, i, axis=-1)


def _pack4(q, run=16):
    n = len(q)
    q = q.astype(np.uint8).reshape(n, -1, 2, run)
    return (q[:, :, 0] | q[:, :, 1] << 4).reshape(n, -1)


def _pack2(q, run=32):
    n = len(q)
    q = q.astype(np.uint8).reshape(n, -1, 4, run)
    return (q[:, :, 0] | q[:, :, 1] << 2 | q[:, :, 2] << 4 | q[:, :, 3] << 6).reshape(n, -1)


def _packbits(q):
    return np.packbits(q.astype(np.uint8), axis=-1, bitorder="little")


# ---- round-to-nearest types ---------------------------------------------------------------------------------


def _Q8_0(x):
    d = np.abs(x).max(axis=1, keepdims=True) / F(127)
    return np.concatenate([_bytes(_half(d)), _away(x * _recip(d)).astype(np.int8).view(np.uint8)], axis=1)


def _sym(x, levels):
    d = _absmax(x) / F(-levels)
    q = np.minimum(np.trunc(x * _recip(d) + F(levels + 0.5)), 2 * levels - 1)
    return _half(d), q.astype(np.uint8)


def _asym(x, top):
    lo, hi = x.min(axis=1, keepdims=True), x.max(axis=1, keepdims=True)
    d = (hi - lo) / F(top)
    q = np.minimum(np.trunc((x - lo) * _recip(d) + F(0.5)), top)
    return _half(d), _half(lo), q.astype(np.uint8)


def _Q4_0(x):
    d, q = _sym(x, 8)
    return np.concatenate([_bytes(d), _pack4(q)], axis=1)


def _Q4_1(x):
    d, m, q = _asym(x, 15)
    return np.concatenate([_bytes(d), _bytes(m), _pack4(q)], axis=1)


def _Q5_0(x):
    d, q = _sym(x, 16)
    return np.concatenate([_bytes(d), _packbits(q >> 4), _pack4(q & 15)], axis=1)


def _Q5_1(x):
    d, m, q = _asym(x, 31)
    return np.concatenate([_bytes(d), _bytes(m), _packbits(q >> 4), _pack4(q & 15)], axis=1)


def _Q1_0(x):
    d = np.cumsum(np.abs(x), axis=1, dtype=F)[:, -1:] / F(128)
    return np.concatenate([_bytes(_half(d)), _packbits(x >= 0)], axis=1)


def _Q2_0(x):
    d = np.abs(x).max(axis=1, keepdims=True)
    q = np.clip(_away(x * _recip(d)) + 1, 0, 3)
    return np.concatenate(
        [_bytes(_half(d)), _pack2(q.reshape(len(q), 16, 4).transpose(0, 2, 1).reshape(len(q), 64), 16)], axis=1
    )


def _ternary(x):
    d = np.abs(x).max(axis=1, keepdims=True)
    return _half(d), (_away(x * _recip(d)) + 1).astype(np.uint8)


def _TQ1_0(x):
    d, q = _ternary(x)
    n, parts = len(x), []
    for lo, hi, run, count in ((0, 160, 32, 5), (160, 240, 16, 5), (240, 256, 4, 4)):
        w = np.array([81, 27, 9, 3, 1][:count], np.uint16)
        v = (q[:, lo:hi].reshape(n, count, run).astype(np.uint16) * w[None, :, None]).sum(axis=1, dtype=np.uint32)
        parts.append(((v * 256 + 242) // 243).astype(np.uint8))
    return np.concatenate([*parts, _bytes(d)], axis=1)


def _TQ2_0(x):
    d, q = _ternary(x)
    return np.concatenate([_pack2(q, 32), _bytes(d)], axis=1)


def _fp4(x, d):
    """index of the nearest of d * kvalues_fp4; ties and zero go to the lower index"""
    k = _T["kvalues_fp4"].astype(F)
    return np.abs(d[..., None] * k - x[..., None]).argmin(axis=-1).astype(np.uint8)


def _MXFP4(x):
    amax = np.abs(x).max(axis=1, keepdims=True)
    e = np.where(amax > 0, np.clip(np.frexp(amax)[1] - 1 - 2 + 127, 0, 252), 0).astype(np.uint8)
    return np.concatenate([e, _pack4(_fp4(x, _T["e8m0_half"][e]))], axis=1)


def _ue4m3(v):
    """float32 >= 0 -> UE4M3 byte, at most 0x7E (448)"""
    v = np.minimum(v, F(448))
    bits = np.ascontiguousarray(v, F).view(np.uint32)
    e = (bits >> 23).astype(np.int32) - 120
    m = ((bits >> 20) & 7).astype(np.int32) + ((bits >> 19) & 1).astype(np.int32)
    code = np.where(e > 0, np.minimum((e << 3) + m, 0x7E), np.minimum((v * F(512) + F(0.5)).astype(np.int32), 7))
    return code.astype(np.uint8)


def _NVFP4(x):
    s = x.reshape(len(x), 4, 16)
    code = _ue4m3(np.abs(s).max(axis=2) / F(6))
    q = _fp4(s, np.broadcast_to(_T["ue4m3_half"][code][:, :, None], s.shape))
    return np.concatenate([code, _pack4(q.reshape(len(x), 64), 8)], axis=1)


# ---- k-quants -----------------------------------------------------------------------------------------------


def _minmax(x, group, top, stop):
    """-> (d half, dmin half, scale codes, min codes, value codes); codes of scales and mins go up to `stop`."""
    g = x.reshape(len(x), -1, group)
    lo = np.minimum(g.min(axis=2), F(0))
    scale = (g.max(axis=2) - lo) / F(top)
    d, dm = _half(scale.max(axis=1, keepdims=True) / F(stop)), _half((-lo).max(axis=1, keepdims=True) / F(stop))
    df, mf = d.astype(F), dm.astype(F)
    s = np.clip(np.rint(scale * _recip(df)), 0, stop)
    m = np.clip(np.rint(-lo * _recip(mf)), 0, stop)
    q = np.clip(np.rint((g + (mf * m)[:, :, None]) * _recip(df * s)[:, :, None]), 0, top)
    return d, dm, s.astype(np.uint8), m.astype(np.uint8), q.astype(np.uint8).reshape(len(x), 256)


def _Q2_K(x):
    d, dm, s, m, q = _minmax(x, 16, 3, 15)
    return np.concatenate([s | m << 4, _pack2(q), _bytes(d), _bytes(dm)], axis=1)


def _pack_k(s, m):
    return np.concatenate(
        [s[:, :4] | (s[:, 4:] >> 4) << 6, m[:, :4] | (m[:, 4:] >> 4) << 6, (s[:, 4:] & 15) | (m[:, 4:] & 15) << 4],
        axis=1,
    )


def _Q4_K(x):
    d, dm, s, m, q = _minmax(x, 32, 15, 63)
    return np.concatenate([_bytes(d), _bytes(dm), _pack_k(s, m), _pack4(q, 32)], axis=1)


def _planes1(q):
    """[n, 256] bits -> 32 bytes; bit g of byte l belongs to element 32 g + l"""
    n = len(q)
    return np.packbits(q.astype(np.uint8).reshape(n, 8, 32).transpose(0, 2, 1), axis=2, bitorder="little").reshape(
        n, 32
    )


def _Q5_K(x):
    d, dm, s, m, q = _minmax(x, 32, 31, 63)
    return np.concatenate([_bytes(d), _bytes(dm), _pack_k(s, m), _planes1(q >> 4), _pack4(q & 15, 32)], axis=1)


def _signed(x, levels, stop):
    """Groups of 16; codes -levels..levels-1; signed scale codes -stop..stop-1."""
    g = x.reshape(len(x), 16, 16)
    scale = _absmax(g)[:, :, 0] / F(-levels)
    d = _half(_absmax(scale) / F(-stop))
    df = d.astype(F)
    s = np.clip(np.rint(scale * _recip(df)), -stop, stop - 1)
    q = np.clip(np.rint(g * _recip(df * s)[:, :, None]), -levels, levels - 1) + levels
    return d, s.astype(np.int16), q.astype(np.uint8).reshape(len(x), 256)


def _Q3_K(x):
    d, s, q = _signed(x, 4, 32)
    s = (s + 32).astype(np.uint8)
    hi = (s >> 4).reshape(-1, 4, 4)
    packed = np.concatenate(
        [(s[:, :8] & 15) | (s[:, 8:] & 15) << 4, hi[:, 0] | hi[:, 1] << 2 | hi[:, 2] << 4 | hi[:, 3] << 6], axis=1
    )
    return np.concatenate([_planes1(q >> 2), _pack2(q & 3), packed, _bytes(d)], axis=1)


def _Q6_K(x):
    d, s, q = _signed(x, 32, 128)
    return np.concatenate([_pack4(q & 15, 64), _pack2(q >> 4), s.astype(np.int8).view(np.uint8), _bytes(d)], axis=1)


# ---- non-linear and grid types ------------------------------------------------------------------------------


def _nearest(x, t, grid):
    """x [n, g, c, v] (g groups of c vectors), t [n, g] scale -> (indices [n, g, c], squared error [n, g, c])."""
    n, g, c, v = x.shape
    flat, tt = x.reshape(-1, v), np.repeat(t.reshape(-1), c)
    gg = (grid * grid).sum(axis=1)
    idx, err = np.empty(len(flat), np.int64), np.empty(len(flat), F)
    step = max(1, (1 << 23) // len(grid))
    for i in range(0, len(flat), step):
        a, b = flat[i : i + step], tt[i : i + step, None]
        score = b * b * gg - 2 * b * (a @ grid.T)
        k = score.argmin(axis=1)
        idx[i : i + step] = k
        err[i : i + step] = score[np.arange(len(k)), k] + (a * a).sum(axis=1)
    return idx.reshape(n, g, c), err.reshape(n, g, c)


def _trial(x, grid, factors):
    """Best scale per group among amax / (largest grid value) * factors."""
    amax = np.abs(x).max(axis=(2, 3)) / F(np.abs(grid).max())
    best_t, best_e = amax * F(factors[0]), None
    for f in factors:
        t = amax * F(f)
        e = _nearest(x, t, grid)[1].sum(axis=2)
        if best_e is None:
            best_e = e
        else:
            best_t, best_e = np.where(e < best_e, t, best_t), np.minimum(e, best_e)
    return best_t


_FACTORS = (1.0, 0.9, 0.8, 0.7, 0.6)


def _stored(t, unit, steps):
    """Ideal scales t [n, g] -> (d half [n, 1], codes [n, g], scales as decoded [n, g]); scale = d * unit(code)."""
    u = np.array([unit(i) for i in range(steps)], F)
    d = _half(t.max(axis=1, keepdims=True) / u[-1])
    df = d.astype(F)
    code = np.abs(df[:, :, None] * u - t[:, :, None]).argmin(axis=2)
    return d, code, df * u[code]


def _even_signs(x):
    """x [..., 8] -> (magnitudes with at most one negative entry, 7-bit sign code). Parity gives the eighth sign."""
    neg = x < 0
    odd = neg.sum(axis=-1) & 1 == 1
    weak = np.abs(x).argmin(axis=-1)
    flip = odd[..., None] & (np.arange(8) == weak[..., None])
    neg = neg ^ flip
    mag = np.where(flip, -np.abs(x), np.abs(x))
    return mag, _packbits(neg)[..., 0] & 127


def _IQ4_NL(x):
    k = _T["kvalues_iq4"].astype(F)[:, None]
    g = x.reshape(len(x), 1, 32, 1)
    amax = _absmax(x)
    best, best_e = None, None
    for f in (-127, -120, -112, 113, 105, 97):  # the largest value lands on either end of the table
        t = (amax / F(f)).astype(F)
        e = _nearest(g, t, k)[1].sum(axis=2)
        best, best_e = (t, e) if best is None else (np.where(e < best_e, t, best), np.minimum(e, best_e))
    d = _half(best)
    q, _ = _nearest(g, d.astype(F), k)
    return np.concatenate([_bytes(d), _pack4(q.reshape(len(x), 32))], axis=1)


def _IQ4_XS(x):
    k = _T["kvalues_iq4"].astype(F)[:, None]
    g = x.reshape(len(x), 8, 32, 1)
    amax = _absmax(x.reshape(len(x), 8, 32))[:, :, 0]
    best, best_e = None, None
    for f in (-127, -118, 113, 104):
        t = (amax / F(f)).astype(F)
        e = _nearest(g, t, k)[1].sum(axis=2)
        best, best_e = (t, e) if best is None else (np.where(e < best_e, t, best), np.minimum(e, best_e))
    d = _half(_absmax(best) / F(-32))
    s = np.clip(np.rint(best * _recip(d.astype(F))), -32, 31)
    q, _ = _nearest(g, d.astype(F) * s.astype(F), k)
    s = (s + 32).astype(np.uint16)
    high = (s >> 4 << (2 * np.arange(8, dtype=np.uint16))).sum(axis=1, dtype=np.uint16).astype("<u2")
    low = (s[:, 0::2] & 15 | (s[:, 1::2] & 15) << 4).astype(np.uint8)
    return np.concatenate([_bytes(d), _bytes(high), low, _pack4(q.reshape(len(x), 256))], axis=1)


def _grid_mag(mag, grid, unit, steps):
    """mag [n, g, c, v] -> d, scale codes [n, g], grid indices [n, g, c]"""
    d, code, t = _stored(_trial(mag, grid, _FACTORS), unit, steps)
    return d, code, _nearest(mag, t, grid)[0]


def _words(a, dtype):
    return np.ascontiguousarray(a.astype(dtype)).view(np.uint8).reshape(len(a), -1)


def _signs28(code, s):
    """four 7-bit sign codes per group [n, 8, 4] and a 4-bit scale [n, 8] -> uint32 [n, 8]"""
    w = s.astype(np.uint32) << np.uint32(28)
    for l in range(4):
        w |= code[:, :, l].astype(np.uint32) << np.uint32(7 * l)
    return w


def _IQ2_XXS(x):
    mag, sg = _even_signs(x.reshape(-1, 8, 4, 8))
    d, s, q = _grid_mag(mag, _T["grid_iq2xxs"].astype(F), lambda i: (0.5 + i) * 0.25, 16)
    w = np.stack([_words(q, np.uint8).view("<u4"), _signs28(sg, s)], axis=2)
    return np.concatenate([_bytes(d), _words(w, "<u4")], axis=1)


def _pack_s16(s):
    return (s[:, 0::2] | s[:, 1::2] << 4).astype(np.uint8)


def _IQ2_XS(x):
    mag, sg = _even_signs(x.reshape(-1, 16, 2, 8))
    d, s, q = _grid_mag(mag, _T["grid_iq2xs"].astype(F), lambda i: (0.5 + i) * 0.25, 16)
    return np.concatenate([_bytes(d), _words(q | sg.astype(np.int64) << 9, "<u2"), _pack_s16(s)], axis=1)


def _IQ2_S(x):
    g = x.reshape(-1, 16, 2, 8)
    d, s, q = _grid_mag(np.abs(g), _T["grid_iq2s"].astype(F), lambda i: (0.5 + i) * 0.25, 16)
    q = q.reshape(-1, 32)
    h = (q >> 8).reshape(-1, 8, 4)
    high = h[:, :, 0] | h[:, :, 1] << 2 | h[:, :, 2] << 4 | h[:, :, 3] << 6
    return np.concatenate(
        [_bytes(d), _words(q & 255, np.uint8), _packbits(x < 0), _words(high, np.uint8), _pack_s16(s)], axis=1
    )


def _IQ3_XXS(x):
    mag, sg = _even_signs(x.reshape(-1, 8, 4, 8))
    d, s, q = _grid_mag(mag.reshape(-1, 8, 8, 4), _T["grid_iq3xxs"].astype(F), lambda i: (0.5 + i) * 0.5, 16)
    return np.concatenate([_bytes(d), _words(q, np.uint8), _words(_signs28(sg, s), "<u4")], axis=1)


def _IQ3_S(x):
    mag = np.abs(x).reshape(-1, 8, 8, 4)
    d, s, q = _grid_mag(mag, _T["grid_iq3s"].astype(F), lambda i: 1 + 2 * i, 16)
    q = q.reshape(-1, 64)
    return np.concatenate(
        [_bytes(d), _words(q & 255, np.uint8), _packbits(q >> 8), _packbits(x < 0), _pack_s16(s)], axis=1
    )


def _iq1(x, groups):
    """-> d half, scale codes, indices [n, 32], shift bits per vector [n, 32]"""
    base = _T["grid_iq1"].astype(F)
    g = x.reshape(len(x), groups, 32 // groups, 8)
    grids = (base + F(0.125), base - F(0.125))
    amax = np.abs(g).max(axis=(2, 3)) / F(1.125)

    def best(t):
        (qa, ea), (qb, eb) = _nearest(g, t, grids[0]), _nearest(g, t, grids[1])
        # IQ1_S has one shift for 32 elements, IQ1_M one for each vector of 8.
        whole = np.broadcast_to((eb.sum(axis=2) < ea.sum(axis=2))[:, :, None], qa.shape)
        use = whole if groups == 8 else eb < ea
        return np.where(use, qb, qa), use, np.where(use, eb, ea).sum(axis=2)

    keep, err = None, None
    for f in (0.9, 0.7, 0.55, 0.42):
        t = amax * F(f)
        e = best(t)[2]
        keep, err = (t, e) if keep is None else (np.where(e < err, t, keep), np.minimum(e, err))
    d, s, t = _stored(keep, lambda i: 2 * i + 1, 8)
    q, use, _ = best(t)
    return d, s, q.reshape(len(x), 32), use.reshape(len(x), 32)


def _IQ1_S(x):
    d, s, q, use = _iq1(x, 8)
    h = (q >> 8).reshape(-1, 8, 4)
    w = h[:, :, 0] | h[:, :, 1] << 3 | h[:, :, 2] << 6 | h[:, :, 3] << 9 | s << 12 | use[:, ::4].astype(np.int64) << 15
    return np.concatenate([_bytes(d), _words(q & 255, np.uint8), _words(w, "<u2")], axis=1)


def _IQ1_M(x):
    d, s, q, use = _iq1(x, 16)
    nib = q >> 8 | use.astype(np.int64) << 3
    g = s.reshape(-1, 4, 4)
    w = g[:, :, 0] | g[:, :, 1] << 3 | g[:, :, 2] << 6 | g[:, :, 3] << 9
    w = w | ((d.view("<u2").astype(np.int64) >> (4 * np.arange(4))) & 15) << 12
    return np.concatenate(
        [_words(q & 255, np.uint8), _words(nib[:, 0::2] | nib[:, 1::2] << 4, np.uint8), _words(w, "<u2")], axis=1
    )


def _F32(x):
    return np.ascontiguousarray(x, "<f4").view(np.uint8)


def _F16(x):
    return _bytes(_half(x))


def _BF16(x):
    b = np.ascontiguousarray(x, F).view(np.uint32)
    r = (b + np.uint32(0x7FFF) + ((b >> 16) & 1)) >> 16
    if ((r & 0x7F80) == 0x7F80).any():
        raise ValueError("a value does not fit bf16")
    return _bytes(r.astype("<u2"))


_FUNCS = {name: globals()["_" + name] for name in TYPES}


def _best_scale(x, levels):
    """d half [n, 1] and level indices [n, k] with a small squared error of x - d * levels (both signs of d tried)."""
    lv = np.array(levels, F)[:, None]
    g = x.reshape(len(x), 1, -1, 1)
    amax = np.abs(x).max(axis=1, keepdims=True) / F(max(abs(v) for v in levels))
    keep, err = None, None
    for f in (1.0, 0.85, 0.7, 0.55, 0.4):
        for sign in (1, -1) if sum(levels) else (1,):
            t = amax * F(f * sign)
            e = _nearest(g, t, lv)[1].sum(axis=2)
            keep, err = (t, e) if keep is None else (np.where(e < err, t, keep), np.minimum(e, err))
    d = _half(keep)
    return d, _nearest(g, d.astype(F), lv)[0].reshape(x.shape).astype(np.uint8)


def _search_Q2_0(x):
    d, q = _best_scale(x, (-1, 0, 1, 2))
    return np.concatenate(
        [_bytes(d), _pack2(q.reshape(len(q), 16, 4).transpose(0, 2, 1).reshape(len(q), 64), 16)], axis=1
    )


def _search_TQ2_0(x):
    d, q = _best_scale(x, (-1, 0, 1))
    return np.concatenate([_pack2(q, 32), _bytes(d)], axis=1)


_SEARCH = {"Q2_0": _search_Q2_0, "TQ2_0": _search_TQ2_0}


def quantise(name, x, search=False, rows_at_once=4096):
    """float32 [..., k] -> uint8 [..., k / block * bytes]. search=True: a slower, better scale for Q2_0 and TQ2_0."""
    _, elems, size = TYPES[name]
    x = np.ascontiguousarray(x, F)
    if x.shape[-1] % elems:
        raise ValueError(f"rows of {x.shape[-1]} are not a multiple of the {name} block of {elems}")
    if not np.isfinite(x).all():
        raise ValueError("NaN or inf in the input")
    flat = x.reshape(-1, elems)
    out = np.empty((len(flat), size), np.uint8)
    step = max(1, rows_at_once * 256 // elems)
    with np.errstate(over="ignore"):
        for i in range(0, len(flat), step):
            out[i : i + step] = ((search and _SEARCH.get(name)) or _FUNCS[name])(flat[i : i + step])
    return out.reshape(*x.shape[:-1], x.shape[-1] // elems * size)
