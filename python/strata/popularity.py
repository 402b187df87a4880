"""What earlier runs learnt about a model: how popular each expert is. Kept in the user's cache folder, by fingerprint.

It decides what is read ahead for the first layer and which experts stay in memory; it never changes a bit of a result.
A file that is stale, damaged or another model's is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strata import cache
from strata.errors import ConfigError

VERSION = 1
HEAD = 1 << 20  # bytes of the file's start that go into the fingerprint: names, sizes, the start of the directory
SAMPLES, SAMPLE = 16, 4096  # and so many places of so many bytes, evenly spread, that tell fine-tunes apart


def folder() -> Path:
    """Where the files are."""
    return cache.folder() / "popularity"


def fingerprint(model: Path) -> str:
    """Names the model by its size and a sample of its bytes (17 reads), wherever it lies. Raises OSError."""
    size = model.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with model.open("rb") as file:
        digest.update(file.read(HEAD))
        for i in range(SAMPLES):
            file.seek(size * i // SAMPLES)
            digest.update(file.read(SAMPLE))
    return digest.hexdigest()[:32]


def check(file: Path) -> None:
    """Raises ConfigError when `write` would replace something else: no file, or one with bytes in it that is no zip."""
    with contextlib.suppress(OSError):
        other = not file.is_file() and file.exists()
        if not other:
            with cache.open_file(file) as opened:
                other = opened.read(2) not in (b"", b"PK")
        if other:
            error = ConfigError(f"popularity = {str(file)!r}: this file holds something else and is left alone.")
            error.knob, error.value, error.allowed = "popularity", str(file), "auto, off or a file of its own"
            raise error


def read(file: Path, shape: tuple[int, int]) -> NDArray[np.float64] | None:
    """Shares [layers, experts], each in 0 to 1; None when the file is missing, damaged, or of another shape."""
    try:
        with cache.open_file(file) as opened, np.load(opened, allow_pickle=False) as data:
            if int(data["version"]) != VERSION:
                return None
            shares = np.asarray(data["shares"], np.float64)
    except (OSError, *cache.DAMAGED):
        return None
    good = shares.shape == shape and bool(((shares >= 0) & (shares <= 1)).all())
    return shares if good else None


def write(file: Path, shares: NDArray[np.float64]) -> None:
    """Replaces the file as a whole. Raises OSError."""
    cache.replace(
        file, lambda out: np.savez_compressed(out, version=np.int64(VERSION), shares=shares.astype(np.float32))
    )
