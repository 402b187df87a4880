"""Parity checks: the router and single kernels of a backend against plain references in float64.

    route_parity()                     # every instruction set of this machine, 512 and 256 experts
    kernel_parity(["rms_norm"])        # one kernel over its grid
    kernel_ab("rms_norm", interpreter) # this build against another: same bits? faster?

A kernel passes on an instruction set when every error is within the kernel's stated bound, and its bits are those of
the first instruction set of the list. This file also runs by path in the Python of another build (see `kernel_ab`), so
it imports nothing of strata but the core.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata import _core

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

INT8_TYPES = ("Q2_0", "Q4_0", "Q4_K", "Q8_0", "IQ4_NL")  # takes_int8 in csrc/cpu/isa/formats.h
EPS = float(np.finfo(np.float32).eps)
# Runs a file without its folder on the path, where `inspect.py` would hide the standard library's.
BY_PATH = "import runpy, sys; del sys.path[0]; runpy.run_path(sys.argv[1], run_name='__main__')"
NEAR_TIE = 8  # float32 steps between two probabilities below which another order is a near tie, not a mismatch


# ---- the router ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RouteCase:
    """Result for one family of logits on one instruction set, in one phase."""

    experts: int
    k: int
    bonus: float
    phase: str  # "prompt": all rows in one call; "decode": row by row
    isa: str
    logits: str
    rows: int
    mismatches: int  # rows with other ids than the reference that no near tie explains
    near_ties: int  # rows whose other ids are nearly equally probable
    first: str  # the first mismatch or near tie, with the gap between place k and k + 1
    weight_error: float  # largest relative error of a weight, of rows with the reference's ids
    same_bits: bool  # as the first instruction set and phase

    @property
    def passed(self) -> bool:
        """No mismatch, weights within 1e-5, same bits as the others."""
        return self.mismatches == 0 and self.weight_error < 1e-5 and self.same_bits


def reference_route(
    logits: F32, k: int, resident: NDArray[np.bool_] | None = None, bonus: float = 0.0
) -> tuple[NDArray[np.int64], F64, F32]:
    """ids, weights and the probabilities that decide: softmax in float64, rounded once to float32; larger first, of
    equal ones the lower index, NaN last. The bonus is added to the logits of resident experts, for the choice only."""
    with np.errstate(all="ignore"):

        def softmax(z: F32) -> F32:
            wide = z.astype(np.float64)
            # A row with a NaN has the maximum of its numbers: a processor's max passes over a NaN.
            top = np.max(np.where(np.isnan(wide), -np.inf, wide), axis=1, keepdims=True)
            e = np.exp(wide - top)
            return np.asarray((e / e.sum(axis=1, keepdims=True)).astype(np.float32))

        plain = softmax(logits)
        chosen_by = plain
        if resident is not None:
            chosen_by = softmax(np.where(resident, logits + np.float32(bonus), logits).astype(np.float32))
        key = np.where(np.isnan(chosen_by), -np.inf, chosen_by.astype(np.float64))
        ids = np.argsort(-key, axis=1, kind="stable")[:, :k]
        # Numbers that are -inf cannot occur among probabilities, so NaN and the rest stay apart.
        p = np.take_along_axis(plain, ids, 1).astype(np.float64)
        return ids, p / p.sum(axis=1, keepdims=True), chosen_by


def logit_families(experts: int, rows: int, seed: int = 0) -> dict[str, F32]:
    """Random and adversarial logits [rows, experts] by name."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(0, 2, (rows, experts)).astype(np.float32)
    near = np.repeat(rng.normal(0, 2, (rows, 1)), experts, 1).astype(np.float32)
    for _ in range(3):
        near = np.where(rng.random(near.shape) < 0.5, near, np.nextafter(near, np.float32(np.inf)))
    infinite, nan = normal.copy(), normal.copy()
    infinite[np.arange(rows), rng.integers(0, experts, rows)] = np.inf
    minus = np.where(rng.random(normal.shape) < 0.5, -np.inf, normal).astype(np.float32)
    nan[np.arange(rows), rng.integers(0, experts, rows)] = np.nan
    few = np.full_like(normal, -np.inf)
    few[:, :3] = 1.0
    return {
        "random": normal,
        "peaked": (normal * 20).astype(np.float32),
        "ties of whole numbers": rng.integers(-3, 4, normal.shape).astype(np.float32),
        "ties of two values": (rng.random(normal.shape) < 0.02).astype(np.float32),
        "all equal": np.full_like(normal, 1.25),
        "zeros of both signs": np.where(rng.random(normal.shape) < 0.5, 0.0, -0.0).astype(np.float32),
        "one step apart": near,
        "too far apart for float32": (normal * 100).astype(np.float32),
        "denormal": (normal * np.float32(1e-40)).astype(np.float32),
        "an infinity": infinite,
        "minus infinities": minus,
        "fewer than k finite": few,
        "only minus infinity": np.full_like(normal, -np.inf),
        "a NaN": nan,
        "only NaN": np.full_like(normal, np.nan),
    }


def route_parity(
    names: Sequence[str] | None = None,
    *,
    sizes: Sequence[tuple[int, float]] = ((512, 0.0), (256, 0.85)),
    k: int = 10,
    rows: int = 256,
    seed: int = 0,
) -> list[RouteCase]:
    """The router of the cpu backend, in every instruction set, against `reference_route`.

    sizes: (experts, bonus of resident ones). With a bonus, half of the experts are resident.
    """
    found = []
    for experts, bonus in sizes:
        rng = np.random.default_rng(seed + experts)
        resident = rng.random(experts) < 0.5 if bonus else None
        for family, logits in logit_families(experts, rows, seed).items():
            want, want_weights, p = reference_route(logits, k, resident, bonus)
            scores = logits if resident is None else np.where(resident, logits + np.float32(bonus), logits)
            first: tuple[bytes, bytes] | None = None
            for isa in names or _core.cpu_isas():
                for phase in ("prompt", "decode"):
                    if phase == "prompt":
                        ids, weights = _core.route(logits, k, isa, resident, bonus)
                    else:
                        parts = [_core.route(logits[i : i + 1], k, isa, resident, bonus) for i in range(rows)]
                        ids, weights = (np.concatenate([part[j] for part in parts]) for j in (0, 1))
                    bits = ids.tobytes(), weights.tobytes()
                    first = first or bits
                    found.append(
                        _judge(
                            experts,
                            k,
                            bonus,
                            phase,
                            isa,
                            family,
                            ids,
                            weights,
                            want,
                            want_weights,
                            p,
                            scores,
                            bits == first,
                        )
                    )
    return found


def _ties_in_order(scores: F32, ids: NDArray[np.int32]) -> bool:
    """Whether of experts with exactly equal logits the lower index was always taken first."""
    taken: set[int] = set()
    for i in ids.tolist():
        equal_and_lower = np.flatnonzero(scores[:i] == scores[i])
        if not taken.issuperset(equal_and_lower.tolist()):
            return False
        taken.add(i)
    return True


def _judge(
    experts: int,
    k: int,
    bonus: float,
    phase: str,
    isa: str,
    family: str,
    ids: NDArray[np.int32],
    weights: F32,
    want: NDArray[np.int64],
    want_weights: F64,
    p: F32,
    scores: F32,
    same_bits: bool,
) -> RouteCase:
    mismatches = near = 0
    story = ""
    other = np.flatnonzero((ids != want).any(axis=1))
    for t in other:
        a, b = p[t, ids[t]], p[t, want[t]]
        apart = np.abs(a.view(np.int32).astype(np.int64) - b.view(np.int32).astype(np.int64)).max()
        valid = len(set(ids[t].tolist())) == k and not np.isnan(a).any() and not np.isnan(b).any()
        close = bool(valid and apart <= NEAR_TIE) and _ties_in_order(scores[t], ids[t])
        near, mismatches = near + close, mismatches + (not close)
        if not story or (not close and mismatches == 1):
            place = int(np.argmax(ids[t] != want[t]))
            ordered = np.sort(p[t])[::-1]
            gap = float(ordered[k - 1] - ordered[k]) if k < experts else float("inf")
            story = (
                f"row {t}, place {place}: expert {ids[t, place]} for {want[t, place]}, probabilities "
                f"{float(a[place])!r} and {float(b[place])!r}; gap after place {k}: {gap:.3g}"
            )
    same = np.setdiff1d(np.arange(len(ids)), other)
    error = 0.0
    if len(same):
        got, right = weights[same].astype(np.float64), want_weights[same]
        if not np.array_equal(np.isnan(got), np.isnan(right)):
            error = float("inf")
        elif not np.isnan(got).all():
            # Weights below the smallest normal float32 have few bits; what counts is their size beside the others.
            scale = np.maximum(np.abs(right), 1e-7)
            error = float(np.nanmax(np.abs(got - right) / scale))
    return RouteCase(experts, k, bonus, phase, isa, family, len(ids), mismatches, near, story, error, same_bits)


# ---- kernels ---------------------------------------------------------------------------------------------------------

Arrays = tuple[NDArray[Any], ...]


@dataclasses.dataclass(frozen=True)
class Case:
    """One point of a kernel's grid: runs it on an instruction set; says what is right, and how near is near enough."""

    label: str
    run: Callable[[str], Arrays]
    want: Callable[[], tuple[F64, ...]]
    bound: Callable[[], tuple[F64, ...]]  # largest allowed error of each value


@dataclasses.dataclass(frozen=True)
class KernelResult:
    """A kernel on one instruction set over its grid. worst: largest error as a share of its bound."""

    kernel: str
    isa: str
    cases: int
    worst: float
    worst_case: str
    same_bits: bool

    @property
    def passed(self) -> bool:
        """Every error within its bound, bits as on the first instruction set."""
        return self.worst <= 1 and self.same_bits


LENGTHS = (1, 2, 15, 16, 17, 31, 32, 64, 100, 255, 256, 512, 2560)


def _sigmoid(x: F64) -> F64:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)))


def _wide(*arrays: NDArray[Any]) -> tuple[F64, ...]:
    return tuple(a.astype(np.float64) for a in arrays)


def _vector(name: str, isa: str, *arguments: Any, **named: Any) -> Arrays:
    out = _core.vector_kernel(name, isa, *arguments, **named)
    return tuple(np.atleast_1d(np.asarray(v)) for v in (out if isinstance(out, tuple) else (out,)))


def _relative(steps: float, *floor: float) -> Callable[[tuple[F64, ...]], tuple[F64, ...]]:
    """Bound of so many float32 steps of the right value, or of `floor` where that is larger."""
    least = floor[0] if floor else 1e-37
    return lambda want: tuple(np.maximum(steps * EPS * np.abs(w), least) for w in want)


def _cases_of(
    name: str, data: Callable[[int, np.random.Generator], tuple[Arrays, dict[str, float]]],
    right: Callable[..., tuple[F64, ...]], bound: Callable[[tuple[F64, ...]], tuple[F64, ...]],
) -> Iterator[Case]:  # fmt: skip
    """A case for each length of an element-wise kernel."""
    for n in LENGTHS:
        arrays, scalars = data(n, np.random.default_rng(n))
        wide = tuple(a.view(np.float16).astype(np.float64) if a.dtype == np.uint16 else a.astype(np.float64)
                     for a in arrays)  # fmt: skip
        want = right(*wide, **{k: float(np.float32(v)) for k, v in scalars.items()})
        yield Case(
            f"n = {n}",
            lambda isa, arrays=arrays, scalars=scalars: _vector(name, isa, *arrays, **scalars),  # type: ignore[misc]
            lambda want=want: want,  # type: ignore[misc]
            lambda want=want: bound(want),  # type: ignore[misc]
        )


def _normal(n: int, rng: np.random.Generator, scale: float = 3.0) -> F32:
    return rng.normal(0, scale, n).astype(np.float32)


def _elementwise() -> dict[str, Callable[[], Iterator[Case]]]:
    def one(n: int, rng: np.random.Generator) -> tuple[Arrays, dict[str, float]]:
        return (_normal(n, rng),), {}

    def one_and(**scalars: float) -> Callable[[int, np.random.Generator], tuple[Arrays, dict[str, float]]]:
        return lambda n, rng: ((_normal(n, rng),), scalars)

    def two(n: int, rng: np.random.Generator) -> Arrays:
        return _normal(n, rng), _normal(n, rng)

    def half(n: int, rng: np.random.Generator) -> Arrays:
        return _normal(n, rng), _normal(n, rng).astype(np.float16).view(np.uint16)

    def rms(a: F64, g: F64, s: float) -> tuple[F64, ...]:
        return (a / np.sqrt(np.mean(a * a) + s) * g,)

    def exp_sum(a: F64, s: float) -> tuple[F64, ...]:
        e = np.exp(a - s)
        return e, np.array([e.sum()])

    cases = _cases_of
    return {
        "max": lambda: cases("max", one, lambda a: (a.max(keepdims=True),), _relative(0)),
        "scale": lambda: cases("scale", one_and(s=0.3), lambda a, s: (a * s,), _relative(1)),
        "add": lambda: cases("add", lambda n, r: (two(n, r), {}), lambda a, b: (a + b,), _relative(1)),
        "axpy": lambda: cases("axpy", lambda n, r: (two(n, r), {"s": 0.7}), lambda a, b, s: (a + s * b,), _relative(1)),
        "axpy_f16": lambda: cases(
            "axpy_f16", lambda n, r: (half(n, r), {"s": 0.7}), lambda a, b, s: (a + s * b,), _relative(1)
        ),
        "exp_sum": lambda: cases(
            "exp_sum", lambda n, r: ((_normal(n, r),), {"s": 4.5}), exp_sum, _relative(200 / 16 + 8)
        ),
        "silu_scaled": lambda: cases(
            "silu_scaled", lambda n, r: ((_normal(n, r, 12),), {"s": 1.5}),
            lambda a, s: (a / s * _sigmoid(a / s),), _relative(24),
        ),
        "sigmoid_scaled": lambda: cases(
            "sigmoid_scaled", lambda n, r: ((_normal(n, r, 12),), {"s": 1.5, "m": 2.0}),
            lambda a, s, m: (m * _sigmoid(a / s),), _relative(24),
        ),
        "sigmoid_gate": lambda: cases(
            "sigmoid_gate", lambda n, r: (two(n, r), {}), lambda a, b: (a * _sigmoid(b),), _relative(12)
        ),
        "swiglu": lambda: cases(
            "swiglu", lambda n, r: (two(n, r), {}), lambda a, b: (a * _sigmoid(a) * b,), _relative(12)
        ),
        "rms_norm": lambda: cases(
            "rms_norm", lambda n, r: (two(n, r), {"s": 1e-6}), rms, _relative(2560 / 16 / 2 + 8)
        ),
    }  # fmt: skip


def _to_f16() -> Iterator[Case]:
    """Against numpy's conversion, which rounds to nearest even: every value must be equal."""
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    every = every[np.isfinite(every)]
    middles = (every + np.nextafter(every, np.float32(np.inf))) / np.float32(2)
    for label, x in (
        ("all halves", every),
        ("just beside", middles),
        ("normal", _normal(4097, np.random.default_rng(1))),
    ):
        want = x.astype(np.float16).astype(np.float64)
        yield Case(
            label,
            lambda isa, x=x: (_vector("to_f16", isa, x)[0].view(np.float16),),  # type: ignore[misc]
            lambda want=want: (want,),  # type: ignore[misc]
            lambda want=want: (np.zeros_like(want),),  # type: ignore[misc]
        )


def _dot_f16() -> Iterator[Case]:
    for n in LENGTHS:
        rng = np.random.default_rng(n)
        a, b = _normal(n, rng), _normal(n, rng).astype(np.float16)
        wide, other = _wide(a, b)
        yield Case(
            f"n = {n}",
            lambda isa, a=a, b=b: _vector("dot_f16", isa, a, b.view(np.uint16)),  # type: ignore[misc]
            lambda w=wide, o=other: (np.array([w @ o]),),  # type: ignore[misc]
            # 16 partial sums of n / 16 steps each, joined in 4: Higham, Accuracy and Stability, section 3.1.
            lambda w=wide, o=other, n=n: (np.array([(n / 16 + 5) * EPS * np.abs(w * o).sum()]),),  # type: ignore[misc]
        )


def _rows_kernel(name: str) -> Iterator[Case]:
    """mix_streams and conv: rows [r, n] of two arrays into one."""
    for rows, n in ((1, 16), (2, 33), (4, 100), (4, 256), (8, 17)):
        rng = np.random.default_rng(rows * n)
        a, b = (rng.normal(0, 2, (rows, n)).astype(np.float32) for _ in range(2))
        wa, wb = _wide(a, b)
        if name == "mix_streams":
            terms = _sigmoid(wa) * wb
            want, size = terms.sum(0) / rows, np.abs(terms).sum(0) / rows
        else:
            total = (wa * wb).sum(0)
            want, size = total * _sigmoid(total), np.abs(wa * wb).sum(0) * 1.1
        yield Case(
            f"{rows} x {n}",
            lambda isa, a=a, b=b: _vector(name, isa, a, b),  # type: ignore[misc]
            lambda want=want: (want,),  # type: ignore[misc]
            lambda size=size, rows=rows, want=want: ((rows + 12) * EPS * (size + np.abs(want)),),  # type: ignore[misc]
        )


def _delta_scan() -> Iterator[Case]:
    """S *= decay; e = beta (v - S^T k); S += k e^T; o = S^T q, token by token, keys of length 1 as the model's are."""
    for dim, columns, tokens in ((16, 32, 1), (64, 17, 3), (128, 32, 40), (128, 1, 7)):
        rng = np.random.default_rng(dim + columns + tokens)
        state = rng.normal(size=(dim, columns)).astype(np.float32)
        q, k = (rng.normal(size=(tokens, dim)).astype(np.float32) for _ in range(2))
        k /= np.linalg.norm(k, axis=1, keepdims=True)
        q /= np.linalg.norm(q, axis=1, keepdims=True)
        v = rng.normal(size=(tokens, columns)).astype(np.float32)
        decay, beta = (rng.uniform(0.1, 1, tokens).astype(np.float32) for _ in range(2))

        S, out = state.astype(np.float64), []
        for t in range(tokens):
            S = S * float(decay[t])
            kt, qt = k[t].astype(np.float64), q[t].astype(np.float64)
            e = float(beta[t]) * (v[t] - S.T @ kt)
            S = S + np.outer(kt, e)
            out.append(S.T @ qt)
        size = np.abs(state).max() + np.abs(v).max()
        want = (np.array(out), S)
        yield Case(
            f"dim {dim}, {columns} columns, {tokens} tokens",
            lambda isa, a=(state, q, k, v, decay, beta): _core.delta_scan(isa, *a),  # type: ignore[misc]
            lambda want=want: want,  # type: ignore[misc]
            lambda want=want, d=dim, size=size: tuple(  # type: ignore[misc]
                np.full_like(w, 4 * np.sqrt(d) * EPS * size) for w in want
            ),
        )


def _product(type_name: str) -> Callable[[], Iterator[Case]]:
    """Products with rows of one block format, float32 and (where the build has them) integer activations.

    Against float64 on the decoded weights. Bounds: float32, a chain of k fused multiply-adds, k eps sum |w x|; integer
    activations add half a step of the activations' scale, sum |w| max |x of 256 values| / (2 16383); int8 ones
    / (2 127), with types that take them.
    """

    def cases() -> Iterator[Case]:
        number, block = next((n, b) for name, n, b, _ in _core.quant_types() if name == type_name)
        for rows, cols, batch in ((16, 256, 1), (17, 512, 3), (48, 768, 9)):
            rng = np.random.default_rng(number + rows + cols)
            cols = -(-cols // block) * block
            data = _core.quantize(type_name, rng.normal(0, 0.05, (rows, cols)).astype(np.float32))
            w = _core.dequantize(type_name, data.tobytes()).reshape(rows, cols).astype(np.float64)
            x = rng.normal(size=(batch, cols)).astype(np.float32)
            want = x.astype(np.float64) @ w.T
            bound = (cols + 8) * EPS * (np.abs(x) @ np.abs(w).T) + 1e-30
            chunks = [slice(at, at + 256) for at in range(0, cols, 256)]
            step = sum(np.abs(x[:, c]).max(1)[:, None] * np.abs(w[:, c]).sum(1)[None] for c in chunks) / (2 * 16383)
            steps = {"f32": 0.0, "auto": 1.0, "int8": 16383 / 127 if type_name in INT8_TYPES else 1.0}
            for activations, size in steps.items():
                limit = bound + size * step

                def run(
                    isa: str, d: Any = data, r: int = rows, c: int = cols, x: F32 = x, a: str = activations
                ) -> Arrays:
                    return (_core.Product(number, d.reshape(-1), 0, r, c, isa, 1, False).run(x, a),)

                yield Case(
                    f"{rows} x {cols}, {batch} rows, {activations}",
                    run,
                    lambda want=want: (want,),  # type: ignore[misc]
                    lambda limit=limit: (limit,),  # type: ignore[misc]
                )

    return cases


def kernels() -> dict[str, Callable[[], Iterator[Case]]]:
    """Every kernel by name, with its grid."""
    found: dict[str, Callable[[], Iterator[Case]]] = dict(_elementwise())
    found["to_f16"] = _to_f16
    found["dot_f16"] = _dot_f16
    found["mix_streams"] = lambda: _rows_kernel("mix_streams")
    found["conv"] = lambda: _rows_kernel("conv")
    found["delta_scan"] = _delta_scan
    if hasattr(_core, "Product"):
        for name, *_ in _core.quant_types():
            found[f"product-{name}"] = _product(name)
    return found


def kernel_parity(names: Sequence[str] | None = None, isa_names: Sequence[str] | None = None) -> list[KernelResult]:
    """Kernels (all, or those whose name is or begins with one given) on every instruction set, against float64."""
    from strata.errors import InputError

    table = kernels()
    chosen = [k for k in table if names is None or any(k == n or k.startswith(f"{n}-") for n in names)]
    if not chosen:
        raise InputError(f"there is no kernel {', '.join(names or [])}; the kernels are: {', '.join(table)}.")
    found = []
    for name in chosen:
        cases = list(table[name]())
        first: list[bytes] | None = None
        for isa in isa_names or _core.cpu_isas():
            worst, where = 0.0, ""
            bits = []
            for case in cases:
                got = case.run(isa)
                bits.append(b"".join(np.ascontiguousarray(g).tobytes() for g in got))
                share = max(_share(g, w, b) for g, w, b in zip(got, case.want(), case.bound(), strict=True))
                if share > worst or not where:
                    worst, where = max(worst, share), case.label
            first = first or bits
            found.append(KernelResult(name, isa, len(cases), worst, where, bits == first))
    return found


def _share(got: NDArray[Any], want: F64, bound: F64) -> float:
    """Largest error as a share of its bound; infinite when a value is not finite or differs where it must not."""
    error = np.abs(got.astype(np.float64).reshape(want.shape) - want)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(error == 0, 0.0, error / bound)
    return float(np.max(np.where(np.isnan(share), np.inf, share), initial=0.0))


# ---- two versions of one kernel --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class KernelAB:
    """One kernel of two builds: whether the bits are equal, and the time of the whole grid in pairs."""

    kernel: str
    isa: str
    cases: int
    different: list[str]  # cases with other bits
    old_seconds: list[float]
    new_seconds: list[float]


def kernel_ab(
    name: str,
    interpreter: str,
    *,
    isa: str = "auto",
    pairs: int = 20,
    environment: Mapping[str, str] | None = None,
    own_environment: Mapping[str, str] | None = None,
) -> KernelAB:
    """Runs a kernel's grid in this build (new) and in that of another Python (old), in turns: A B B A.

    Both run this file by path, so that the grid is the same; the core is each build's own.
    """
    from strata.errors import InputError

    if name not in kernels():
        raise InputError(f"there is no kernel {name}; the kernels are: {', '.join(kernels())}.")
    job = {"kernel": name, "isa": isa, "repeats": 3}
    arms = ((interpreter, environment), (sys.executable, own_environment))
    seconds: tuple[list[float], list[float]] = ([], [])
    bits: list[dict[str, str]] = [{}, {}]
    for pair in range(pairs):
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            python, env = arms[side]
            done = subprocess.run(
                [python, "-c", BY_PATH, str(Path(__file__).resolve())],
                input=json.dumps(job),
                capture_output=True,
                text=True,
                env=env,
            )
            if done.returncode:
                raise InputError(f"{python}: {done.stderr.strip().splitlines()[-1:] or 'failed'}")
            result = json.loads(done.stdout)
            seconds[side].append(result["seconds"])
            bits[side] = result["bits"]
    different = [label for label in bits[1] if bits[0].get(label) != bits[1][label]]
    return KernelAB(name, isa, len(bits[1]), different, *seconds)


def _run_grid(job: dict[str, Any]) -> dict[str, Any]:
    """Bits of every case, and the time of all cases: the least of the repeats."""
    cases = list(kernels()[job["kernel"]]())
    bits = {}
    for case in cases:
        got = case.run(job["isa"])
        bits[case.label] = hashlib.sha256(b"".join(np.ascontiguousarray(g).tobytes() for g in got)).hexdigest()
    best = float("inf")
    for _ in range(job["repeats"]):
        start = time.perf_counter()
        for case in cases:
            for _ in range(20):
                case.run(job["isa"])
        best = min(best, time.perf_counter() - start)
    return {"bits": bits, "seconds": best}


if __name__ == "__main__":
    json.dump(_run_grid(json.load(sys.stdin)), sys.stdout)
