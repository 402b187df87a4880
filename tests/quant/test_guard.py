"""No decoder loads a byte outside its blocks: the last block of a file may be the last bytes of a mapping."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("guard_child.py")


def run(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(CHILD), *args], capture_output=True, text=True, timeout=120)


@pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")
def test_rows_against_an_unreadable_page() -> None:
    done = run("decode")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split() == [str(28 * 5 * 2), "rows"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs mprotect")
@pytest.mark.parametrize(
    ("side", "offset", "lives"),
    [("end", 0, True), ("end", 33, True), ("end", 34, False), ("start", 0, True), ("start", -1, False)],
)
def test_the_guard_catches_stray_loads(side: str, offset: int, lives: bool) -> None:
    assert (run("read", side, str(offset)).returncode == 0) == lives
