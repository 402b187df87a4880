"""Teacher-forced comparison of distributions: how far from a reference are the logits of a model, token by token?

N prompt tokens are run, then M tokens of the same text are forced, whatever the model would have chosen. At each of the
M places stands one distribution over the next token; all figures are about these.

    KLD      sum over tokens of p_ref (log p_ref - log p), natural logarithm, in float64
    perplexity   exp of the mean of -log p(token that follows)
    top-1    share of places whose most likely token is the reference's (of equal ones the lower id)
    top-k    mean share of the reference's k most likely tokens that are among the k most likely

References: strata's own file (float32 logits), or the file that llama-perplexity writes with --save-all-logits or
--kl-divergence-base (16-bit log-probabilities of the second half of each context window).
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from strata.api import Model
from strata.errors import InputError
from strata.tokenizer import Tokenizer

MAGIC = b"STRLOGT1"
LLAMA_MAGIC = b"_logits_"
ROWS = 64  # places worked on at a time
WORST = 20
LLAMA_FLOOR = -16.0  # llama.cpp leaves out tokens whose stored log-probability is below this

F64 = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Window:
    """Tokens run from an empty session. Places: after tokens first .. len(tokens) - 2, each with the token to come."""

    tokens: NDArray[np.int32]
    first: int

    @property
    def places(self) -> int:
        """Number of distributions."""
        return len(self.tokens) - 1 - self.first


class Reference:
    """Distributions of another run: windows, and their log-probabilities window by window.

    normalised: whether a row sums to 1. llama.cpp's rows do not quite: they are clipped 16 below the largest.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            magic = file.read(8)
            if magic == MAGIC:
                self._own(file)
            elif magic == LLAMA_MAGIC:
                self._llama(file)
            else:
                raise InputError(f"{self.path}: no file of logits: it begins with {magic!r}.")

    def _own(self, file: IO[bytes]) -> None:
        self.kind, self.normalised = "strata", True
        (length,) = struct.unpack("<Q", self._take(file, 8))
        if length > self.path.stat().st_size:
            raise InputError(f"{self.path}: damaged: its header would have {length} bytes.")
        try:
            self.header = json.loads(self._take(file, length))
            self.n_vocab = int(self.header["n_vocab"])
            tokens = np.array(self.header["tokens"], np.int32)
            window = Window(tokens, int(self.header["first"]))
        except (ValueError, KeyError, TypeError) as e:
            raise InputError(f"{self.path}: damaged header: {e}.") from None
        self.windows = [window]
        self._offset = -(-(16 + length) // 64) * 64
        self._need(self._offset + 4 * self.n_vocab * window.places)

    def _llama(self, file: IO[bytes]) -> None:
        self.kind, self.normalised = "llama.cpp", False
        n_ctx, self.n_vocab, n_chunk = struct.unpack("<iii", self._take(file, 12))
        if n_ctx < 4 or self.n_vocab < 1 or n_chunk < 1:
            raise InputError(f"{self.path}: damaged: context {n_ctx}, vocabulary {self.n_vocab}, {n_chunk} windows.")
        self.header = {"n_ctx": n_ctx, "n_chunk": n_chunk}
        self._stride = (
            2 * ((self.n_vocab + 1) // 2) + 4
        )  # uint16 of a row: scale and lowest value as floats, then codes
        self._offset = 20 + 4 * n_ctx * n_chunk
        places = n_ctx - 1 - n_ctx // 2
        self._need(self._offset + 2 * self._stride * places * n_chunk)
        tokens = np.frombuffer(self._take(file, 4 * n_ctx * n_chunk), "<i4").astype(np.int32)
        self.windows = [Window(t, n_ctx // 2) for t in tokens.reshape(n_chunk, n_ctx)]

    def _take(self, file: IO[bytes], count: int) -> bytes:
        data = file.read(count)
        if len(data) < count:
            raise InputError(f"{self.path}: cut short in its header.")
        return data

    def _need(self, size: int) -> None:
        have = self.path.stat().st_size
        if have != size:
            state = "cut short" if have < size else "longer than its header says"
            raise InputError(f"{self.path}: {state}: {have} bytes, and its header needs {size}.")

    def rows(self, window: int, begin: int, end: int) -> F64:
        """Log-probabilities of places begin .. end - 1 of a window: [places, vocab]."""
        places = self.windows[window].places
        count = end - begin
        if self.kind == "strata":
            at = self._offset + 4 * self.n_vocab * begin
            raw = np.memmap(self.path, "<f4", "r", at, (count, self.n_vocab))
            return log_softmax(np.asarray(raw))
        at = self._offset + 2 * self._stride * (window * places + begin)
        codes = np.memmap(self.path, "<u2", "r", at, (count, self._stride))
        scale_and_least = np.ascontiguousarray(codes[:, :4]).view("<f4").astype(np.float64)
        return np.asarray(scale_and_least[:, :1] * codes[:, 4 : 4 + self.n_vocab] + scale_and_least[:, 1:])


def log_softmax(logits: NDArray[Any]) -> F64:
    """log p of each row, in float64."""
    wide = np.asarray(logits, np.float64)
    shifted = wide - wide.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def forced_logits(
    model: Model, window: Window, *, steps: bool = False, say: Callable[[int, int], object] | None = None
) -> Iterator[NDArray[np.float32]]:
    """Logits at the places of a window, some rows at a time. steps: each forced token is a decode step of its own."""
    with model.session() as session:
        first = session.prefill(window.tokens[: window.first + 1], logits="last").logits
        assert first is not None
        yield first[None]
        done, size = 1, 1 if steps else ROWS
        while done < window.places:
            at = window.first + done
            part = window.tokens[at : min(at + size, window.first + window.places)]
            found = session.prefill(part, logits="all").logits
            assert found is not None
            done += len(part)
            if say is not None:
                say(done, window.places)
            yield found


def save(
    path: str | os.PathLike[str],
    model: Model,
    window: Window,
    *,
    steps: bool = False,
    say: Callable[[int, int], object] | None = None,
) -> float:
    """Writes the logits of a window to a file that `Reference` reads; gives the perplexity."""
    header = json.dumps(
        {
            "n_vocab": int(model.info["n_vocab"]),
            "first": window.first,
            "tokens": window.tokens.tolist(),
            "model": model.path.name,
            "effective": {k: v for k, v in model.effective.items() if isinstance(v, (str, int, float))},
        }
    ).encode()
    losses = []
    with Path(path).open("wb") as file:
        file.write(MAGIC + struct.pack("<Q", len(header)) + header)
        file.write(b"\0" * (-file.tell() % 64))
        at = window.first
        for logits in forced_logits(model, window, steps=steps, say=say):
            file.write(np.ascontiguousarray(logits, "<f4").tobytes())
            log_p = log_softmax(logits)
            following = window.tokens[at + 1 : at + 1 + len(logits)]
            losses += (-log_p[np.arange(len(logits)), following]).tolist()
            at += len(logits)
    return math.exp(math.fsum(losses) / len(losses))


@dataclasses.dataclass(frozen=True)
class Place:
    """One position where the distributions are far apart, or where the most likely tokens differ.

    position: of the last token seen. gap: log-probability of the most likely token less that of the next.
    """

    window: int
    position: int
    kld: float
    before: str
    forced: str
    ref_top: str
    own_top: str
    ref_gap: float
    own_gap: float


@dataclasses.dataclass(frozen=True)
class Divergence:
    """Figures of a comparison; see the head of this file. percentiles: of the KLD."""

    places: int
    mean: float
    percentiles: dict[str, float]
    maximum: float
    top1: float
    topk: float
    k: int
    perplexity_ref: float
    perplexity: float
    equal_bits: bool | None  # None: the reference has no float32 logits
    worst: list[Place]
    first_flip: Place | None  # the first place whose most likely token is another

    def to_json(self) -> dict[str, Any]:
        """A plain dict for JSON."""
        return dataclasses.asdict(self)


QUANTILES = (50, 90, 95, 99, 99.9)


def compare(
    model: Model,
    reference: Reference,
    *,
    k: int = 5,
    steps: bool = False,
    say: Callable[[int, int], object] | None = None,
) -> Divergence:
    """Runs the reference's tokens through a model and compares. Raises InputError when the vocabularies differ."""
    n_vocab = int(model.info["n_vocab"])
    if n_vocab != reference.n_vocab:
        raise InputError(
            f"{reference.path} has distributions over {reference.n_vocab} tokens, {model.path.name} over {n_vocab}."
        )
    own = (forced_logits(model, w, steps=steps, say=say) for w in reference.windows)
    return measure(own, reference, model.tokenizer, k=k)


def measure(
    own: Iterator[Iterator[NDArray[np.float32]]] | Sequence[Sequence[NDArray[np.float32]]],
    reference: Reference,
    tokenizer: Tokenizer,
    *,
    k: int = 5,
) -> Divergence:
    """Figures of logits, window by window in pieces of rows, against a reference."""
    klds: list[float] = []
    losses: tuple[list[float], list[float]] = ([], [])
    top1 = topk = 0.0
    equal: bool | None = True if reference.kind == "strata" else None
    places: list[tuple[float, int, int, int, int, float, float]] = []
    flip: tuple[float, int, int, int, int, float, float] | None = None
    for number, (window, pieces) in enumerate(zip(reference.windows, own, strict=True)):
        done = 0
        for logits in pieces:
            count = len(logits)
            ref, log_p = reference.rows(number, done, done + count), log_softmax(logits)
            if equal:
                equal = bool(np.array_equal(ref, log_p))
            rows = np.arange(count)
            p = np.exp(ref)
            with np.errstate(invalid="ignore"):
                terms = np.where(p > 0, p * (ref - log_p), 0.0)
            if not reference.normalised:
                terms = np.where(ref > LLAMA_FLOOR, terms, 0.0)
            kld = terms.sum(axis=1)
            following = window.tokens[window.first + done + 1 : window.first + done + 1 + count]
            losses[0].extend((-ref[rows, following]).tolist())
            losses[1].extend((-log_p[rows, following]).tolist())
            # argmax and a stable sort take the lower id of equal ones.
            best = [np.argsort(-x, axis=1, kind="stable")[:, : max(k, 2)] for x in (ref, log_p)]
            top1 += float((best[0][:, 0] == best[1][:, 0]).sum())
            topk += sum(len(np.intersect1d(a[:k], b[:k])) / k for a, b in zip(*best, strict=True))
            gaps = [x[rows, b[:, 0]] - x[rows, b[:, 1]] for x, b in zip((ref, log_p), best, strict=True)]
            for r in range(count):
                at = window.first + done + r
                entry = (float(kld[r]), number, at, int(best[0][r, 0]), int(best[1][r, 0]), gaps[0][r], gaps[1][r])
                places.append(entry)
                if flip is None and entry[3] != entry[4]:
                    flip = entry
            places = sorted(places, key=lambda e: -e[0])[:WORST]
            klds.extend(kld.tolist())
            done += count
        if done != window.places:
            raise InputError(f"{done} rows of logits for {window.places} places.")

    def place(entry: tuple[float, int, int, int, int, float, float]) -> Place:
        kld, number, at, ref_top, own_top, ref_gap, own_gap = entry
        tokens = reference.windows[number].tokens

        def text(ids: Sequence[int] | NDArray[np.int32]) -> str:
            return tokenizer.decode([int(i) for i in ids if i < tokenizer.n_vocab], skip_special=False)

        return Place(
            number, at, kld, text(tokens[max(0, at - 11) : at + 1]), text(tokens[at + 1 : at + 2]), text([ref_top]),
            text([own_top]), float(ref_gap), float(own_gap),
        )  # fmt: skip

    n = len(klds)
    return Divergence(
        places=n,
        mean=math.fsum(klds) / n,
        percentiles={f"{q:g}": float(np.percentile(klds, q)) for q in QUANTILES},
        maximum=max(klds),
        top1=top1 / n,
        topk=topk / n,
        k=k,
        perplexity_ref=math.exp(math.fsum(losses[0]) / n),
        perplexity=math.exp(math.fsum(losses[1]) / n),
        equal_bits=equal,
        worst=[place(e) for e in places],
        first_flip=None if flip is None else place(flip),
    )
