"""Where strata keeps what it can make again: a folder for each kind of thing. `strata cache` shows and clears them."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import platformdirs

DAMAGED = (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    EOFError,
    RuntimeError,
    OverflowError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading a file of arrays (npz) that anything may have happened to can raise, besides OSError."""


def open_file(file: Path) -> BinaryIO:
    """A file to read. A pipe or a device is refused, not waited for. Raises OSError."""
    handle = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "is no file", str(file))
    return os.fdopen(handle, "rb")


def folder() -> Path:
    """The folder of all of it."""
    return platformdirs.user_cache_path("strata")


def replace(file: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file aside and renames it, so that a reader sees the old one or the new one. Raises OSError."""
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as out:
            write(out)
        os.replace(name, file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
