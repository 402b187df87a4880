"""Calibration of strata-ab's statistics on timings of a real machine.

    python bench/ab_calibrate.py record OUT.json [--runs 300]    # runs the demo model again and again, one arm
    python bench/ab_calibrate.py simulate OUT.json [--comparisons 1000]

`record` measures as strata-ab does (fresh process, cold cache, priority) and keeps, for each run: its times, and what
other processes did meanwhile. Nothing is waited for and nothing left out: noise, drift and outliers as they come.

`simulate` makes comparisons out of the recording. A comparison reads stretches of neighbouring runs, each from a random
place, so that noise, drift and outliers stay as they came, and 500 comparisons are not all the same one. Neighbouring
runs become the arms in blocks A B B A or B A A B, by a coin; rounds with a contaminated run are made
again from the next runs, as strata-ab does; then the looks, levels and rules for stopping of strata-ab decide. Once
with both arms as recorded, once with the candidate made slower by 5 %.

    python bench/ab_calibrate.py real OUT.json [--runs 3]

`real` runs strata-ab itself: the same arm twice, and an arm whose prefill is made 5 % slower by a wrapper around the
Python that runs it; each so many times.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from strata import demo_path
from strata.ab import coldcache, runner, stats
from strata.ab.arms import parse_arm, prepare

STRETCH = 32  # neighbouring runs of the recording that stay together


def record(out: Path, runs: int, tokens: int, pause: float, cache: coldcache.Choice) -> None:
    """Runs the demo model `runs` times and writes what was measured."""
    options = runner.Options(
        model=demo_path(), tokens=tokens, knobs={"arena_slots": str(runner.DEMO_SLOTS)}, cache=cache, cooldown=0
    )
    arm = parse_arm("patched")
    comparer = runner._Comparer([arm, dataclasses.replace(arm, name="again")], options, lambda text, done, total: None)
    comparer.interpreters = {arm.name: prepare(arm)}
    rows: list[list[Any]] = []
    begin = time.monotonic()
    for i in range(runs):
        run = comparer._measure(comparer.arms[0], i)
        rows.append(
            [
                round(time.monotonic() - begin, 1),
                round(run.metrics["prefill_ms"], 2),
                round(run.metrics["cpu_s"], 4),
                None if run.foreign_share is None else round(run.foreign_share, 3),
                None if run.waited_share is None else round(run.waited_share, 3),
                int(bool(run.contaminated)),
            ]
        )
        if sys.stderr.isatty() or i % 20 == 19:
            print(f"{i + 1}/{runs}: {rows[-1]}", file=sys.stderr)
        data = {
            "what": "prefill of the demo model, one arm, one fresh process a run",
            "columns": ["at_s", "prefill_ms", "cpu_s", "foreign_share", "waited_share", "contaminated"],
            "machine": runner.machine(),
            "tokens": tokens,
            "cache": coldcache.describe(comparer.way),
            "date": time.strftime("%Y-%m-%d"),
            "runs": rows,
        }
        out.write_text(json.dumps(data).replace("], [", "],\n[") + "\n")
        time.sleep(pause)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Shares over simulated comparisons."""

    comparisons: int
    shown: float  # "different"
    right_way: float  # "different", and candidate slower
    pairs: float  # mean number of pairs until the end
    contaminated: float  # mean number of rounds that were made again

    def __str__(self) -> str:
        return (
            f"{self.comparisons} comparisons: a difference shown in {self.shown:.1%} (candidate slower "
            f"{self.right_way:.1%}), no difference shown in {1 - self.shown:.1%}; {self.pairs:.1f} pairs on average, "
            f"{self.contaminated:.1f} rounds made again"
        )


def simulate(
    times: NDArray[np.float64],
    dirty: NDArray[np.bool_],
    slowdown: float,
    comparisons: int,
    design: stats.Plan,
    tolerance: float,
    rng: np.random.Generator,
    stretch: int = STRETCH,
) -> Outcome:
    """Comparisons out of stretches of a recording."""
    n = len(times) // 2 * 2
    shown = right = pairs = again = 0
    for _ in range(comparisons):
        x: list[float] = []
        reason, redone, left, at, swap = "", 0, 0, 0, False
        while not reason:
            if left == 0:
                at, left = int(rng.integers(0, n - stretch)), stretch // 2
            first, second = at, at + 1
            at, left = at + 2, left - 1
            if (dirty[first] or dirty[second]) and redone < runner.RERUNS * design.pairs:
                redone += 1
                continue
            if len(x) % 2 == 0:
                swap = bool(rng.integers(2))  # of a block A B B A or B A A B
            a, b = (first, second) if (len(x) % 2 == 0) != swap else (second, first)
            x.append(math.log(times[b] * (1 + slowdown) / times[a]))
            reason = stats.stop_reason(x, design, tolerance)
        _, low, high = stats.signed_rank_interval(x, design.level_at(len(x)))
        shown += low > 0 or high < 0
        right += low > 0
        pairs += len(x)
        again += redone
    return Outcome(comparisons, shown / comparisons, right / comparisons, pairs / comparisons, again / comparisons)


SLOW = """
import time
import strata.api
fast = strata.api.Session.prefill
def prefill(self, *arguments, **options):
    start = time.perf_counter()
    result = fast(self, *arguments, **options)
    until = start + (1 + {slowdown}) * (time.perf_counter() - start)
    while time.perf_counter() < until:
        pass
    return result
strata.api.Session.prefill = prefill
"""


def real(out: Path, runs: int, slowdown: float, options: dict[str, Any]) -> None:
    """strata-ab on equal arms, and on an arm that is really slower; one line each, all reports in a file."""
    import strata

    package = str(Path(strata.__file__).parents[1])
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("fast", ""), ("slow", SLOW.format(slowdown=slowdown))):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "sitecustomize.py").write_text(text)
            wrapper = Path(folder) / f"python-{name}"
            wrapper.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}/{name}:{package}" exec "{sys.executable}" "$@"\n')
            wrapper.chmod(0o755)
        for kind in ("fast", "slow"):
            for _ in range(runs):
                arms = ("fast", kind)
                result = runner.compare(
                    *(f"{a}{i}:python={folder}/python-{a}" for i, a in enumerate(arms)), cache="model", **options
                )
                v = result.verdict(result.arms[1].name)
                print(
                    f"{kind}: {result.sentence(result.arms[1].name)} [{result.seconds:.0f} s, {result.stopped}]",
                    flush=True,
                )
                found.append(
                    {"kind": kind, "verdict": v.to_json(), "seconds": round(result.seconds), "notes": result.notes}
                )
                out.write_text(json.dumps(found, indent=1) + "\n")


def load(path: Path, metric: str = "prefill_ms") -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """(times, contaminated) of a recording."""
    data = json.loads(path.read_text())
    column = data["columns"].index(metric)
    return (
        np.array([r[column] for r in data["runs"]], float),
        np.array([r[data["columns"].index("contaminated")] for r in data["runs"]], bool),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sub = parser.add_subparsers(dest="do", required=True)
    rec = sub.add_parser("record")
    rec.add_argument("out", type=Path)
    rec.add_argument("--runs", type=int, default=300)
    rec.add_argument("--tokens", type=int, default=runner.TOKENS)
    rec.add_argument("--pause", type=float, default=0.1)
    rec.add_argument("--cache", choices=["auto", "drop", "model", "keep"], default="model")
    sim = sub.add_parser("simulate")
    sim.add_argument("recordings", type=Path, nargs="+")
    sim.add_argument("--comparisons", type=int, default=1000)
    sim.add_argument("--pairs", type=int, default=runner.PAIRS)
    sim.add_argument("--metric", default="prefill_ms", choices=["prefill_ms", "cpu_s"])
    sim.add_argument("--tolerance", type=float, default=runner.TOLERANCE)
    sim.add_argument("--slowdown", type=float, nargs="*", default=[0.0, 0.05])
    act = sub.add_parser("real")
    act.add_argument("out", type=Path)
    act.add_argument("--runs", type=int, default=3)
    act.add_argument("--slowdown", type=float, default=0.05)
    act.add_argument("--max-minutes", type=float, default=math.inf)
    act.add_argument("--max-wait", type=float, default=60.0)
    act.add_argument("--metric", default="prefill_ms", choices=["prefill_ms", "cpu_s"])
    args = parser.parse_args()
    if args.do == "real":
        real(args.out, args.runs, args.slowdown, {k: getattr(args, k) for k in ("max_minutes", "max_wait", "metric")})
        return
    if args.do == "record":
        record(args.out, args.runs, args.tokens, args.pause, args.cache)
        return
    design = stats.plan(args.pairs)
    print(f"looks {design.looks}, levels {tuple(round(v, 5) for v in design.levels)}")
    for path in args.recordings:
        times, dirty = load(path, args.metric)
        ratios = np.log(times[1::2] / times[: len(times) // 2 * 2 : 2])
        print(
            f"{path.name}: {len(times)} runs, median {np.median(times):.4g}, spread of one pair "
            f"{np.median(np.abs(ratios - np.median(ratios))) * 1.4826:.1%} (MAD) {np.std(ratios):.1%} (deviation), "
            f"{dirty.mean():.0%} contaminated"
        )
        for slowdown in args.slowdown:
            rng = np.random.default_rng(20)
            outcome = simulate(times, dirty, slowdown, args.comparisons, design, args.tolerance, rng)
            print(f"  candidate {slowdown:+.1%}: {outcome}")


if __name__ == "__main__":
    main()
