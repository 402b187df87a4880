"""Recorded routing: which experts each token of a run chose, for replays and measurements.

result = model.prefill(text, record=True)
result.routing.save("run.npz")
trace = strata.routing.load("run.npz")
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, Union

import numpy as np
from numpy.typing import NDArray

from strata import cache
from strata.errors import InputError

PathLike = Union[str, "os.PathLike[str]"]

MOST_EXPERTS = 1 << 16  # ids are kept in 16 bits
TAPS = frozenset({"router_ids", "next_ids"})  # what a recording takes from the core


@dataclasses.dataclass(frozen=True, eq=False)
class Routing:
    """ids: int32 [layers, T, K], the experts each token chose. predicted: int32 [layers - 1, T, K], the guesses for
    layers 1 and up (the layer's router on the input of the layer before); None when the run made none. experts: of a
    layer. expert_bytes: of one expert, per layer. tokens: int32 [T]; empty when they are not known.
    """

    ids: NDArray[np.int32]
    predicted: NDArray[np.int32] | None
    experts: int
    expert_bytes: tuple[int, ...]
    tokens: NDArray[np.int32]

    @property
    def layers(self) -> int:
        return int(self.ids.shape[0])

    @property
    def rows(self) -> int:
        """Tokens."""
        return int(self.ids.shape[1])

    def counts(self, begin: int = 0, end: int | None = None) -> NDArray[np.int64]:
        """Rows per expert in tokens begin to end: [layers, experts]."""
        return _counts(self.ids[:, begin:end], self.experts)

    def distinct(self, n: int) -> float:
        """Experts that n tokens in a row touch: mean over all layers and whole groups of n tokens."""
        groups = range(0, self.rows - n + 1, n)
        if not groups:
            raise InputError(f"the recording has {self.rows} tokens, fewer than {n}.")
        return float(np.mean([(self.counts(a, a + n) > 0).sum(1) for a in groups]))

    def popularity(self) -> NDArray[np.float64]:
        """The i-th value: share of a layer's rows that go to its i-th most used expert, mean over layers. They add up
        to 1."""
        n = np.sort(self.counts(), 1)[:, ::-1]
        curve: NDArray[np.float64] = (n / n.sum(1, keepdims=True)).mean(0)
        return curve

    def reuse(self) -> float:
        """Share of a token's experts that the token before chose too."""
        if self.rows < 2:
            raise InputError("a recording of one token has no reuse.")
        now, before = self.ids[:, 1:, :, None], self.ids[:, :-1, None, :]
        return float((now == before).any(-1).mean())

    def recall(self, n: int = 1) -> NDArray[np.float64]:
        """Per layer from 1 on: share of the distinct experts of n tokens that the guesses for these tokens name.

        Raises InputError when there are no guesses.
        """
        return self._hits(n)[0]

    def precision(self, n: int = 1) -> NDArray[np.float64]:
        """Per layer from 1 on: share of the distinct guesses of n tokens that were right. Raises InputError."""
        return self._hits(n)[1]

    def _hits(self, n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.predicted is None:
            raise InputError("the recording has no guesses; record with prompt_pred=1.")
        hit, used, guessed = (np.zeros(self.layers - 1) for _ in range(3))
        for a in range(0, self.rows, n):
            real = self.counts(a, a + n)[1:] > 0
            guess = _counts(self.predicted[:, a : a + n], self.experts) > 0
            hit += (real & guess).sum(1)
            used += real.sum(1)
            guessed += guess.sum(1)
        return hit / used, hit / guessed

    def save(self, path: PathLike) -> None:
        """Writes an npz file: ids, n_expert, expert_bytes, tokens, and predicted when there are guesses."""
        arrays: dict[str, Any] = {
            "ids": self.ids.astype(np.uint16),
            "n_expert": np.int64(self.experts),
            "expert_bytes": np.array(self.expert_bytes, np.int64),
            "tokens": self.tokens,
        }
        if self.predicted is not None:
            arrays["predicted"] = self.predicted.astype(np.uint16)
        with Path(path).open("wb") as file:  # np.savez would add .npz to a name without it
            np.savez_compressed(file, **arrays)


def _counts(ids: NDArray[np.int32], experts: int) -> NDArray[np.int64]:
    layers = ids.shape[0]
    keys = ids.reshape(layers, -1).astype(np.int64) + np.arange(layers)[:, None] * experts
    return np.bincount(keys.ravel(), minlength=layers * experts).reshape(layers, experts)


def from_taps(taps: dict[str, Any], tokens: NDArray[np.int32], experts: int, expert_bytes: tuple[int, ...]) -> Routing:
    """The routing of a call of the core that was given TAPS."""
    layers = len(expert_bytes)
    ids = np.stack([taps[f"L{i}/router_ids"] for i in range(layers)])
    guesses = [taps[f"L{i}/next_ids"] for i in range(layers - 1) if f"L{i}/next_ids" in taps]
    predicted = np.stack(guesses) if guesses and len(guesses) == layers - 1 else None
    return Routing(ids, predicted, experts, expert_bytes, tokens)


def load(path: PathLike) -> Routing:
    """Reads a recording. n_expert may be missing (the largest id counts then), and so may expert_bytes (all 0), tokens
    and predicted.

    Raises InputError when the file is no recording or contradicts itself; OSError when it cannot be read.
    """
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as z:
            arrays = {name: z[name] for name in ("ids", "predicted", "n_expert", "expert_bytes", "tokens") if name in z}
    except (AttributeError, TypeError):  # a .npy file: an array, not a context manager
        raise InputError(f"{os.fspath(path)} is no recording of a routing: it holds one array.") from None
    except cache.DAMAGED as e:
        raise InputError(f"{os.fspath(path)} is no recording of a routing: {e}") from None

    def wrong(what: str) -> InputError:
        return InputError(f"{os.fspath(path)} is no recording of a routing: {what}.")

    ids = arrays.get("ids")
    if ids is None or ids.ndim != 3 or ids.size == 0 or ids.dtype.kind not in "iu":
        raise wrong("it needs an array ids of whole numbers, [layers, tokens, K]")
    layers, rows, _ = ids.shape
    predicted = arrays.get("predicted")
    if predicted is not None and (predicted.shape != (layers - 1, *ids.shape[1:]) or predicted.dtype.kind not in "iu"):
        raise wrong(f"predicted has the shape {predicted.shape}, ids {ids.shape}")
    experts = int(ids.max()) + 1
    if "n_expert" in arrays:
        count = arrays["n_expert"]
        if count.ndim or count.dtype.kind not in "iu" or not 0 < int(count) <= MOST_EXPERTS:
            raise wrong(f"n_expert is no number from 1 to {MOST_EXPERTS}")
        experts = int(count)
    for name, a in (("ids", ids), ("predicted", predicted)):
        if a is not None and a.size and (int(a.min()) < 0 or int(a.max()) >= experts):
            raise wrong(f"{name} has values from {a.min()} to {a.max()}, and a layer has {experts} experts")
    sizes = arrays.get("expert_bytes", np.zeros(layers, np.int64))
    tokens = arrays.get("tokens", np.zeros(0, np.int32))
    if sizes.dtype.kind not in "iu" or tokens.dtype.kind not in "iu":
        raise wrong("expert_bytes and tokens are whole numbers")
    if sizes.shape != (layers,) or tokens.shape not in ((rows,), (0,)):
        raise wrong(f"expert_bytes has the shape {sizes.shape}, tokens {tokens.shape}, ids {ids.shape}")
    return Routing(
        ids.astype(np.int32),
        None if predicted is None else predicted.astype(np.int32),
        experts,
        tuple(int(b) for b in sizes),
        tokens.astype(np.int32),
    )
