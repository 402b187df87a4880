"""Where strata keeps what it can make again: a folder for each kind of thing. `strata cache` shows and clears them."""

from __future__ import annotations

import os
from pathlib import Path


def folder() -> Path:
    """The folder of all of it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "strata"
