"""Gates: is the machine fit to measure on? Read before each pair; some also between the begin and the end of a run.

Everything is read below a root folder, so that a test can build a machine with a hot sensor or a battery. What could
not be read is said as such and never taken for good.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import glob
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

from strata.errors import StrataError

State = Literal["ok", "wait", "refuse", "unknown"]

HOT_CELSIUS = 85.0  # where a zone names no passive trip point
TRIP_MARGIN = 5.0  # degrees below the passive trip point at which the kernel begins to throttle


@dataclasses.dataclass(frozen=True)
class Reading:
    """What a gate found. wait: may pass by itself. refuse: will not. unknown: could not be checked."""

    gate: str
    state: State
    text: str

    def to_json(self) -> dict[str, str]:
        """A plain dict for JSON."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Limits:
    """How strict the gates are."""

    busy_cores: float = 0.5  # of all other processes together, before a run
    foreign_share: float = 0.15  # of processor time taken by others while a run was measured
    memory_margin: int = 256 << 20  # bytes that must stay free beside what the run needs
    swap_pages: int = 64  # swapped in or out in the look before a run, or during it


@dataclasses.dataclass(frozen=True)
class System:
    """The machine, as its files below root tell. own_pids: processes that are part of the measurement."""

    root: Path = Path("/")
    limits: Limits = Limits()
    platform: str = sys.platform

    def path(self, name: str) -> Path:
        """A path below the root."""
        return self.root / name.lstrip("/")

    def read(self, name: str) -> str | None:
        """The text of a file, None when it cannot be read."""
        try:
            return self.path(name).read_text(errors="replace")
        except OSError:
            return None

    def number(self, name: str) -> float | None:
        """The number in a file, None when there is none."""
        text = self.read(name)
        try:
            return None if text is None else float(text.split()[0])
        except (ValueError, IndexError):
            return None

    def glob(self, pattern: str) -> list[str]:
        """Paths below the root that match, as absolute names."""
        prefix = str(self.root).rstrip("/")
        return sorted(p[len(prefix) :] for p in glob.glob(prefix + pattern))

    @property
    def is_real(self) -> bool:
        """Whether this is the machine itself and not a folder made for a test."""
        return self.root == Path("/")


def battery(system: System) -> Reading:
    """A machine on battery power runs slower and unevenly."""
    name = "battery"
    if system.platform == "darwin" and system.is_real:
        text = _command(["pmset", "-g", "batt"])
        if text is None:
            return Reading(name, "unknown", "pmset gave nothing")
        on = "Battery Power" in text
        return Reading(name, "refuse" if on else "ok", "on battery power" if on else "on mains power")
    folder = "/sys/class/power_supply"
    if not system.path(folder).is_dir():
        return Reading(name, "unknown", f"there is no {folder}")
    batteries = [p for p in system.glob(f"{folder}/*") if (system.read(f"{p}/type") or "").strip() == "Battery"]
    if not batteries:
        return Reading(name, "ok", "no battery")
    for p in batteries:
        if (system.read(f"{p}/status") or "").strip() == "Discharging":
            charge = system.number(f"{p}/capacity")
            return Reading(name, "refuse", f"on battery power{'' if charge is None else f' ({charge:.0f} %)'}")
    return Reading(name, "ok", "on mains power")


def thermal(system: System) -> Reading:
    """A zone near the point at which it throttles: wait for it to cool."""
    name = "thermal"
    if system.platform == "darwin" and system.is_real:
        text = _command(["pmset", "-g", "therm"])
        found = re.search(r"CPU_Speed_Limit\s*=\s*(\d+)", text or "")
        if found:
            speed = int(found[1])
            return Reading(name, "ok" if speed >= 100 else "wait", f"processor speed limit {speed} %")
        if text and "No thermal warning" in text:
            return Reading(name, "ok", "no thermal warning level has been recorded")
        return Reading(name, "unknown", "pmset gives no thermal state")
    hottest: tuple[float, str, float] | None = None
    for zone in system.glob("/sys/class/thermal/thermal_zone*"):
        celsius = system.number(f"{zone}/temp")
        if celsius is None or not -40 < celsius / 1000 < 150:  # some zones give nonsense where there is no sensor
            continue
        limit = HOT_CELSIUS
        for trip in system.glob(f"{zone}/trip_point_*_type"):
            at = system.number(trip.replace("_type", "_temp"))
            if (system.read(trip) or "").strip() == "passive" and at is not None and at > 0:
                limit = min(limit, at / 1000 - TRIP_MARGIN)
        kind = (system.read(f"{zone}/type") or Path(zone).name).strip()
        if hottest is None or celsius / 1000 - limit > hottest[0] - hottest[2]:
            hottest = celsius / 1000, kind, limit
    if hottest is None:
        return Reading(name, "unknown", "no thermal zone can be read")
    degrees, kind, limit = hottest
    text = f"{kind} at {degrees:.0f} degrees, limit {limit:.0f}"
    return Reading(name, "wait" if degrees > limit else "ok", text)


def frequency(system: System) -> Reading:
    """A processor held below its full clock: by a limit (wait), or by the powersave governor (refuse)."""
    name = "frequency"
    policies = system.glob("/sys/devices/system/cpu/cpufreq/policy*") or system.glob(
        "/sys/devices/system/cpu/cpu[0-9]*/cpufreq"
    )
    seen = 0
    for p in policies:
        top, allowed = system.number(f"{p}/cpuinfo_max_freq"), system.number(f"{p}/scaling_max_freq")
        governor = (system.read(f"{p}/scaling_governor") or "").strip()
        driver = (system.read(f"{p}/scaling_driver") or "").strip()
        if top and allowed:
            seen += 1
            if allowed < 0.98 * top:
                text = f"{Path(p).name} may run at {allowed / 1e6:.2f} of {top / 1e6:.2f} GHz"
                return Reading(name, "wait", text)
        # intel_pstate and amd-pstate call their normal, load-driven mode powersave too.
        if governor == "powersave" and "pstate" not in driver:
            return Reading(name, "refuse", f"{Path(p).name} has the powersave governor")
    return Reading(name, "ok", f"{seen} policies at full range") if seen else Reading(name, "unknown", "no cpufreq")


def memory(system: System, need: int) -> Reading:
    """Room for what the run needs and a margin: of the machine, and of each control group limit on this process."""
    name = "memory"
    room: list[tuple[int, str]] = []
    text = system.read("/proc/meminfo") if system.platform != "darwin" or not system.is_real else None
    found = re.search(r"^MemAvailable:\s*(\d+) kB", text or "", re.MULTILINE)
    if found:
        room.append((int(found[1]) * 1024, "the machine"))
    elif system.is_real:
        with contextlib.suppress(ImportError):
            import psutil

            room.append((int(psutil.virtual_memory().available), "the machine"))
    room += _cgroup_room(system)
    if not room:
        return Reading(name, "unknown", "no figure for available memory")
    free, where = min(room)
    want = need + system.limits.memory_margin
    text = f"{free / 1e6:.0f} MB available in {where}, {want / 1e6:.0f} wanted"
    return Reading(name, "ok" if free >= want else "wait", text)


def _cgroup_room(system: System) -> list[tuple[int, str]]:
    """Bytes left below the limit of each memory control group that holds this process (version 1 or 2).

    File pages that are not in active use count as room: they go before anything is refused.
    """
    room = []
    for line in (system.read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base, limit, usage, cached = "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            base, limit, usage = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cached = "total_inactive_file"
        else:
            continue
        part = Path(path)
        for folder in (part, *part.parents):
            where = f"{base}{str(folder).rstrip('/')}"
            top, used = system.number(f"{where}/{limit}"), system.number(f"{where}/{usage}")
            if top is None or used is None or top >= 1 << 60:
                continue
            found = re.search(rf"^{cached} (\d+)", system.read(f"{where}/memory.stat") or "", re.MULTILINE)
            room.append((int(top - used + (int(found[1]) if found else 0)), f"the control group {folder}"))
    return room


def swap(system: System, before: dict[str, int], after: dict[str, int]) -> Reading:
    """Pages swapped between two looks at /proc/vmstat."""
    if "pswpin" not in before or "pswpin" not in after:
        return Reading("swap", "unknown", "no swap counters")
    pages = sum(after[k] - before[k] for k in ("pswpin", "pswpout"))
    text = f"{pages} pages swapped" if pages else "no swapping"
    return Reading("swap", "wait" if pages > system.limits.swap_pages else "ok", text)


def throttles(system: System) -> int | None:
    """How often the processor has throttled since boot; None where it does not say."""
    counts = [
        system.number(p) for p in system.glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/core_throttle_count")
    ]
    known = [int(c) for c in counts if c is not None]
    return sum(known) if known else None


def vmstat(system: System) -> dict[str, int]:
    """The swap counters of /proc/vmstat."""
    found = re.findall(r"^(pswpin|pswpout) (\d+)$", system.read("/proc/vmstat") or "", re.MULTILINE)
    return {name: int(value) for name, value in found}


def processor_time(system: System) -> tuple[float, float] | None:
    """(seconds that the processors were busy or stolen, seconds that passed on all of them) since boot."""
    line = (system.read("/proc/stat") or "").partition("\n")[0].split()
    if line[:1] != ["cpu"] or len(line) < 9:
        return None
    user, nice, kernel, idle, iowait, irq, softirq, steal = (int(v) for v in line[1:9])
    tick = os.sysconf("SC_CLK_TCK")
    busy = user + nice + kernel + irq + softirq + steal
    return busy / tick, (busy + idle + iowait) / tick


def busy(system: System, seconds: float = 0.5, own: frozenset[int] = frozenset()) -> Reading:
    """Other processes that compute, over a short while; the heaviest is named."""
    import psutil

    name = "busy"
    mine = own | {os.getpid()}
    before = {}
    for p in psutil.process_iter(["pid", "name", "cpu_times"]):
        times = p.info["cpu_times"]
        if times is not None and p.pid not in mine:
            before[p.pid, p.create_time()] = times.user + times.system
    start, total = time.monotonic(), processor_time(system)
    time.sleep(seconds)
    passed, later = time.monotonic() - start, processor_time(system)
    heavy: list[tuple[float, int, str]] = []
    for p in psutil.process_iter(["pid", "name", "cpu_times"]):
        times = p.info["cpu_times"]
        if times is None or p.pid in mine:
            continue
        cores = (times.user + times.system - before.get((p.pid, p.create_time()), 0.0)) / passed
        heavy.append((cores, p.pid, p.info["name"] or "?"))
    cores = sum(c for c, _, _ in heavy)
    if total and later and system.is_real:
        # Short-lived processes come and go between two scans; the machine's own count has them.
        cores = max(cores, (later[0] - total[0]) / passed - _own_share(passed))
    if cores <= system.limits.busy_cores:
        return Reading(name, "ok", f"other processes use {cores:.2f} cores")
    top = max(heavy, default=(0.0, 0, "?"))
    who = f", most of it process {top[1]} ({top[2]})" if top[0] > 0.1 else ", by processes that come and go"
    return Reading(name, "wait", f"other processes use {cores:.2f} cores{who}")


def _own_share(passed: float) -> float:
    """Cores that the scan itself takes: about one core for a few hundredths of a second."""
    return min(0.25, 0.05 / passed)


@contextlib.contextmanager
def lock(path: Path | None = None, wait: float = 0.0, say: Callable[[str], object] | None = None) -> Iterator[None]:
    """Holds the lock that makes comparisons on one machine take turns. Raises StrataError when `wait` seconds pass."""
    path = path or Path(tempfile.gettempdir()) / "strata-ab.lock"
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        until, told = time.monotonic() + wait, False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                holder = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
                if time.monotonic() >= until:
                    raise StrataError(
                        f"another strata-ab runs on this machine (process {holder}, lock {path}); "
                        "two at once would measure each other."
                    ) from None
                if say is not None and not told:
                    say(f"waiting for another strata-ab (process {holder})")
                    told = True
                time.sleep(min(1.0, max(0.05, until - time.monotonic())))
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(handle)  # gives the lock back; the file stays, since removing it would race with another's open


def check(system: System, need: int, own: frozenset[int] = frozenset(), seconds: float = 0.5) -> list[Reading]:
    """Every gate once. Takes `seconds`."""
    before = vmstat(system)
    first = busy(system, seconds, own)
    return [
        first,
        memory(system, need),
        swap(system, before, vmstat(system)),
        battery(system),
        thermal(system),
        frequency(system),
    ]


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """State at the begin of a run, to tell at its end what came between."""

    swap: dict[str, int]
    throttles: int | None

    @classmethod
    def take(cls, system: System) -> Snapshot:
        """Now."""
        return cls(vmstat(system), throttles(system))


@dataclasses.dataclass(frozen=True)
class Contention:
    """What other programs took while a run was measured, as shares; None where the system does not tell.

    foreign: of the processors' time, used by others. stolen: used by other virtual machines. waited: of the time the
    run's threads were ready to compute, spent waiting for a processor.
    """

    foreign: float | None = None
    stolen: float | None = None
    waited: float | None = None


def contention(window: dict[str, Any]) -> Contention:
    """From the counters that a run read before and after it (ab/child.py)."""
    before, after = window.get("before", {}), window.get("after", {})
    foreign = stolen = waited = None
    if "stat" in before and "stat" in after:
        tick = os.sysconf("SC_CLK_TCK")
        delta = [(b - a) / tick for a, b in zip(before["stat"], after["stat"], strict=True)]
        total, idle, steal = sum(delta), delta[3] + delta[4], delta[7]
        if total > 0:
            foreign = max(0.0, (total - idle - steal - window["cpu"]) / total)
            stolen = steal / total
    if "sched" in before and "sched" in after:
        ran, queued = (b - a for a, b in zip(before["sched"], after["sched"], strict=True))
        waited = queued / (ran + queued) if ran + queued > 0 else None
    return Contention(foreign, stolen, waited)


def contamination(system: System, before: Snapshot, after: Snapshot, others: Contention) -> list[str]:
    """Why a run between two snapshots should not count.

    Others must both have computed and have kept the run waiting: a program on a processor that the run had no use for
    does no harm, and threads of the run that wait for each other are part of what is measured.
    """
    limit = system.limits.foreign_share
    reasons = []
    if others.foreign is not None and others.foreign > limit and (others.waited is None or others.waited > limit):
        waited = "" if others.waited is None else f" and kept the run waiting {others.waited:.0%} of its time"
        reasons.append(f"other processes took {others.foreign:.0%} of the processors{waited}")
    if others.stolen is not None and others.stolen > limit:
        reasons.append(f"other virtual machines took {others.stolen:.0%} of the processors")
    swapped = swap(system, before.swap, after.swap)
    if swapped.state == "wait":
        reasons.append(swapped.text)
    if before.throttles is not None and after.throttles is not None and after.throttles > before.throttles:
        reasons.append(f"the processor throttled {after.throttles - before.throttles} times")
    hot = thermal(system)
    if hot.state == "wait":
        reasons.append(hot.text)
    return reasons


def _command(arguments: list[str]) -> str | None:
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
