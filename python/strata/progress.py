"""How far a prefill is: the record handed to callbacks, and the reporter that shows it on stderr."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as _Bar

from strata.inspect import size_text

FIRST_LINE_SECONDS = 2.0  # until the first line when stderr is no terminal
LINE_SECONDS = 10.0  # between lines then: a sign of life, not a flood
BAR_WIDTH = 28  # of bar and percentage, on a terminal


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

    @property
    def gb_per_second(self) -> float:
        """Read from the drive so far, in 1e9 bytes a second."""
        return self.bytes_read / 1e9 / self.seconds if self.seconds > 0 else 0.0

    @property
    def tokens_per_second(self) -> float:
        """So far; of a sweep at hand its share that is done."""
        return self.tokens * self.fraction / self.seconds if self.seconds > 0 else 0.0

    def parts(self, drive_gb_s: float | None = None) -> list[str]:
        """What there is to say, the most wanted first. drive_gb_s: the drive's probed speed, when it is known."""
        left = self.seconds_left
        share = f" ({self.gb_per_second / drive_gb_s:.0%} of the drive)" if drive_gb_s else ""
        chunk = f" chunk {self.chunk}/{self.n_chunk}" if self.n_chunk > 1 else ""
        done = round(self.tokens * self.fraction)
        return [
            f"layer {min(self.layer + 1, self.n_layer)}/{self.n_layer}{chunk}",
            *([] if left is None else [f"{_time(left)} left"]),
            f"{self.tokens_per_second:.1f} tok/s",
            f"{size_text(self.bytes_read)} read, {self.gb_per_second:.2f} GB/s{share}",
            f"{done} of {self.tokens} tokens",
            self.experts(),
        ]

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
    """Shows progress on stderr: a bar on a terminal, else a line now and then, and a last line on every way out.

    A context manager and a callback. `last` is the newest Progress, None before the first.
    """

    def __init__(self, console: Console | None = None, drive_gb_s: float | None = None) -> None:
        # A notebook is no terminal here, and gets lines: output that is redrawn looks different in each of them.
        self._console = console or Console(stderr=True, highlight=False, force_jupyter=False)
        self._drive = drive_gb_s
        self._bar: _Bar | None = None
        self._next_line = time.monotonic() + min(FIRST_LINE_SECONDS, LINE_SECONDS)
        self._over = False
        self.last: Progress | None = None

    def __enter__(self) -> Reporter:
        if self._console.is_terminal:
            columns = BarColumn(BAR_WIDTH - 8), TaskProgressColumn(), TextColumn("{task.description}", markup=False)
            self._bar = _Bar(*columns, console=self._console, transient=True)
            self._bar.add_task("", total=1.0)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(error)

    def stop(self, error: BaseException | None = None) -> None:
        """Takes the bar away and prints the last line; again does nothing."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if not self._over:
            self._over = True
            self._print(self.last_line(error))

    def last_line(self, error: BaseException | None = None) -> str:
        """How it ended, and what was done."""
        p = self.last
        if error is None:
            if p is None:
                return "prefill done"
            return (
                f"prefill done: {p.tokens} tokens in {p.seconds:.2f} s, {p.tokens_per_second:.1f} tok/s, "
                f"{size_text(p.bytes_read)} read"
            )
        how = "interrupted" if isinstance(error, KeyboardInterrupt) else f"stopped by {type(error).__name__}"
        if p is None:
            return f"{how} before the first layer was done."
        return (
            f"{how} in layer {min(p.layer + 1, p.n_layer)} of {p.n_layer}, {p.tokens_done} of {p.tokens} tokens done, "
            f"{size_text(p.bytes_read)} read in {p.seconds:.1f} s."
        )

    def __call__(self, p: Progress) -> None:
        self.last = p
        if self._bar is not None:
            parts = p.parts(self._drive)
            while len(parts) > 1 and len(" · ".join(parts)) > self._console.width - BAR_WIDTH:
                parts.pop()
            self._bar.update(self._bar.task_ids[0], completed=p.fraction, description=" · ".join(parts))
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            self._print(f"prefill {100 * p.fraction:.0f} %: {', '.join(p.parts(self._drive))}")

    def _print(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, markup=False)


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
