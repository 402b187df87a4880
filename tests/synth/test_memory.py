"""A run stays within its memory plan (bench/memory.py), and the plan follows from the model and the knobs."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import memory
from cgroup import NoCgroup


@pytest.mark.long
def test_a_third_of_the_file(tmp_path):
    """3 GB of real shapes, a plan of 1 GB, a memory cgroup of 1.1 GB: it finishes, unkilled, within the plan + 5 %, and
    the resident weights never leave memory."""
    if shutil.disk_usage(tmp_path).free < 4e9:
        pytest.skip("needs 4 GB of disk")
    path = tmp_path / "m.gguf"
    memory.make(path, "3G")
    try:
        report = memory.measure(path, 10**9, 1100)
    except NoCgroup as e:
        pytest.skip(f"no memory cgroup: {e}")
    finally:
        path.unlink()
    assert memory.faults(report) == []
    assert 0.95e9 < report["plan"] <= 1e9 and report["bytes_read"] > 2e9
