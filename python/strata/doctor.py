"""What this machine has for strata, and whether strata works on it: the facts that a report of a problem needs."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from strata import _core, api, ssd
from strata.config import KNOBS, Config, find_file
from strata.errors import StrataError

QUESTION, ANSWER = "Question: What is the capital of France?\nAnswer:", "Paris"


def examine(path: Path, config: Config, drive_gb_s: float | None) -> dict[str, Any]:
    """The facts, in plain values, by group. path: a model, or any place on its drive. drive_gb_s: as it was probed."""
    memory = psutil.virtual_memory()
    return {
        "strata": {
            "version": _core.__version__,
            "compiler": _core.compiler,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "package": str(Path(__file__).parent),
        },
        "machine": {"system": platform.platform(), "kind": platform.machine()},
        "processor": {
            "name": processor_name(),
            "cores": os.cpu_count(),
            "usable": _core.allowed_cpus(),
            "instruction_sets": _core.cpu_isas(),
        },
        "memory": {
            "total": memory.total,
            "free": memory.available,
            "usable": _core.available_memory(),  # less than free where a cgroup sets a limit
            "swap_used": psutil.swap_memory().used,
        },
        "drive": {"path": str(path.absolute()), "gb_per_second": drive_gb_s, **_drive(path)},
        "settings": {
            "file": None if (found := find_file(os.environ)) is None else str(found),
            "chosen": {n: config.to_json()[n] for n in KNOBS if config.sources[n] != "default"},
        },
        "check": _check(config),
    }


def processor_name() -> str:
    """The name of the processor, "" when the system does not say."""
    try:
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor()


def _drive(path: Path) -> dict[str, Any]:
    path = path.resolve()
    usage = psutil.disk_usage(str(path))
    mounts = [m for m in psutil.disk_partitions(all=True) if path.is_relative_to(m.mountpoint)]
    mount = max(mounts, key=lambda m: len(m.mountpoint), default=None)
    return {
        "device": mount.device if mount else "",
        "file_system": mount.fstype if mount else "",
        "size": usage.total,
        "free": usage.free,
        "rotates": _rotates(path),
        "past_the_page_cache": _direct(path) if path.is_file() else None,
    }


def _rotates(path: Path) -> bool | None:
    """Whether the drive is a disk that turns; None when the system does not say."""
    device = os.stat(path).st_dev
    block = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    for folder in (block, block.parent):  # a partition lies in the folder of its drive
        try:
            return (folder / "queue" / "rotational").read_text("ascii").strip() == "1"
        except OSError:
            continue
    return None


def _direct(path: Path) -> bool:
    """Whether strata reads this file past the page cache."""
    fd, bypassed = ssd.open_direct(path)
    os.close(fd)
    return bypassed


def _check(config: Config) -> dict[str, Any]:
    """Asks the demo model a question it can answer."""
    try:
        with api.load(api.demo_path(), Config(isa=config.isa, context=64, arena_slots=128)) as model:
            result = model.generate(QUESTION, max_new_tokens=12)
    except StrataError as e:
        return {"works": False, "said": str(e)}
    said = result.text.strip().split("\n")[0]
    return {"works": ANSWER in said, "said": said, "seconds": result.stats["seconds"]}
