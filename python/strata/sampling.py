"""Choosing the next token from logits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.errors import StrataError


def probabilities(logits: NDArray[np.float32], temperature: float = 1.0) -> NDArray[np.float64]:
    """Softmax of logits [vocab] / temperature, in float64."""
    x = logits.astype(np.float64)
    x = np.exp((x - x.max()) / temperature)
    result: NDArray[np.float64] = x / x.sum()
    return result


def top(logits: NDArray[np.float32], k: int) -> NDArray[np.intp]:
    """Ids of the k largest logits, largest first; of equal ones the lower id first."""
    return np.argsort(-logits, kind="stable")[:k]


class Sampler:
    """Greedy choice (temperature 0) or a draw from the top_k most likely tokens that make up top_p of the probability.

    temperature >= 0; top_k: 0 = all; top_p in (0, 1]; seed: of numpy's default generator, None = not reproducible.
    """

    def __init__(self, temperature: float = 0.0, top_k: int = 0, top_p: float = 1.0, seed: Any = None) -> None:
        self.temperature = temperature
        self.top_k = top_k
        self.top_p = top_p
        self._rng = np.random.default_rng(seed)

    def choose(self, logits: NDArray[np.float32]) -> int:
        """The next token id, from logits [vocab]. Raises StrataError when a logit is NaN or +inf."""
        best = int(np.argmax(logits))  # the first of equal ones; a NaN counts as the largest
        if not np.isfinite(logits[best]):
            raise StrataError(f"the logit of token {best} is {logits[best]}; the model's numbers have overflowed.")
        if self.temperature == 0:
            return best
        order = top(logits, self.top_k or len(logits))
        cumulated = np.cumsum(probabilities(logits[order], self.temperature))
        # The shortest run of the most likely tokens that reaches top_p, always at least one.
        kept = min(int(np.searchsorted(cumulated, self.top_p * cumulated[-1])) + 1, len(order))
        drawn = self._rng.random() * cumulated[kept - 1]
        return int(order[min(int(np.searchsorted(cumulated[:kept], drawn, side="right")), kept - 1)])
