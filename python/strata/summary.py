"""What a prefill cost and where the time went, from its counters."""

from __future__ import annotations

import dataclasses
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from strata import _core
from strata.inspect import size_text

SHORT = 0.5  # seconds: no setting matters then
SMALL_WAIT = 0.1  # of the time: below it the drive did not hold up the computation
BUSY = 0.6  # of the readers' time, or of the drive's probed speed: above it the drive had enough to do
MANY_MISSED = 0.2  # of the lookups

Bound = Literal["compute", "drive", "waiting"]


@dataclasses.dataclass(frozen=True)
class Summary:
    """Sizes in bytes, times in seconds.

    computing + waiting = seconds. waiting: the computation stood still until experts or n-gram rows were read. bound:
    "compute" (it hardly waited), "drive" (it waited, and the drive had enough to do), "waiting" (it waited, and the
    drive did not). drive_share: of the drive's probed speed, None when that is not known. hint: the one change that
    would help most, "" when no setting would.
    """

    tokens: int
    seconds: float
    computing: float
    waiting: float
    bytes_read: int
    drive_share: float | None
    bound: Bound
    hint: str
    plan_bytes: int
    peak_bytes: int
    experts: dict[
        str, int
    ]  # lookups = resident + ahead + missed; wasted and cancelled were read or ordered for nothing

    def text(self) -> str:
        """For people, a few lines."""
        e = self.experts
        share = 100 / e["lookups"] if e["lookups"] else 0.0
        speed = self.bytes_read / 1e9 / self.seconds if self.seconds > 0 else 0.0
        drive = "" if self.drive_share is None else f", {self.drive_share:.0%} of the drive's"
        lines = [
            f"memory   {size_text(self.plan_bytes)} planned, {size_text(self.peak_bytes)} at the peak",
            f"experts  {e['resident'] * share:.0f} % in memory, {e['ahead'] * share:.0f} % read ahead, "
            f"{e['missed'] * share:.0f} % missed, of {e['lookups']}; {e['wasted']} wasted, {e['cancelled']} cancelled",
            f"drive    {size_text(self.bytes_read)} read, {speed:.2f} GB/s{drive}",
            f"time     {self.seconds:.2f} s: {self.computing:.2f} computing, {self.waiting:.2f} waiting for the drive; "
            + {"compute": "compute-bound", "drive": "drive-bound", "waiting": "bound by waiting"}[self.bound],
        ]
        return "\n".join([*lines, f"hint     {self.hint}"] if self.hint else lines)

    def to_json(self) -> dict[str, Any]:
        """A plain dict."""
        return dataclasses.asdict(self)


def summarize(
    stats: Mapping[str, Any],
    effective: Mapping[str, Any],
    plan: Sequence[tuple[str, int]],
    *,
    drive_gb_s: float | None = None,
    cores: int | None = None,
    isas: Sequence[str] | None = None,
    experts_of_layer: int = 0,
) -> Summary:
    """stats, effective, plan: of a prefill and its model. drive_gb_s: the drive's probed speed, in 1e9 bytes a second.

    cores, isas: what the machine has, None = this one. experts_of_layer: routed ones, of the model.
    """
    seconds = float(stats["seconds"])
    waiting = min(seconds, float(stats["exposed_seconds"]) + float(stats["table_wait_seconds"]))
    moved = int(stats["bytes_read"]) + int(stats["table_bytes"])
    share = moved / 1e9 / seconds / drive_gb_s if drive_gb_s and seconds > 0 else None
    readers = float(stats["read_seconds"]) / (seconds * effective["io_threads"]) if seconds > 0 else 0.0
    bound: Bound = "drive" if (readers if share is None else share) >= BUSY else "waiting"
    if waiting <= SMALL_WAIT * seconds:
        bound = "compute"
    return Summary(
        tokens=int(stats["tokens"]),
        seconds=seconds,
        computing=seconds - waiting,
        waiting=waiting,
        bytes_read=moved,
        drive_share=share,
        bound=bound,
        hint=_hint(
            bound,
            stats,
            effective,
            cores or _core.allowed_cpus(),
            _core.cpu_isas() if isas is None else isas,
            experts_of_layer,
            probed=drive_gb_s is not None,
        ),
        plan_bytes=sum(count for _, count in plan),
        peak_bytes=peak_bytes(),
        experts={name: int(stats[name]) for name in ("lookups", "resident", "ahead", "missed", "wasted", "cancelled")},
    )


def _hint(
    bound: Bound,
    stats: Mapping[str, Any],
    effective: Mapping[str, Any],
    cores: int,
    isas: Sequence[str],
    experts_of_layer: int,
    probed: bool,
) -> str:
    """The first rule that fits; they stand in the order of what they usually gain."""
    if stats["stream_fake"]:
        return "stream_fake is on: the results mean nothing"
    if stats["seconds"] < SHORT:
        return ""
    if bound == "compute":
        if effective["backend"] == "reference":
            return "backend=cpu is many times faster"
        if effective["isa"] != isas[-1]:
            return f"isa=auto would use {isas[-1]} instead of {effective['isa']}"
        if effective["threads"] < cores:
            return f"threads={cores} would use every core; now {effective['threads']}"
        return ""
    if effective["prompt_pred"] == -1:
        return "prompt_pred=1 would read experts ahead; now none are"
    if not effective["ple_async"] and stats["table_wait_seconds"] > stats["exposed_seconds"]:
        return "ple_async=on would read the n-gram rows beside the first layers"
    if stats["sweeps"] > 1:
        return (
            f"prompt_sweep={stats['tokens']} would read each expert once, not once in each of {stats['sweeps']} "
            "sweeps, when memory has room for it (strata plan)"
        )
    if bound == "waiting" and not probed:
        return f"strata ssd FILE finds how many readers the drive wants (io_threads, now {effective['io_threads']})"
    if effective["arena_slots"] < 2 * experts_of_layer and stats["missed"] > MANY_MISSED * stats["lookups"]:
        return (
            f"a larger arena_gb, now {effective['arena_gb']:.3g}: reads run ahead when two layers' experts fit, "
            f"{2 * experts_of_layer} and not {effective['arena_slots']}"
        )
    return ""


def decode_hint(stats: Mapping[str, Any], effective: Mapping[str, Any], experts_of_token: int) -> str:
    """As Summary.hint, for the steps of a generation. experts_of_token: in all layers together."""
    if effective["arena_slots"] < experts_of_token and stats["resident"] < stats["lookups"] / 2:
        return (
            f"a larger arena_gb, now {effective['arena_gb']:.3g}: it holds {effective['arena_slots']} experts, and one "
            f"token uses {experts_of_token}"
        )
    return ""


def peak_bytes() -> int:
    """The most memory this process has had so far."""
    try:
        # ru_maxrss on Linux counts what the process was before exec, too.
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
