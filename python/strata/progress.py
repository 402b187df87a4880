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

    layer: layers that this sweep has done, of n_layer. chunk: the chunk at hand, from 0, of the n_chunk chunks of this
    sweep. tokens_done: tokens of the finished sweeps, of tokens. bytes_read (from the drive) and seconds: since the
    start. resident, missed: experts found in memory, and waited for. fraction: of the work, 0 to 1, never falling.
    """

    layer: int
    n_layer: int
    chunk: int
    n_chunk: int
    tokens_done: int
    tokens: int
    bytes_read: int
    seconds: float
    resident: int
    missed: int
    fraction: float

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the pace so far; None before anything is done."""
        return self.seconds * (1 - self.fraction) / self.fraction if self.fraction > 0 else None


CORE_FIELDS = [f.name for f in dataclasses.fields(Progress) if f.name != "fraction"]
ProgressCallback = Callable[[Progress], object]


def from_core(callback: ProgressCallback, prompt_chunk: int) -> Callable[[dict[str, Any]], None]:
    """The core's progress callback, which gets a dict, for a callback that takes a Progress."""
    began = 0  # tokens of the sweeps before the one at hand
    fraction = 0.0

    def report(state: dict[str, Any]) -> None:
        nonlocal began, fraction
        tokens, done, chunks = state["tokens"], state["tokens_done"], max(state["n_chunk"], 1)
        if done > began:  # a sweep is over; its last report still counts all its layers
            began, work = done, float(done)
        else:
            # All chunks of a sweep go through a layer before the next one begins.
            passed = (state["layer"] + state["chunk"] / chunks) / max(state["n_layer"], 1)
            work = done + min(tokens - done, chunks * prompt_chunk) * min(passed, 1.0)
        fraction = max(fraction, min(1.0, work / max(tokens, 1)))
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
            text = f"layer {p.layer}/{p.n_layer} · {p.bytes_read / 1e9:.2f} GB read"
            self._bar.update(self._bar.task_ids[0], completed=p.fraction, description=text)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_SECONDS
            left = p.seconds_left
            rest = "" if left is None else f", about {left:.0f} s left"
            self._console.print(
                f"prefill {100 * p.fraction:.0f} %: {p.tokens_done} of {p.tokens} tokens done, layer {p.layer} of "
                f"{p.n_layer}, {p.bytes_read / 1e9:.2f} GB read in {p.seconds:.0f} s{rest}",
                soft_wrap=True,
            )
