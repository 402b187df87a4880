"""The result of a comparison: raw runs, and what is worked out from them. The JSON form is report.schema.json."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from strata.ab import stats
from strata.ab.metrics import METRICS
from strata.errors import InputError

SCHEMA = 1
"""Version of the JSON form. A change that a reader of the old form would trip over raises it."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of one arm. order: place among all runs, in time. counted: part of the statistics."""

    arm: str
    round: int
    order: int
    started: float  # seconds since the comparison began
    seconds: float  # the whole process
    metrics: dict[str, float]
    logits: str  # SHA-256 of the logits' bits
    foreign_share: float | None  # of the processors, taken by others meanwhile
    waited_share: float | None  # of the time the run's threads could have computed, waiting for a processor
    contaminated: list[str]
    counted: bool = True


@dataclasses.dataclass(frozen=True)
class ArmInfo:
    """An arm and what was in force in its runs."""

    name: str
    knobs: dict[str, str]
    build: str
    source: str
    version: str
    effective: dict[str, Any]
    config: dict[str, Any]  # knob -> [value, where it came from]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What `strata.ab.compare` gives. The first arm is the base of all ratios."""

    created: str
    machine: dict[str, Any]
    model: dict[str, Any]
    prompt: dict[str, Any]
    cache: str
    metric: str
    tolerance: float
    alpha: float
    looks: list[int]
    levels: list[float]
    final_level: float
    stopped: str
    seconds: float
    gates: list[dict[str, str]]
    arms: list[ArmInfo]
    runs: list[Run]
    dumps: dict[str, Any]  # arm -> DumpComparison.to_json() against the base
    notes: list[str]
    schema: int = SCHEMA

    @property
    def base(self) -> str:
        """Name of the first arm."""
        return self.arms[0].name

    def values(self, arm: str, metric: str) -> list[float]:
        """A metric of an arm's counted runs, in order; runs that lack it are left out."""
        return [r.metrics[metric] for r in self.counted(arm) if metric in r.metrics]

    def counted(self, arm: str) -> list[Run]:
        """An arm's counted runs, by round."""
        return sorted((r for r in self.runs if r.arm == arm and r.counted), key=lambda r: r.round)

    def pairs(self, arm: str, metric: str) -> list[tuple[float, float]]:
        """(base, arm) of every round that has both, both above zero."""
        base = {r.round: r.metrics.get(metric, 0.0) for r in self.counted(self.base)}
        found = [(base.get(r.round, 0.0), r.metrics.get(metric, 0.0)) for r in self.counted(arm)]
        return [(a, b) for a, b in found if a > 0 and b > 0]

    def log_ratios(self, arm: str, metric: str | None = None) -> list[float]:
        """log(arm / base) per pair."""
        return [math.log(b / a) for a, b in self.pairs(arm, metric or self.metric)]

    def verdict(self, arm: str, metric: str | None = None) -> stats.Verdict:
        """What the pairs say of an arm against the base."""
        return stats.verdict(self.log_ratios(arm, metric), self.final_level, self.stopped)

    def sentence(self, arm: str) -> str:
        """The verdict on the chosen metric, in words."""
        return stats.in_words(self.verdict(arm), arm, self.base, self.metric, METRICS[self.metric].better)

    def drift(self) -> stats.Drift | None:
        """Trend of the machine over the runs, by the chosen metric."""
        values, orders = [], []
        for arm in self.arms:
            runs = [r for r in self.counted(arm.name) if self.metric in r.metrics]
            values.append([r.metrics[self.metric] for r in runs])
            orders.append([float(r.order) for r in runs])
        return stats.drift(values, orders)

    def logits_equal(self, arm: str) -> bool | None:
        """Whether the last logits of all runs of base and arm are the same bits; None without runs of both."""
        sets = [{r.logits for r in self.runs if r.arm == name} for name in (self.base, arm)]
        return len(sets[0] | sets[1]) == 1 if all(sets) else None

    def shown_metrics(self) -> list[str]:
        """Metrics that some counted run has, the chosen one first."""
        have = {name for r in self.runs if r.counted for name in r.metrics}
        return [self.metric, *(name for name in METRICS if name in have and name != self.metric)]

    def device_share(self) -> float | None:
        """Bytes from the device in relation to the expert bytes asked for, lowest of the arms: below 0.9 is warm.

        Of bytes that were asked for twice only the first read can be expected to be cold: a file counts once.
        """
        shares = []
        for arm in self.arms:
            device, read = self.values(arm.name, "device_bytes"), self.values(arm.name, "bytes_read")
            if device and read and stats.sample(read).median > 0:
                expected = min(stats.sample(read).median, self.model["bytes"])
                shares.append(stats.sample(device).median / expected)
        return min(shares) if shares else None

    def worked_out(self) -> dict[str, Any]:
        """Everything derived from the runs, as plain data."""
        out: dict[str, Any] = {"definitions": {}, "samples": {}, "verdicts": {}, "sentences": {}, "logits_equal": {}}
        for metric in self.shown_metrics():
            out["definitions"][metric] = METRICS[metric].definition
        for arm in self.arms:
            out["samples"][arm.name] = {
                metric: _finite(dataclasses.asdict(stats.sample(self.values(arm.name, metric))))
                for metric in self.shown_metrics()
            }
        for arm in self.arms[1:]:
            out["verdicts"][arm.name] = {
                metric: self.verdict(arm.name, metric).to_json() for metric in self.shown_metrics()
            }
            out["sentences"][arm.name] = self.sentence(arm.name)
            out["logits_equal"][arm.name] = self.logits_equal(arm.name)
        drift = self.drift()
        out["drift"] = None if drift is None else {**_finite(dataclasses.asdict(drift)), "text": drift.text()}
        return out

    def to_json(self) -> dict[str, Any]:
        """Raw runs and derived values, as report.schema.json says."""
        data = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data["arms"] = [dataclasses.asdict(a) for a in self.arms]
        data["runs"] = [_finite(dataclasses.asdict(r)) for r in self.runs]
        return {"schema": self.schema, **data, "worked_out": self.worked_out()}

    @classmethod
    def from_json(cls, data: dict[str, Any], name: str = "report") -> Comparison:
        """From the raw part of the JSON form: derived values are worked out anew. Raises InputError."""
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, dict) else None
            raise InputError(f"{name}: no report of schema {SCHEMA} (found {found!r}).")
        try:
            fields = {f.name: data[f.name] for f in dataclasses.fields(cls)}
            fields["arms"] = [ArmInfo(**a) for a in data["arms"]]
            fields["runs"] = [Run(**r) for r in data["runs"]]
        except (KeyError, TypeError) as e:
            raise InputError(f"{name}: a damaged report: {e}.") from None
        return cls(**fields)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the JSON form."""
        Path(path).write_text(json.dumps(self.to_json(), indent=1, default=_plain) + "\n", "utf-8")


def load(path: str | os.PathLike[str]) -> Comparison:
    """Reads a saved comparison. Raises InputError."""
    try:
        data = json.loads(Path(path).read_text("utf-8"))
    except ValueError as e:
        raise InputError(f"{os.fspath(path)}: not JSON: {e}.") from None
    return Comparison.from_json(data, os.fspath(path))


def _finite(data: dict[str, Any]) -> dict[str, Any]:
    """JSON has neither NaN nor infinity: null stands for a value there is not."""
    return {k: (None if isinstance(v, float) and not math.isfinite(v) else v) for k, v in data.items()}


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Sequence):
        return list(value)
    return str(value)
