"""How fast a drive gives experts: random reads past the page cache, from several threads.

The result of a usual probe is kept for the volume in the user's cache folder; `cached(path)` gives it back, as the
floor that no prefill from that drive can be faster than.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import json
import mmap
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Union

import numpy as np

from strata import cache
from strata.errors import InputError, StrataError

PathLike = Union[str, "os.PathLike[str]"]

EXPERT_BYTES = 1_408_000  # of the published model: gate and up in IQ2_XS, down in Q2_0
THREADS = (1, 2, 4, 8, 16, 32)
SECONDS = 8.0
ROUNDS = 4  # through the thread counts, there and back: a drive has better and worse moments
BLOCK = 4096
SCRATCH_BYTES = 1 << 30  # of the temporary file of a folder, or what can be written in SCRATCH_SECONDS
SCRATCH_SECONDS = 2.0
F_NOCACHE = 48  # macOS; Python has no name for it
LEAST_READERS = 4
FULL_SPEED = 0.97  # of the best
MOST_KEPT = 1 << 16  # bytes of a kept result
VERSION = 2  # 2: thread counts in turns


@dataclass(frozen=True)
class Rate:
    """What so many threads read. seconds: wall clock. p50, p90, p99, max: latency of a read in ms."""

    threads: int
    reads: int
    bytes: int
    seconds: float
    p50: float
    p90: float
    p99: float
    max: float

    @property
    def gb_per_second(self) -> float:
        return self.bytes / 1e9 / self.seconds


@dataclass(frozen=True)
class Probe:
    """A probe of one file.

    size: bytes of a read, whole blocks of 4096. bypassed: False when the system would not read past its page cache, so
    that the figures are not the drive's. repeated: the file was read more than once over, and a cache in the drive may
    have made that faster.
    """

    path: str
    file_bytes: int
    size: int
    bypassed: bool
    repeated: bool
    rates: tuple[Rate, ...]

    @property
    def best(self) -> Rate:
        """The thread count that read most per second."""
        return max(self.rates, key=lambda r: r.gb_per_second)


def read_size(path: PathLike) -> int:
    """Bytes to read at a time: an expert of the model file `path` (its largest one), else EXPERT_BYTES.

    Raises ModelFormatError for a damaged model file.
    """
    from strata import inspect

    path = Path(path)
    if not path.is_file():
        return EXPERT_BYTES
    with path.open("rb") as file:
        if file.read(4) != b"GGUF":
            return EXPERT_BYTES
    return max(inspect.inspect(path).expert_bytes)


def probe(
    path: PathLike,
    *,
    size: int = EXPERT_BYTES,
    threads: Sequence[int] = THREADS,
    seconds: float = SECONDS,
    progress: Callable[[Rate], object] | None = None,
) -> Probe:
    """Reads whole blocks of `size` bytes (rounded up to 4096) at random places of a file, with each number of threads.

    seconds: of all of it, in rounds through the thread counts. progress is called when one is done. The file is only
    read, and should be larger than what its drive caches. Raises InputError when the file is smaller than one read or
    is no file, StrataError for more threads than the system gives, OSError when it cannot be read.
    """
    if size < 1 or seconds <= 0 or not threads or min(threads) < 1:
        raise InputError("a probe needs a size, seconds and thread counts above 0.")
    size = -(-size // BLOCK) * BLOCK
    if not Path(path).is_file() and Path(path).exists():  # opening a pipe would wait for whoever writes into it
        raise InputError(f"{os.fspath(path)} is no file.")
    fd, bypassed = open_direct(path)
    try:
        file_bytes = os.fstat(fd).st_size
        places = file_bytes // size
        if places < 1:
            raise InputError(f"{os.fspath(path)} has {file_bytes} bytes, less than one read of {size}.")
        # A walk through all places in random order, again and again, that goes on from one thread count to the next. It
        # is drawn before anything is timed.
        walk = itertools.cycle(np.random.default_rng(0).permutation(places))
        took, times = [0.0] * len(threads), [list[float]() for _ in threads]
        rates: list[Rate] = []
        for turn in range(ROUNDS):
            for i in range(len(threads)) if turn % 2 else reversed(range(len(threads))):
                spent, latencies = _measure(fd, size, threads[i], seconds / len(threads) / ROUNDS, walk)
                took[i] += spent
                times[i] += latencies
                if turn == ROUNDS - 1:
                    rates.append(_rate(threads[i], size, took[i], times[i]))
                    if progress is not None:
                        progress(rates[-1])
        return Probe(os.fspath(path), file_bytes, size, bypassed, sum(r.reads for r in rates) > places, tuple(rates))
    finally:
        os.close(fd)


@contextlib.contextmanager
def scratch(folder: PathLike, size: int = SCRATCH_BYTES, seconds: float = SCRATCH_SECONDS) -> Iterator[Path]:
    """A temporary file of random bytes in a folder, to probe its volume with; removed at the end.

    It gets `size` bytes, or as many as can be written in `seconds` (16 MB at least). Raises OSError, for example when
    the volume is full.
    """
    piece = np.random.default_rng(0).bytes(16 << 20)
    fd, name = tempfile.mkstemp(prefix="strata-ssd-", suffix=".tmp", dir=folder)
    try:
        with open(fd, "wb", buffering=0) as file:
            start = time.perf_counter()
            for i in range(max(1, size // len(piece))):
                if i and time.perf_counter() - start >= seconds:
                    break
                file.write(piece)
                os.fsync(fd)  # so that the time is the drive's, and no dirty page is left when reading begins
        yield Path(name)
    finally:
        os.unlink(name)


def open_direct(path: PathLike) -> tuple[int, bool]:
    """A descriptor that reads past the page cache, and whether it does."""
    direct = getattr(os, "O_DIRECT", 0)
    if direct:
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | direct)
            try:
                with mmap.mmap(-1, BLOCK) as page:  # some file systems take the flag and refuse the read
                    os.preadv(fd, [page], 0)
                return fd, True
            except OSError:
                os.close(fd)
    fd = os.open(path, os.O_RDONLY)
    if not direct:
        with contextlib.suppress(OSError):
            fcntl.fcntl(fd, F_NOCACHE, 1)
            return fd, True
    return fd, False


def _rate(threads: int, size: int, seconds: float, latencies: list[float]) -> Rate:
    p50, p90, p99, most = (1e3 * float(v) for v in np.percentile(latencies, [50, 90, 99, 100]))
    return Rate(threads, len(latencies), len(latencies) * size, seconds, p50, p90, p99, most)


def _measure(fd: int, size: int, threads: int, seconds: float, walk: Iterator[Any]) -> tuple[float, list[float]]:
    """Reads for so long; gives the seconds it took, and those of each read.

    preadv lets go of the interpreter's lock, so the threads do read side by side.
    """
    lock = threading.Lock()
    stop = threading.Event()
    latencies: list[float] = []
    failures: list[OSError] = []
    clock = time.perf_counter

    def work() -> None:
        mine: list[float] = []
        try:
            with mmap.mmap(-1, size) as buffer:
                target = [buffer]
                while not stop.is_set():
                    with lock:
                        place = int(next(walk))
                    began = clock()
                    got = os.preadv(fd, target, place * size)
                    mine.append(clock() - began)
                    if got != size:
                        raise OSError(f"a read at {place * size} gave {got} of {size} bytes")
                    if clock() >= end:
                        break
        except OSError as e:
            failures.append(e)
            stop.set()
        with lock:
            latencies.extend(mine)

    workers = [threading.Thread(target=work, daemon=True) for _ in range(threads)]
    start = clock()
    end = start + seconds
    try:
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    except RuntimeError as e:
        raise StrataError(f"the system gives no {threads} threads to read with ({e}).") from None
    finally:
        stop.set()  # Ctrl-C: nobody begins another read
        for w in workers:
            if w.ident is not None:
                w.join()
    took = clock() - start
    if failures:
        raise failures[0]
    return took, latencies


# ------------------------------------------------------------------------------------------------- kept results


def folder() -> Path:
    """Where results are kept: a file for each volume."""
    return cache.folder() / "ssd"


def _volume(path: PathLike) -> tuple[str, dict[str, int]]:
    """File name of a volume's result, and what the volume must still look like for it to count."""
    stat, fs = os.stat(path), os.statvfs(path)
    return f"{stat.st_dev:x}.json", {"device": stat.st_dev, "fsid": fs.f_fsid, "bytes": fs.f_blocks * fs.f_frsize}


def save(result: Probe) -> Path:
    """Keeps a result for the volume of its file. Raises StrataError when it is not the drive's speed, or OSError."""
    if not result.bypassed:
        raise StrataError("a probe through the page cache says nothing about the drive and is not kept.")
    name, volume = _volume(result.path)
    best = result.best
    content = {
        "version": VERSION,
        "volume": volume,
        "gb_per_second": best.gb_per_second,
        "threads": best.threads,
        "size": result.size,
        "time": time.time(),
        "rates": [asdict(r) for r in result.rates],
    }
    target = folder() / name
    cache.replace(target, lambda out: out.write(json.dumps(content, indent=1).encode()))
    return target


def _kept(path: PathLike) -> tuple[float, list[tuple[int, float]]] | None:
    """GB/s, and (threads, bytes a second) of all thread counts, that `save` kept for the volume of `path`.

    None when there is nothing, or nothing that can be believed.
    """
    try:
        name, volume = _volume(path)
        with cache.open_file(folder() / name) as file:
            content: Any = json.loads(file.read(MOST_KEPT))
        speed = float(content["gb_per_second"])
        rates = [(int(r["threads"]), float(r["bytes"]) / float(r["seconds"])) for r in content["rates"]]
        believed = content["version"] == VERSION and content["volume"] == volume and 0 < speed < 1e6
        believed = believed and all(0 < threads <= max(THREADS) and 0 < rate < 1e15 for threads, rate in rates)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError, ZeroDivisionError, MemoryError):
        return None
    return (speed, rates) if believed and rates else None


def cached(path: PathLike) -> float | None:
    """GB/s (1e9 bytes) that the last usual probe found on the volume of `path`.

    None when there was none, when the volume has changed since, or when the file that keeps it is damaged.
    """
    kept = _kept(path)
    return kept[0] if kept else None


def readers(path: PathLike) -> int | None:
    """Threads that get the drive's full speed: the fewest that came within 3 % of the best in the last usual probe.

    None as for `cached`. At least LEAST_READERS: an expert that is waited for should not stand behind one that is not.
    """
    kept = _kept(path)
    if kept is None:
        return None
    best = max(rate for _, rate in kept[1])
    return max(LEAST_READERS, min(threads for threads, rate in kept[1] if rate >= FULL_SPEED * best))
