"""Fixtures of the Python tests."""

import os
from pathlib import Path

import pytest
from strata import _core

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """No knob from the machine that runs the tests."""
    for name in list(os.environ):
        if name.startswith("STRATA_") or name in ("DUMP_MOE", "NO_COLOR"):
            monkeypatch.delenv(name)


@pytest.fixture
def gguf_file():
    """Opens the header of a file."""
    return _core.GgufFile


@pytest.fixture
def tiny():
    """Path of a small model: 5 layers, vocabulary of 512."""
    return DATA / "oracle" / "tiny-f16.gguf"
