"""One run, in a process of its own: reads a job as JSON from stdin, prints the result as one line of JSON.

Started by path in the Python of an arm, which may hold another version of strata than this file came with: only calls
of the public interface are used here.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import resource
import sys
import time
import warnings
from typing import Any


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Loads, runs the prompt, forces the decode tokens; gives metrics and the bits of the logits."""
    import numpy as np

    import strata

    if "popularity" in strata.config.KNOBS:  # a run that learns from the one before is no measurement of its own
        os.environ.setdefault("STRATA_POPULARITY", "off")
    priority = _raise_priority(job.get("priority", 0))
    rapl = _rapl()
    unknown: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        model = strata.load(job["model"])
        load = time.perf_counter() - start
        unknown = [str(w.message) for w in caught if issubclass(w.category, strata.ConfigWarning)]
    with model:
        session = model.session()
        tokens = np.array(job["tokens"], np.int32)
        before = _contention()
        cpu = time.process_time()
        start = begin = time.perf_counter()
        result = session.prefill(tokens, logits="last")
        prefill = time.perf_counter() - start
        stats = dict(result.stats)
        digest = hashlib.sha256(np.ascontiguousarray(result.logits).tobytes()).hexdigest()
        metrics: dict[str, float] = {
            "prefill_ms": 1e3 * prefill,
            "chunk_ms": 1e3 * stats["seconds"] / max(1, stats.get("chunks", 1)),
            "prefill_tok_s": len(tokens) / prefill,
            "load_ms": 1e3 * load,
        }
        forced = job.get("decode", [])
        if forced:
            start = time.perf_counter()
            for token in forced:
                step = session.prefill(np.array([token], np.int32), logits="last")
            metrics["decode_tok_s"] = len(forced) / (time.perf_counter() - start)
            digest = hashlib.sha256(digest.encode() + np.ascontiguousarray(step.logits).tobytes()).hexdigest()
        wall = time.perf_counter() - begin
        metrics["cpu_s"] = time.process_time() - cpu
        window = {"before": before, "after": _contention(), "cpu": metrics["cpu_s"], "wall": wall}
        for name in ("bytes_read", "lookups", "ahead", "missed"):
            if name in stats:
                metrics[name] = float(stats[name])
        if "hits" in stats or "resident" in stats:
            metrics["hits"] = float(stats["hits"] if "hits" in stats else stats["resident"])
        if "wasted" in stats:
            metrics["unused"] = stats["wasted"] + stats.get("cancelled", 0)
        if "exposed_seconds" in stats:
            metrics["exposed_ms"] = 1e3 * stats["exposed_seconds"]
        if "bytes_read" in stats:
            metrics["drive_gb_s"] = stats["bytes_read"] / prefill / 1e9
        effective, config = model.effective, model.config
        plan = sum(count for _, count in model.plan)
        sources = {name: [getattr(config, name), source] for name, source in config.sources.items()}
    usage = resource.getrusage(resource.RUSAGE_SELF)
    metrics["peak_rss"] = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    metrics |= _mac_footprint() if sys.platform == "darwin" else _device_bytes()
    spent = _rapl()
    if rapl is not None and spent is not None and spent >= rapl:  # the counter wraps now and then
        metrics["energy_j"] = (spent - rapl) / 1e6
    return {
        "metrics": metrics,
        "logits": digest,
        "version": strata.__version__,
        "effective": effective,
        "config": sources,
        "plan_bytes": plan,
        "unknown": unknown,
        "priority": priority,
        "window": window,
        "stats": {k: v for k, v in stats.items() if isinstance(v, (int, float))},
    }


def _raise_priority(nice: int) -> bool:
    """Asks for a share of the processors before other programs; False where the system does not allow it.

    Linux groups processes by session when it shares out time ("autogroup"), and a nice value counts inside a group
    only: so this process becomes a session of its own and raises that.
    """
    if not nice:
        return False
    with contextlib.suppress(OSError):
        os.setsid()
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except OSError:
        return False
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as file:
        file.write(str(nice))
    return True


def _contention() -> dict[str, Any]:
    """Raw counters from which follows what other processes took: /proc/stat, and the scheduler's times of our threads.

    sched: nanoseconds [on a processor, ready but waiting for one], of all threads together. Empty off Linux.
    """
    found: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/stat") as file:
            found["stat"] = [int(v) for v in file.readline().split()[1:9]]
        ran = waited = 0
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/schedstat") as file:
                fields = file.read().split()
            ran, waited = ran + int(fields[0]), waited + int(fields[1])
        found["sched"] = [ran, waited]
    return found


def _device_bytes() -> dict[str, float]:
    with contextlib.suppress(OSError), open("/proc/self/io") as file:
        for line in file:
            if line.startswith("read_bytes"):
                return {"device_bytes": float(line.split()[1])}
    return {}


def _rapl() -> float | None:
    """Microjoules of the first package's counter."""
    with contextlib.suppress(OSError, ValueError), open("/sys/class/powercap/intel-rapl:0/energy_uj") as file:
        return float(file.read())
    return None


def _mac_footprint() -> dict[str, float]:
    """Physical footprint, device reads and energy from proc_pid_rusage.

    struct rusage_info_v4 of <sys/resource.h>: 16 bytes of uuid, then 35 numbers of 64 bits. Of these, from 0: 16
    ri_diskio_bytesread, 28 ri_lifetime_max_phys_footprint, 31 ri_billed_energy (nanojoules).
    """
    import ctypes

    usage = (ctypes.c_uint64 * (2 + 35))()
    try:
        failed = ctypes.CDLL(None).proc_pid_rusage(os.getpid(), 4, ctypes.byref(usage))
    except (OSError, AttributeError):
        return {}
    if failed:
        return {}
    numbers = usage[2:]
    found = {"phys_footprint": float(numbers[28]), "device_bytes": float(numbers[16])}
    if numbers[31]:
        found["energy_j"] = numbers[31] / 1e9
    return found


def main() -> int:
    """Runs the job on stdin; an error of strata is a result too."""
    job = json.load(sys.stdin)
    # Whatever a library prints must not end up in the result.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        result = run(job)
    except Exception as e:
        import traceback

        result = {"error": f"{type(e).__name__}: {e}", "traceback": traceback.format_exc()}
    json.dump(result, out, default=lambda v: v.tolist() if hasattr(v, "tolist") else str(v))
    out.write("\n")
    out.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
