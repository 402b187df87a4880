"""Cold page cache before a run: by dropping all of it (root), or the model's own pages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from strata.errors import InputError

Choice = Literal["auto", "drop", "model", "keep"]
DROP = Path("/proc/sys/vm/drop_caches")


def method(choice: Choice) -> str:
    """The way that a choice comes to on this machine: "drop_caches", "fadvise" or "none"."""
    if choice == "keep":
        return "none"
    if choice in ("auto", "drop"):
        if os.access(DROP, os.W_OK):
            return "drop_caches"
        if choice == "drop":
            raise InputError(f"--cache drop needs the right to write {DROP}.")
    if hasattr(os, "posix_fadvise"):
        return "fadvise"
    if choice == "model":
        raise InputError("--cache model needs posix_fadvise, which this system lacks.")
    return "none"


def describe(way: str) -> str:
    """The way in words, for reports."""
    return {
        "drop_caches": "cold: the whole page cache dropped before each run (/proc/sys/vm/drop_caches)",
        "fadvise": "cold: the model's pages dropped before each run (posix_fadvise DONTNEED)",
        "none": "not made cold: whatever the page cache holds is used",
    }[way]


def make_cold(way: str, files: list[Path]) -> None:
    """Drops what `way` says. Dirty pages are written first, since only clean ones can go."""
    if way == "drop_caches":
        os.sync()
        DROP.write_text("1")
    elif way == "fadvise":
        for path in files:
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fdatasync(handle)
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
