"""A memory cgroup to run a process in: its limit, what it came to hold, how fast it may read. Linux, root, v1 or v2."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")


def device_of(file: Path | str) -> str:
    """Numbers of the drive of a file, as control groups name it."""
    device = os.stat(file).st_dev
    return f"{os.major(device)}:{os.minor(device)}"


def throttle_reads(blkio: Path, file: Path | str, rate: int) -> None:
    """Bytes a second that the processes of a version 1 blkio group may read from the drive of a file; 0: no limit."""
    (blkio / "blkio.throttle.read_bps_device").write_text(f"{device_of(file)} {rate}")


class NoCgroup(Exception):
    """This machine or user cannot have one; the message says why."""


class MemoryCgroup:
    """A new cgroup below the root of the hierarchy, removed at the end of the `with` block.

    While a process runs in it, `anonymous` and `file` follow the largest amounts seen of memory of its own and of page
    cache (which the kernel takes back when the limit is near), bytes. read_rate: bytes a second
    that it may read from the drive of the file reads_of, which must be a whole disk; 0 for no limit.
    """

    def __init__(self, limit: int, reads_of: Path | None = None, read_rate: int = 0) -> None:
        self.limit = limit
        self.anonymous = self.file = 0
        self.v2 = (ROOT / "cgroup.controllers").exists()
        parent = ROOT if self.v2 else ROOT / "memory"
        if not parent.is_dir():
            raise NoCgroup(f"no memory cgroups at {parent}")
        for controller in ["memory", *(["io"] if read_rate else [])] if self.v2 else []:
            if controller not in (parent / "cgroup.subtree_control").read_text().split():
                raise NoCgroup(f"the {controller} controller is off in {parent}/cgroup.subtree_control")
        self.path = parent / f"strata-bench-{os.getpid()}"
        self.blkio = ROOT / "blkio" / self.path.name if reads_of and read_rate and not self.v2 else None
        try:
            self.path.mkdir()
            if reads_of and read_rate:
                if self.blkio:
                    self.blkio.mkdir()
                    throttle_reads(self.blkio, reads_of, read_rate)
                else:
                    (self.path / "io.max").write_text(f"{device_of(reads_of)} rbps={read_rate}")
            self._write("memory.max" if self.v2 else "memory.limit_in_bytes", limit)
            # No way out into swap, where there is any.
            with contextlib.suppress(OSError):
                self._write(*(("memory.swap.max", 0) if self.v2 else ("memory.memsw.limit_in_bytes", limit)))
        except OSError as e:
            for folder in self._folders():
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise NoCgroup(f"{e.filename or self.path}: {e.strerror}") from None

    def _folders(self) -> list[Path]:
        return [self.path, *([self.blkio] if self.blkio else [])]

    def __enter__(self) -> MemoryCgroup:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in self._folders():
            for _attempt in range(50):  # the kernel needs a moment after the last process's end
                try:
                    folder.rmdir()
                    break
                except OSError:
                    time.sleep(0.1)

    def run(self, command: Sequence[str], **arguments: object) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end inside, from its first page on."""
        enter = [str(len(self._folders())), *(str(folder / "cgroup.procs") for folder in self._folders()), *command]
        script = 'n=$0; while [ $n != 0 ]; do echo $$ > "$1" || exit 1; shift; n=$((n - 1)); done; exec "$@"'
        stop = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(stop,))
        watcher.start()
        try:
            return subprocess.run(
                ["sh", "-c", script, *enter], capture_output=True, text=True, check=False, **arguments
            )  # type: ignore[call-overload]
        finally:
            stop.set()
            watcher.join()

    @property
    def peak(self) -> int:
        """Largest amount charged, page cache and all; 0 where the kernel does not keep it."""
        try:
            return int((self.path / ("memory.peak" if self.v2 else "memory.max_usage_in_bytes")).read_text())
        except OSError:
            return 0

    @property
    def kills(self) -> int:
        """Processes that were killed for want of memory."""
        counts = self._numbers("memory.events" if self.v2 else "memory.oom_control")
        return counts.get("oom_kill", 0)

    def _watch(self, stop: threading.Event) -> None:
        while not stop.wait(0.01):
            now = self._numbers("memory.stat")
            self.anonymous = max(self.anonymous, now.get("anon" if self.v2 else "total_rss", 0))
            self.file = max(self.file, now.get("file" if self.v2 else "total_cache", 0))

    def _numbers(self, name: str) -> dict[str, int]:
        with contextlib.suppress(OSError):
            lines = (line.split() for line in (self.path / name).read_text().splitlines())
            return {key: int(value) for key, value in lines}
        return {}

    def _write(self, name: str, value: int) -> None:
        (self.path / name).write_text(str(value))
