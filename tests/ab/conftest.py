"""Fixtures of the comparison's tests: dump folders, machines made of files."""

import os
import struct

import numpy as np
import pytest

HEADER = struct.Struct("<8s4sIQQQiIQQ")  # csrc/window/dump.h


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """No knob from the machine that runs the tests."""
    for name in list(os.environ):
        if name.startswith("STRATA_") or name == "DUMP_MOE":
            monkeypatch.delenv(name)


@pytest.fixture
def write_dump():
    """Writes one dump file as the core does."""

    def write(path, array, layer, first_row=0):
        array = np.ascontiguousarray(array)
        kind = {"f": b"f32", "i": b"i32"}[array.dtype.kind]
        d2 = array.shape[2] if array.ndim == 3 else 0
        head = HEADER.pack(b"STRDUMP1", kind, array.ndim, len(array), array.shape[1], d2, layer, 0, first_row, 0)
        path.write_bytes(head + array.tobytes())

    return write


@pytest.fixture
def two_dumps(tmp_path, write_dump):
    """Two equal folders of 3 layers: router ids [7, 4], rows of experts [7, 4, 16], outputs [7, 16]."""
    rng = np.random.default_rng(5)
    for layer in range(3):
        arrays = {
            "ids": rng.integers(0, 48, (7, 4), np.int32),
            "yr": rng.normal(size=(7, 4, 16)).astype(np.float32),
            "out": rng.normal(size=(7, 16)).astype(np.float32),
        }
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir(exist_ok=True)
            for name, array in arrays.items():
                write_dump(tmp_path / folder / f"L{layer:03d}.{name}", array, layer, first_row=100)
    return tmp_path / "a", tmp_path / "b"


@pytest.fixture
def fake_root(tmp_path):
    """A root folder; give it files by name: fake_root({"/sys/...": "text"})."""

    def make(files):
        root = tmp_path / "root"
        for name, text in files.items():
            path = root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        root.mkdir(exist_ok=True)
        return root

    return make
