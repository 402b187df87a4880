"""Fixtures of the stream's tests; models and runs come from the engine's."""

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "oracle"), str(TESTS / "engine")]


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    """No knob from the machine that runs the tests."""
    for name in list(os.environ):
        if name.startswith("STRATA_") or name == "DUMP_MOE":
            monkeypatch.delenv(name)
