"""Whatever is read when, by whom and in which order: the same bytes of logits and dumps.

The base of each model is one chunk, one sweep, one thread, nothing read ahead, everything fits; tests/engine compares
the numbers themselves with the goldens.
"""

import itertools
from functools import cache

import pytest
from engine_cases import ALL, Outcome, open_engine, prompt, run, some
from strata import _core

P300 = 300


@cache
def experts(name: str) -> tuple[int, int]:
    """The fewest slots that are accepted (one token's experts) and those of all experts."""
    engine = open_engine(name)
    found = engine.info["n_expert_used"], engine.info["experts_total"]
    engine.close()
    return found


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    @cache
    def make(name: str) -> Outcome:
        return run(
            name,
            prompt(name, P300),
            tmp_path_factory.mktemp("base"),
            prompt_chunk=4096,
            prompt_sweep=4096,
            threads=1,
            prompt_pred=-1,
            arena_slots=experts(name)[1],
        )

    return make


def check(base, name, folder, **knobs):
    got = run(name, prompt(name, P300), folder, **knobs)
    assert got.differs(base(name)) == "", f"{name} with {knobs}"
    return got.stats


def sums(stats: dict) -> None:
    assert stats["lookups"] == stats["resident"] + stats["ahead"] + stats["missed"]
    assert stats["issued"] == stats["used"] + stats["wasted"] + stats["cancelled"] + stats["pending"]


@pytest.mark.parametrize("name", ALL)
class TestEachAxis:
    @pytest.mark.parametrize("sweep", [1, 7, 64, 300])
    def test_sweep(self, base, name, sweep, tmp_path):
        stats = check(base, name, tmp_path, prompt_sweep=sweep, prompt_chunk=5)
        assert stats["sweeps"] == -(-P300 // sweep)
        sums(stats)

    @pytest.mark.parametrize("io_threads", [1, 2, 8])
    def test_io_threads(self, base, name, io_threads, tmp_path):
        least, total = experts(name)
        sums(check(base, name, tmp_path, io_threads=io_threads, prompt_sweep=64, arena_slots=max(least, total // 4)))

    @pytest.mark.parametrize("pred", [-1, 0, 1, 2])
    def test_guesses(self, base, name, pred, tmp_path):
        least, total = experts(name)
        slots = max(least, total // 3)
        stats = check(base, name, tmp_path, prompt_pred=pred, prompt_sweep=16, prompt_chunk=16, arena_slots=slots)
        sums(stats)
        if pred == -1:
            assert stats["ahead"] == stats["wasted"] == 0

    def test_smallest_arena_of_short_sweeps(self, base, name, tmp_path):
        least, _ = experts(name)
        sums(check(base, name, tmp_path, prompt_sweep=7, prompt_chunk=2, arena_slots=least))

    def test_buffered_reads(self, base, name, tmp_path):
        check(base, name, tmp_path, direct_io="off", prompt_sweep=64)

    def test_n_gram_rows_on_the_main_thread(self, base, name, tmp_path):
        check(base, name, tmp_path, ple_async=False, prompt_sweep=64)

    def test_delayed_and_short_reads(self, base, name, tmp_path, monkeypatch):
        """Reads end in a random order, a few bytes at a time."""
        least, total = experts(name)
        core_engine = _core.Engine
        faults = {"fault_delay_us": 400, "fault_short_reads": 3000}
        monkeypatch.setattr(_core, "Engine", lambda path, config: core_engine(path, config | faults))
        sums(check(base, name, tmp_path, prompt_sweep=64, prompt_chunk=16, arena_slots=max(least, total // 5)))


@pytest.mark.long
@pytest.mark.parametrize("name", ALL)
def test_whole_matrix(base, name, tmp_path):
    least, total = experts(name)
    cases = itertools.product(
        [1, 2, 5, 64, 256, 2048],
        [1, 7, 64, 300],
        [least, total // 3, total],
        [-1, 0, 1, 2],
        [1, 2, 8],
        [1, 2],
    )
    for chunk, sweep, slots, pred, io_threads, threads in some(cases, 24):
        check(
            base,
            name,
            tmp_path / "dump",
            prompt_chunk=chunk,
            prompt_sweep=sweep,
            arena_slots=slots,
            prompt_pred=pred,
            io_threads=io_threads,
            threads=threads,
        )


def test_run_to_run(base, tmp_path):
    for i in range(5):
        check(base, "demo", tmp_path / str(i), prompt_sweep=32, prompt_chunk=16, arena_slots=58)
