"""The statistics on recorded timings, noisy and quiet: tests/data/ab_timings*.json, by bench/ab_calibrate.py."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from strata.ab import runner, stats

pytest.importorskip("scipy")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("ab_calibrate", ROOT / "bench" / "ab_calibrate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["ab_calibrate"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["ab_calibrate"]


@pytest.mark.long
@pytest.mark.parametrize(("recording", "seed"), [("ab_timings", 1), ("ab_timings", 2), ("ab_timings_quiet", 1)])
def test_error_rates_on_recorded_timings(bench, recording, seed):
    """500 comparisons each: equal arms "no difference shown" in >= 95 %, a slowdown of 5 % found in >= 90 %."""
    times, dirty = bench.load(ROOT / "tests" / "data" / f"{recording}.json")
    design = stats.plan(runner.PAIRS)
    same, slower = (
        bench.simulate(times, dirty, slowdown, 500, design, runner.TOLERANCE, np.random.default_rng(seed))
        for slowdown in (0.0, 0.05)
    )
    assert same.shown <= 0.05, str(same)
    assert slower.right_way >= 0.90, str(slower)


def test_error_rates_on_drawn_noise(bench):
    """Independent of any recording: normal noise of 5 % a run, with a drift of 30 % over the whole."""
    rng = np.random.default_rng(9)
    times = 100 * np.exp(rng.normal(0, 0.05, 4000) + np.linspace(0, 0.3, 4000))
    clean = np.zeros(4000, bool)
    design = stats.plan(runner.PAIRS)
    same = bench.simulate(times, clean, 0.0, 300, design, runner.TOLERANCE, rng)
    slower = bench.simulate(times, clean, 0.05, 300, design, runner.TOLERANCE, rng)
    assert same.shown <= 0.05 and slower.right_way >= 0.95
