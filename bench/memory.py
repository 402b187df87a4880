#!/usr/bin/env python3
"""Does a run stay within its memory plan? A synthetic file of the real shapes, a plan of a third of it, a memory cgroup
of the plan and a tenth: the prefill must finish, unkilled, with no more memory than planned.

    python bench/memory.py [--file FILE] [--size 3G] [--plan 1G] [--tokens 1100] [--json]

FILE is made when it is not there (and then removed, unless --keep). Needs root on Linux.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cgroup import MemoryCgroup, NoCgroup

ALLOWED = 1.05  # of the plan
KNOBS = {"context": 2048, "prompt_chunk": 256, "prompt_sweep": 1024}


def knobs_for(path: Path, plan: int) -> tuple[dict[str, Any], int]:
    """Settings whose plan comes to about `plan` bytes, by the size of the arena; and the bytes of that plan."""
    from strata import Config, _core

    def lines(**knobs: Any) -> dict[str, int]:
        return dict(_core.memory_plan(path, Config(**KNOBS, ram_gb=1e3, **knobs).to_core())["lines"])

    rest = {k: v for k, v in lines(arena_slots=100).items() if k != "expert arena"}
    knobs = KNOBS | {"arena_gb": (plan - sum(rest.values())) / 1e9}
    return knobs, sum(lines(arena_gb=knobs["arena_gb"]).values())


def child(path: str, knobs: dict[str, Any], tokens: int) -> dict[str, Any]:
    """The run itself; what it says of its own memory."""
    import numpy as np
    import strata

    def faults() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_majflt

    with strata.load(path, **knobs) as model:
        loaded = faults()
        rng = np.random.default_rng(1)
        result = model.prefill(rng.integers(0, 256, tokens).astype(np.int32))
        after = faults()
        # The same resident weights once more: pages that had gone would have to be read again now.
        model.prefill(rng.integers(0, 256, 16).astype(np.int32))
        assert result.logits is not None
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return {
            "finite": bool(np.isfinite(result.logits).all()),
            "seconds": result.stats["seconds"],
            "bytes_read": result.stats["bytes_read"],
            "VmHWM": int(status["VmHWM"].split()[0]) * 1024,
            "major_faults_load": loaded,
            "major_faults_prefill": after - loaded,
            "major_faults_again": faults() - after,
            "warnings": model.warnings,
        }


def measure(path: Path, plan: int, tokens: int) -> dict[str, Any]:
    """Runs in a cgroup of 1.1 plans. Raises NoCgroup."""
    knobs, planned = knobs_for(path, plan)
    with MemoryCgroup(planned * 11 // 10) as group:
        wanted = json.dumps([str(path), knobs, tokens])
        done = group.run([sys.executable, __file__, "--child", wanted])
        report: dict[str, Any] = {
            "file_bytes": path.stat().st_size,
            "plan": planned,
            "limit": group.limit,
            "tokens": tokens,
            "exit": done.returncode,
            "killed": group.kills,
            "peak_anonymous": group.anonymous,
            "peak_page_cache": group.file,
            "peak_charged": group.peak,
        }
    if done.returncode != 0:
        return report | {"error": done.stderr.strip()[-2000:]}
    return report | json.loads(done.stdout)


def faults(report: dict[str, Any]) -> list[str]:
    """What is wrong, in words."""
    if report["killed"] or report["exit"]:
        return [f"the run ended with {report['exit']}, {report['killed']} kills: {report.get('error', '')}"]
    found = [] if report["finite"] else ["the logits are not finite"]
    for name in ("peak_anonymous", "VmHWM"):
        if report[name] > ALLOWED * report["plan"]:
            found.append(f"{name} is {report[name] / report['plan']:.3f} of the plan, allowed: {ALLOWED}")
    for name in ("major_faults_prefill", "major_faults_again"):
        if report[name] > 100:  # pages of libraries that come back; the weights would be a hundred thousand
            found.append(f"{name}: {report[name]}")
    return found


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--file", type=Path, help="model file; default: one in a temporary folder")
    ap.add_argument("--size", default="3G", help="of the file that is made")
    ap.add_argument("--plan", type=float, default=1.0, help="GB")
    ap.add_argument("--tokens", type=int, default=1100)
    ap.add_argument("--keep", action="store_true", help="keep the file that was made")
    ap.add_argument("--json", action="store_true")
    ap.add_argument("--child", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.child:
        print(json.dumps(child(*json.loads(a.child))))
        return 0
    with contextlib.ExitStack() as cleanup:
        path = a.file or Path(cleanup.enter_context(tempfile.TemporaryDirectory())) / "synthetic.gguf"
        if not path.exists():
            make(path, a.size)
            if a.file and not a.keep:
                cleanup.callback(path.unlink)
        try:
            report = measure(path, int(a.plan * 1e9), a.tokens)
        except NoCgroup as e:
            print(f"not measured: {e}", file=sys.stderr)
            return 77
    wrong = faults(report)
    if a.json:
        print(json.dumps(report | {"faults": wrong}))
    else:
        for name, value in report.items():
            text = f"{value / 1e6:,.1f} MB" if isinstance(value, int) and value > 10**6 else value
            share = f"  {value / report['plan']:.3f} of the plan" if name.startswith(("peak", "VmHWM", "limit")) else ""
            print(f"{name:22s} {text}{share}")
        print("\n".join(wrong) or "within the plan")
    return 1 if wrong else 0


def make(path: Path, size: str) -> None:
    """Six layers, so that the resident weights are half of the plan; a short vocabulary for the same reason."""
    wishes = ["--size", size, "--layers", "6", "--vocab", "8192"]
    subprocess.run([sys.executable, "-m", "strata", "synth", os.fspath(path), *wishes], check=True, stdout=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
