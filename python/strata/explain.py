"""Where the wall of a run went, by layer, from a trace that was written with the `trace` setting."""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from strata.errors import InputError

COMPUTE = 0  # the thread that computes; the others are readers


@dataclass
class Layer:
    """Seconds and bytes of one layer over the whole trace.

    mixer, experts: of the two passes, waits included. wait: of them waiting for experts. rows_wait: for n-gram rows.
    busy: the drive was at work (at least one read) while this layer ran. reads, bytes: of this layer's
    experts, whenever they were read.
    """

    mixer: float = 0.0
    experts: float = 0.0
    wait: float = 0.0
    rows_wait: float = 0.0
    busy: float = 0.0
    reads: int = 0
    bytes: int = 0


@dataclass
class Explanation:
    """What a trace says. Seconds; `wall`: the compute thread was in a segment (or waited in one)."""

    layers: dict[int, Layer] = field(default_factory=dict)
    wall: float = 0.0
    embed: float = 0.0
    head: float = 0.0
    busy: float = 0.0
    reads: int = 0
    bytes: int = 0
    whole: bool = False

    @property
    def wait(self) -> float:
        """Seconds of waiting for experts and n-gram rows."""
        return sum(x.wait + x.rows_wait for x in self.layers.values())

    @property
    def compute(self) -> float:
        """Seconds of work in segments."""
        return self.embed + self.head + sum(x.mixer + x.experts for x in self.layers.values()) - self.wait_in_segments

    @property
    def wait_in_segments(self) -> float:
        """Seconds of waiting for experts, which happens inside a segment."""
        return sum(x.wait for x in self.layers.values())

    @property
    def drive_share(self) -> float:
        """Share of the wall with at least one read under way."""
        return self.busy / self.wall if self.wall else 0.0

    def verdict(self) -> str:
        """One sentence: what bound the run."""
        if not self.wall:
            return "the trace holds no work."
        if self.wait > 0.1 * self.wall and self.drive_share > 0.9:
            return "bound by the drive: it was busy nearly all the time, and the computation waited for it."
        if self.wait > 0.1 * self.wall:
            return "waiting: the computation waited for experts while the drive was not always busy."
        return "bound by the computation: reads were hidden behind it."

    def hint(self) -> str:
        """One sentence: what would help most."""
        if not self.wall:
            return "run a prompt with the trace on."
        rows = sum(x.rows_wait for x in self.layers.values())
        if rows > 0.5 * self.wait and rows > 0.05 * self.wall:
            return "the wait is for n-gram rows: a longer sweep, or ple_async if it is off."
        if self.wait <= 0.1 * self.wall:
            return "more or faster processor cores; the drive and the arena are not what limits it."
        if self.drive_share > 0.9:
            return "read less: a longer prompt_sweep, or a larger arena (arena_gb); or a faster drive."
        return (
            "reads that start earlier: prompt_pred = 1, as many io_threads as strata ssd finds, an arena of two "
            "layers' experts or more."
        )

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        totals = {
            "wall_s": self.wall,
            "compute_s": self.compute,
            "wait_s": self.wait,
            "drive_busy_s": self.busy,
            "reads": self.reads,
            "bytes": self.bytes,
            "whole": self.whole,
            "verdict": self.verdict(),
            "hint": self.hint(),
        }
        return totals | {"layers": [{"layer": n} | vars(x) for n, x in sorted(self.layers.items())]}


def load(path: Path) -> list[dict[str, Any]]:
    """The events of a trace; one of a run that was cut short ends at its last line. Raises InputError, OSError."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if not text.startswith("["):
        raise InputError(f"{path} is no trace: it does not start with [.")
    events = []
    lines = text[1:].split("\n")
    for number, line in enumerate(lines, 1):
        body = line.strip().rstrip(",").removesuffix("]").strip()
        if not body:
            continue
        try:
            event = json.loads(body)
            if not isinstance(event, dict) or not isinstance(event.get("name"), str):
                raise ValueError
            if event.get("ph") == "X":
                args = event["args"]
                numbers = [event["ts"], event["dur"], event["tid"], *(args.get(k, 0) for k in ("layer", "bytes"))]
                if not all(isinstance(v, (int, float)) and math.isfinite(v) for v in numbers):
                    raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            if number == len(lines):  # the run ended in the middle of it
                break
            raise InputError(f"{path}, line {number}: this is no event of a trace.") from None
        events.append(event)
    return events


def explain(events: Iterable[dict[str, Any]]) -> Explanation:
    """Sums a trace up."""
    found = Explanation()
    spans: list[tuple[float, float, int | None]] = []  # of the compute thread, with the layer
    reads: list[tuple[float, float]] = []
    for e in events:
        if e["name"] == "end":
            found.whole = True
        if e.get("ph") != "X":
            continue
        start, seconds, name = float(e["ts"]) / 1e6, float(e["dur"]) / 1e6, e["name"]
        layer = e["args"].get("layer")
        of_layer = found.layers.setdefault(int(layer), Layer()) if layer is not None else None
        if name == "read":
            reads.append((start, start + seconds))
            found.reads += 1
            found.bytes += int(e["args"].get("bytes", 0))
            if of_layer:
                of_layer.reads += 1
                of_layer.bytes += int(e["args"].get("bytes", 0))
            continue
        if name == "wait" and of_layer:
            of_layer.wait += seconds
        elif name == "n-gram rows" and of_layer:
            of_layer.rows_wait += seconds
        elif name in ("mixer", "experts") and of_layer:
            setattr(of_layer, name, getattr(of_layer, name) + seconds)
        elif name in ("embed", "head"):
            setattr(found, name, getattr(found, name) + seconds)
        if name != "wait" and int(e["tid"]) == COMPUTE:
            spans.append((start, start + seconds, None if layer is None else int(layer)))
    found.wall = sum(end - start for start, end in _union([(a, b) for a, b, _ in spans]))
    union = _union(reads)
    found.busy = sum(_overlap(union, a, b) for a, b in _union([(a, b) for a, b, _ in spans]))
    for start, end, n in spans:
        if n is not None:
            found.layers[n].busy += _overlap(union, start, end)
    return found


def _union(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    out: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def _overlap(union: list[tuple[float, float]], start: float, end: float) -> float:
    total = 0.0
    i = max(0, bisect.bisect_right(union, (start,)) - 1)
    while i < len(union) and union[i][0] < end:
        total += max(0.0, min(end, union[i][1]) - max(start, union[i][0]))
        i += 1
    return total
