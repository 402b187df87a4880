"""The statistics against published values, scipy, and values worked out by hand."""

import math

import numpy as np
import pytest
from strata.ab import stats
from strata.errors import StrataError

scipy_stats = pytest.importorskip("scipy.stats")

FIFTHS = (0.2, 0.4, 0.6, 0.8, 1.0)


def test_boundaries_of_lan_and_demets():
    """Two-sided 5 %, five even looks: 4.8769, 3.3569, 2.6803, 2.2898, 2.0310 with the O'Brien-Fleming-like function
    (Lan and DeMets' own table has 4.88, 3.36, 2.68, 2.29, 2.03), and 2.438, 2.427, 2.410, 2.397, 2.386 with the
    Pocock-like one."""
    like_obf = tuple(stats.obrien_fleming_spending(t, 0.05) for t in FIFTHS)
    assert stats.boundaries(FIFTHS, like_obf) == pytest.approx([4.8769, 3.3569, 2.6803, 2.2898, 2.0310], abs=2e-3)
    like_pocock = tuple(0.05 * math.log(1 + (math.e - 1) * t) for t in FIFTHS)
    assert stats.boundaries(FIFTHS, like_pocock) == pytest.approx([2.438, 2.427, 2.410, 2.397, 2.386], abs=2e-3)


def test_one_look_is_the_normal_quantile():
    assert stats.boundaries((1.0,), (0.05,)) == pytest.approx([1.95996], abs=1e-4)


def test_spending_begins_at_nothing_and_ends_at_alpha():
    assert stats.spending(0) == 0 and stats.spending(1) == pytest.approx(stats.ALPHA)
    values = [stats.spending(t) for t in np.linspace(0, 1, 20)]
    assert values == sorted(values)
    assert stats.spending(0.3, 0.05, 0.0) == pytest.approx(0.015)  # gamma 0 spends evenly


@pytest.mark.parametrize("pairs", [1, 2, 3, 6, 7, 10, 24, 40, 100])
def test_plan(pairs):
    plan = stats.plan(pairs)
    assert plan.pairs == pairs and plan.looks == tuple(sorted(set(plan.looks)))
    assert len(plan.levels) == len(plan.looks) and all(0 < level <= stats.ALPHA for level in plan.levels)
    assert all(n % 2 == 0 for n in plan.looks[:-1])


def test_the_error_rate_of_all_looks_together():
    """Independent: 200,000 random walks under no difference, tested at every look with the boundaries."""
    z = np.array(stats.boundaries(FIFTHS, tuple(stats.spending(t) for t in FIFTHS)))
    walks = np.cumsum(np.random.default_rng(3).normal(size=(200_000, 5)), axis=1) / np.sqrt(np.arange(1, 6))
    assert np.any(np.abs(walks) > z, axis=1).mean() == pytest.approx(stats.ALPHA, abs=0.0015)


@pytest.mark.parametrize(
    ("n", "level", "critical"),
    # Critical values of the signed-rank test, two-sided, as printed in textbook tables (Wilcoxon 1945 and later).
    [(6, 0.05, 0), (7, 0.05, 2), (8, 0.05, 3), (9, 0.05, 5), (10, 0.05, 8), (12, 0.05, 13), (15, 0.05, 25),
     (20, 0.05, 52), (25, 0.05, 89), (30, 0.05, 137), (10, 0.01, 3), (20, 0.01, 37), (5, 0.05, -1)],
)  # fmt: skip
def test_critical_values(n, level, critical):
    assert stats._critical(n, level) == critical


def test_interval_is_the_inversion_of_scipys_test():
    """Just inside the interval scipy's exact test does not reject, just outside it does."""
    x = np.random.default_rng(11).normal(0.03, 0.05, 17)
    level = 0.0321
    _, low, high = stats.signed_rank_interval(x, level)
    for edge, outward in ((low, -1e-9), (high, 1e-9)):
        assert scipy_stats.wilcoxon(x - edge - outward, method="exact").pvalue <= level
        assert scipy_stats.wilcoxon(x - edge + outward, method="exact").pvalue > level


def test_hodges_lehmann_by_hand():
    """1, 2, 6: means of all pairs with themselves 1, 1.5, 2, 3.5, 4, 6; their median is 2.75."""
    centre, low, high = stats.signed_rank_interval([1, 2, 6], 0.05)
    assert centre == pytest.approx(2.75) and low == -math.inf and high == math.inf


def test_verdict_of_clear_cases():
    slower = stats.verdict(np.full(12, math.log(1.05)) + np.linspace(-0.01, 0.01, 12), 0.02)
    assert slower.kind == "different" and slower.low > 1.03 and slower.sign_higher == 12
    assert slower.p_sign == pytest.approx(2 / 2**12)
    assert "worse" in stats.in_words(slower, "b", "a", "prefill_ms", -1)
    assert "better" in stats.in_words(slower, "b", "a", "prefill_tok_s", 1)
    same = stats.verdict([0.01, -0.01] * 6, 0.02)
    assert same.kind == "no difference shown" and same.low < 1 < same.high
    assert "no difference shown" in stats.in_words(same, "b", "a", "prefill_ms", -1)
    few = stats.verdict([0.1, 0.1], 0.02)
    assert few.kind == "too few pairs" and "too few" in stats.in_words(few, "b", "a", "prefill_ms", -1)
    assert stats.verdict([], 0.02).kind == "too few pairs"


def test_equal_values_everywhere():
    v = stats.verdict([0.0] * 10, 0.02)
    assert v.kind == "no difference shown" and (v.ratio, v.low, v.high, v.p_signed_rank, v.p_sign) == (1, 1, 1, 1, 1)
    assert None not in v.to_json().values()


def test_sample():
    s = stats.sample([1, 2, 3, 4, 100])
    assert (s.n, s.median, s.low, s.high) == (5, 3, 1, 100)
    assert s.mad == pytest.approx(1.4826, abs=1e-4)  # distances 2, 1, 0, 1, 97: their median is 1


def test_drift_is_seen_and_noise_is_not():
    order = list(range(40))
    rising = [100 + i for i in order]  # 39 % of the median 119.5 over the span, were it not for the two arms
    found = stats.drift([rising], [order])
    assert found.shown and found.change == pytest.approx(39 / 119.5) and found.tau == pytest.approx(1)
    assert "slower" in found.text()
    level = [100, 101] * 20
    assert not stats.drift([level], [order]).shown
    assert stats.drift([[1, 2]], [[0, 1]]) is None
    assert stats.drift([[5.0] * 8], [list(range(8))]).p == 1


def test_stopping():
    plan = stats.plan(40)
    assert stats.stop_reason([0.0] * 7, plan, 0.5) == ""  # no look is due
    n = plan.looks[1]
    assert "excludes" in stats.stop_reason(np.linspace(0.1, 0.2, n), plan, 0.02)
    assert "within" in stats.stop_reason(np.linspace(-0.001, 0.001, n), plan, 0.02)
    wide = np.linspace(-0.3, 0.3, n)
    assert stats.stop_reason(wide, plan, 0.02) == ""
    assert "all 40" in stats.stop_reason(np.linspace(-0.3, 0.3, 40), plan, 0.02)


def test_without_scipy(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "scipy", None)
    monkeypatch.setitem(__import__("sys").modules, "scipy.stats", None)
    with pytest.raises(StrataError, match=r"strata-moe\[ab\]"):
        stats.sample([1, 2])
