"""Recorded routing and its replay: policies by hand and against every choice, the engine's against the engine."""

import functools
import itertools
import json

import numpy as np
import pytest
import strata
import strata.cli
from engine_cases import DATA, open_engine, path_of
from strata import InputError, replay, routing
from strata.routing import Routing

TRACE = DATA / "demo" / "routing.npz"
TOKENS = np.load(TRACE)["tokens"].astype(np.int32)
LAYERS, EXPERTS = 8, 48


def routing_of(ids, experts):
    """ids [layers, T, K]"""
    ids = np.array(ids, np.int32)
    return Routing(ids, None, experts, (1,) * len(ids), np.zeros(0, np.int32))


# The reference string of Belady, Nelson and Shedler (1969), as textbooks have it.
STRING = [1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "policy, slots, reads",
    [
        ("lru", 3, 10),  # textbook
        ("lru", 4, 8),  # textbook
        ("belady", 3, 7),  # textbook
        ("belady", 4, 6),  # textbook
        # By hand: after 1 2 3 the string pushes out 1, 2, 3, 4 in turn, then finds 1 and 2, and 5 goes for the 3; then
        # the 1 goes for the 4, the 2 for the 5.
        ("clock", 3, 10),
        # By hand: 4, 1, 2, 5 push out 1, 2, 3, 4; 1 and 2 have three uses then, so 3, 4, 5 push out each other.
        ("lfu", 3, 10),
        ("lru", 5, 5),
        ("engine", 5, 5),
        ("engine", 3, 10),  # too few slots for a hot set: plain LRU
    ],
)
def test_by_hand(policy, slots, reads):
    result = replay.replay(routing_of([[[x] for x in STRING]], 6), policy, slots, sweep=1)
    assert (result.prompt.lookups, result.prompt.reads) == (12, reads)
    assert result.prompt.hits == pytest.approx(1 - reads / 12)


def fewest_reads(steps, slots):
    """Every choice of what to keep after each step."""

    @functools.cache
    def best(i, here):
        if i == len(steps):
            return 0
        missing = steps[i] - here
        least = None
        for n in range(slots + 1):
            for kept in itertools.combinations(sorted(here | steps[i]), n):
                reads = len(missing) + best(i + 1, frozenset(kept))
                least = reads if least is None else min(least, reads)
        return least

    return best(0, frozenset())


@pytest.mark.parametrize("seed", range(12))
def test_belady_against_every_choice(seed):
    rng = np.random.default_rng(seed)
    ids = [[rng.permutation(4)[:2] for _ in range(5)] for _ in range(2)]
    run = routing_of(ids, 4)
    for slots, sweep in ((1, 1), (2, 1), (3, 1), (3, 2), (5, 1)):
        steps = []
        for a in range(0, 5, sweep):
            for layer in range(2):
                steps.append(frozenset((layer, int(e)) for row in ids[layer][a : a + sweep] for e in row))
        want = fewest_reads(tuple(steps), slots)
        assert replay.replay(run, "belady", slots, sweep=sweep).prompt.reads == want
        for policy in replay.POLICIES:
            if policy != "engine" or slots >= 2:  # the engine has a token's experts at least
                assert replay.replay(run, policy, slots, sweep=sweep).prompt.reads >= want


def test_everything_fits_or_nothing_does():
    run = routing.load(TRACE)
    used = {(layer, e) for layer in range(LAYERS) for e in run.ids[layer].ravel().tolist()}
    for policy in replay.POLICIES:
        everything = replay.replay(run, policy, LAYERS * EXPERTS, sweep=64, decode=20, times=2)
        assert everything.prompt.reads == len(used) and everything.decode.reads == 0
        assert replay.replay(run, policy, LAYERS * EXPERTS, sweep=run.rows).prompt.lookups == len(used)


def test_prompt_and_decode():
    """Rows 0 to 3 in two sweeps, then two tokens. Lookups are the distinct experts of each."""
    ids = [[[0, 1], [1, 2], [3, 4], [3, 4], [0, 5], [0, 1]]]
    result = replay.replay(routing_of(ids, 6), "lru", 6, sweep=2, decode=2)
    assert (result.prompt.lookups, result.prompt.reads) == (3 + 2, 5)
    assert (result.decode.lookups, result.decode.reads) == (2 + 2, 1)


def test_a_class_of_slots_for_each_size():
    """Two layers of two sizes: each has half of the slots (a part of one is lost), and gets none of the other's."""
    ids = [[[0], [1], [0], [1], [0], [1]], [[0], [0], [0], [0], [0], [0]]]
    one = routing_of(ids, 2)
    two = Routing(one.ids, None, 2, (10, 20), one.tokens)
    assert replay.replay(one, "belady", 3, sweep=1).prompt.reads == 3
    assert replay.replay(two, "lru", 3, sweep=1).prompt.reads == 6 + 1
    assert replay.replay(two, "belady", 3, sweep=1).prompt.reads == 1 + 3 + 1  # it keeps the 0
    assert replay.replay(two, "lru", 4, sweep=1).prompt.reads == 2 + 1


# ------------------------------------------------------------------------------------------------- the engine


def engine_run(tokens, **knobs):
    """Reads that the engine counts without guesses, and what its routers chose."""
    engine = open_engine("demo", prompt_pred=-1, **knobs)
    taps = {}
    _, stats = engine.prefill(engine.session(), tokens, "none", None, taps, {"router_ids"})
    assert set(taps) == {f"L{i}/router_ids" for i in range(LAYERS)}
    assert stats["issued"] == stats["missed"] == stats["used"]
    return stats, routing.from_taps(taps, tokens, EXPERTS, (1,) * LAYERS)


@pytest.mark.parametrize("share", [2, 5, 10, 20, 30, 50, 75, 100])
@pytest.mark.parametrize("sweep", [1, 8, 200])
def test_the_engine_reads_what_the_replay_says(share, sweep):
    """One chunk a sweep, no guesses. What is asked for together is held before the first slot is taken, so the order of
    reads does not depend on how fast the readers are, as long as they keep up where a layer does not fit."""
    slots = LAYERS * EXPERTS * share // 100
    tokens = TOKENS[: {1: 50, 8: 320, 200: 800}[sweep]]
    stats, run = engine_run(tokens, arena_slots=slots, prompt_chunk=sweep, prompt_sweep=sweep)
    want = replay.replay(run, "engine", slots, sweep=sweep).prompt
    assert (stats["lookups"], stats["missed"]) == (want.lookups, want.reads)
    assert replay.replay(run, "belady", slots, sweep=sweep).prompt.reads <= want.reads


# ------------------------------------------------------------------------------------------------- recordings


def test_the_figures_of_a_recording():
    """Those that came with the trace (its makers' README), rounded as there."""
    run = routing.load(TRACE)
    assert (run.layers, run.rows, run.experts) == (LAYERS, len(TOKENS), EXPERTS)
    assert [round(100 * run.distinct(n) / EXPERTS) for n in (1, 8, 16, 32, 64)] == [8, 48, 71, 90, 98]
    assert run.recall().round(2).tolist() == [0.72, 0.83, 0.85, 0.88, 0.87, 0.93, 0.92]
    assert run.recall(8).round(2).tolist() == [0.81, 0.88, 0.89, 0.92, 0.92, 0.95, 0.94]
    assert run.recall(32).round(2).tolist() == [0.94, 0.96, 0.97, 0.98, 0.98, 0.98, 0.98]
    assert 0.10 <= run.reuse() <= 0.16
    curve = run.popularity()
    assert curve.sum() == pytest.approx(1) and (np.diff(curve) <= 0).all()


def test_figures_by_hand():
    ids = np.array([[[0, 1], [0, 2]], [[3, 1], [1, 0]]], np.int32)
    run = Routing(ids, np.array([[[3, 0], [2, 0]]], np.int32), 4, (1, 1), np.zeros(0, np.int32))
    assert run.counts().tolist() == [[2, 1, 1, 0], [1, 2, 0, 1]]
    assert run.distinct(1) == 2 and run.distinct(2) == 3
    assert run.popularity().tolist() == [0.5, 0.25, 0.25, 0]
    assert run.reuse() == 0.5
    assert run.recall().tolist() == [0.5] and run.recall(2).tolist() == [2 / 3] == run.precision(2).tolist()


def test_record(tmp_path):
    """Layer 0's routing depends on the tokens alone, so it is the recorded one; deeper down near-ties may differ."""
    recorded = routing.load(TRACE)
    with strata.load(path_of("demo"), prompt_pred=1, prompt_chunk=64) as model:
        result = model.prefill(TOKENS[:300], record=True)
        assert model.prefill(TOKENS[:3]).routing is None
    run = result.routing
    assert (run.experts, run.tokens.tolist()) == (EXPERTS, TOKENS[:300].tolist())
    assert run.expert_bytes == (2 * 74 * 256 * 128 // 256 + 18 * 128 * 256 // 64,) * LAYERS
    assert np.array_equal(np.sort(run.ids[0]), np.sort(recorded.ids[0, :300]))
    assert (np.sort(run.ids) == np.sort(recorded.ids[:, :300])).mean() > 0.99
    assert (np.sort(run.predicted) == np.sort(recorded.predicted[:, :300])).mean() > 0.99

    run.save(tmp_path / "run")
    again = routing.load(tmp_path / "run")
    assert np.array_equal(again.ids, run.ids) and np.array_equal(again.predicted, run.predicted)
    assert (again.experts, again.expert_bytes) == (run.experts, run.expert_bytes)
    assert np.array_equal(again.tokens, run.tokens)


def test_a_run_without_guesses_has_none():
    with strata.load(path_of("demo"), prompt_pred=0) as model:
        run = model.prefill(TOKENS[:5], record=True).routing
    assert run.predicted is None
    with pytest.raises(InputError, match="no guesses"):
        run.recall()


@pytest.mark.parametrize(
    "arrays, message",
    [
        ({"x": np.zeros(3)}, "array ids"),
        ({"ids": np.zeros((2, 3))}, "array ids"),
        ({"ids": np.zeros((2, 3, 1))}, "whole numbers"),
        ({"ids": np.full((2, 3, 1), 7), "n_expert": 7}, "from 7 to 7"),
        ({"ids": np.full((2, 3, 1), -1)}, "from -1 to -1"),
        ({"ids": np.zeros((2, 3, 1), int), "n_expert": 1 << 40}, "n_expert"),
        ({"ids": np.zeros((2, 3, 1), int), "n_expert": np.zeros(2, int)}, "n_expert"),
        ({"ids": np.zeros((2, 3, 1), int), "expert_bytes": np.array(["a", "b"])}, "expert_bytes"),
        ({"ids": np.zeros((2, 3, 1), int), "predicted": np.zeros((2, 3, 1), int)}, "predicted has the shape"),
        ({"ids": np.zeros((2, 3, 1), int), "tokens": np.zeros(2)}, "tokens"),
        ({"ids": np.zeros((2, 3, 1), int), "expert_bytes": np.zeros(3)}, "expert_bytes"),
    ],
)
def test_what_is_no_recording(arrays, message, tmp_path):
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(InputError, match=message):
        routing.load(tmp_path / "t.npz")


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04 cut", b"\x93NUMPY"])
def test_what_is_no_npz(content, tmp_path):
    path = tmp_path / "t.npz"
    path.write_bytes(content)
    with pytest.raises(InputError, match="no recording"):
        routing.load(path)


def run_command(capsys, *args):
    with pytest.raises(SystemExit) as caught:
        strata.cli.main([str(a) for a in args])
    return caught.value.code, *capsys.readouterr()


def test_the_commands(tmp_path, capsys):
    path = tmp_path / "run.npz"
    prefill = ("prefill", path_of("demo"), "-p", "Once upon a time there was a dog.", "--record", path, "-q")
    code, _, err = run_command(capsys, *prefill)
    assert code == 0, err
    run = routing.load(path)
    code, out, _ = run_command(capsys, "replay", path, "--json", "--arena", "10,50", "--sweep", "4", "--decode", "2")
    report = json.loads(out)
    assert code == 0 and (report["tokens"], report["experts"], report["decode"]) == (run.rows, EXPERTS, 2)
    found = {(r["policy"], r["slots"]): r for r in report["results"]}
    assert set(found) == set(itertools.product(replay.POLICIES, (38, 192)))
    want = replay.replay(run, "lru", 38, sweep=4, chunk=1024, decode=2)
    assert found["lru", 38]["prompt"] == {"lookups": want.prompt.lookups, "reads": want.prompt.reads}
    assert found["lru", 38]["decode"] == {"lookups": want.decode.lookups, "reads": want.decode.reads}

    code, out, _ = run_command(capsys, "replay", path, "--slots", "40")
    assert code == 0 and "belady" in out and "40 slots" in out and "decode" not in out
    assert run_command(capsys, "replay", path, "--arena", "0")[0] == 2
    assert run_command(capsys, *prefill[:-2], tmp_path / "none" / "x", "-q")[0] == 2
