"""Writes GGUF files larger than memory: the header, then each tensor piece by piece, at the drive's speed.

The format is that of docs/file-format.md, section 1. Reading is the core's.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata import _core
from strata.errors import DiskSpaceError, InputError

ALIGNMENT = 32  # of a tensor's offset, the format's default
BLOCK = 4096  # what direct writes keep to: address, offset and length
BUFFER = 8 << 20  # bytes of a write
BUFFERS = 8  # one is filled while the others wait for the drive

Bytes = NDArray[np.uint8]
Metadata = Sequence[tuple[str, str, Any]]
"""(key, kind, value); kind: a name of KINDS, "str", or either after "arr:" for a list."""

# Kind -> (number in the file, struct code)
KINDS = {
    "u8": (0, "B"),
    "i8": (1, "b"),
    "u16": (2, "H"),
    "i16": (3, "h"),
    "u32": (4, "I"),
    "i32": (5, "i"),
    "f32": (6, "f"),
    "bool": (7, "?"),
    "str": (8, ""),
    "u64": (10, "Q"),
    "i64": (11, "q"),
    "f64": (12, "d"),
}
_ARRAY = 9


@cache
def types() -> dict[str, tuple[int, int, int]]:
    """Tensor types: name -> (number in the file, values per block, bytes per block)."""
    return {name: (number, values, size) for name, number, values, size in _core.quant_types()}


@dataclass(frozen=True)
class Tensor:
    """A tensor to write. ne in file order: ne[0] is contiguous."""

    name: str
    ne: tuple[int, ...]
    type: str

    @property
    def row_bytes(self) -> int:
        _, values, size = types()[self.type]
        if self.ne[0] % values:
            raise InputError(f"{self.name}: a row of {self.ne[0]} values is not whole {self.type} blocks ({values}).")
        return self.ne[0] // values * size

    @property
    def bytes(self) -> int:
        count = self.row_bytes
        for n in self.ne[1:]:
            count *= n
        return count


def header(metadata: Metadata, tensors: Sequence[Tensor]) -> bytes:
    """Everything before the data, without the padding up to where the first tensor starts."""
    out = bytearray(struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata)))
    for key, kind, value in metadata:
        out += _string(key)
        if kind.startswith("arr:"):
            element = kind[4:]
            number, code = KINDS[element]
            out += struct.pack("<IIQ", _ARRAY, number, len(value))
            out += b"".join(map(_string, value)) if element == "str" else struct.pack(f"<{len(value)}{code}", *value)
        else:
            number, code = KINDS[kind]
            out += struct.pack("<I", number)
            out += _string(value) if kind == "str" else struct.pack(f"<{code}", value)
    offset = 0
    for t in tensors:
        out += _string(t.name) + struct.pack(f"<I{len(t.ne)}QIQ", len(t.ne), *t.ne, types()[t.type][0], offset)
        offset += padded(t.bytes)
    return bytes(out)


def data_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the tensors with the padding between them."""
    return sum(padded(t.bytes) for t in tensors)


def padded(count: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-count // ALIGNMENT) * ALIGNMENT


def _string(text: str) -> bytes:
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def write(
    path: str | os.PathLike[str],
    metadata: Metadata,
    tensors: Sequence[Tensor],
    pieces: Callable[[Tensor], Iterable[Bytes]],
    progress: Callable[[int, int], object] | None = None,
) -> int:
    """Writes a whole file and returns its size. pieces(tensor) gives the tensor's bytes in order, in any portions.

    The data goes to PATH.partial, which becomes PATH when all of it is on the drive and is removed when anything stops
    the writing, Ctrl-C too: a file of that name is never half a model. progress(bytes done, bytes in all) is called
    every few MB. Raises DiskSpaceError, before anything is written where the file system says how much is free.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is no file, and is not replaced by one.")
    head = header(metadata, tensors)
    head += bytes(-len(head) % ALIGNMENT)
    total = len(head) + data_bytes(tensors)
    partial = path.with_name(path.name + ".partial")
    with contextlib.ExitStack() as cleanup:
        with _space(partial, total):
            cleanup.callback(partial.unlink, missing_ok=True)
            with _Writer(partial, total, progress) as file:
                file.reserve()
                file.put(np.frombuffer(head, np.uint8))
                for tensor in tensors:
                    before = file.position
                    for piece in pieces(tensor):
                        file.put(piece)
                    if file.position - before != tensor.bytes:
                        raise InputError(f"{tensor.name}: {file.position - before} bytes given, {tensor.bytes} needed.")
                    file.put(np.zeros(-tensor.bytes % ALIGNMENT, np.uint8))
                file.finish()
        os.replace(partial, path)
        cleanup.pop_all()
    return total


def free_bytes(folder: Path) -> int:
    """What this user may still write to the folder's file system."""
    s = os.statvfs(folder)
    return s.f_bavail * s.f_frsize


class _space:
    """Turns a full drive, found out before or while writing, into DiskSpaceError."""

    def __init__(self, path: Path, needed: int) -> None:
        self._path, self._needed = path, needed
        self._free = free_bytes(path.parent)  # without what is there of the file itself
        with contextlib.suppress(OSError):
            self._free += path.stat().st_blocks * 512  # an old partial file is overwritten

    def __enter__(self) -> None:
        if self._free < self._needed:
            raise self._error()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise self._error() from None

    def _error(self) -> DiskSpaceError:
        error = DiskSpaceError(
            f"{self._path.parent} has {self._free} bytes free; the file needs {self._needed} "
            f"({self._free / 1e9:.2f} and {self._needed / 1e9:.2f} GB)."
        )
        error.file, error.needed, error.free = str(self._path), self._needed, self._free
        return error


class _Writer:
    """Writes in order, past the page cache where the file system allows it: a buffer is filled while others are on
    their way. Through the cache so much data takes several times as long, and pushes everything else out of memory."""

    def __init__(self, path: Path, total: int, progress: Callable[[int, int], object] | None) -> None:
        self.position = 0
        self._flushed = 0
        self._total, self._progress = total, progress
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            self._fd = os.open(path, flags | getattr(os, "O_DIRECT", 0), 0o666)
        except OSError as e:
            if e.errno != errno.EINVAL:
                raise
            self._fd = os.open(path, flags, 0o666)
        self._path = path
        self._buffers = deque(np.frombuffer(mmap.mmap(-1, BUFFER), np.uint8) for _ in range(BUFFERS))  # whole pages
        self._filled = 0
        self._thread = ThreadPoolExecutor(1)
        self._pending: deque[Future[None]] = deque()

    def __enter__(self) -> _Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown(cancel_futures=True)
        os.close(self._fd)

    def reserve(self) -> None:
        """Takes the file's blocks, so that a full drive shows now and not after minutes."""
        if hasattr(os, "posix_fallocate"):
            try:
                os.posix_fallocate(self._fd, 0, self._total)
            except OSError as e:
                if e.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                    raise

    def put(self, data: Bytes) -> None:
        while len(data):
            n = min(len(data), BUFFER - self._filled)
            self._buffers[0][self._filled : self._filled + n] = data[:n]
            self._filled += n
            self.position += n
            data = data[n:]
            if self._filled == BUFFER:
                self._flush()

    def finish(self) -> None:
        self._buffers[0][self._filled :] = 0
        end = self.position
        self._filled = -(-self._filled // BLOCK) * BLOCK
        self._flush()
        self._wait(0)
        os.ftruncate(self._fd, end)
        os.fsync(self._fd)

    def _flush(self) -> None:
        self._pending.append(self._thread.submit(self._write, self._buffers[0][: self._filled], self._flushed))
        self._flushed += self._filled
        self._filled = 0
        self._buffers.rotate(-1)
        self._wait(BUFFERS - 1)

    def _wait(self, left: int) -> None:
        """Until so many writes are on their way; raises what went wrong with the others."""
        while len(self._pending) > left:
            self._pending.popleft().result()
            if self._progress is not None:
                self._progress(min(self._flushed - len(self._pending) * BUFFER, self._total), self._total)

    def _write(self, data: Bytes, offset: int) -> None:
        view = memoryview(data.data)
        while view:
            try:
                n = os.pwrite(self._fd, view, offset)
            except OSError as e:
                if e.errno != errno.EINVAL or not getattr(os, "O_DIRECT", 0):
                    raise
                # Opened directly, but such writes are refused (or this one no longer starts at a block's border).
                self._plain()
                n = os.pwrite(self._fd, view, offset)
            view, offset = view[n:], offset + n

    def _plain(self) -> None:
        import fcntl

        flags = fcntl.fcntl(self._fd, fcntl.F_GETFL)
        if not flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(self._path))
        fcntl.fcntl(self._fd, fcntl.F_SETFL, flags & ~os.O_DIRECT)
