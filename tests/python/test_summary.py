"""Where the time went, on counters made by hand: three kinds of boundness, and the hint of each rule."""

import pytest
import strata
from strata.summary import decode_hint, peak_bytes, summarize

STATS = {
    "tokens": 1000,
    "seconds": 10.0,
    "sweeps": 1,
    "bytes_read": 18_000_000_000,
    "table_bytes": 2_000_000_000,
    "exposed_seconds": 3.0,
    "table_wait_seconds": 1.0,
    "read_seconds": 8.0,
    "lookups": 1000,
    "resident": 200,
    "ahead": 700,
    "missed": 100,
    "wasted": 7,
    "cancelled": 9,
    "stream_fake": False,
}
FORCE = {
    "io_threads": 4,
    "threads": 8,
    "isa": "avx2",
    "backend": "cpu",
    "prompt_pred": 1,
    "ple_async": True,
    "arena_slots": 2000,
    "arena_gb": 3.0,
}


def summary(drive=None, **changes):
    stats = STATS | {k: v for k, v in changes.items() if k in STATS}
    force = FORCE | {k: v for k, v in changes.items() if k in FORCE}
    plan = [("arena", 3_000_000_000), ("weights", 5_000_000_000)]
    machine = {"cores": 8, "isas": ["portable", "avx2"], "experts_of_layer": 512}
    return summarize(stats, force, plan, drive_gb_s=drive, **machine)


def test_figures():
    s = summary(drive=2.5)
    assert (s.computing, s.waiting, s.bytes_read, s.drive_share, s.plan_bytes) == (6.0, 4.0, 2e10, 0.8, 8e9)
    lines = s.text().splitlines()
    assert lines[0].startswith("memory   8 GB planned, ")
    assert lines[1] == "experts  20 % in memory, 70 % read ahead, 10 % missed, of 1000; 7 wasted, 9 cancelled"
    assert lines[2] == "drive    20 GB read, 2.00 GB/s, 80% of the drive's"
    assert lines[3] == "time     10.00 s: 6.00 computing, 4.00 waiting for the drive; drive-bound"
    assert s.to_json()["experts"]["ahead"] == 700 and s.to_json()["bound"] == "drive"


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        ({"exposed_seconds": 0.0, "table_wait_seconds": 0.9}, "compute"),
        ({"read_seconds": 24.0}, "drive"),  # 4 readers, 10 s: busy 60 % of the time
        ({"read_seconds": 23.0}, "waiting"),
        ({"drive": 3.0, "read_seconds": 0.0}, "drive"),  # 2 of 3 GB/s
        ({"drive": 4.0, "read_seconds": 39.0}, "waiting"),  # 2 of 4 GB/s
    ],
)
def test_bound(changes, bound):
    assert summary(**changes).bound == bound


COMPUTE = {"exposed_seconds": 0.0, "table_wait_seconds": 0.0}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"stream_fake": True}, "mean nothing"),
        (COMPUTE | {"backend": "reference"}, "backend=cpu"),
        (COMPUTE | {"isa": "portable"}, "isa=auto would use avx2"),
        (COMPUTE | {"threads": 2}, "threads=8"),
        (COMPUTE, None),
        ({"prompt_pred": -1}, "prompt_pred=1"),
        ({"prompt_pred": -1, "seconds": 0.4}, None),
        ({"ple_async": False, "exposed_seconds": 0.5, "table_wait_seconds": 3.0}, "ple_async=on"),
        ({"sweeps": 3}, "prompt_sweep=1000 would read each expert once, not once in each of 3 sweeps"),
        ({}, "strata ssd FILE finds"),
        ({"drive": 10.0, "arena_slots": 900, "missed": 300}, "1024 and not 900"),
        ({"drive": 10.0, "missed": 300}, None),
        ({"drive": 10.0, "arena_slots": 900}, None),
    ],
)
def test_hint(changes, says):
    hint = summary(**changes).hint
    assert (says in hint) if says else hint == ""
    assert ("hint" in summary(**changes).text()) == bool(says)


def test_decode_hint():
    stats, force = {"resident": 10, "lookups": 100}, {"arena_slots": 300, "arena_gb": 0.4}
    assert "holds 300 experts, and one token uses 480" in decode_hint(stats, force, 480)
    assert decode_hint(stats, force, 300) == "" == decode_hint(stats | {"resident": 60}, force, 480)


def test_peak_grows_with_memory_that_is_used():
    before = peak_bytes()
    block = bytearray(before + 50_000_000)  # larger than all there was, written to by being zeroed below
    block[::4096] = b"x" * len(block[::4096])
    assert peak_bytes() >= before + 40_000_000


def test_a_real_prefill_adds_up():
    with strata.load(strata.demo_path(), context=256, arena_slots=96) as model:
        result = model.prefill("Once upon a time")
        s = summarize(result.stats, model.effective, model.plan, experts_of_layer=model.info["n_expert"])
    e = s.experts
    assert e["lookups"] == e["resident"] + e["ahead"] + e["missed"] > 0
    assert s.computing + s.waiting == pytest.approx(s.seconds) and s.seconds > 0
    assert s.bytes_read > 0 and s.plan_bytes > 0 and s.drive_share is None
