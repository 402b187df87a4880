"""The statistics of a comparison. The tests are scipy's; what is here is how they are put together.

Unit of evidence: the pair, one run of each arm next to each other in time, as x = log(candidate / base). Two pairs make
a block, A B B A or B A A B: a drift of the machine adds to one pair and takes from the next. A coin says which of the
two it is, so that under equal arms each x is as likely positive as negative whatever the machine does by itself.

Looks: after some of the pairs the comparison may stop. Testing at every look with the level of one test would find
"differences" in equal arms far too often, so the levels are those of a group sequential design with the
alpha-spending function of Hwang, Shih and DeCani (1990) in the frame of Lan and DeMets (1983); the boundaries come from
the recursion of Armitage, McPherson and Rowe (1969). Interval at a look = all shifts that a signed-rank test does not
reject at the level of that look: Jennison and Turnbull's repeated confidence interval (1989), which keeps its coverage
whatever rule one stops by, "narrow enough" included.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from strata.errors import StrataError

ALPHA = 0.03  # total error of "there is a difference" for equal arms, all looks together
GAMMA = -1.0  # of the spending function: between even spending (0 to 1, Pocock's) and late spending (-4)
BOOTSTRAP = 2000  # resamples
MIN_PAIRS = 6  # with fewer a signed-rank test cannot reject at any level in use


def _scipy() -> Any:
    try:
        import scipy.stats
    except ImportError:
        raise StrataError("the statistics need scipy: pip install 'strata-moe[ab]'.") from None
    return scipy.stats


def spending(t: float, alpha: float = ALPHA, gamma: float = GAMMA) -> float:
    """Error spent when the share t of the pairs has been seen (Hwang-Shih-DeCani)."""
    t = min(max(t, 0.0), 1.0)
    if gamma == 0:
        return alpha * t
    return alpha * math.expm1(-gamma * t) / math.expm1(-gamma)


def obrien_fleming_spending(t: float, alpha: float) -> float:
    """Lan and DeMets' function that resembles O'Brien and Fleming's boundaries, two-sided: for tests and for choice."""
    norm = _scipy().norm
    return float(4 * (1 - norm.cdf(norm.ppf(1 - alpha / 4) / math.sqrt(t)))) if t > 0 else 0.0


@functools.lru_cache(maxsize=64)
def boundaries(times: tuple[float, ...], spent: tuple[float, ...]) -> tuple[float, ...]:
    """Two-sided boundaries |z| at information times t (rising, in (0, 1]) for the error spent up to each of them.

    The density of the score S(t) = z sqrt(t) among the paths that have not crossed yet is carried from look to look on
    a grid; each boundary is where the paths that cross it there have the probability the look may spend.
    """
    grid = np.linspace(-8.0, 8.0, 1601)
    density: NDArray[np.float64] | None = None  # of S at the last look, inside its boundary
    points = grid
    bounds = []
    before = 0.0
    for k, t in enumerate(times):
        level = max(spent[k] - (spent[k - 1] if k else 0.0), 1e-12)
        scores = grid * math.sqrt(t)
        step = math.sqrt(t - before)
        if density is None:
            now = _normal(scores, step)
        else:
            mass = density * (points[1] - points[0])
            now = mass @ _normal(scores[None, :] - points[:, None], step)
        # P(S > z sqrt(t)) by trapezoids, from outside in; the lower tail is equal by symmetry.
        width = scores[1] - scores[0]
        tail = (np.cumsum(now[::-1])[::-1] - now / 2) * width
        upper = len(grid) // 2
        z = float(np.exp(np.interp(math.log(2 / level), -np.log(tail[upper:] + 1e-300), np.log(grid[upper:] + 1e-12))))
        bounds.append(z)
        # The cell that the boundary cuts counts for the share of it that lies inside.
        inside = np.clip((z - np.abs(grid)) / (grid[1] - grid[0]) + 0.5, 0.0, 1.0)
        density, points, before = now * inside, scores, t
    return tuple(bounds)


def _normal(x: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    return np.asarray(np.exp(-0.5 * (x / scale) ** 2) / (scale * math.sqrt(2 * math.pi)))


@dataclasses.dataclass(frozen=True)
class Plan:
    """When a comparison looks, and how strict it is at each look."""

    looks: tuple[int, ...]  # numbers of pairs
    levels: tuple[float, ...]  # two-sided level of the test at each look

    @property
    def pairs(self) -> int:
        """The most pairs it runs."""
        return self.looks[-1]

    def level_at(self, pairs: int) -> float:
        """Level of a look at so many pairs: that of the latest planned look that this is not before."""
        best = self.levels[0]
        for n, level in zip(self.looks, self.levels, strict=True):
            if pairs >= n:
                best = level
        return best


def plan(pairs: int, looks: int = 5, alpha: float = ALPHA, gamma: float = GAMMA) -> Plan:
    """Looks spread evenly over the pairs, even numbers of pairs (A B B A) each; the last one at `pairs`."""
    if pairs < 1:
        raise StrataError(f"a comparison needs at least 1 pair, not {pairs}.")
    first = min(MIN_PAIRS, pairs)
    raw = [pairs * k / looks for k in range(1, looks + 1)]
    numbers = sorted({max(first, 2 * round(n / 2)) for n in raw[:-1] if n < pairs} | {pairs})
    numbers = [n for n in numbers if n <= pairs]
    times = tuple(n / pairs for n in numbers)
    z = boundaries(times, tuple(spending(t, alpha, gamma) for t in times))
    norm = _scipy().norm
    return Plan(tuple(numbers), tuple(float(2 * norm.sf(b)) for b in z))


def signed_rank_interval(x: ArrayLike, level: float) -> tuple[float, float, float]:
    """Hodges-Lehmann estimate of the centre of x and its confidence interval by the signed-rank test at this level.

    Estimate: median of the means of all pairs of values (Walsh averages). Bounds: the order statistics of these means
    up to which the test does not reject. Infinite when so few values cannot reject at this level.
    """
    values = np.asarray(x, float)
    n = len(values)
    i, j = np.triu_indices(n)
    walsh = np.sort((values[i] + values[j]) / 2)
    centre = float(np.median(walsh))
    # Largest c with P(W <= c) <= level / 2 under no difference: bounds are the (c+1)-th smallest and largest.
    c = _critical(n, level)
    if c < 0:
        return centre, -math.inf, math.inf
    return centre, float(walsh[c]), float(walsh[len(walsh) - 1 - c])


@functools.lru_cache(maxsize=512)
def _critical(n: int, level: float) -> int:
    """Largest c with P(W <= c) <= level / 2, W the signed-rank statistic of n values; -1 when there is none."""
    counts = np.zeros(n * (n + 1) // 2 + 1)
    counts[0] = 1.0
    for rank in range(1, n + 1):  # each rank is in the sum or not, with equal chance
        shifted = np.zeros_like(counts)
        shifted[rank:] = counts[: len(counts) - rank]
        counts = (counts + shifted) / 2
    return int(np.searchsorted(np.cumsum(counts), level / 2 * (1 + 1e-12), side="right")) - 1


@dataclasses.dataclass(frozen=True)
class Sample:
    """Runs of one arm, one metric. mad: median distance from the median, times 1.4826 (a normal's deviation)."""

    n: int
    median: float
    mad: float
    low: float
    high: float


def sample(values: ArrayLike) -> Sample:
    """Middle and spread of some values."""
    x = np.asarray(values, float)
    mad = float(_scipy().median_abs_deviation(x, scale="normal")) if len(x) else math.nan
    if not len(x):
        return Sample(0, math.nan, math.nan, math.nan, math.nan)
    return Sample(len(x), float(np.median(x)), mad, float(x.min()), float(x.max()))


@dataclasses.dataclass(frozen=True)
class Drift:
    """Whether the machine got slower or faster over the runs. change: of the whole span, relative to the median."""

    change: float
    low: float
    high: float
    tau: float  # Kendall's, of time against order
    p: float

    @property
    def shown(self) -> bool:
        """A trend that chance does not explain (1 %), and that is not tiny (1 %)."""
        return self.p < 0.01 and abs(self.change) > 0.01

    def text(self) -> str:
        """In words."""
        if not self.shown:
            return "no drift of the machine shown over the runs"
        way = "slower" if self.change > 0 else "faster"
        return f"the machine got {abs(self.change):.1%} {way} over the runs (Kendall p = {self.p:.2g})"


def drift(arm_values: Sequence[Sequence[float]], orders: Sequence[Sequence[float]]) -> Drift | None:
    """Trend over the order of the runs, each arm's values relative to its own median; None for fewer than 6 runs."""
    stats = _scipy()
    x: list[float] = []
    y: list[float] = []
    for values, order in zip(arm_values, orders, strict=True):
        if len(values):
            middle = float(np.median(values))
            y += [v / middle for v in values]
            x += list(order)
    if len(x) < 6 or len(set(x)) < 2:
        return None
    slope = stats.theilslopes(y, x, 0.95)
    tau = stats.kendalltau(x, y)
    span = max(x) - min(x)
    if not math.isfinite(float(tau.pvalue)):  # every value the same
        return Drift(0.0, 0.0, 0.0, 0.0, 1.0)
    return Drift(
        float(slope[0]) * span, float(slope[2]) * span, float(slope[3]) * span, float(tau.statistic), float(tau.pvalue)
    )


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the pairs say of candidate against base. Ratios: candidate / base of the metric.

    low, high: repeated confidence interval, what the verdict rests on. boot_low, boot_high: percentile bootstrap
    interval (95 %) of the median of the pair ratios, to look at beside it. kind: "different", "no difference shown",
    or "too few pairs".
    """

    kind: str
    pairs: int
    ratio: float
    low: float
    high: float
    level: float
    p_signed_rank: float
    boot_low: float
    boot_high: float
    sign_lower: int
    sign_higher: int
    p_sign: float
    stopped: str  # why no more pairs were run

    def to_json(self) -> dict[str, Any]:
        """A plain dict for JSON; an unbounded interval has null ends."""
        return {k: (None if isinstance(v, float) and not math.isfinite(v) else v) for k, v in vars(self).items()}


def verdict(log_ratios: ArrayLike, level: float, stopped: str = "", *, bootstrap: bool = True) -> Verdict:
    """The verdict of some pairs at a level (two-sided)."""
    stats = _scipy()
    x = np.asarray(log_ratios, float)
    n = len(x)
    if n == 0:
        nan = math.nan
        return Verdict("too few pairs", 0, nan, 0.0, math.inf, level, 1.0, nan, nan, 0, 0, 1.0, stopped)
    centre, low, high = signed_rank_interval(x, level)
    lower, higher = int(np.count_nonzero(x < 0)), int(np.count_nonzero(x > 0))
    p_sign = float(stats.binomtest(lower, lower + higher).pvalue) if lower + higher else 1.0
    p = float(stats.wilcoxon(x, method="exact" if n <= 50 else "approx").pvalue) if np.any(x) else 1.0
    boot = (math.nan, math.nan)
    if bootstrap and n >= 3:
        boot = _bootstrap(x)
    kind = "different" if low > 0 or high < 0 else "no difference shown"
    if not math.isfinite(low):
        kind = "too few pairs"
    return Verdict(
        kind,
        n,
        math.exp(centre),
        math.exp(low),
        math.exp(high),
        level,
        p,
        math.exp(boot[0]),
        math.exp(boot[1]),
        lower,
        higher,
        p_sign,
        stopped,
    )


def _bootstrap(x: NDArray[np.float64]) -> tuple[float, float]:
    if np.ptp(x) == 0:
        return float(x[0]), float(x[0])
    stats = _scipy()
    # The percentile method: BCa's jackknife is of no use for a median, whose leave-one-out values hardly vary.
    found = stats.bootstrap(
        (x,), np.median, confidence_level=0.95, n_resamples=BOOTSTRAP, method="percentile", rng=np.random.default_rng(1)
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def stop_reason(log_ratios: ArrayLike, design: Plan, tolerance: float) -> str:
    """Why a comparison may stop after these pairs, or "" when it should go on (or no look is due).

    Every rule reads the repeated confidence interval only, so that none of them costs error rate.
    """
    n = len(np.asarray(log_ratios))
    if n not in design.looks:
        return ""
    _, low, high = signed_rank_interval(log_ratios, design.level_at(n))
    if low > 0 or high < 0:
        return f"the interval excludes equality after {n} pairs"
    if low > math.log1p(-tolerance) and high < math.log1p(tolerance):
        return f"the interval is within {tolerance:.1%} of equality after {n} pairs"
    return f"all {n} pairs were run" if n >= design.pairs else ""


def in_words(v: Verdict, candidate: str, base: str, what: str, better: int) -> str:
    """The verdict as a sentence that claims no more than the pairs show."""
    if v.kind == "too few pairs":
        return f"{v.pairs} pairs are too few for a verdict on {what}."
    interval = f"{v.ratio - 1:+.1%}, interval {v.low - 1:+.1%} to {v.high - 1:+.1%}, {v.pairs} pairs"
    if v.kind == "no difference shown":
        return f"{candidate} against {base}: no difference shown in {what} ({interval})."
    if better == 0:
        return f"{candidate} has {'more' if v.ratio > 1 else 'less'} {what} than {base} ({interval})."
    way = "better" if (v.ratio > 1) == (better > 0) else "worse"
    return f"{candidate} is {way} than {base} in {what} ({interval})."
