"""Commands as a person runs them: at a real pseudo-terminal, or into pipes and files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pexpect

TIMEOUT = 60  # seconds; only a hang takes that long
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def environment(**more: str) -> dict[str, str]:
    """This environment, in which `python -m strata` finds this strata."""
    paths = os.pathsep.join(p for p in sys.path if p)
    return {**os.environ, "PYTHONPATH": paths, "TERM": "xterm-256color", **more}


def pipe(*args: object, stdin: bytes = b"", cwd: Path | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """`strata ARGS` with its streams in pipes."""
    command = [sys.executable, "-m", "strata", *map(str, args)]
    done = subprocess.run(command, input=stdin, capture_output=True, env=environment(**more), cwd=cwd, timeout=TIMEOUT)
    return subprocess.CompletedProcess(
        command, done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    )


def terminal(*args: object, width: int = 100, cwd: Path | None = None, **more: str) -> pexpect.spawn:
    """`strata ARGS` at a terminal of 40 lines. What it shows is in the result's `before` and `after`."""
    return pexpect.spawn(
        sys.executable,
        ["-m", "strata", *map(str, args)],
        env=environment(**more),
        dimensions=(40, width),
        timeout=TIMEOUT,
        encoding="utf-8",
        cwd=None if cwd is None else str(cwd),
    )


def ending(child: pexpect.spawn) -> tuple[str, int]:
    """All that is shown until the command ends, without control codes, and its exit code (-N: ended by signal N)."""
    child.expect(pexpect.EOF)
    child.close()
    code = child.exitstatus if child.signalstatus is None else -child.signalstatus
    return CODES.sub("", child.before).replace("\r\n", "\n").replace("\r", ""), code
