"""Automatic sizes: chunk, sweep and context by memory; what gives way when it is short; scratch given back."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from engine_cases import open_engine, prompt
from strata import Config, OutOfMemoryPlanError, _core, demo_path


def plan(path, ram, **knobs):
    return _core.memory_plan(path, Config(ram_gb=ram, threads=8, **knobs).to_core())


@pytest.mark.parametrize(("ram", "chunk"), [(16, 1024), (23.9, 1024), (24, 2048), (64, 2048), (96, 4096), (128, 4096)])
def test_chunk_by_memory(real_header, ram, chunk):
    assert plan(real_header, ram)["config"]["prompt_chunk"] == chunk


def test_what_gives_way(real_header):
    """Chunk, then context give way: 9 GB leave the arena about two layers' experts, 8 GB one."""
    layer = 512 * 1.4e6  # bytes of experts
    roomy, tight, least = plan(real_header, 16), plan(real_header, 9), plan(real_header, 8)
    sizes = [(p["config"]["prompt_chunk"], p["config"]["context"]) for p in (roomy, tight, least)]
    assert sizes[0] == (1024, 32768) and sizes[2] == (256, 4096)
    assert sizes[1][0] < 1024 and sizes[1] > sizes[2]
    for p, layers in ((roomy, 2), (tight, 1.9), (least, 1)):
        lines = dict(p["lines"])
        assert sum(lines.values()) <= p["available"] and lines["expert arena"] >= layers * layer
    asked = plan(real_header, 8, context=32768, prompt_chunk=1024)
    assert (asked["config"]["context"], asked["config"]["prompt_chunk"]) == (32768, 1024)
    with pytest.raises(OutOfMemoryPlanError):
        plan(real_header, 4)


def test_a_sweep_is_cut_by_time():
    """An automatic sweep has at most so many rows as are computed in the time for it, a given one has its size."""

    def sweeps(**knobs):
        engine = _core.Engine(os.fsencode(demo_path()), {**Config(prompt_chunk=64, context=4096).to_core(), **knobs})
        logits, stats = engine.prefill(engine.session(), prompt("demo", 2000), "last")
        return stats["sweeps"], logits.tobytes()

    whole, cut, given = sweeps(), sweeps(sweep_seconds=1e-6), sweeps(sweep_seconds=1e-6, prompt_sweep=512)
    assert whole[0] == 1 and cut[0] == 32 and given[0] == 4  # 2000 tokens by 4096, 64, 512
    assert whole[1] == cut[1] == given[1]


def test_scratch_is_given_back():
    """After a prompt of 3000 tokens resident memory falls by at least half of what the plan has for it."""
    engine = open_engine("demo", prompt_chunk=1024, prompt_sweep=4096, context=4096)
    lines = dict(engine.plan)
    scratch = lines["sweep buffers"] + lines["chunk buffers"]
    session = engine.session()
    process = psutil.Process()
    peak = 0

    def look(_):
        nonlocal peak
        peak = max(peak, process.memory_info().rss)

    before = process.memory_info().rss
    engine.prefill(session, prompt("demo", 3000), "none", look)
    after = process.memory_info().rss
    assert peak - before > scratch / 2 and peak - after > scratch / 2


def test_a_small_arena_is_said():
    """48 experts of 8 layers, 6 a token: fewer slots than a token's experts."""
    engine = open_engine("demo", arena_slots=10)
    used = engine.info["n_expert_used"] * engine.info["n_layer"]
    assert any(f"one token uses {used}" in w for w in engine.warnings)
    assert open_engine("demo", arena_slots=used).warnings == []
    assert np.isfinite(engine.prefill(engine.session(), prompt("demo", 5), "last")[0]).all()


CPU = Path("/sys/fs/cgroup/cpu")  # v1


@pytest.mark.skipif(not os.access(CPU / "cpu.cfs_quota_us", os.W_OK), reason="needs root and cgroup v1")
def test_a_quota_of_a_parent_group_counts():
    """A process in a group below one that grants 1.2 CPUs runs two threads, however many cores there are; 0.5: one."""
    parent = CPU / f"strata-test-{os.getpid()}"
    child = parent / "below"
    child.mkdir(parents=True)
    code = f"""
import os, pathlib
pathlib.Path({str(child)!r}, "cgroup.procs").write_text(str(os.getpid()))
from strata import Config, _core, demo_path
print(_core.memory_plan(os.fsencode(demo_path()), Config().to_core())["config"]["threads"])
"""
    cores = len(os.sched_getaffinity(0))
    try:
        for quota, threads in ((120_000, min(2, cores)), (50_000, 1), (-1, cores)):
            (parent / "cpu.cfs_quota_us").write_text(str(quota))
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            assert int(done.stdout) == threads, quota
    finally:
        child.rmdir()
        parent.rmdir()
