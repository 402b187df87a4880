"""Traces: valid for a viewer, complete against the counters, summed up as by hand."""

import json

import numpy as np
import pytest
import strata
from click.testing import CliRunner
from strata import ConfigError, InputError, explain
from strata.cli import strata as command


def event(name, start, end, tid=0, **args):
    return {"name": name, "ph": "X", "pid": 1, "tid": tid, "ts": start * 1e6, "dur": (end - start) * 1e6, "args": args}


HAND = [
    event("embed", 0.0, 0.1, chunk=0),
    event("mixer", 0.1, 0.5, layer=0, chunk=0),
    event("experts", 0.5, 1.0, layer=0),
    event("wait", 0.6, 0.9, layer=0),
    event("n-gram rows", 1.0, 1.05, layer=1),
    event("mixer", 1.05, 1.5, layer=1, chunk=0),
    event("experts", 1.5, 2.0, layer=1),
    event("head", 2.0, 2.1),
    # Two readers, overlapping: busy from 0.2 to 0.9 and from 1.4 to 1.6; one read before the prompt.
    event("read", 0.2, 0.7, 1, layer=0, expert=1, bytes=100),
    event("read", 0.5, 0.9, 2, layer=0, expert=2, bytes=100),
    event("read", 1.4, 1.6, 1, layer=1, expert=3, bytes=50),
    event("read", -1.0, -0.5, 1, layer=1, expert=4, bytes=50),
]


def test_by_hand():
    found = explain.explain(HAND)
    a, b = found.layers[0], found.layers[1]
    assert (a.mixer, a.experts, a.wait, a.rows_wait) == pytest.approx((0.4, 0.5, 0.3, 0))
    assert (b.mixer, b.experts, b.wait, b.rows_wait) == pytest.approx((0.45, 0.5, 0, 0.05))
    assert (a.busy, b.busy) == pytest.approx((0.7, 0.2))
    assert (a.reads, a.bytes, b.reads, b.bytes) == (2, 200, 2, 100)
    assert (found.wall, found.wait, found.busy) == pytest.approx((2.1, 0.35, 0.9))
    assert found.compute == pytest.approx(2.1 - 0.35)
    assert not found.whole and "waiting" in found.verdict() and "start earlier" in found.hint()


@pytest.mark.parametrize(
    ("wait", "read", "verdict"), [(0.5, 1.0, "drive"), (0.5, 0.6, "waiting"), (0.0, 1.0, "computation")]
)
def test_verdicts(wait, read, verdict):
    events = [
        event("experts", 0, 1, layer=0),
        event("wait", 0, wait, layer=0),
        event("read", 0, read, 1, layer=0, bytes=1),
    ]
    assert explain.explain(events).verdict().split(":")[0].endswith(verdict)


def test_of_a_run(tmp_path):
    """Each read, its bytes, the waits and all segments of a run are in its trace, which is JSON as it stands."""
    path = tmp_path / "t.json"
    tokens = np.random.default_rng(0).integers(0, 3000, 200).astype(np.int32)
    knobs = {"context": 512, "arena_slots": 60, "prompt_chunk": 32, "prompt_sweep": 64, "popularity": "off"}
    with strata.load(strata.demo_path(), trace=path, **knobs) as model:
        result = model.prefill(tokens)
        assert model.effective["trace"] == str(path)
    events = json.loads(path.read_text())
    stats = result.stats
    reads = [e for e in events if e["name"] == "read"]
    # An expert is three system reads here. Reads that were under way when the prompt ended are in the trace only.
    assert len(reads) >= stats["reads"] // 3 >= len(reads) - 8
    assert sum(e["args"]["bytes"] for e in reads) >= stats["bytes_read"]
    waited = sum(e["dur"] for e in events if e["name"] == "wait") / 1e6
    assert waited == pytest.approx(stats["exposed_seconds"], abs=1e-3)
    count = {
        name: sum(e["name"] == name for e in events) for name in ("embed", "mixer", "experts", "head", "n-gram rows")
    }
    # 200 tokens: sweeps of 64, 64, 64, 8 rows in chunks of 32: 7 chunks; 8 layers.
    assert count == {"embed": 7, "mixer": 7 * 8, "experts": 4 * 8, "head": 1, "n-gram rows": 4}
    found = explain.explain(events)
    assert found.whole and found.wall <= stats["seconds"] and found.wall > 0.8 * stats["seconds"]
    assert sum(x.bytes for x in found.layers.values()) == found.bytes
    same = strata.prefill(strata.demo_path(), tokens, **knobs)
    assert same.logits.tobytes() == result.logits.tobytes()
    shown = CliRunner().invoke(command, ["explain", str(path)])
    assert shown.exit_code == 0 and "It was " in shown.output and f"{found.reads} reads" in shown.output
    as_json = json.loads(CliRunner().invoke(command, ["explain", "--json", str(path)]).output)
    assert as_json["reads"] == found.reads and len(as_json["layers"]) == 8


def test_a_trace_that_was_cut(tmp_path):
    path = tmp_path / "t.json"
    whole = "[\n" + "".join(json.dumps(e) + ",\n" for e in HAND)
    path.write_text(whole[:-20])
    events = explain.load(path)
    assert events == HAND[:-1] and not explain.explain(events).whole


@pytest.mark.parametrize("text", ["", "{}", "[\n1,\n2,\n", '[\n{"name":"read","ph":"X"},\n{}\n', "[\nnonsense,\n{}\n"])
def test_no_trace(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError, match=str(path)):
        explain.load(path)


def test_it_cannot_be_written(tmp_path):
    with pytest.raises(ConfigError, match="trace"):
        strata.load(strata.demo_path(), trace=tmp_path / "no" / "t.json", context=512)
