"""The order in which experts and blocks are chosen: larger first, then the lower index, NaN last."""

from __future__ import annotations

import numpy as np
import pytest
from strata import _core


def order(p: np.ndarray) -> np.ndarray:
    return np.lexsort((np.arange(p.size), np.where(np.isnan(p), 0, -p), np.isnan(p)))


@pytest.mark.parametrize("seed", range(20))
def test_ties_infinities_and_nan(seed):
    rng = np.random.default_rng(seed)
    p = rng.choice([0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan], 64).astype(np.float32)
    for k in (1, 10, 63, 64, 100):
        assert _core.top_k(p, k).tolist() == order(p)[:k].tolist()


def test_all_equal_and_all_nan():
    for value in (0.0, np.nan, -np.inf):
        assert _core.top_k(np.full(20, value, np.float32), 10).tolist() == list(range(10))


def test_equal_scores_around_the_last_place():
    p = np.linspace(1, 0, 40).astype(np.float32)
    p[5:25] = p[10]
    assert _core.top_k(p, 10).tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
