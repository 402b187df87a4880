"""How far a prefill is: the record handed to callbacks, and the reporter that shows it on stderr."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as _Bar

LINE_SECONDS = 10.0  # between lines when stderr is no terminal: a sign of life, not a flood


@dataclasses.dataclass(frozen=True)
class Progress:
    """State of a running prefill.

    layer: layers that this sweep has done, of n_layer. chunk: of the n_chunk chunks of this sweep, those that went
    through the next layer's mixer. tokens_done: tokens of the finished sweeps, of tokens. sweep_tokens: of this sweep.
    bytes_read (from the drive) and seconds: since the start. resident, ahead, missed: experts found in memory, read
    ahead, and read when they were asked for; wasted: read and not used; exposed_seconds: the computation waited.
    fraction: of the work, 0 to 1, never falling.
    """

    layer: int
    n_layer: int
    chunk: int
    n_chunk: int
    tokens_done: int
    tokens: int
    sweep_tokens: int
    bytes_read: int
    seconds: float
    resident: int
    ahead: int
    missed: int
    wasted: int
    exposed_seconds: float
    fraction: float

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the pace so far; None before anything is done."""
        return self.seconds * (1 - self.fraction) / self.fraction if self.fraction > 0 else None

    def experts(self) -> str:
        """The stream's counters in one phrase."""
        return (
            f"experts {self.resident} resident, {self.ahead} ahead, {self.missed} missed, {self.wasted} wasted, "
            f"{self.exposed_seconds:.1f} s waited"
        )


CORE_FIELDS = [f.name for f in dataclasses.fields(Progress) if f.name != "fraction"]
ProgressCallback = Callable[[Progress], object]


def from_core(callback: ProgressCallback) -> Callable[[dict[str, Any]], None]:
    """The core's progress callback, which gets a dict, for a callback that takes a Progress."""

    def report(state: dict[str, Any]) -> None:
        # A layer: all chunks of the sweep through the mixer, counted as half of it, then all rows through the experts.
        passed = (state["layer"] + 0.5 * state["chunk"] / state["n_chunk"]) / state["n_layer"]
        fraction = min(1.0, (state["tokens_done"] + state["sweep_tokens"] * passed) / state["tokens"])
        callback(Progress(**{name: state[name] for name in CORE_FIELDS}, fraction=fraction))

    return report


class Reporter:
    """Shows progress on stderr: a bar on a terminal, else a line every ten seconds. A context manager and a callback.

    `last` is the newest Progress, None before the first.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._bar: _Bar | None = None
        self._next_line = time.monotonic() + LINE_SECONDS
        self.last: Progress | None = None

    def __enter__(self) -> Reporter:
        if self._console.is_terminal:
            columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn()
            self._bar = _Bar(*columns, console=self._console, transient=True)
            self._bar.add_task("prefill", total=1.0)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Takes the bar away; again does nothing."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def __call__(self, p: Progress) -> None:
        self.last = p
        if self._bar is not None:
            text = f"layer {p.layer}/{p.n_layer} · {p.bytes_read / 1e9:.2f} GB read · {p.experts()}"
            self._bar.update(self._bar.task_ids[0], completed=p.fraction, description=text)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            left = p.seconds_left
            rest = "" if left is None else f", about {left:.0f} s left"
            self._console.print(
                f"prefill {100 * p.fraction:.0f} %: {p.tokens_done} of {p.tokens} tokens done, layer {p.layer} of "
                f"{p.n_layer}, {p.bytes_read / 1e9:.2f} GB read in {p.seconds:.0f} s, {p.experts()}{rest}",
                soft_wrap=True,
            )
