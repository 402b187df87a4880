"""Where strata keeps what it can make again: a folder for each kind of thing. `strata cache` shows and clears them."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def folder() -> Path:
    """The folder of all of it."""
    return platformdirs.user_cache_path("strata")
